"""What a policy takes and refuses, with a graph that is a few lines of numpy."""

import contextlib
import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from td3_robot.deploy import DeployError, Policy, Robot
from td3_robot.deploy.arm import Reading
from td3_robot.deploy.policy import find_changed_origin
from td3_robot.deploy.robot.description import ROBOTS
from td3_robot.deploy.runtime import policy_worker
from td3_robot.deploy.runtime.policy_worker import PolicyProcess

PANDA = Robot.load("panda")
GOAL = np.array([0.5, 0.1, 0.4])
INPUTS = {"q": (7,), "qd": (7,), "gripper": (1,), "goal": (3,)}
OUTPUTS = {"observation": (3,), "command": (7,), "opening": (1,)}


def close(inputs: dict) -> tuple:
    """Move every joint a little and shut the gripper."""
    return inputs["goal"], np.full(7, 0.1, np.float32), np.zeros(1, np.float32)


class Session:
    """A graph of a Panda's policy that moves its gripper, as onnxruntime runs one."""

    def __init__(self, answer=close, **inputs):
        self.answer, self.inputs, self.given = answer, INPUTS | inputs, []

    def get_inputs(self):
        return [SimpleNamespace(name=name, shape=shape) for name, shape in self.inputs.items()]

    def get_outputs(self):
        return [SimpleNamespace(name=name, shape=shape) for name, shape in OUTPUTS.items()]

    def run(self, outputs, inputs):
        self.given.append(inputs)
        found = dict(zip(OUTPUTS, self.answer(inputs)))
        return [found[name] for name in outputs]


def make(answer=close, latency=0.0, **inputs) -> tuple[Policy, Session]:
    session = Session(answer, **inputs)
    metadata = {
        "robot": json.loads((ROBOTS / "panda.json").read_text()),
        "rate": 20.0,
        "moves_gripper": True,
        "task": {"name": "pick_place"},
    }
    policy = Policy(session, metadata)
    policy.latency = latency
    return policy, session


def test_a_gripper_is_taken_for_open_before_the_first_call():
    """It has been sent open until it is told to shut: what is recorded first says nothing of it."""
    told, quiet = make(latency=0.05), make(latency=0.05)
    told[0].record_command(np.zeros(7))
    for policy, _ in (told, quiet):
        for _ in range(3):
            policy(PANDA.home, np.zeros(7), PANDA.stroke[1], GOAL)
            policy.record_command(np.zeros(7))
    seen = [[given["gripper"].item() for given in session.given] for _, session in (told, quiet)]
    assert seen[0] == seen[1] and seen[0][0] > seen[0][-1]  # it shuts after the first answer


def test_a_gripper_that_is_not_known_is_where_it_was_in_training(exported):
    """Most arms know nothing of it; a policy that has to move it is not asked without."""
    path = exported("run1")
    policy = Policy.load(path)
    state = (PANDA.home, np.zeros(7))
    told = policy(*state, PANDA.stroke[1], GOAL)
    assert np.abs(policy(*state, PANDA.stroke[0], GOAL) - told).max() > 1e-3
    assert np.array_equal(policy(*state, None, GOAL), told)
    mind = PolicyProcess(str(path), "fork")
    mind.ask(Reading(*state, None, 0.0), {"goal": GOAL})
    assert mind._connection.poll(30.0)
    answer = mind.answer()
    mind.close()
    assert answer is not None and np.array_equal(answer[1], told)
    with pytest.raises(DeployError, match="^gripper is missing: the policy moves it"):
        make()[0](*state, None, GOAL)


def test_a_motion_begins_with_an_opening_that_is_not_known():
    policy, _ = make()
    assert policy.opening is None
    policy(PANDA.home, np.zeros(7), PANDA.stroke[1], GOAL)
    assert policy.opening == 0.0
    policy.reset()
    assert policy.opening is None


BAD = {
    "q": (["a"] * 7, [[1.0], [2.0, 3.0]], None, np.full(7, 1e39), np.full(7, np.nan)),
    "qd": ("fast", np.zeros(6), np.full(7, -np.inf)),
    "gripper": ("x", np.array([0.1, 0.2]), np.inf, 1e39),
    "goal": (np.full(3, 1e39), ["x", 0, 0], np.zeros(2)),
    "at": (np.nan, "now", np.inf, [1.0, 2.0]),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD.items() for value in values]
)
@pytest.mark.filterwarnings("error")
def test_what_is_no_number_is_refused_in_one_line_and_changes_nothing(name, value):
    policy, session = make(latency=0.05)
    good = {"q": PANDA.home, "qd": np.zeros(7), "gripper": 0.04, "goal": GOAL, "at": 1.0}
    policy(**good)
    with pytest.raises(DeployError, match=f"^{name} must be .* finite number"):
        policy(**{**good, name: value, **({} if name == "at" else {"at": 1.05})})
    assert len(session.given) == 1
    policy(**{**good, "at": 1.05})
    assert session.given[1]["q"] == pytest.approx(PANDA.home + 0.05 * 0.1, abs=3e-3)


@pytest.mark.parametrize("bad", [None, "observation", "command", "opening"])
@pytest.mark.parametrize("value", [0.5, np.nan])
def test_a_file_that_does_not_answer_as_when_it_was_exported_is_refused(bad, value):
    """Not with another number, and not with none."""

    def answer(inputs):
        found = dict(zip(OUTPUTS, close(inputs)))
        if bad is not None:
            found[bad] = np.full(OUTPUTS[bad], value, np.float32)
        return tuple(found.values())

    policy, _ = make(answer)
    state = {"q": PANDA.home, "qd": np.zeros(7), "gripper": 0.04, "scene": {"goal": GOAL}}
    told = {"observation": GOAL, "qd_commanded": np.full(7, 0.1), "opening": 0.0}
    policy.metadata["test_vectors"] = [state | told]
    with contextlib.nullcontext() if bad is None else pytest.raises(DeployError, match="vector 0"):
        policy._replay(Path("policy.onnx"))


@pytest.mark.parametrize("bad", ["command", "opening"])
def test_an_answer_that_is_not_finite_is_refused_and_leaves_the_opening(bad):
    broken = []

    def answer(inputs):
        observation, command, opening = close(inputs)
        if broken:
            (command if bad == "command" else opening)[:] = np.nan
        return observation, command, opening

    policy, _ = make(answer)
    state = (PANDA.home, np.zeros(7), 0.04, GOAL)
    policy(*state)
    broken.append(True)
    with pytest.raises(DeployError, match="the policy's answer is not finite"):
        policy(*state)
    assert policy.opening == 0.0


@pytest.mark.parametrize("sent", [["a"] * 7, None, np.zeros(6), np.full(7, np.nan)])
def test_what_cannot_have_been_sent_is_refused_in_one_line(sent):
    with pytest.raises(DeployError, match="^what was sent must be 7 finite numbers"):
        make()[0].record_command(sent)
    with pytest.raises(DeployError, match="^opening must be a finite number"):
        make()[0].record_command(np.zeros(7), "wide")


@pytest.mark.parametrize("latency", [None, "0.1", [0.1, 0.2], np.nan, -0.1, 0.6, True])
def test_a_latency_that_no_arm_has_is_refused_in_one_line(latency):
    policy, _ = make(latency=0.02)
    with pytest.raises(DeployError, match="^latency must be from 0 to 0.5 s, got "):
        policy.latency = latency
    assert policy.latency == 0.02


def test_the_clock_of_a_policy_in_its_process_is_the_time_since_the_motion_began(monkeypatch):
    """Whatever time the arm was at rest, and however many questions were left out."""

    def tell(inputs):
        return inputs["goal"], np.full(7, inputs["clock"].item(), np.float32), np.ones(1)

    now = [10.0]
    loaded = SimpleNamespace(load=lambda path: make(tell, clock=(1,))[0])
    monkeypatch.setattr(policy_worker, "Policy", loaded)
    monkeypatch.setattr(policy_worker, "time", SimpleNamespace(monotonic=lambda: now[0]))
    mind = PolicyProcess("none.onnx", "fork")
    reading = Reading(PANDA.home, np.zeros(7), 0.04, 0.0)
    mind.prepare(reading, {"goal": GOAL})
    told = []
    for at in (13.0, 13.05, 13.35):
        now[0] = at
        mind.ask(reading, {"goal": GOAL})
        assert mind._connection.poll(30.0)
        stamp, command = mind.answer()
        assert stamp == at
        told.append(command[0])
    mind.close()
    np.testing.assert_allclose(told, [0.0, 0.05, 0.35], atol=1e-6)


def test_a_clock_that_begins_again_forgets_no_plan():
    policy, _ = make()
    planner = policy._planner
    policy.restart_clock()
    assert policy._planner is planner


@pytest.mark.parametrize(
    "at", ["actor_target", "mine/actor_target", "mineactor_target", "mine/.commit/actor_target"]
)
def test_an_export_is_held_to_its_network_beside_it_or_in_a_folder_or_prefix_of_its_name(
    tmp_path, at
):
    network = tmp_path / at
    network.parent.mkdir(parents=True, exist_ok=True)
    network.write_bytes(b"as exported")
    origin = {
        "name": "mine",
        "actor_target_sha256": hashlib.sha256(network.read_bytes()).hexdigest(),
    }
    assert find_changed_origin(origin, tmp_path) is None
    network.write_bytes(b"as trained on")
    named = tmp_path if at == "actor_target" else tmp_path / "mine"
    assert find_changed_origin(origin, tmp_path) == named
    for unknown in (None, "mine", {}, {"name": 3}, {"name": "mine", "actor_sha256": "of another"}):
        assert find_changed_origin(unknown, tmp_path) is None
    assert find_changed_origin(origin, tmp_path / "elsewhere") is None
