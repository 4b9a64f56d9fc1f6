"""A task from outside the package that brings bodies, feels contact and has a program of its own."""

import dataclasses
import importlib.util
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import envs
from envs.arm_env.fingerprint import env_fingerprint
from envs.config.env_options import EnvOptions
from envs.controllers import make_baseline, register_controller
from envs.evaluation.evaluation import Evaluation
from envs.simulation.bodies import AllowedContact, Body, Geom, PhysicsSpec
from envs.simulation.disturbances import Disturbances
from envs.simulation.variation import Variation
from envs.tasks.registry import make_task
from envs.view.playback import play_episodes
from tests.support import get_refusal

SOURCE = '''
"""Press a probe onto a block that stands somewhere near, by feel."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from envs import kinematics
from envs.controllers import register_controller
from envs.simulation.bodies import AllowedContact, Body, Geom, PhysicsSpec
from envs.simulation.engine import batched_o
from envs.tasks.layout import Column, arm_columns
from envs.tasks.measures import Measure
from envs.tasks.registry import register_task
from envs.tasks.shapes import make_body_shapes
from envs.tasks.task import Outcome, Task


@register_task("press", constants=Path(__file__).with_suffix(".yaml"))
@dataclass(frozen=True)
class Press(Task):
    tip: Literal["round", "flat"]
    block: tuple[float, float, float]
    wanted: float
    most: float

    engines = ("mujoco",)
    controllers = ("press",)
    memory_keys = ("goal", "wrench")
    measures = (Measure("press_n", "press", "most", "most", "force on the block", "N"),)

    @property
    def physics(self):
        tip = Geom("sphere", (0.01,)) if self.tip == "round" else Geom("cylinder", (0.01, 0.01))
        return PhysicsSpec(
            bodies=(
                Body("probe", (tip,), "held", position=(0.0, 0.0, 0.03), mass=0.05),
                Body("block", (Geom("box", self.block),), "placed", varied=("friction",)),
                Body("ball", (Geom("sphere", (0.02,)),), "free", mass=0.2, varied=("mass",)),
            ),
            contacts=(AllowedContact("probe", "block", self.most), AllowedContact("ball", "table")),
            senses=("wrench", "joint_torque"),
            constants={"timestep": 0.001},
        )

    def sample_scenes(self, world, count, generator):
        count = min(count, 64)
        draw = torch.rand(count, 3, generator=generator)
        home = kinematics.fkine(world.model.chain, world.home[None])[0, :3, 3]
        low = home[2] - 0.04 - self.block[2] - 0.01 * (1.0 + draw[:, 0])
        still = torch.tensor([1.0, 0.0, 0.0, 0.0]).repeat(count, 1)
        block = torch.cat((home[:2].repeat(count, 1), low[:, None], still), 1)
        ball = torch.cat((torch.tensor([[0.3, 0.5, 0.02]]).repeat(count, 1), still), 1)
        return {"goal": block[:, :3].clone(), "block": block, "ball": ball,
                "block_friction": 0.2 + draw[:, 1], "ball_mass": 0.1 + draw[:, 2],
                "start": world.home.repeat(count, 1)}

    def list_columns(self, world):
        return [*arm_columns(world), Column("wrench", 6)]

    def observe(self, world, moment):
        own = (batched_o(world.model, moment.state), moment.state.qd)
        return torch.cat((*own, moment.wrench / 10.0), 1)

    def compute_outcome(self, world, moment, action):
        force = moment.wrench[:, 2]
        error = (force - self.wanted).abs()
        press = moment.scene["contact_forces"][:, 0]
        return Outcome(error < 5.0, error / 1000.0, {"force": -error}, {"press": press})

    def achieved_goal(self, world, moment):
        return moment.scene["goal"]

    def make_shapes(self, world, moment):
        return make_body_shapes(self.physics, moment)


@register_controller("press")
class PressController:
    """Down until the wanted force is felt."""

    def __init__(self, env):
        self.env = env

    def __call__(self, observation):
        env = self.env
        lack = env.task.wanted - 10.0 * observation[:, -4]
        twist = torch.zeros(len(lack), 6)
        twist[:, 2] = -(lack / 1000.0).clamp(-0.01, 0.01)
        J = env.moment.J
        return (torch.linalg.pinv(J) @ twist[:, :, None])[:, :, 0] / env.model.qdlim
'''
CONSTANTS = """
dt: 0.05
horizon: 80
start_spread: 0.0
tolerance: 0.005
tip: round
block: [0.05, 0.05, 0.04]
wanted: 20.0
most: 60.0
"""


@pytest.fixture(scope="module", autouse=True)
def press(tmp_path_factory):
    """The task's two files outside the package, the first of them imported."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "press.py").write_text(SOURCE)
    (folder / "press.yaml").write_text(CONSTANTS)
    spec = importlib.util.spec_from_file_location("press", folder / "press.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["press"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["press"]


@pytest.fixture(scope="module")
def env():
    return envs.make("panda", "press", 6, seed=1, engine="mujoco")


def test_its_program_presses_by_what_it_feels(env):
    """Blocks stand at other heights in each episode; the program knows none of them."""
    policy = make_baseline("press", env)
    observation = env.reset(3)
    assert len({round(z, 4) for z in env.scene["block"][:, 2].tolist()}) == 6
    for _ in range(env.task.horizon):
        step = env.step(policy(observation))
        observation = step.observation
    assert step.info["success"].all()
    assert ((step.info["press"] > 15.0) & (step.info["press"] < 60.0)).all()


def test_two_sensors_agree(env):
    """Joint torques, the model's minus the motors', are J^T of the wrench at the TCP."""
    policy = make_baseline("press", env)
    observation = env.reset(4)
    for _ in range(70):
        observation = env.step(policy(observation)).observation
    now = env.now
    expected = (now.J.mT @ now.wrench[:, :, None])[:, :, 0]
    assert expected.abs().max() > 5.0
    torch.testing.assert_close(now.joint_torque, expected, atol=0.3, rtol=0.02)
    # the block presses the probe up with what the contact's sensor measures
    press = env.scene["contact_forces"][:, 0]
    torch.testing.assert_close(now.wrench[:, :3].norm(dim=1), press, atol=1.5, rtol=0.05)


def test_more_force_than_allowed_is_no_success(env):
    env.reset(5)
    touched = torch.zeros(6, dtype=torch.bool)
    J = env.moment.J
    down = (torch.linalg.pinv(J) @ torch.tensor([0, 0, -0.05, 0, 0, 0.0])[:, None])[:, :, 0]
    for _ in range(20):
        step = env.step(down / env.model.qdlim)
        over = env.arrived.scene["contact_forces"][:, 0] > 60.0
        touched |= over
        assert torch.equal(env.arrived.scene["touched"], touched)
    assert touched.all() and not step.info["success"].any()
    assert (env.arrived.scene["contact_depth"] == 0.0).all()  # none of it was forbidden


def test_what_is_not_allowed_is_contact():
    """The same contact, but the task does not allow it."""
    task = make_task("press")
    cls = type(task)

    class Forbidden(cls):
        @property
        def physics(self):
            allowed = super().physics
            return dataclasses.replace(allowed, contacts=allowed.contacts[1:])

    from envs.arm_env import ArmEnv
    from envs.simulation.engines import make_engine

    robot = envs.make_robot("panda")
    strict = Forbidden(**dataclasses.asdict(task))
    engine = make_engine("mujoco", robot, task.dt, None, needs=strict.physics)
    env = ArmEnv(robot, strict, 2, "cpu", 0, engine=engine)
    policy = make_baseline("press", env)
    observation = env.reset(3)
    for _ in range(70):
        observation = env.step(policy(observation)).observation
    assert env.scene["touched"].all()


def test_bodies_differ_between_episodes(env):
    env.reset(7)
    for _ in range(2):
        env.step(torch.zeros(6, 7))
    models = env.engine._varied._models
    friction = [model.geom("block/0").friction[0] for model in models[:6]]
    mass = [model.body("ball").mass[0] for model in models[:6]]
    torch.testing.assert_close(
        torch.tensor(friction), env.scene["block_friction"].double(), atol=1e-6, rtol=0
    )
    torch.testing.assert_close(
        torch.tensor(mass), env.scene["ball_mass"].double(), atol=1e-6, rtol=0
    )
    # the free ball lies on the table
    torch.testing.assert_close(env.scene["ball"][:, 2], torch.full((6,), 0.02), atol=1e-4, rtol=0)


def test_sensors_have_bias_and_noise():
    """What is observed is off by a bias that stays and noise that does not; what is true is not."""
    given = Disturbances(force_bias=2.0, force_noise=0.5, torque_noise=0.1)
    env = envs.make("panda", "press", 64, seed=0, engine="mujoco", disturbances=given)
    felt = torch.stack([env.step(torch.zeros(64, 7)).observation[:, -6:] for _ in range(12)]) * 10.0
    assert (env.now.wrench == 0).all()
    assert felt[..., :3].mean(0).std() == pytest.approx(2.0, rel=0.15)
    assert (felt - felt.mean(0))[..., :3].std() == pytest.approx(0.5, rel=0.1)
    assert felt[..., 3:].std() == pytest.approx(0.1, rel=0.1)


def test_randomised_physics_scale_its_friction():
    varied = Disturbances(physics=Variation(friction=(0.5, 0.5)))
    env = envs.make("panda", "press", 2, seed=0, engine="mujoco", disturbances=varied)
    env.step(torch.zeros(2, 7))
    friction = [model.geom("block/0").friction[0] for model in env.engine._varied._models]
    torch.testing.assert_close(
        torch.tensor(friction), 0.5 * env.scene["block_friction"].double(), atol=1e-6, rtol=0
    )


def test_a_state_restores_it(env):
    env.reset(2)
    state = env.state_dict()
    action = torch.full((6, 7), 0.05)
    first = [env.step(action).observation for _ in range(3)][-1]
    env.load_state_dict(state)
    assert torch.equal([env.step(action).observation for _ in range(3)][-1], first)


def test_it_is_evaluated_and_drawn():
    made = Evaluation(EnvOptions(task="press", engine="mujoco"), episodes=4)
    made.add_baseline("press")
    summary = made.play(keep=True)["press"]
    assert summary["success_rate"] == 1.0
    assert (
        15.0
        < summary["press_n"]["median"]
        <= summary["press_n"]["p95"]
        <= summary["press_n"]["max"]
    )
    made.print_table()
    one = envs.make("panda", "press", 1, engine="mujoco")
    frames = next(play_episodes(make_baseline("press", one), one, seed=0))
    kinds = [shape.kind for shape in frames[-1].shapes]
    assert kinds == ["sphere", "box", "sphere"]
    probe = frames[-1].shapes[0].T_bs
    assert abs(probe[2, 3] - one.tcp[0, 2]) < 0.06


def test_constants_are_words_and_lists(monkeypatch):
    task = make_task("press")
    assert (task.tip, task.block) == ("round", (0.05, 0.05, 0.04))
    assert env_fingerprint(envs.make("panda", "press", engine="mujoco"))["task"]["tip"] == "round"
    path = Path(sys.modules["press"].__file__).with_suffix(".yaml")
    for old, new, said in (
        ("tip: round", "tip: rund", "unknown tip of task 'press' 'rund'; did you mean 'round'"),
        ("[0.05, 0.05, 0.04]", "[0.05]", "task 'press': block must be a list of 3, got [0.05]"),
        ("[0.05, 0.05, 0.04]", "0.05", "task 'press': block must be a list, got 0.05"),
        ("[0.05, 0.05, 0.04]", "[a, b, c]", "task 'press': block must be numbers, got 'a'"),
    ):
        path.write_text(CONSTANTS.replace(old, new))
        assert get_refusal(make_task, "press").startswith(said)
    path.write_text(CONSTANTS)


def test_it_is_refused_on_an_engine_without_forces():
    refusal = get_refusal(envs.make, "panda", "press")
    assert refusal == "task 'press' cannot be done on engine 'kinematic'; it needs --engine mujoco"


def test_wrong_needs_are_refused_by_name():
    box = Geom("box", (0.1, 0.1, 0.1))
    assert "3 positive sizes" in get_refusal(Geom, "box", (0.1,))
    assert "kind of geom" in get_refusal(Geom, "cone", (0.1,))
    assert "motion of body 'a'" in get_refusal(Body, "a", (box,), "flying")
    assert "name of its own" in get_refusal(Body, "table", (box,))
    assert "there twice" in get_refusal(PhysicsSpec, (Body("a", (box,)), Body("a", (box,))))
    assert "'b'" in get_refusal(PhysicsSpec, (Body("a", (box,)),), (AllowedContact("a", "b"),))
    assert "sense" in get_refusal(PhysicsSpec, senses=("smell",))
    assert "is there already" in get_refusal(register_controller("rrmc"), type("Mine", (), {}))


def test_its_policy_is_exported_and_feels(env, tmp_path):
    """What is felt is an input of the file; the physics behind it is none."""
    from td3_robot.commands.export import write_policy
    from td3_robot.deploy import Policy
    from td3_robot.deploy.arm import Reading
    from td3_robot.deploy.runtime.policy_worker import PolicyProcess

    network = torch.nn.Sequential(torch.nn.Linear(env.o_dim, 7), torch.nn.Tanh())
    path = tmp_path / "policy.onnx"
    write_policy(path, env, "press", network)
    policy = Policy.load(path)
    assert policy.scene == {"wrench": (6,)}
    assert "moment, Nm, on the gripper" in policy.metadata["inputs"]["wrench"]
    q = policy.robot.home
    free, pressed = (policy(q, 0.0 * q, 0.04, wrench=[0, 0, f, 0, 0, 0]) for f in (0.0, 40.0))
    assert abs(free - pressed).max() > 1e-3
    # an arm's own feeling reaches it, less what it felt at rest
    reading = Reading(q, 0.0 * q, 0.04, 0.0, np.array([1.0, 0, 45.0, 0, 0, 0]), 0.0 * q)
    mind = PolicyProcess(str(path))
    mind.ask(reading.subtract({"wrench": np.array([1.0, 0, 5.0, 0, 0, 0])}), {})
    while (answer := mind.answer()) is None and not mind.failure:
        time.sleep(0.01)
    mind.close()
    np.testing.assert_allclose(answer[1], pressed)
