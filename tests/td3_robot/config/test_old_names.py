"""Older names of options in files, flags and run folders go on working, with one line."""

import functools
from dataclasses import dataclass
from pathlib import Path

import pytest

from envs.command_line import TrainFlags
from envs.config.env_options import EnvOptions
from td3_robot.cli import arguments
from td3_robot.config.field import option
from td3_robot.config.schema import make_schema
from td3_robot.errors import ConfigError

parse_train = functools.partial(arguments.parse_train, environment=EnvOptions, flags=TrainFlags)
ENVS = "envs is now called num_envs"
GUIDE = "exploration.guide is now called exploration.expert"


@pytest.fixture(autouse=True)
def presets(workplace):
    (workplace / "configs/reach.yaml").touch()


@dataclass(frozen=True)
class Options:
    """Options.

    Attributes:
        width: A width.
        switch: A switch.
    """

    REMOVED = {"height": "all are as high", "deep": "nothing is deep"}  # noqa: RUF012

    width: int = option(1, aliases=("breadth",))
    switch: bool = option(False, aliases=("lever",))


WHOLE = {"run": "old", "envs": 5, "td3.tau": 0.01, "reward.scale": 1, "evaluation.keep": 0}
WHOLE |= {"exploration.guide": "null", "replay.n_step": 1, "schedule.lr": "constant"}


def read(line: str) -> tuple[dict, dict]:
    """The values of a command line, and what there is to say of older names."""
    old = {}
    return make_schema("", "", Options).read_flags(line.split(), old), old


def test_flags_and_files_take_older_names_and_say_the_new_ones_in_one_line():
    Path("mine.yaml").write_text("envs: 5\nexploration: {guide: rrmc}\n")
    parsed = parse_train(["--config", "mine.yaml"])
    assert parsed.config.num_envs == 5 and parsed.config.exploration.expert == "rrmc"
    assert parsed.notes == (f"{ENVS}; {GUIDE}",)
    parsed = parse_train("--config mine.yaml --envs 6 --exploration.guide=null".split())
    assert parsed.config.num_envs == 6 and parsed.config.exploration.expert is None
    assert parsed.notes == (f"{ENVS}; {GUIDE}",)
    assert parse_train("--config mine.yaml --num_envs 7".split()).config.num_envs == 7


def test_run_folders_with_older_names_are_read_in_silence():
    Path("checkpoints/old").mkdir(parents=True)
    values = "\n".join(f"{name}: {value}" for name, value in WHOLE.items())  # a run writes all
    Path("checkpoints/old/config.yaml").write_text(values)
    for line in ("--resume old", "--config checkpoints/old/config.yaml"):
        parsed = parse_train(line.split())
        assert parsed.config.num_envs == 5 and parsed.notes == ()
    config, _ = arguments.load_run_config(Path("checkpoints/old"), EnvOptions)
    assert config.num_envs == 5


def test_both_names_of_one_option_are_refused():
    message = "^envs and num_envs are the same option: give num_envs alone$"
    for line in ("--envs 5 --num_envs 6", "--num_envs 6 --envs 5"):
        with pytest.raises(ConfigError, match=message):
            parse_train(line.split())
    Path("mine.yaml").write_text("envs: 5\nnum_envs: 5\n")
    with pytest.raises(ConfigError, match=r"'mine.yaml': envs and num_envs are the same option"):
        parse_train(["--config", "mine.yaml"])


def test_a_wrong_value_is_told_by_the_name_of_today():
    with pytest.raises(ConfigError, match="num_envs must be a whole number, got 'x'"):
        parse_train(["--envs", "x"])
    with pytest.raises(ConfigError, match="--num_envs needs a value"):
        parse_train(["--envs"])


@pytest.mark.parametrize("line", ["--height 3 --lever", "--lever --height", "--height=3 --lever"])
def test_a_removed_option_has_no_effect_and_says_so(line):
    values, old = read(line)
    assert values == {"switch": True}
    assert old == {
        "height": "height has no effect any more: all are as high",
        "lever": "lever is now called switch",
    }


def test_a_removed_option_of_a_file_has_no_effect():
    Path("mine.yaml").write_text("breadth: 3\nheight: [1, {a: 2}]\n")
    old = {}
    found = make_schema("", "", Options).read_file(Path("mine.yaml"), old=old)
    assert found == {"width": 3} and sorted(old) == ["breadth", "height"]


def test_evaluations_in_a_process_of_their_own_are_no_more_and_older_files_still_load():
    Path("mine.yaml").write_text("evaluation: {process: true}\n")
    note = "evaluation.process has no effect any more: evaluations take place between two steps"
    for line in ("--config mine.yaml", "--evaluation.process true"):
        assert note in " ".join(parse_train(line.split()).notes)
