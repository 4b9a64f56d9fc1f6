"""export.py, and what it writes: one file that says what it is of, and that only its own numbers
are taken from.
"""

import dataclasses
import hashlib
import json
import os
import shutil
import time

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import yaml

import envs
from td3_robot import TD3
from td3_robot.commands import export
from td3_robot.deploy import DeployError, Obstacles, Policy
from td3_robot.deploy.policy import KEY
from td3_robot.errors import ConfigError
from td3_robot.utils.console import exit_code


@pytest.fixture(scope="module")
def run1(exported):
    return exported("run1")


@pytest.fixture(scope="module")
def policy(run1):
    return Policy.load(run1)


def test_it_commands_what_the_checkpoint_does(policy):
    env = envs.make("panda", "reach", 200, "cpu", 3)
    agent = TD3.from_checkpoint("checkpoints/run1")
    seen = env.reset(4)
    for _ in range(5):
        seen = env.step(agent.select_action(seen)).observation
    expected = (agent.select_action(seen).clamp(-1, 1) * env.model.qdlim).numpy()
    state = env.state
    goal = env.goal
    rows = zip(*(value.double().numpy() for value in (state.q, state.qd, state.gripper, goal)))
    got = np.array([policy(q, qd, gripper, goal) for q, qd, gripper, goal in rows])
    assert np.abs(got - expected).max() < 1e-4
    assert (np.abs(got) <= policy.robot.limits.velocity + 1e-6).all()


def test_a_policy_that_was_trained_under_disturbances_is_exported(policy, tmp_path):
    """Its test vectors are of what is measured without them, or none would be met."""
    folder = shutil.copytree("checkpoints/run1", tmp_path / "lab")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(
        yaml.safe_dump(config | {"randomize": "lab", "servo_lag": 0.05})
    )
    assert export.main(["--checkpoint", str(folder), "--onnx", str(tmp_path)]) == 0
    asked = (policy.robot.home, np.zeros(7), 0.04, np.array([0.4, 0.0, 0.4]))
    assert np.array_equal(Policy.load(tmp_path / "policy.onnx")(*asked), policy(*asked))


def test_an_averaged_policy_is_the_average(policy, tmp_path):
    """What acts where `td3.policy` says so, and the sum in the file is of that network."""
    run = TD3.from_checkpoint("checkpoints/run1")
    options = dataclasses.asdict(run.config) | {"policy": "actor_target"}
    agent = TD3(run.o_dim, run.a_dim, run.a_max, **options)
    agent.load("checkpoints/run1")
    for weight in agent.actor.parameters():
        weight.data += 0.1 * torch.rand_like(weight)
    agent.save(tmp_path / "averaged")
    shutil.copy("checkpoints/run1/config.yaml", tmp_path / "averaged")
    path = tmp_path / "averaged.onnx"
    assert export.main(["--checkpoint", str(tmp_path / "averaged"), "--onnx", str(path)]) == 0
    averaged = Policy.load(path)
    asked = (policy.robot.home, np.zeros(7), 0.04, np.array([0.4, 0.0, 0.4]))
    np.testing.assert_allclose(averaged(*asked), policy(*asked), atol=1e-6)
    o = torch.zeros(agent.o_dim)
    assert (
        agent.select_action(o) - agent.select_exploratory_action(o)
    ).abs().max() > 0.01  # so that it would be seen
    told = hashlib.sha256((tmp_path / "averaged" / "actor_target").read_bytes()).hexdigest()
    assert averaged.metadata["checkpoint"]["actor_target_sha256"] == told


def test_a_policy_is_told_what_stands_around(exported):
    """Each obstacle by itself, spare slots or not; what the policy was never shown is refused."""
    policy = Policy.load(exported("reach_avoid"))
    asked = dict(q=policy.robot.home, qd=np.zeros(7), gripper=0.04, goal=np.array([0.4, 0.0, 0.4]))
    ball = np.array([[0.45, 0.1, 0.5, 0.1]])
    box = np.array([[0.5, -0.2, 0.2, 0.1, 0.1, 0.1, 1.0, 0.0, 0.0, 0.0]])
    free, spheres, boxes = (
        policy(**asked, obstacles=Obstacles(**given))
        for given in ({}, {"spheres": ball}, {"boxes": box})
    )
    assert np.abs(spheres - free).max() > 1e-2 and np.abs(boxes - free).max() > 1e-2
    for given, why in (
        ({"spheres": np.repeat(ball, 4, 0)}, "at most 3 spheres, got 4"),
        ({"boxes": np.append(box[:, :6], [[0.0, 1.0, 0.0, 0.0]], 1)}, "upright"),
        ({"ground": 0.1}, "height 0"),
    ):
        with pytest.raises(DeployError, match=why):
            policy(**asked, obstacles=Obstacles(**given))
    for given in ({}, {"obstacles": None}):
        with pytest.raises(DeployError, match="obstacles must be a .*Obstacles, got NoneType"):
            policy(**asked, **given)


def test_a_goal_s_quaternion_is_a_unit_one(exported):
    policy = Policy.load(exported("reach_pose"))

    def command(*q):
        return policy(policy.robot.home, np.zeros(7), 0.04, np.array([0.4, 0.1, 0.4, *q]))

    exact = command(0.0, 1.0, 0.0, 0.0)
    assert np.allclose(command(0.0, 0.995, 0.0, 0.0), exact)  # typed, or rounded
    for wrong in ((0.0, 3.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0)):
        with pytest.raises(
            DeployError, match="goal must be a position and a unit quaternion w,x,y,z"
        ):
            command(*wrong)


def test_both_quaternions_of_an_orientation_are_one_goal(exported):
    policy = Policy.load(exported("reach_pose"))
    state = (policy.robot.home, np.zeros(7), 0.04)
    position = [0.4, 0.1, 0.4]
    turned = np.array([0.2, -0.96, -0.1, -0.168])
    turned = turned / np.linalg.norm(turned)
    goal, other = (np.append(position, sign * turned) for sign in (1.0, -1.0))
    seen = policy.observe(*state, goal=goal)
    assert np.array_equal(policy.observe(*state, goal=other), seen)
    assert np.array_equal(policy(*state, other), policy(*state, goal))
    assert any(np.allclose(seen[k : k + 4], turned, atol=1e-6) for k in range(len(seen) - 3))


def test_a_graph_alone_takes_both_quaternions_of_an_orientation(exported):
    """Programs in other languages run it without `Policy`."""
    path = exported("reach_pose")
    policy = Policy.load(path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for vector in policy.metadata["test_vectors"]:
        scene = vector["scene"]
        other = [*scene["goal"][:3], *(-x for x in scene["goal"][3:])]
        answers = []
        for goal in (scene["goal"], other):
            given = {**vector, **scene, "gripper": [vector["gripper"]], "goal": goal}
            inputs = {
                value.name: np.array(given[value.name], np.float32)
                for value in session.get_inputs()
            }
            answers.append(session.run(None, inputs))
        assert all(np.array_equal(*both) for both in zip(*answers))


def test_a_task_of_one_s_own_may_give_either_quaternion(exported):
    """Its test vectors are compared as they are."""
    path = exported("reach_pose")
    policy = Policy.load(path)
    vector = policy.metadata["test_vectors"][0]
    state = policy._read_state(*map(vector.get, ("q", "qd", "gripper", "scene")))
    vector["scene"]["goal"] = [*vector["scene"]["goal"][:3], *(-state[3]["goal"][3:]).tolist()]
    state[3]["goal"] = np.array(vector["scene"]["goal"])
    found = dict(zip(policy._outputs, policy._evaluate(policy._outputs, *state)))
    vector["observation"] = found["observation"].tolist()
    vector["qd_commanded"] = found["command"].tolist()
    policy._replay(path)


def test_a_file_that_is_there_stays_until_another_is_good(run1, tmp_path, monkeypatch):
    path = tmp_path / "policy.onnx"
    traced = onnx.load(str(run1))
    monkeypatch.setattr("td3_robot.td3.onnx_export.make_onnx", lambda *_: traced)
    path.write_bytes(b"of before")

    def fails(*_):
        raise DeployError("it cannot be shown")

    monkeypatch.setattr(Policy, "_replay", fails)
    with pytest.raises(ConfigError, match="it cannot be shown"):
        export.main(["--checkpoint", "checkpoints/run1", "--onnx", str(path)])
    assert path.read_bytes() == b"of before" and list(tmp_path.iterdir()) == [path]


def test_two_exports_into_one_file_do_not_disturb_each_other(run1, tmp_path, monkeypatch):
    path = tmp_path / "policy.onnx"
    traced = onnx.load(str(run1))
    monkeypatch.setattr("td3_robot.td3.onnx_export.make_onnx", lambda *_: traced)
    arguments = ["--checkpoint", "checkpoints/run1", "--onnx", str(path)]
    replay = Policy._replay

    def export_meanwhile(*_):
        """Stand for another process, whose export passes while this one checks its file."""
        monkeypatch.setattr(Policy, "_replay", replay)
        with monkeypatch.context() as there:
            there.setattr(os, "getpid", lambda: 4_194_303)
            assert export.main(arguments) == 0

    monkeypatch.setattr(Policy, "_replay", export_meanwhile)
    assert export.main(arguments) == 0
    assert list(tmp_path.iterdir()) == [path]
    Policy.load(path)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"spheres": [[0.4, 0.1, 0.4, -0.1]]},
            "spheres need radii or half sides above 0, got -0.1",
        ),
        (
            {"boxes": [[0.4, 0.0, 0.4, 0.1, 0.0, 0.1, 1.0, 0.0, 0.0, 0.0]]},
            "boxes need radii or half sides above 0",
        ),
        ({"spheres": [[0.4, 0.1, 0.4]]}, "spheres must be finite with shape"),
    ],
)
def test_what_no_thing_can_be_is_refused(tmp_path, given, why):
    with pytest.raises(DeployError, match=why):
        Obstacles(**{name: np.array(value) for name, value in given.items()})
    (tmp_path / "scene.json").write_text(
        json.dumps({"spheres": [], "walls": [[0.0, 0.0, 1.0, 0.0]]})
    )
    around = Obstacles.load(tmp_path / "scene.json")
    assert around.spheres.shape == (0, 4) and around.walls.shape == (1, 4)


def test_it_says_what_it_is_of(policy):
    metadata = policy.metadata
    assert (metadata["task"]["name"], metadata["rate"], policy.robot.name) == (
        "reach",
        20.0,
        "panda",
    )
    assert policy.robot.joints == tuple(f"panda_joint{i}" for i in range(1, 8))
    assert [name for name, _ in metadata["observation"]["columns"]][:3] == ["q", "drivers", "qd"]
    assert (
        sum(width for _, width in metadata["observation"]["columns"])
        == metadata["observation"]["size"]
    )
    assert (
        len(metadata["checkpoint"]["actor_sha256"]) == 64
        # a build may be in the one and not in the other: 2.14.1+cpu
        and metadata["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    )
    assert len(metadata["test_vectors"]) == 10


def test_any_onnx_runtime_reads_it(run1):
    onnx.checker.check_model(str(run1), full_check=True)
    session = onnxruntime.InferenceSession(str(run1), providers=["CPUExecutionProvider"])
    shapes = {value.name: value.shape for value in session.get_inputs()}
    assert shapes == {"q": [7], "qd": [7], "gripper": [1], "goal": [3]}
    given = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    assert session.run(["command"], given)[0].shape == (7,)


def altered(run1, tmp_path, change) -> str:
    model = onnx.load(str(run1))
    change(model)
    onnx.save(model, str(tmp_path / "altered.onnx"))
    return str(tmp_path / "altered.onnx")


def test_a_file_that_does_not_reproduce_its_vectors_is_refused(run1, tmp_path):
    def bend(model):
        weight = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
        bent = 1.01 * onnx.numpy_helper.to_array(weight)
        weight.CopyFrom(onnx.numpy_helper.from_array(bent, weight.name))

    def relabel(model):
        metadata = json.loads(model.metadata_props[0].value)
        metadata["test_vectors"][3]["observation"][3] += 0.01
        model.metadata_props[0].value = json.dumps(metadata)

    for change in (bend, relabel):
        with pytest.raises(DeployError, match="does not reproduce its test vector"):
            Policy.load(altered(run1, tmp_path, change))


@pytest.mark.parametrize("vectors", [[], {}, ""])
def test_a_file_that_cannot_be_held_to_anything_is_refused(run1, tmp_path, vectors):
    def empty(model):
        metadata = json.loads(model.metadata_props[0].value) | {"test_vectors": vectors}
        model.metadata_props[0].value = json.dumps(metadata)

    with pytest.raises(DeployError, match="has no test vectors to be checked by: export it again$"):
        Policy.load(altered(run1, tmp_path, empty))


def test_files_of_something_else_are_refused(run1, tmp_path):
    with pytest.raises(DeployError, match="was not written by export.py"):
        Policy.load(
            altered(run1, tmp_path, lambda model: model.metadata_props[0].ClearField("key"))
        )
    (tmp_path / "noise.onnx").write_bytes(b"noise" * 100)
    with pytest.raises(DeployError, match="is no policy"):
        Policy.load(tmp_path / "noise.onnx")
    with pytest.raises(DeployError, match="export.py writes one"):
        Policy.load(tmp_path)


def spoilt(metadata: dict, path: str, value: object) -> None:
    """Set an entry of what a file says of itself, or take it away."""
    *parents, last = path.split(".")
    for name in parents:
        metadata = metadata[int(name) if isinstance(metadata, list) else name]
    if value is None:
        del metadata[last]
    else:
        metadata[last] = value


@pytest.mark.parametrize(
    "path",
    "test_vectors.0.observation test_vectors.3.scene robot.limits.velocity "
    "robot.capsules.ends robot.joints rate robot task moves_gripper test_vectors".split(),
)
def test_whatever_a_file_says_of_itself_it_is_a_policy_or_one_line(run1, tmp_path, path):
    for value in (None, 3, "long" * 999, [[1.0], 2.0], {}):

        def change(model, value=value):
            metadata = json.loads(model.metadata_props[0].value)
            spoilt(metadata, path, value)
            model.metadata_props[0].value = json.dumps(metadata)

        try:
            Policy.load(altered(run1, tmp_path, change))
        except DeployError as error:
            assert str(error).isprintable() and 0 < len(str(error)) < 300
    model = onnx.load(str(run1))
    model.metadata_props[0].value = "[1]"
    onnx.save(model, str(tmp_path / "list.onnx"))
    with pytest.raises(DeployError, match="has format None"):
        Policy.load(tmp_path / "list.onnx")


@pytest.mark.parametrize(
    "change",
    [
        dict(q=np.zeros(6)),
        dict(qd=np.full(7, np.nan)),
        dict(goal=np.zeros(2)),
        dict(cube=np.zeros(3)),
        dict(obstacles=Obstacles()),
    ],
)
def test_what_it_cannot_be_asked_is_refused(policy, change):
    asked = (
        dict(q=policy.robot.home, qd=np.zeros(7), gripper=0.04, goal=np.array([0.4, 0.0, 0.4]))
        | change
    )
    with pytest.raises(DeployError):
        policy(**asked)


def test_a_step_takes_no_longer_than_adding_20000_numbers_in_python(policy):
    """200 microseconds on a server of today. Of processor time, so that the machine's other work
    does not count; the least, since whatever disturbs a step makes it longer.
    """
    asked = (policy.robot.home, np.zeros(7), 0.04, np.array([0.4, 0.0, 0.4]))

    def measure(work):
        times = []
        for _ in range(1000):
            start = time.thread_time()
            work()
            times.append(time.thread_time() - start)
        return min(times)

    assert measure(lambda: policy(*asked)) < measure(lambda: sum(range(20_000)))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--checkpoint is missing"),
        (["--checkpoint", "nothing"], "nothing"),
        (
            ["--checkpoint", "checkpoints/run1", "--onnx", "{tmp}", "--acceleration", "2"],
            "has acceleration limits",
        ),
        (
            ["--checkpoint", "checkpoints/run1", "--onnx", "{tmp}", "--plugins", "nomod"],
            "cannot import 'nomod'",
        ),
        (
            ["--checkpoint", "checkpoints/run1", "--onnx", "README.md"],
            "--onnx must be a folder or end in .onnx, got 'README.md'",
        ),
        (
            ["--robot", "tests/envs/data/gantry.urdf", "--acceleration", "-3"],
            "acceleration must be in [0.001, 100000], got -3",
        ),
    ],
)
def test_one_line_for_what_cannot_be_exported(flags, message, tmp_path, capsys):
    code = exit_code(export.main, [flag.format(tmp=tmp_path) for flag in flags])
    error = capsys.readouterr().err
    assert code == 2 and message in error and len(error.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_metadata_has_one_key(run1):
    assert [prop.key for prop in onnx.load(str(run1)).metadata_props] == [KEY]
