"""The help of a training, and its notes on defaults that it changes."""

import dataclasses
import functools
import re
from pathlib import Path

import pytest

from envs.command_line import TrainFlags
from envs.config.env_options import EnvOptions
from td3_robot.cli import arguments
from td3_robot.config.help_text import format_value
from td3_robot.config.run import Config
from td3_robot.errors import ConfigError

parse_train = functools.partial(arguments.parse_train, environment=EnvOptions, flags=TrainFlags)
SECTIONS = {Config: ""} | {
    item.type: f"{item.name}."
    for item in dataclasses.fields(Config)
    if dataclasses.is_dataclass(item.type)
}


pytestmark = pytest.mark.usefixtures("workplace")


@pytest.mark.parametrize("word", ["--help-all", "--help_all"])
def test_the_whole_help_shows_every_option_with_its_meaning_and_default(word, capsys):
    with pytest.raises(SystemExit) as caught:
        parse_train(["--seed", "1", word])
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split()).partition("Robot and task: ")[2]
    for cls, section in SECTIONS.items():
        for item in dataclasses.fields(cls):
            if item.type in SECTIONS:
                continue
            value = 1 if f"{section}{item.name}" == "seed" else item.default
            default = f"(default: {format_value(value)})" if value not in (None, ()) else ""
            found = re.search(rf" --{section}{item.name} (.*?)(?= --|$)", text)
            assert found and len(found[1]) > 20 and default in found[1], item.name
    assert all(f" --{option} " in text for option in ("config", "resume", "swift"))


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_the_short_help_shows_about_twenty_options_and_leads_to_the_others(word, capsys):
    with pytest.raises(SystemExit):
        parse_train([word])
    lines = capsys.readouterr().out.splitlines()
    assert 15 <= sum(line.startswith("  --") for line in lines) <= 25
    assert lines[-1].startswith("python train.py --help-all lists all 1")
    assert all(len(line) <= 100 for line in lines)


def test_a_preset_that_is_missing_and_a_start_that_is_cut_short_are_said():
    Path("configs/reach.yaml").write_text("exploration: {start_steps: 1_280}\n")
    assert parse_train([]).notes == ()
    assert parse_train(["--task", "mine"]).notes == (
        "task 'mine' has no preset: what is not given is as in the code of TD3's authors",
    )
    short = parse_train(["--steps", "1280"])
    assert short.config.exploration.start_steps == 128
    assert short.notes == (
        "a short run: exploration.start_steps is 128, a tenth of the steps, in place of 1280",
    )
    assert parse_train(["--steps", "1281"]).config.exploration.start_steps == 1280
    assert parse_train("--steps 5 --dataset d.npz".split()).config.exploration.start_steps == 1280
    message = "steps must be above exploration.start_steps, before which nothing is learned, got 5 <= 1280"
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_train("--steps 5 --exploration.start_steps 1280".split())
    Path("mine.yaml").write_text("exploration: {start_steps: 5_000}\n")
    mine = parse_train("--config mine.yaml --steps 5000".split())
    assert mine.config.exploration.start_steps == 500 and "start_steps is 500" in mine.notes[0]
    Path("mine.yaml").write_text("steps: 100\nexploration: {start_steps: 100}\n")
    with pytest.raises(ConfigError, match="got 100 <= 100"):
        parse_train("--config mine.yaml".split())


def test_help_shows_what_acts_here(capsys):
    Path("configs/pick.yaml").write_text("num_envs: 5\ntd3: {gamma: 0.75}\n")
    with pytest.raises(SystemExit):
        parse_train("--task pick --td3.policy_delay 7 --help-all".split())
    text = " ".join(capsys.readouterr().out.split())
    for option, value in {
        "num_envs": "5",
        "td3.gamma": "0.75",
        "td3.policy_delay": "7",
        "task": "pick",
        "seed": "0",
    }.items():
        assert re.search(rf" --{option} [^(]{{20,}}\(default: {value}\)", text), option
    assert (
        "--td3.norm {none,layer,batch,renorm}" in text
        and "--list {robots,tasks,grippers,baselines}" in text
    )
