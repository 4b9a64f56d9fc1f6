"""The exported graph beside the simulator, over many states of every task, without a checkpoint."""

import importlib
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import envs
from envs.export.controller import Carry, list_inputs
from envs.simulation import grasp
from td3_robot import TD3
from td3_robot.commands import export
from td3_robot.deploy import Policy
from td3_robot.deploy.policy import KEY
from td3_robot.deploy.robot.rotations import to_matrix
from td3_robot.errors import ConfigError
from td3_robot.td3.onnx_export import make_onnx
from tests.docs_pages import read_files, read_page
from tests.support import ROOT, mark_slow

PAIRS = {
    ("panda", "reach"): {"goal"},
    ("panda", "reach_pose"): {"goal", "solution"},
    ("panda", "reach_avoid"): {"goal", "spheres", "boxes", "walls", "via", "solution", "passed"},
    ("panda", "reach_moving"): {
        *("goal", "spheres", "boxes", "walls", "sphere_velocities", "box_velocities")
    },
    ("panda", "track"): {"goal", "goal_velocity"},
    ("panda", "pick_place"): {"goal", "object", "held"},
    ("panda", "push"): {"goal", "object"},
    ("panda", "stack"): {"object", "support", "held"},
    ("ur5e", "reach"): {"goal"},
}
# What 32 bits make of a column: near singularities the inverse of resolved rates rounds coarsely.
OBSERVATION = dict.fromkeys(
    ("track", "push", "pick_place", "stack", "reach_avoid", "reach_moving"), 2e-3
)


def export_fresh(path: Path, name: str, task: str) -> tuple:
    """Export an agent that has learned nothing; its environment and itself."""
    env = envs.make(name, task, 10, "cpu", 0)
    agent = TD3(env.o_dim, env.a_dim, 1.0, hidden=(64, 64), seed=0)
    export.write_policy(path, env, task, agent.policy)
    return env, agent


def assert_same(policy: Policy, env, agent, steps: int = 15) -> None:
    """The file's observations and commands are those of simulator and agent."""
    task = policy.metadata["task"]["name"]
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        action = torch.rand(env.num_envs, env.a_dim, generator=generator) * 2 - 1
        observation = env.step(action).observation
        chosen = agent.select_action(observation).clamp(-1, 1)
        command = env.task.make_command(env.world, env.moment, chosen)
        for row in range(env.num_envs):
            given = {name: value.numpy() for name, value in list_inputs(env, row).items()}
            arm = given["q"], given["qd"], given["gripper"][0]
            scene = {name: given[name] for name in policy.scene}
            expected = observation[row].numpy()
            off = np.abs(policy.observe(*arm, **scene) - expected)
            assert (off / np.maximum(np.abs(expected), 1)).max() < OBSERVATION.get(task, 5e-5)
            qd = policy(*arm, **scene) / env.robot.qdlim
            assert np.abs(qd - chosen[row, : env.robot.n].numpy()).max() < 1e-3
            if command.grip is not None and task != "reach_avoid":
                assert policy.opening == pytest.approx(command.grip[row].item(), abs=1e-4)


# shipped policies of a Panda, whose exports other tests need, too
SHIPPED = {"reach": "run1"} | {
    task: task for task in ("reach_pose", "reach_avoid", "track", "pick_place", "push")
}


# `stack` and `push` have the parts of `pick_place`, `reach_pose` those of `reach_avoid`
@pytest.mark.parametrize(
    ("name", "task"),
    [
        pytest.param(*pair, marks=pytest.mark.slow)
        if pair in (("panda", "stack"), ("panda", "push"), ("panda", "reach_pose"))
        else mark_slow(pair[1], pair)
        for pair in PAIRS
    ],
)
def test_it_is_the_simulators(name, task, tmp_path, exported):
    if name == "panda" and task in SHIPPED:
        agent = TD3.from_checkpoint(f"checkpoints/{SHIPPED[task]}")
        env = envs.make(name, task, 10, "cpu", 0)
        policy = Policy.load(exported(SHIPPED[task]))
    else:
        env, agent = export_fresh(tmp_path / "policy.onnx", name, task)
        policy = Policy.load(tmp_path / "policy.onnx")
    assert set(policy.scene) == PAIRS[name, task]
    assert_same(policy, env, agent)


def test_a_task_of_ones_own_is_exported(tmp_path, monkeypatch):
    """That of docs/tutorials/your-task.md, as it is built there."""
    files = read_files(read_page(ROOT / "docs/tutorials/your-task.md"))
    code = files["hover.py"].replace('"hover"', '"hover_exported"')
    (tmp_path / "hover_exported.py").write_text(code)
    (tmp_path / "hover_exported.yaml").write_text(files["hover.yaml"])
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("hover_exported")
    env, agent = export_fresh(tmp_path / "policy.onnx", "panda", "hover_exported")
    policy = Policy.load(tmp_path / "policy.onnx")
    assert set(policy.scene) == {"goal"}
    assert_same(policy, env, agent, steps=5)


def test_an_operation_without_an_onnx_form_is_one_line():
    class Odd(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.svdvals(x)

    with pytest.raises(ConfigError, match="cannot be written as an ONNX graph: .*") as failure:
        make_onnx(Odd(), {"x": torch.eye(3)}, ["y"])
    assert len(str(failure.value).splitlines()) == 1


def test_the_file_says_what_goes_in_and_out_and_not_where_it_was_made(exported):
    model = onnx.load(exported("run1"))
    metadata = json.loads({prop.key: prop.value for prop in model.metadata_props}[KEY])
    assert list(metadata["inputs"]) == [value.name for value in model.graph.input]
    assert list(metadata["outputs"]) == [value.name for value in model.graph.output]
    assert all("rad" in metadata["inputs"][name] for name in ("q", "qd", "gripper"))
    assert str(Path.cwd()).encode() not in exported("run1").read_bytes()


@pytest.fixture(scope="module")
def carry():
    """64 arms beside a cube, the module that moves it with the hand, and its graph."""
    env = envs.make("panda", "pick_place", 64)
    module = Carry(env)
    model = make_onnx(module, module.examples, module.outputs).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return env, module, session


@pytest.mark.parametrize("width", (0.036, 0.04, 0.054))
def test_a_cube_in_the_hand_is_the_simulator_s_however_wide_it_is_held(width, carry):
    """Random short motions of the arm with the cube between its pads, which shut, stay or open."""
    env, module, session = carry
    generator = torch.Generator().manual_seed(0)

    def noise(*shape):
        return 2.0 * torch.rand(64, *shape, generator=generator) - 1.0

    hand = env.model.hand
    q = env.world.home + 0.1 * noise(7)
    q_next = q + 0.02 * noise(7)
    before = env.fkine(q)
    cube = before[:, :3, 3] + 0.003 * noise(3)
    gap = torch.full((64,), width)
    wanted = width + 0.01 * noise()
    held = torch.ones(64, dtype=torch.bool)
    moved, holds, shut = grasp.move_cube(hand, before, env.fkine(q_next), cube, held, gap, wanted)
    driver, driver_next = (grasp.find_driver(hand, x) for x in (gap, wanted))
    for row in range(64):
        given = (q[row], driver[row, None], q_next[row], driver_next[row, None], cube[row])
        given = dict(zip(module.examples, (*given, held[row, None].float())))
        gripper, place, holding = session.run(None, {k: v.numpy() for k, v in given.items()})
        assert bool(holding[0]) == holds[row].item()
        np.testing.assert_allclose(place, moved[row].numpy(), atol=1e-5)
        found = grasp.compute_gap(hand, torch.from_numpy(gripper)).item()
        assert found == pytest.approx(shut[row].item(), abs=1e-4)
    assert 5 < holds.sum() < 59


@pytest.mark.parametrize("latency", (0.05, 0.07, 0.2))
def test_what_a_task_remembers_of_the_tcp_is_predicted_with_it(exported, latency, monkeypatch):
    """The peg sinks as far as its tip moves along the approach, and its times run on, the search a
    quarter as fast."""
    policy = Policy.load(exported("insert"), latency)
    vector = policy.metadata["test_vectors"][0]
    q, qd = np.array(vector["q"]), -np.array([0.04, 0.06, -0.04, 0.1, 0.02, 0.04, 0.2])
    scene = vector["scene"] | {"searched": 1.0, "sunk": 0.001, "seated": 0.2, "clock": 3.0}
    given = []
    run = policy._run
    monkeypatch.setattr(policy, "_run", lambda *asked: given.append(asked[1]) or run(*asked))
    for at in range(12):
        policy(q, qd, vector["gripper"], **scene, at=at / policy.rate)
        policy.record_command(qd)
    ahead = {name: value.astype(float) for name, value in given[-1].items()}
    T, then = policy.robot.chain.frames(np.array([q, ahead["q"]]))[:, -1]
    reach = policy.metadata["task"]["constants"]["reach"]
    moved = then[:3, 3] - T[:3, 3] + reach * (then[:3, 2] - T[:3, 2])
    sunk = moved @ to_matrix(np.array(scene["goal"][3:]))[:, 2]
    assert sunk > 0.01 * latency
    assert ahead["sunk"] == pytest.approx(0.001 + sunk, abs=1e-5)
    assert ahead["seated"] == pytest.approx(0.2 + latency, abs=1e-6)
    assert ahead["clock"] == pytest.approx(3.0 + latency, abs=1e-6)
    assert ahead["searched"] == pytest.approx(1.0 + 0.25 * latency, abs=1e-6)


@pytest.mark.parametrize("latency", (0.02, 0.07))
def test_times_and_contact_are_predicted_as_the_simulator_does(exported, latency, monkeypatch):
    """While a peg goes down onto the block, what is observed there and here is the same."""
    env = envs.make("panda", "insert", 1, engine="mujoco", latency=latency)
    policy = Policy.load(exported("insert"), latency)
    given = {}
    run = policy._run
    monkeypatch.setattr(policy, "_run", lambda *asked: given.update(asked[1]) or run(*asked))
    observation = env.reset()
    for step in range(35):
        observation = env.step(observation[:, env.layout["scripted"]]).observation
        scene = {name: value[0].double().numpy() for name, value in env.arrived.scene.items()}
        *joints, opening = scene["sent"][-1]
        policy.record_command(joints * env.robot.qdlim, opening)
        arm = (x[0].double().numpy() for x in vars(env.arrived.state).values())
        around = {name: scene[name] for name in policy.scene}
        policy(*arm, **around, at=(step + 1) / policy.rate)
        seen = run(["observation"], given)[0]
        if step > 15:  # fingers are at the peg by then: nobody tells the policy that they close
            np.testing.assert_allclose(seen, observation[0].numpy(), rtol=0, atol=2e-4)
    assert scene["searched"] > 0.1


def test_a_clock_that_is_left_out_runs_from_the_first_call(exported):
    policy = Policy.load(exported("insert"))
    goes_by_it = False
    for vector in policy.metadata["test_vectors"]:
        state = (vector["q"], vector["qd"], vector["gripper"])
        scene = {name: value for name, value in vector["scene"].items() if name != "clock"}
        told = [policy(*state, **scene, clock=[seconds]) for seconds in (0.0, 0.05, 0.1)]
        goes_by_it |= np.abs(told[2] - told[0]).max() > 1e-5
        for times in ((None, None, None), (7.0, 7.05, 7.1)):
            policy.reset()
            assert np.allclose([policy(*state, **scene, at=at) for at in times], told, atol=1e-7)
    assert goes_by_it
