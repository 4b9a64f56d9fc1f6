"""make: robots and tasks by name."""

import dataclasses
import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import envs
from envs.config.env_options import EnvOptions
from envs.config.notices import warn_once
from envs.gymnasium_ids import make_env_spec
from envs.registry import make_from_config
from envs.robots import make_robot
from envs.simulation.randomization import read_randomization
from envs.tasks import registry
from envs.tasks.registry import find_task_class
from td3_robot.errors import ConfigError
from td3_robot.vec_env import VecEnv
from tests.support import each_robot, each_task, get_refusal


@pytest.mark.parametrize("robot", each_robot())
@pytest.mark.parametrize("task", each_task())
def test_every_robot_can_do_every_task(robot, task):
    """But a task that grasps is for those with a gripper whose pads are known."""
    hand = make_robot(robot).gripper
    if find_task_class(task).needs_hand and (hand is None or hand.pads is None):
        with pytest.raises(
            ConfigError,
            match=f"robot {robot!r} has none" if hand is None else "needs the pads of gripper",
        ):
            envs.make(robot, task)
        return
    env = envs.make(robot, task, num_envs=3, seed=1)
    assert isinstance(env, VecEnv)
    assert (env.num_envs, env.device) == (3, torch.device("cpu"))
    observation = env.reset()
    assert observation.shape == (3, env.o_dim)
    assert env.step(torch.zeros(3, env.a_dim)).observation.shape == (3, env.o_dim)


@pytest.mark.parametrize("name", ["object_offset", "force_noise", "torque_bias"])
def test_a_disturbance_of_what_is_not_there_is_said_to_have_no_effect(name, capsys):
    warn_once.cache_clear()
    make_from_config(EnvOptions(**{name: 0.01}))
    envs.make("panda", "reach", **{name: 0.01})
    assert capsys.readouterr().err.count(f"{name} has no effect: task 'reach' has no ") == 1
    make_from_config(EnvOptions(randomize="lab"))  # a laboratory's are of all tasks
    envs.make("panda", "pick_place", object_offset=0.01)
    assert "no effect" not in capsys.readouterr().err


def test_one_environment_is_the_default():
    assert envs.make("panda", "reach").num_envs == 1


def test_what_a_robot_that_is_made_has_already_is_not_given_again():
    panda = make_robot("panda")
    for given in ({"gripper": "none"}, {"tcp": "foo"}, {"acceleration": 3.0}):
        with pytest.raises(ConfigError, match=f"{next(iter(given))} has no effect: robot 'panda'"):
            envs.make(panda, "reach", **given)


def test_stops_are_kept_by_a_guard_alone():
    with pytest.raises(ConfigError, match="guard_stops has no effect without guard"):
        envs.make("panda", "reach", guard_stops=True)
    waits = EnvOptions(guard_stops=True)  # for baselines that bring a guard
    envs.make_from_config(waits)
    assert "guard_stops" not in make_env_spec(waits).kwargs


@pytest.mark.parametrize("acceleration, periods", [(1e-3, "52,200"), (1e-50, "inf")])
def test_a_stop_that_is_too_long_to_check_in_every_period_is_refused(acceleration, periods):
    """At 20 Hz, 2.61 rad/s and 0.001 rad/s2: each step would take a minute."""
    slow = make_robot("panda")
    slow.qddlim = np.full(7, acceleration)
    needs = f"robot 'panda' needs {periods} from full speed"
    assert needs in get_refusal(envs.make, slow, "reach", guard=True, guard_stops=True)
    slow.qddlim = np.full(7, 2.61 * 20 / 999.5)  # 1,000 periods
    assert envs.make(slow, "reach", guard=True, guard_stops=True).guard_constants.stops


def test_options_that_describe_a_robot_are_those_of_the_robot_made_from_them():
    options = EnvOptions(robot="panda", gripper="none")
    bare = make_robot("panda", "none")
    assert envs.make_from_config(options, 2, robot=bare).robot is bare


def test_actions_may_have_another_precision():
    one, other = (envs.make("panda", "reach", 2, seed=3) for _ in range(2))
    action = torch.full((2, 7), 0.5)
    given = one.step(action.double()).observation
    assert given.dtype == torch.float32 and torch.equal(given, other.step(action).observation)


def test_the_seed_is_that_of_a_reset():
    first = envs.make("panda", "reach", 2, seed=4)
    second = envs.make("panda", "reach", 2, seed=5)
    assert torch.equal(first.goal, _goal_after_reset(second, 4))
    assert not torch.equal(first.goal, _goal_after_reset(second, 5))


def test_a_laboratory_by_name_is_that_of_its_file_and_of_the_command_line():
    named = envs.make("panda", "reach", 3, seed=4, randomize="lab", noise=0.0)
    read = dataclasses.replace(read_randomization("lab"), noise=0.0)
    given = envs.make("panda", "reach", 3, seed=4, disturbances=read)
    options = EnvOptions("panda", "reach", randomize="lab", noise=0.0)
    asked = envs.make_from_config(options, 3, seed=4)
    exact = envs.make("panda", "reach", 3, seed=4)
    action = torch.full((3, 7), 0.2)
    first, *same = (env.step(action).observation for env in (named, given, asked))
    assert all(torch.equal(first, each) for each in same)
    assert not torch.equal(first, exact.step(action).observation)
    with pytest.raises(ConfigError, match="randomization 'lap'; did you mean 'lab'"):
        envs.make("panda", "reach", randomize="lap")
    with pytest.raises(ConfigError, match="exclude each other"):
        envs.make("panda", "reach", randomize="lab", disturbances=read)


def _goal_after_reset(env, seed):
    env.reset(seed)
    return env.goal


def test_an_unknown_name_is_refused_with_the_valid_ones():
    with pytest.raises(
        ConfigError, match="task 'raech'; did you mean 'reach'.*valid choices: .*reach"
    ):
        envs.make("panda", "raech")
    with pytest.raises(
        ConfigError, match="robot 'pandaa'; did you mean 'panda'.*valid choices: .*panda"
    ):
        envs.make("pandaa", "reach")


@pytest.mark.parametrize("num_envs", [0, -3, 2.0, "2", True, None, float("nan"), 10**12])
@pytest.mark.parametrize("env", [None, "Pendulum-v1"])
def test_there_must_be_a_whole_number_of_environments(num_envs, env):
    refusal = get_refusal(envs.make_from_config, EnvOptions(env=env), num_envs)
    assert refusal == f"num_envs must be an integer in [1, 1000000], got {num_envs!r}"


@pytest.mark.parametrize("seed", ["7", "x", 2.0, -1, True, 2**64])
@pytest.mark.parametrize("env", [None, "Pendulum-v1"])
def test_a_seed_must_be_one(seed, env):
    env = EnvOptions(env=env)
    for ask in (
        functools.partial(envs.make_from_config, env, seed=seed),
        functools.partial(envs.make_from_config(env).reset, seed),
    ):
        assert re.fullmatch(
            rf"seed must be an integer in \[0, \d+\], got {seed!r}", get_refusal(ask)
        )


@pytest.mark.parametrize("env", [None, "Pendulum-v1"])
def test_integers_of_numpy_are_integers(env):
    two = np.int64(2)
    made, same = (
        envs.make_from_config(EnvOptions(env=env), number, seed=number) for number in (two, 2)
    )
    assert type(made.num_envs) is int
    assert torch.equal(made.reset(two), same.reset(2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dt": -0.05}, "dt must be a number and not negative, got -0.05"),
        ({"horizon": 0}, "horizon must be positive, got 0"),
        ({"horizon": 2.5}, "horizon must be a number and not negative, got 2.5"),
        ({"tolerance": "1e-2"}, "tolerance must be a number and not negative, got '1e-2'"),
        ({"tolerance": float("nan")}, "tolerance must be a number"),
        ({"horizn": 60}, "'horizn'; did you mean 'horizon'"),
        ({"dt": None}, "dt must be a number and not negative, got None"),
    ],
)
def test_constants_of_a_task_that_cannot_be_right_are_named(monkeypatch, change, message):
    read = registry.read_values
    monkeypatch.setattr(registry, "read_values", lambda path: read(path) | change)
    with pytest.raises(ConfigError, match=re.escape(message)):
        envs.make("panda", "reach")


def test_constants_that_a_task_s_file_lacks_are_named_with_the_file(monkeypatch):
    """`change_weight` has a default: a file may leave it out."""
    read = registry.read_values
    left_out = {"dt", "horizon", "change_weight"}
    monkeypatch.setattr(
        registry,
        "read_values",
        lambda path: {k: v for k, v in read(path).items() if k not in left_out},
    )
    with pytest.raises(ConfigError, match=r"^task 'reach': .*tasks/reach\.yaml lacks dt, horizon$"):
        envs.make("panda", "reach")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "bad.yaml is not valid YAML"),
        ("- 1", "must be a mapping"),
        ("a: 1\nb:\n  c: 1\n  c: 2", "bad.yaml is not valid YAML: key 'c' is there twice"),
    ],
)
def test_a_file_that_holds_no_values_is_named(tmp_path, text, message):
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        registry.read_values(tmp_path / "bad.yaml")


def test_a_file_in_another_encoding_is_named(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_bytes("# größer\nnoise: 0.1".encode("latin-1"))
    with pytest.raises(ConfigError, match="bad.yaml is not in UTF-8"):
        envs.make("panda", "reach", randomize=str(path))


@pytest.mark.parametrize("text", ["noise: true", "stiffness: [true, 2]"])
def test_true_is_no_number(tmp_path, text):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    key = text.split(":")[0]
    with pytest.raises(ConfigError, match=rf"bad.yaml': {key} must be numbers, got .*True"):
        envs.make("panda", "reach", randomize=str(path))


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "CPU", 3.5])
def test_a_device_that_is_not_there_is_named_with_the_choices(name):
    expected = f"device '{name}' is misspelled or not available .*: cpu, cuda, cuda:N, mps"
    with pytest.raises(ConfigError, match=expected):
        envs.make("panda", "reach", device=name)
    with pytest.raises(ConfigError, match=expected):
        envs.make_from_config(EnvOptions(env="Pendulum-v1"), device=name)


@pytest.mark.parametrize("around", [{}, {"randomize": "lab"}])
def test_numbers_of_numpy_are_numbers_and_text_is_none(around):
    latency = np.float32(0.05)
    assert envs.make("panda", "reach", latency=latency, **around).o_dim > 0
    assert json.dumps(EnvOptions(latency=latency).conditions) == f'{{"latency": {latency.item()}}}'
    for value, name, kind in (
        ("0.05", "latency", r"(a number from 0 to 0\.5|in \[0, 0\.5\])"),
        (np.float32(5.0), "latency", r"(a number from 0 to 0\.5|in \[0, 0\.5\])"),
        (True, "noise", "a number( from 0 to 1)?"),
        ("yes", "estimate_latency", "true or false"),
    ):
        with pytest.raises(ConfigError, match=f"{name} must be {kind}( or null)?, got "):
            envs.make("panda", "reach", **{name: value}, **around)


@pytest.mark.parametrize(
    "given, rule",
    [
        ({"robot": 3}, "text"),
        ({"task": None}, "text"),
        ({"gripper": 3}, "text or null"),
        ({"guard": "no"}, "true or false"),
        ({"sparse": "false"}, "true or false"),
        ({"estimate_latency": 1}, "true or false or null"),
        ({"engine": 1}, "one of kinematic, mujoco"),
        ({"vector": None}, "one of sync, async"),
        ({"latency": -0.1}, "in [0, 0.5]"),
        ({"time_limit": 2.5}, "a whole number or null"),
        ({"velocity": 3.0}, "a list, each a number"),
        ({"xacro": "side=left"}, "a list, each text"),
    ],
)
def test_an_option_of_another_type_is_refused_in_python_too(given, rule):
    [(name, value)] = given.items()
    assert get_refusal(EnvOptions, **given) == f"{name} must be {rule}, got {value!r}"


def test_a_list_is_kept_as_the_tuple_that_a_file_would_give():
    listed = EnvOptions(velocity=[1.5, np.float64(2)], xacro=["side=left"])
    assert listed == EnvOptions(velocity=(1.5, 2.0), xacro=("side=left",))
    assert json.dumps(listed.velocity) == "[1.5, 2.0]"


GANTRY = Path(__file__).parent / "data" / "gantry.urdf"


@pytest.mark.parametrize("velocity", [1.5, np.float32(1.5), (1.5,), np.array([1.5, 1.5, 1.5])])
def test_one_velocity_is_that_of_every_joint(velocity):
    env = envs.make(str(GANTRY), "reach", tcp="tool0", velocity=velocity)
    assert env.robot.qdlim.tolist() == [1.5, 1.5, 1.5]
    for robot in ("panda", make_robot("panda")):
        with pytest.raises(ConfigError, match="needs no velocity|velocity has no effect"):
            envs.make(robot, "reach", velocity=velocity)


@pytest.mark.parametrize("name", ["velocity", "acceleration"])
def test_a_limit_that_is_text_is_named(name):
    with pytest.raises(ConfigError, match=f"{name} must be a .*number.*, got '2.0'"):
        make_robot(GANTRY, tcp="tool0", **{name: "2.0"})


def test_a_task_says_which_engines_can_do_it(monkeypatch):
    """Plainly, and before anything is built."""
    assert find_task_class("push").engines == ("mujoco", "kinematic")
    monkeypatch.setattr(find_task_class("push"), "engines", ("mujoco",))
    with pytest.raises(ConfigError) as refused:
        envs.make("panda", "push")
    assert str(refused.value) == (
        "task 'push' cannot be done on engine 'kinematic'; it needs --engine mujoco"
    )


@pytest.mark.parametrize("name", ["sparse", "guard", "guard_stops", "training"])
@pytest.mark.parametrize("word", ["false", "true", 1, None])
def test_a_switch_is_true_or_false_and_no_word_for_it(name, word):
    """In Python "false" is true: it would enable the guard that it is to disable."""
    refusal = get_refusal(envs.make, "panda", "reach", **{name: word})
    assert refusal == f"{name} must be true or false, got {word!r}"


@pytest.mark.parametrize("package", ["envs", "td3_robot"])
def test_a_notebook_completes_public_names_before_their_first_use(package):
    """In a process of its own, in which nothing else has imported them."""
    code = f"import {package}; print(set({package}.__all__) <= set(dir({package})))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (answer.stdout, answer.stderr) == ("True\n", "")
