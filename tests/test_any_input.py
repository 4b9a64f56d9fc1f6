"""No command line and no file ends in anything but a configuration or one line."""

import contextlib
import io
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from envs.command_line import EvaluateFlags, TrainFlags
from envs.config.env_options import EnvOptions
from envs.simulation.randomization import read_randomization
from td3_robot.cli.arguments import (
    TrainArguments,
    load_config,
    load_run_config,
    parse_evaluate,
    parse_train,
)
from td3_robot.commands.exported import find_policy
from td3_robot.config.field import iter_options
from td3_robot.config.run import Config, TD3Config
from td3_robot.data.dataset_file import load_dataset
from td3_robot.data.minari_folder import check_new
from td3_robot.errors import Td3RobotError
from td3_robot.sweep.runner import resume_sweep

NAMES = [
    name for cls in (Config, EnvOptions, TrainFlags, EvaluateFlags) for name, _ in iter_options(cls)
]
NASTY = [
    "!!bool x",
    "!!int ''",
    "!!float ''",
    "!!timestamp abc",
    "!!map [1]",
    "!!python/name:os.system",
    "&a [*a]",
]
NASTY += (
    "*a << {} [] [[1]] 1e30 1e309 -1 0 -0.0 .nan null ~ true 100000,100000 2147483648 1e18 0x10 "
    "1:30"
).split()
NASTY += [
    "2024-01-01",
    "'",
    '"',
    "#",
    "%",
    "../..",
    "/",
    "-h",
    "a\0b",
    "\udcff",
    "\x85",
    "9" * 4000,
    "9" * 5000,
]
NASTY += ["a" * 256, "a/" * 3000, "[" * 2000, "é" * 300, "-" + "9" * 40]
words = st.sampled_from([f"--{name}" for name in NAMES] + NASTY) | st.text(max_size=9)
lines = st.lists(words, max_size=6) | st.builds(
    lambda name, value: [f"--{name}={value}"],
    st.sampled_from(NAMES),
    st.sampled_from(NASTY) | st.text(max_size=5),
)
plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=9)
    | st.sampled_from(NASTY)
)
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain, inner, max_size=3)
)
keys = st.sampled_from([*(name.split(".")[0] for name in NAMES), "gamma", "hidden"]) | st.text(
    max_size=5
)
texts = st.dictionaries(
    keys, values | st.dictionaries(st.sampled_from(["gamma", "hidden", "norm"]), values)
).map(yaml.dump)
texts |= st.text(max_size=40) | st.builds(
    "{}: {}".format, st.sampled_from(NAMES), st.sampled_from(NASTY)
)


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def outcome(call, *arguments) -> object:
    """What a call gives; an error made on purpose is held to being one short line, any other goes
    on.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return call(*arguments)
    except Td3RobotError as error:
        message = str(error)
        assert message.isprintable() and 0 < len(message) < 300
        return None
    except SystemExit as end:
        assert end.code == 0
        return None


@settings(max_examples=120)
@given(line=lines)
@example(line=["--td3.hidden", "100000,100000"])
@example(line=["--steps", "9" * 4000])
@example(line=["--config", "a" * 300])
@example(line=["--resume", "a" * 300])
@example(line=["--start_from", "\udcff" * 300])
@example(line=["--task", "a" * 300])
@example(line=["--task", "\0"])
@example(line=["--env", "\0:\udcff"])
def test_any_command_line(line):
    found = outcome(parse_train, line, EnvOptions, TrainFlags)
    assert found is None or isinstance(found, TrainArguments)
    outcome(parse_evaluate, line, EvaluateFlags)
    outcome(parse_evaluate, ["--checkpoint", *line], EvaluateFlags)


@settings(max_examples=120)
@given(text=texts)
@example(text="seed: !!bool x")
@example(text="td3: {v_max: 1e308}")
@example(text='dataset: "a\\0b"')
def test_any_file(text):
    Path("config.yaml").write_bytes(text.encode(errors="surrogatepass"))
    outcome(parse_train, ["--config", "config.yaml"], EnvOptions, TrainFlags)
    outcome(load_config, "config.yaml")
    outcome(load_run_config, Path(), EnvOptions)


LARGE = """td3.hidden 100000,100000|threads 100000|evaluation.episodes 2147483648|
replay.n_step 1e30|td3.atoms 1e30|exploration.pink_steps 1e30|num_envs 100000000|
reward.clip 1e39|td3.v_max 1e308|steps 1e30"""


@pytest.mark.parametrize("line", LARGE.replace("\n", "").split("|"))
def test_a_number_too_large_is_told_why(line):
    with pytest.raises(Td3RobotError, match=r" must be in .*, got .*: \w+"):
        parse_train(f"--{line}".split(), EnvOptions, TrainFlags)


def test_networks_that_fit_no_memory_are_refused_before_they_are_made():
    from td3_robot import TD3

    width = TD3Config.__dataclass_fields__["hidden"].metadata["range"][1]
    with pytest.raises(
        Td3RobotError,
        match=r"^hidden \[65536, 65536, .* needs .* GB, more than the .* GB there are$",
    ):
        TD3(3, 1, hidden=(width,) * 64)


@pytest.mark.parametrize("name", ["num_envs", "evaluation.episodes"])
def test_environments_that_fit_no_memory_are_refused_before_they_are_made(monkeypatch, name):
    from td3_robot.commands import train

    monkeypatch.setattr("td3_robot.utils.memory.get_memory", lambda device: 1e9)
    with pytest.raises(
        Td3RobotError, match=rf"^{name} 1000000 needs 15.0 GB, more than the 1.0 GB there are$"
    ):
        train.main([f"--{name}", "1000000", "--replay.capacity", "1e6"])
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    "name", ["a" * 300 + ".urdf", "a/" * 3000 + "b.xacro", "\0.urdf", "\udcff" * 99 + ".urdf"]
)
def test_any_name_of_a_file(name):
    import envs
    from envs.view.recording import check

    assert outcome(envs.make_robot, name) is None
    assert outcome(check, Path(f"{name}.gif"), (2, 2)) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_may_not_be_looked_into():
    Path("locked").mkdir(mode=0)
    for flag in ("--config", "--resume", "--start_from"):
        assert outcome(parse_train, [flag, "locked/config.yaml"], EnvOptions, TrainFlags) is None


@pytest.mark.parametrize("length", [300, 5000])
@pytest.mark.parametrize(
    "read",
    [
        read_randomization,
        load_dataset,
        lambda name: find_policy(Path(name)),
        lambda name: resume_sweep(name, parse_train, Path("train.py")),
        lambda name: check_new(Path(f"{name}-v0")),
    ],
)
def test_a_name_that_is_too_long_for_a_file_is_none(read, length):
    assert outcome(read, "a" * length) is None
