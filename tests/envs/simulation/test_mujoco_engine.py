"""Laws of contact physics behind the engine's Protocol: what moves, what holds, and what a world
depends on.
"""

import dataclasses

import mujoco
import pytest
import torch

from envs.kinematics import fkine, jacob0
from envs.kinematics.pointing_down import solve_pointing_down
from envs.simulation import kinematic
from envs.simulation.engine import Command, make_rest_state
from envs.simulation.grasp import compute_hand_axes

G = 9.81


class Arms:
    """B arms of a lab, and the steps that they take; cubes lie in front of them, turned as their
    hands are.
    """

    def __init__(self, lab, q=None, cube=(0.5, 0.0, 0.02), count=1):
        self.lab = lab
        self.model = lab.model
        self.engine = lab.engine
        q = (
            torch.as_tensor(lab.robot.home, dtype=torch.float32).repeat(count, 1)
            if q is None
            else q
        )
        self.state = make_rest_state(self.model, q)
        across = compute_hand_axes(self.model.hand, fkine(self.model.chain, q))[:, :, 1]
        place = torch.tensor(cube).expand(len(q), 3).contiguous()
        scene = {"object": place, "held": torch.zeros(len(q), dtype=torch.bool)}
        scene["yaw"] = torch.atan2(across[:, 1], across[:, 0])
        self.scene = self.engine.begin(self.model, self.state, scene)

    @classmethod
    def at_cube(cls, lab, up=0.0):
        """Pointing down, the open hand around the cube, or so much higher [m]."""
        x = float(lab.robot.workspace[:, 0].mean())
        home = torch.as_tensor(lab.robot.home, dtype=torch.float32)[None]
        hand = lab.model.hand
        place = torch.tensor([[x, 0.0, max(hand.half, hand.tip + 0.01) + up]])
        q, reached = solve_pointing_down(
            lab.model.chain, lab.model.qlim, hand.axes[:, 2], home, place
        )
        assert reached.all()
        return cls(lab, q, (x, 0.0, 0.02))

    def go(self, steps, joints=None, grip=None):
        """The same command for some control periods."""
        joints = torch.zeros_like(self.state.q) if joints is None else joints
        grip = None if grip is None else torch.full_like(self.state.gripper, grip)
        for _ in range(steps):
            self.state, self.scene = self.engine.step(
                self.model, self.state, Command(joints, grip), self.scene
            )

    def lift(self, speed, steps):
        """Straight up, shut [m/s]."""
        for _ in range(steps):
            twist = torch.tensor([0.0, 0, speed, 0, 0, 0])
            qd = torch.linalg.pinv(jacob0(self.model.chain, self.state.q)) @ twist
            self.go(1, qd / self.model.qdlim, 0.0)

    @property
    def cube(self):
        return self.scene["object"]

    @property
    def cube_in_hand(self):
        """(B, 3)."""
        T_be = fkine(self.model.chain, self.state.q)
        return ((self.cube - T_be[:, :3, 3])[:, None] @ T_be[:, :3, :3])[:, 0]


def test_a_servo_holds_its_arm(lab):
    arms = Arms(lab)
    start = arms.state.q
    arms.go(40)
    assert (arms.state.q - start).abs().max() < 1e-5 and arms.state.qd.abs().max() < 1e-5


def test_no_joint_is_driven_over_its_limit(lab):
    for sign in (1.0, -1.0):
        arms = Arms(lab)
        n = lab.robot.n
        for joint in range(n - 1, n):  # the last turns the hand alone, which runs into nothing
            arms.go(100, sign * torch.eye(n)[joint : joint + 1])
            over = (arms.state.q - lab.model.qlim[1]).maximum(lab.model.qlim[0] - arms.state.q)
            assert over.max() < 1e-3


def test_stiff_servos_and_no_contact_are_the_kinematic_engine(lab):
    """Where nothing touches, the engines differ by what the servos are behind."""
    arms = Arms(lab)
    state = arms.state
    command = torch.linspace(-0.4, 0.4, lab.robot.n)[None]
    for _ in range(10):
        arms.go(1, command)
        state = kinematic.step(lab.model, state, command)
        torch.testing.assert_close(arms.state.q, state.q, atol=1e-3, rtol=0)
        torch.testing.assert_close(arms.state.qd, state.qd, atol=2e-2, rtol=0)
    assert arms.scene["contact_depth"].item() == 0.0


def test_a_free_cube_falls_at_g_and_loses_no_energy(panda_lab):
    arms = Arms(panda_lab, cube=(0.5, 0.4, 1.5))
    arms.go(8)
    # h g t / 2 is the integrator's, of first order
    t = 0.4
    h = panda_lab.engine.physics.model.opt.timestep
    assert arms.cube[0, 2].item() == pytest.approx(1.5 - G * t * (t + h) / 2, abs=1e-4)
    torch.testing.assert_close(arms.cube[0, :2], torch.tensor([0.5, 0.4]))
    p = panda_lab.engine.physics
    speed = arms.scene["physics"][0, 1 + p.model.nq + p.model.nv - 4].item()
    assert speed == pytest.approx(-G * 0.4, rel=1e-3)  # momentum, and so energy


def test_a_cube_rests_on_the_table(panda_lab):
    arms = Arms(panda_lab, cube=(0.5, 0.4, 0.05))
    arms.go(20)
    assert arms.cube[0].tolist() == pytest.approx([0.5, 0.4, 0.02], abs=1e-4)


def test_what_is_grasped_stays_and_what_is_let_go_falls(lab):
    arms = Arms.at_cube(lab)
    arms.go(20, grip=0.0)
    assert arms.scene["held"].all() and arms.state.gripper.item() != pytest.approx(
        lab.model.gripper_stroke[0], abs=1e-3
    )
    arms.lift(0.1, 20)
    arms.go(10, grip=0.0)
    assert arms.cube[0, 2] > 0.1
    before = arms.cube_in_hand
    slip = 0.0
    for _ in range(20):  # 5 s
        arms.go(5, grip=0.0)
        slip = max(slip, (arms.cube_in_hand - before).norm().item())
    assert slip < 1e-4 and arms.scene["held"].all()
    assert arms.scene["contact_force"].item() == 0.0  # what it grasps does not count
    height = arms.cube[0, 2].item()
    while arms.scene["held"].any():
        arms.go(1, grip=1.0)
    arms.go(1, grip=1.0)
    falling = arms.cube[0, 2].item()
    arms.go(1, grip=1.0)
    v = (height - falling) / 0.05
    assert (
        falling < height and arms.cube[0, 2].item() < falling - G * 0.05**2 / 2 + 1e-3 and v < 2.0
    )


def test_pads_that_pinch_a_cube_s_upper_edge_do_not_hold_it(lab):
    """Pressed by both, but 5 mm of it are between them, half of what a grasp takes without physics
    too.
    """
    hand = lab.model.hand
    arms = Arms.at_cube(lab, up=hand.tip + 2 * hand.half - 0.005 - max(hand.half, hand.tip + 0.01))
    for _ in range(20):
        arms.go(1, grip=0.0)
        assert not arms.scene["held"].any()
    # the cube is in between
    assert arms.state.gripper.item() != pytest.approx(lab.model.gripper_stroke[0], abs=1e-3)


def test_fingers_do_not_pass_through_the_cube_or_the_table(lab):
    arms = Arms.at_cube(lab)
    arms.go(20, grip=0.0)
    model = lab.engine.physics.model
    data = mujoco.MjData(model)
    mujoco.mj_setState(
        model, data, arms.scene["physics"][0].numpy(), mujoco.mjtState.mjSTATE_FULLPHYSICS
    )
    mujoco.mj_forward(model, data)
    assert data.ncon and min(contact.dist for contact in data.contact) > -1e-3
    arms.lift(-0.1, 20)  # onto the table
    assert (
        0.0 < arms.scene["contact_depth"].item() < 3e-3 and arms.scene["contact_force"].item() > 1.0
    )


def test_an_arm_that_is_held_up_stores_nothing(panda_lab):
    """Pressed on the table for two seconds, it comes off at once."""
    arms = Arms.at_cube(panda_lab)
    arms.lift(-0.1, 40)
    arms.lift(0.1, 4)
    arms.go(1, grip=0.0)
    assert arms.scene["contact_force"].item() == 0.0


def test_worlds_are_repeatable_and_do_not_affect_one_another(panda_lab):
    generator = torch.Generator().manual_seed(0)
    commands = torch.rand(6, 3, panda_lab.robot.n, generator=generator) * 2 - 1

    def run(rows):
        arms = Arms(panda_lab, count=len(rows))
        for command in commands:
            arms.go(1, command[rows], 0.0)
        return arms

    together = run([0, 1, 2])
    again = run([0, 1, 2])
    alone = run([1])
    assert torch.equal(together.scene["physics"], again.scene["physics"])
    assert torch.equal(together.scene["physics"][1], alone.scene["physics"][0])


def test_what_cannot_be_is_stopped_and_counted(panda_lab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo leaves a note of it there
    arms = Arms(panda_lab, count=2)
    broken = arms.scene["physics"].clone()
    broken[0, 1 + panda_lab.engine.physics.model.nq] = 1e7  # [rad/s]
    arms.scene = {**arms.scene, "physics": broken}
    counted = panda_lab.engine.unstable
    arms.go(1)
    assert arms.scene["unstable"].tolist() == [1, 0] and panda_lab.engine.unstable == counted + 1
    assert torch.isfinite(arms.state.q).all() and arms.state.qd[0].abs().max() == 0.0
    arms.go(2)
    assert arms.scene["unstable"].tolist() == [1, 0]


def test_what_is_given_stays_as_it_was(panda_lab):
    arms = Arms(panda_lab)
    before = {name: x.clone() for name, x in arms.scene.items()}
    scene = arms.scene
    state = dataclasses.replace(arms.state)
    arms.go(1, torch.ones(1, panda_lab.robot.n), 0.0)
    assert (
        all(torch.equal(scene[name], x) for name, x in before.items())
        and torch.isfinite(state.q).all()
    )
