"""The task `insert`: the hole fits its peg, contact is stiff enough for it, and feeling tells."""

import dataclasses
import functools
import math

import mujoco
import numpy as np
import pytest
import torch

from envs.arm_env import ArmEnv
from envs.controllers import insertion, make_baseline
from envs.controllers.insert_constants import DEFAULTS
from envs.controllers.peg_contact import Feeling, find_walls
from envs.kinematics.rotations import from_vector, to_matrix, to_quaternion
from envs.robots import make_robot
from envs.simulation.disturbances import Disturbances
from envs.simulation.engines import make_engine
from envs.simulation.randomization import read_randomization
from envs.tasks.episodes import ScenePool
from envs.tasks.pegs import ROUND, SQUARE
from envs.tasks.registry import make_task

EXACT = {"offset": 0.0, "height_offset": 0.0, "tilt": 0.0, "yaw": 0.0}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Episodes drawn ahead are few, for speed."""
    monkeypatch.setattr(ScenePool, "BLOCK", 64)


@functools.cache
def make_arm(name):
    return make_robot(name)


def make_insert(robot="panda", num_envs=4, seed=0, name="insert", disturbances=None, **constants):
    """Make an environment of the task with some other constants."""
    task = dataclasses.replace(make_task(name), **constants)
    arm = make_arm(robot)
    engine = make_engine("mujoco", arm, task.dt, None, needs=task.physics)
    return ArmEnv(arm, task, num_envs, "cpu", seed, engine=engine, disturbances=disturbances)


def play(env, name):
    """Play each arm's first episode; return its last info, by name, and its greatest force."""
    policy = make_baseline(name, env)
    observation = env.reset(0)
    last = {}
    over = torch.zeros(env.num_envs, dtype=torch.bool)
    most = torch.zeros(env.num_envs)
    for _ in range(env.task.horizon):
        step = env.step(policy(observation))
        observation = step.observation
        most = torch.where(over, most, most.maximum(step.info["insert_force"]))
        last = {
            key: torch.where(over, last.get(key, step.info[key]), step.info[key])
            for key in ("success", "insert_depth", "touched")
        }
        over |= step.terminated | step.truncated
        if over.all():
            break
    return last, most


@pytest.mark.parametrize(("shape", "clearance"), [(SQUARE, 5e-4), (SQUARE, 1e-4), (ROUND, 5e-4)])
def test_a_hole_has_room_for_its_peg_and_no_more(shape, clearance):
    """By contacts of MuJoCo: none at less than the clearance from the axis, some beyond it."""
    env = make_insert(num_envs=1, shape=shape, radial_clearance=clearance)
    physics = env.engine.physics
    data = mujoco.MjData(physics.model)
    data.qpos[physics.q] = env.robot.home
    mujoco.mj_kinematics(physics.model, data)
    R = data.body("peg").xmat.reshape(3, 3)
    tip = data.body("peg").xpos + env.task.length / 2.0 * R[:, 2]
    quaternion = np.empty(4)
    mujoco.mju_mat2Quat(quaternion, (R @ np.diag([1.0, -1.0, -1.0])).ravel())
    first = physics.model.body("hole").mocapid[0]

    def count(x, y, depth):
        """Count the contacts of peg and hole, the tip at (x, y) and so deep in the hole."""
        data.mocap_pos[first] = tip - R @ np.array([x, -y, depth])
        data.mocap_quat[first] = quaternion
        mujoco.mj_forward(physics.model, data)
        geoms = [geom for contact in data.contact for geom in contact.geom]
        return [physics.model.geom(geom).name.split("/")[0] for geom in geoms].count("hole")

    inside = env.task.depth - 5e-4
    for x, y in ((0.0, 0.0), (0.9, 0.0), (0.0, -0.9), (-0.6, 0.6)):
        assert count(x * clearance, y * clearance, inside) == 0
    for x, y in ((1.1, 0.0), (-1.1, 0.0), (0.0, 1.1), (0.0, -1.1)):
        assert count(x * clearance, y * clearance, inside) > 0
    # the bevel: a peg that is so far aside enters as deep as its slope allows
    room = clearance + 0.5 * env.task.chamfer
    assert count(room, 0.0, 0.4 * env.task.chamfer) == 0
    assert count(room, 0.0, 0.7 * env.task.chamfer) > 0
    assert count(0.0, 0.0, env.task.depth + 1e-4) > 0  # the bottom


@pytest.mark.parametrize(
    ("clearance", "stiffness", "share"),
    [(5e-4, 0.008, 0.25), (1e-4, 0.004, 0.25), (1e-4, 0.0057, 0.65)],
)
def test_pressed_contact_gives_way_by_less_than_the_clearance(clearance, stiffness, share):
    """At every force up to the limit; otherwise a peg could sink through what it should find."""
    env = make_insert(num_envs=3, radial_clearance=clearance, stiffness=stiffness, **EXACT)
    scene = env.scene["hole"].clone()
    scene[:, :2] += torch.tensor([[0.004, 0.0], [0.003, 0.003], [0.006, 0.0]])
    env.now = dataclasses.replace(env.now, scene={**env.scene, "hole": scene})
    down = torch.tensor([0.0, 0.0, -0.01, 0.0, 0.0, 0.0])
    forces = []
    depths = []
    for _ in range(40):
        qd = (torch.linalg.pinv(env.now.J) @ down[:, None])[:, :, 0]
        env.step(qd / env.model.qdlim / env.task.speed)
        forces.append(env.arrived.scene["contact_forces"][:, 0])
        depths.append(env.arrived.scene["contact_depths"][:, 0])
    force = torch.stack(forces)
    depth = torch.stack(depths)
    pressed = (force > 1.0) & (force <= env.task.force_limit)
    assert force.max() > env.task.force_limit and pressed.sum() > 5
    assert depth[pressed].max() < share * env.task.radial_clearance


@pytest.mark.parametrize("robot", ["panda", "ur5e"])
@pytest.mark.parametrize("shape", [SQUARE, ROUND])
def test_where_the_place_is_exact_straight_down_is_enough(robot, shape):
    env = make_insert(robot, num_envs=2, shape=shape, **EXACT)
    last, most = play(env, "insert_straight")
    assert last["success"].all() and not last["touched"].any() and (most < 60.0).all()
    assert (last["insert_depth"] > 0.015).all()


def test_what_is_assumed_is_off_by_up_to_what_the_constants_say():
    env = make_insert(num_envs=1)
    task = env.task
    scene = task.sample_scenes(env.world, 512, torch.Generator().manual_seed(0))
    T = to_matrix(scene["goal"][:, 3:])
    mouth = scene["goal"][:, :3] + (task.reach - task.depth) * T[:, :, 2]
    off = ((scene["hole"][:, :3] - mouth)[:, :, None] * T).sum(1).abs()
    most = torch.tensor([task.offset, task.offset, task.height_offset])
    assert len(off) > 200 and (off <= most + 1e-6).all() and (off.amax(0) > 0.9 * most).all()
    out = to_matrix(scene["hole"][:, 3:])[:, :, 2]
    lean = torch.acos((-out * T[:, :, 2]).sum(1).clamp(-1.0, 1.0))
    assert 0.5 * task.tilt < lean.max() <= task.tilt + 1e-3
    low, high = task.friction
    friction = scene["hole_friction"]
    assert low <= friction.min() < low + 0.05 and high - 0.05 < friction.max() <= high


def test_the_spiral_finds_what_straight_down_does_not():
    env = make_insert(num_envs=8, tilt=0.0, yaw=0.0)
    straight, _ = play(env, "insert_straight")
    spiral, _ = play(env, "insert_spiral")
    assert spiral["success"].sum() > straight["success"].sum() + 1


def test_a_tilted_peg_finds_a_hole_that_the_spiral_does_not_reach():
    """Six millimetres beside where it is assumed, in each of four directions."""
    far = {}
    for name in ("insert_spiral", "insert_tilted"):
        env = make_insert(num_envs=4, **EXACT)
        env.reset(0)
        hole = env.scene["hole"].clone()
        hole[:, :2] += torch.tensor([[6e-3, 0.0], [-6e-3, 0.0], [0.0, 6e-3], [0.0, -6e-3]])
        env.now = dataclasses.replace(env.now, scene={**env.scene, "hole": hole})
        policy = make_baseline(name, env)
        over = torch.zeros(4, dtype=torch.bool)
        found = torch.zeros(4, dtype=torch.bool)
        most = torch.zeros(4)
        observation = env.task.observe(env.world, env.moment)
        for _ in range(env.task.horizon - 1):
            step = env.step(policy(observation))
            observation = step.observation
            most = torch.where(over, most, most.maximum(step.info["insert_force"]))
            found |= step.info["success"] & ~over
            over |= step.terminated
        far[name] = (found, most)
    found, force = far["insert_tilted"]
    assert found.all() and (force < env.task.force_limit).all()
    assert not far["insert_spiral"][0].all()


def test_a_peg_in_a_tight_hole_takes_over_its_turn():
    """A degree turns the corners by 0.14 mm, more than the clearance; who holds the turn jams."""
    task = make_task("insert_tight")
    assert task.radial_clearance < 0.5 * task.width * task.yaw < 0.0005
    depth = {}
    for name, constants in (("yields", task.program), ("holds", DEFAULTS)):
        env = make_insert(name="insert_tight", num_envs=2, **EXACT)
        env.reset(0)
        hole = env.scene["hole"].clone()
        for row, sign in enumerate((1.0, -1.0)):
            vector = torch.tensor([[0.0, 0.0, sign * task.yaw]])
            turned = to_matrix(hole[row : row + 1, 3:]) @ to_matrix(from_vector(vector))
            hole[row, 3:] = to_quaternion(turned)[0]
        env.now = dataclasses.replace(env.now, scene={**env.scene, "hole": hole})
        policy = insertion.InsertTilted(env, constants)
        observation = env.task.observe(env.world, env.moment)
        reached = torch.zeros(2)
        over = torch.zeros(2, dtype=torch.bool)
        for _ in range(env.task.horizon - 1):
            step = env.step(policy(observation))
            observation = step.observation
            reached = torch.where(over, reached, step.info["insert_depth"])
            over |= step.terminated
        depth[name] = reached
    assert (depth["yields"] > 0.015).all() and (depth["holds"] < 0.015).all()


def test_within_a_latency_a_peg_in_a_tight_hole_yields_by_less_than_its_play():
    """Else it strikes from wall to wall, since what it feels is late."""
    task = make_task("insert_tight")
    play = 2.0 * task.radial_clearance
    latency = read_randomization("lab").latency
    force = torch.tensor([[80.0, -80.0, -5.0]])
    none = torch.zeros(1)
    deep = none + 0.01
    zero = force * 0.0
    after = none + 1.0
    felt = Feeling(zero[:, :2], none, zero, none, force, force, after, deep, after, 0.02)
    twist = insertion.compute_tilted(felt, task.program)[0]
    assert 0.0 < twist[0] == -twist[1] and twist[0] * latency < play
    corner = 0.5 * math.sqrt(2.0) * task.width
    assert 0.0 < twist[3] == -twist[4] and twist[3] * latency * corner < play
    untamed = insertion.compute_tilted(felt, DEFAULTS)[0]
    assert untamed[0] * latency > play


def test_a_peg_is_turned_upright_only_where_two_walls_hold_it():
    """One wall, friction on the surface and a peg that has not fallen are no walls."""
    constants = DEFAULTS
    enough = -1.1 * constants.held * constants.lean
    deep = 1.1 * constants.fallen
    cases = [
        (enough, enough, deep, True),
        (enough, 0.0, deep, False),
        (0.0, enough, deep, False),
        (enough, enough, 0.0, False),
        (-enough, enough, deep, False),
    ]
    force = torch.tensor([[x, y, -9.0] for x, y, *_ in cases])
    sunk = torch.tensor([depth for _, _, depth, _ in cases])
    none = torch.zeros(len(cases))
    aside = force[:, :2]
    searched = none + 1.0
    felt = Feeling(aside, none, force, none, force, force, searched, sunk, none, 0.02)
    assert find_walls(felt).tolist() == [held for *_, held in cases]
    seconds = torch.tensor([0.0, constants.held_for, constants.held_for + 10.0])
    assert insertion.compute_turned_share(seconds).tolist() == [0.0, 0.0, 1.0]


def test_critics_see_where_the_hole_truly_is():
    """By hand: the tip over, beside and in a hole that stands upright in the world."""
    env = make_insert(num_envs=3, **EXACT)
    moment = env.now
    tip = moment.tcp + env.task.reach * moment.T_be[:, :3, 2]
    off = torch.tensor([[0.0, 0.0, 0.01], [0.005, 0.0, 0.0], [0.0, -0.005, -0.015]])
    upright = torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(3, 4)
    scene = {**moment.scene, "hole": torch.cat((tip - off, upright), 1)}
    env.now = dataclasses.replace(moment, scene={**scene, "hole_friction": off[:, 2] + 0.3})
    told = env.privileged()
    assert told.shape == (3, env.privileged_dim)
    assert torch.allclose(told[:, :3], off / 0.005, atol=1e-4)
    assert torch.allclose(told[:, 3:5], moment.T_be[:, :2, 2] / 0.1, atol=1e-5)
    assert torch.equal(told[:, 5], off[:, 2] + 0.3)


def test_with_another_goal_the_hole_is_there_with_the_same_error():
    env = make_insert()
    own = env.task.replace_goal(env.world, env.moment, env.goal)
    torch.testing.assert_close(own.scene["hole"], env.scene["hole"], atol=1e-6, rtol=0)
    before = env.memory()
    still = torch.zeros(4, env.a_dim)
    assert not env.step(still).terminated.any()
    after = env.memory(arrived=True)
    achieved = env.achieved_goal(after)  # the peg is at the bottom of that hole
    seen, reward, ended = env.relabel(before, still, after, achieved)[1:]
    assert (seen[:, env.layout["height"]] * 0.005 + env.task.depth).abs().amax() < 1e-5
    assert ended.all() and (reward > 0.0).all()
    lower = achieved - torch.tensor([0.0, 0.0, 0.01, 0.0, 0.0, 0.0, 0.0])
    assert not env.relabel(before, still, after, lower)[3].any()


def test_too_much_force_ends_an_episode_and_is_no_success():
    env = make_insert(num_envs=2, **EXACT)
    scene = env.scene["hole"].clone()
    scene[:, 0] += 0.006
    env.now = dataclasses.replace(env.now, scene={**env.scene, "hole": scene})
    down = torch.tensor([0.0, 0.0, -0.05, 0.0, 0.0, 0.0])
    for _ in range(20):
        qd = (torch.linalg.pinv(env.now.J) @ down[:, None])[:, :, 0]
        step = env.step(qd / env.model.qdlim / env.task.speed)
        if step.terminated.any():
            break
    row = int(step.terminated.nonzero()[0])
    assert step.info["insert_force"][row] > env.task.force_limit
    assert step.info["touched"][row] and not step.info["success"][row]


def test_a_policy_without_force_sees_all_but_what_is_felt():
    seen, blind = (make_insert(num_envs=2, shows_force=shown) for shown in (True, False))
    names = [column.name for column in seen.layout.columns]
    rest = [name for name in names if name not in ("force", "moment")]
    assert [column.name for column in blind.layout.columns] == rest
    for name in rest:
        assert torch.equal(
            blind.task.observe(blind.world, blind.moment)[:, blind.layout[name]],
            seen.task.observe(seen.world, seen.moment)[:, seen.layout[name]],
        )


def test_servos_are_as_soft_as_the_task_asks_for():
    """Those of the arm, in proportion; the fingers hold as before."""
    stiff, soft = (
        make_insert(num_envs=1, servo_stiffness=share, servo_damping=share).engine.physics.drives
        for share in (1.0, 0.25)
    )
    for name in ("stiffness", "damping"):
        plain = getattr(stiff, name)
        asked = getattr(soft, name)
        assert asked[:7] == pytest.approx(0.25 * plain[:7])
        assert asked[7] == plain[7]


def test_a_peg_remembers_its_first_contact_whatever_the_height_was_assumed_to_be():
    """A surface 3 mm lower than assumed, away from the hole, is found, and is not taken for it."""
    env = make_insert(num_envs=2, **EXACT)
    scene = env.scene["hole"].clone()
    scene[:, :3] += torch.tensor([0.012, 0.0, -0.003])
    env.now = dataclasses.replace(env.now, scene={**env.scene, "hole": scene})
    policy = make_baseline("insert_spiral", env)
    observation = env.task.observe(env.world, env.moment)
    for _ in range(40):
        before = env.now.tcp[:, 2]
        step = env.step(policy(observation))
        observation = step.observation
        memory = env.moment.scene
        began = memory["searched"] > 0.0
        assert (memory["sunk"][~began] == 0.0).all()
        assert not step.terminated.any() and (step.info["insert_force"] < 60.0).all()
    assert began.all() and (memory["sunk"].abs() < 5e-4).all()
    assert (before - env.now.tcp[:, 2]).abs().max() < 1e-3


def test_a_first_contact_is_remembered_as_it_is_felt():
    """A sensor that is off tells of a contact in free air, and then the search begins there."""
    env = make_insert(num_envs=8, disturbances=Disturbances(force_bias=10.0, force_noise=1.0))
    env.step(torch.zeros(8, env.a_dim))
    pressed = env.task.feel(env.moment).press > 1.5
    assert pressed.any() and not pressed.all()
    for moment in (env.now, env.moment):
        assert torch.equal(moment.scene["searched"] > 0.0, pressed)
    assert not env.now.wrench.any()
