"""No option is silently ignored: one that would do nothing is refused, with the name of what it
needs.
"""

import dataclasses
import functools
import re
from pathlib import Path

import pytest

from envs.command_line import EvaluateFlags, TrainFlags, check_shown
from envs.config.env_options import EnvOptions
from td3_robot.cli import arguments
from td3_robot.cli.arguments import save_config
from td3_robot.config.field import iter_options
from td3_robot.config.run import Config, ReplayConfig
from td3_robot.config.schema import build, make_schema
from td3_robot.errors import ConfigError
from tests.support import get_refusal

parse_train = functools.partial(arguments.parse_train, environment=EnvOptions, flags=TrainFlags)
NEEDS = {
    name: needs for name, item in iter_options(Config) if (needs := item.metadata.get("needs"))
}


@pytest.fixture(autouse=True)
def presets(workplace):
    (workplace / "configs/gymnasium").mkdir()
    (workplace / "configs/gymnasium/default.yaml").write_text("num_envs: 1\n")


def refusal(line: str) -> str:
    return get_refusal(parse_train, line.split())


IDLE = {
    "replay.priority_alpha": "--replay.prioritized",
    "replay.priority_beta": "--replay.prioritized",
    "replay.hindsight_ratio": "--replay.hindsight final",
    "replay.hindsight_still": "--replay.hindsight final",
    "replay.dataset_share": "--replay.dataset d.npz",
    "td3.normalize_epsilon": "--td3.normalize_observations",
    "td3.normalize_clip": "--td3.normalize_observations",
    "exploration.ou_theta": "--exploration.kind ou",
    "exploration.pink_steps": "--exploration.kind pink",
    "schedule.lr_floor": "--schedule.lr cosine",
    "schedule.noise_floor": "--schedule.noise linear",
    "exploration.expert_share": "--exploration.expert solution",
    "exploration.expert_until": "--exploration.expert solution",
    "exploration.expert_delay": "--exploration.expert solution",
    "td3.bc_filter": "--td3.bc_alpha 2.5",
    "td3.residual_scale": "--td3.residual scripted",
    "td3.residual_joints": "--td3.residual_fade 0.3 --td3.residual scripted",
}


@pytest.mark.parametrize("option", IDLE)
def test_an_option_without_its_switch_is_refused_and_never_ignored(option):
    value = {
        "td3.bc_filter": "true",
        "replay.hindsight_still": "0.5",
        "replay.dataset_share": "0.25",
        "exploration.expert_until": "0.5",
    }.get(option, "1")
    switch = IDLE[option][2:].split()[0]
    assert re.match(rf"{option} has no effect without {switch}\b", refusal(f"--{option} {value}"))
    Path("mine.yaml").write_text(f"{option.split('.')[0]}:\n  {option.split('.')[1]}: {value}\n")
    assert refusal("--config mine.yaml").startswith(f"{option} has no effect without")
    parse_train(f"--config mine.yaml {IDLE[option]}".split())
    Path("mine.yaml").rename("configs/reach.yaml")  # in a preset it waits for its switch
    parse_train([])


@pytest.mark.parametrize(
    "option",
    [
        name
        for name, needs in NEEDS.items()
        if any("which a dataset replaces" in n.text for n in needs)
    ],
)
def test_what_only_matters_while_collecting_is_refused_beside_a_dataset(option):
    values = {"exploration.kind": "ou", "exploration.per_env": "true", "schedule.noise": "linear"}
    values |= {
        "replay.dataset": "e.npz",
        "exploration.expert": "rrmc",
        "exploration.uncertainty": "true",
        "updates_per_step": "2",
    }
    value = {"replay.hindsight": "final", "replay.capacity": "1000"}.get(
        option, values.get(option, "1")
    )
    message = refusal(f"--dataset d.npz --{option} {value}")
    assert message == f"{option} has no effect without collecting, which a dataset replaces"


@pytest.mark.parametrize(
    "line", ["--exploration.expert null --env Hopper-v5", "--replay.hindsight none --dataset d.npz"]
)
def test_an_option_that_has_its_default_is_never_refused(line):
    assert parse_train(line.split()).config is not None
    for option, item in iter_options(Config):
        if item.default is not None:
            value = (
                ",".join(map(str, item.default))
                if isinstance(item.default, tuple)
                else str(item.default).lower()
            )
            parse_train([*line.split(), f"--{option}", value])


def test_a_file_that_a_run_wrote_is_taken_with_all_that_waits_in_it(tmp_path):
    """It begins the same run anew, under a name of its own."""
    folder = tmp_path / "checkpoints/mine"
    folder.mkdir(parents=True)
    run = Config(run="mine", replay=ReplayConfig(priority_alpha=0.9), seed=3)
    save_config(run, folder / "config.yaml", EnvOptions(env="Hopper-v5"))
    assert parse_train(["--config", str(folder / "config.yaml")]).config == dataclasses.replace(
        run, run=None
    )
    assert (
        parse_train(["--config", str(folder / "config.yaml"), "--run", "mine2"]).config.run
        == "mine2"
    )


def test_a_file_of_ones_own_may_have_the_name_of_a_runs(tmp_path):
    path = tmp_path / "mine/config.yaml"
    path.parent.mkdir()
    path.write_text("run: mine\nreplay:\n  priority_alpha: 0.9\n")
    message = refusal(f"--config {path}")
    assert message == "replay.priority_alpha has no effect without replay.prioritized true"
    path.write_text("run: mine\nenvs: 8\n")
    arguments = parse_train(["--config", str(path)])
    assert (arguments.config.run, arguments.config.num_envs) == ("mine", 8)
    assert "num_envs" in arguments.notes[0]


@pytest.mark.parametrize(
    "option", ["robot x", "task x", "gripper x", "tcp x", "sparse true", "guard true"]
)
def test_a_gymnasium_environment_brings_its_own_robot_and_task(option):
    assert f"env and {option.split()[0]} exclude each other" in refusal(
        f"--env Hopper-v5 --{option}"
    )


def test_a_gymnasium_environment_has_none_of_our_arms_to_show():
    for cls, line in (
        (TrainFlags, "swift"),
        *((EvaluateFlags, f) for f in ("swift", "report a", "episode 0", "guard false")),
    ):
        flags = build(
            cls,
            make_schema("", "", cls).read_flags(f"--{line}".split()) | {"checkpoint": Path("a")},
        )
        check_shown(flags, EnvOptions())
        with pytest.raises(ConfigError, match=f"^{line.split()[0]} is for our own robots"):
            check_shown(flags, EnvOptions(env="Hopper-v5"))


def test_what_a_flag_switches_off_waits_in_a_file():
    Path("mine.yaml").write_text("schedule:\n  lr: linear\n  lr_floor: 0.1\n")
    assert parse_train("--config mine.yaml".split()).config.schedule.lr_floor == 0.1
    schedule = parse_train("--config mine.yaml --schedule.lr constant".split()).config.schedule
    assert (schedule.lr, schedule.lr_floor) == ("constant", 0.1)
    # asked for in one breath
    both = "--config mine.yaml --schedule.lr constant --schedule.lr_floor 0.2"
    assert refusal(both).startswith("schedule.lr_floor has no effect without schedule.lr")
