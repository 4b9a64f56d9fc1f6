"""Configuration: every number in its range, and options that contradict each other refused."""

import dataclasses
import re
import typing
from pathlib import Path

import numpy as np
import pytest

from td3_robot.cli.arguments import load_config, save_config
from td3_robot.config.field import Range
from td3_robot.config.run import (
    Config,
    EvaluationConfig,
    ExplorationConfig,
    ReplayConfig,
    RewardConfig,
    ScheduleConfig,
    TD3Config,
)
from tests.support import get_refusal

SECTIONS = {Config: ""} | {
    item.type: f"{item.name}."
    for item in dataclasses.fields(Config)
    if dataclasses.is_dataclass(item.type)
}


NUMBERS = [
    (cls, item.name)
    for cls in SECTIONS
    for item in dataclasses.fields(cls)
    if item.type in (int, float, float | None)
    and item.name not in ("v_min", "v_max", "r_min", "r_max")
]


@pytest.mark.parametrize("cls, name", NUMBERS)
def test_no_number_leaves_its_range_even_without_the_command_line(cls, name):
    """In the words of whoever wrote `TD3Config(gamma=...)`; a bound that is no law of nature says
    why it is there.
    """
    for value in (float("nan"), float("inf"), -1, 10**400, "x"):
        message = get_refusal(cls, **{name: value})
        assert (
            re.match(rf"{name} must be in [\[(][^ ]+, [^ ]+\], got ", message)
            and len(message) < 200
        )
    assert (
        "[0, 1]" in message
        or "(0, 1]" in message
        or re.search("got .*: .* ", get_refusal(cls, **{name: 10**400}))
    )


def test_every_number_has_a_range():
    for cls in SECTIONS:
        for item in dataclasses.fields(cls):
            if {int, float} & {item.type, *typing.get_args(item.type)}:
                assert isinstance(item.metadata["range"], Range), item.name


@pytest.mark.parametrize(
    "options",
    [
        {"hidden": (9, 65_537)},
        {"hidden": (9,) * 65},
        {"v_max": 1e308},
        {"atoms": 10**30},
        {"actor_lr": 3.5e38},
    ],
)
def test_what_neither_float32_nor_memory_could_hold_is_refused(options):
    assert get_refusal(TD3Config, **options).startswith(f"{next(iter(options))} must ")


@pytest.mark.parametrize(
    "cls, name, choices",
    [
        (TD3Config, "norm", "none, layer, batch, renorm"),
        (TD3Config, "init", "default, orthogonal"),
        (ReplayConfig, "hindsight", "none, future, final, episode"),
        (ExplorationConfig, "kind", "gaussian, ou, pink"),
        (ScheduleConfig, "lr", "constant, linear, cosine"),
        (ScheduleConfig, "noise", "constant, linear, cosine"),
    ],
)
def test_a_wrong_choice_is_told_the_right_ones(cls, name, choices):
    message = get_refusal(cls, **{name: "x"})
    assert message == f"{name} must be one of {choices}, got 'x'"


@pytest.mark.parametrize(
    "cls, given, rule",
    [
        (Config, {"seeds": 3}, "a list, each a whole number"),
        (Config, {"seeds": (1, 2.5)}, "a list, each a whole number"),
        (Config, {"num_envs": None}, "in [1, 1_000_000]"),
        (Config, {"steps": 1e6}, "a whole number"),
        (Config, {"mlflow": "no"}, "true or false"),
        (Config, {"device": None}, "text"),
        (Config, {"run": 3}, "text or null"),
        (Config, {"dataset": 3}, "a path or null"),
        (Config, {"td3": {"gamma": 0.9}}, "TD3Config"),
        (ReplayConfig, {"prioritized": "false"}, "true or false"),
        (ReplayConfig, {"priority_alpha": True}, "a number"),
        (TD3Config, {"hidden": 64}, "a list, each a whole number"),
        (RewardConfig, {"clip": True}, "a number or null"),
    ],
)
def test_an_option_of_another_type_is_refused_in_python_too(cls, given, rule):
    [(name, value)] = given.items()
    assert get_refusal(cls, **given) == f"{name} must be {rule}, got {value!r}"


def test_lists_and_text_become_what_a_file_would_give():
    given = Config(seeds=[1, 2], dataset="d.npz", td3=TD3Config(hidden=[8]))
    assert given == Config(seeds=(1, 2), dataset=Path("d.npz"), td3=TD3Config(hidden=(8,)))
    assert isinstance(given.dataset, Path)


def test_sizes_that_must_fit_each_other():
    assert ReplayConfig(capacity=100, batch_size=100).batch_size == 100
    message = get_refusal(ReplayConfig, capacity=100, batch_size=101)
    assert message == "batch_size must be at most capacity, got 101 > 100"
    assert "envs must be at most replay.capacity" in get_refusal(
        Config, replay=ReplayConfig(capacity=300), num_envs=301
    )


@pytest.mark.parametrize(
    "cls, options, words",
    [
        (TD3Config, {"actor_min_q": True, "twin_critics": False}, ("actor_min_q", "twin_critics")),
        (TD3Config, {"v_min": 0.0}, ("v_min", "atoms")),
        (TD3Config, {"atoms": 51}, ("atoms", "v_min", "v_max")),
        (TD3Config, {"atoms": 51, "v_min": 1.0, "v_max": 1.0}, ("v_min below v_max",)),
        (TD3Config, {"atoms": 1, "v_min": 0.0, "v_max": 1.0}, ("atoms must be 0, or 2 and more",)),
        (TD3Config, {"r_min": -1.0, "r_max": -2.0}, ("r_min must be at most r_max",)),
        (TD3Config, {"r_max": 0.0, "gamma": 1.0}, ("r_max", "gamma must be below 1")),
        (TD3Config, {"r_max": 0.0, "atoms": 51, "v_min": -9.0, "v_max": 0.0}, ("r_max", "atoms")),
        (
            Config,
            {"td3": TD3Config(r_min=0.0), "reward": RewardConfig(normalize=True)},
            ("reward.normalize", "r_min"),
        ),
        (ReplayConfig, {"hindsight": "future", "prioritized": True}, ("hindsight", "prioritized")),
        (ReplayConfig, {"hindsight": "final", "n_step": 3}, ("hindsight", "n_step")),
        (
            Config,
            {"td3": TD3Config(norm="batch"), "replay": ReplayConfig(batch_size=1)},
            ("td3.norm batch", "replay.batch_size"),
        ),
        (
            Config,
            {"td3": TD3Config(norm="renorm"), "replay": ReplayConfig(batch_size=1)},
            ("td3.norm renorm", "replay.batch_size"),
        ),
        (
            Config,
            {
                "td3": TD3Config(twin_critics=False),
                "exploration": ExplorationConfig(uncertainty=True),
            },
            ("exploration.uncertainty", "td3.twin_critics"),
        ),
        (
            Config,
            {"reward": RewardConfig(normalize=True), "dataset": "d.npz"},
            ("reward.normalize", "dataset"),
        ),
        (Config, {"cuda_graph": True}, ("cuda_graph", "device cuda or cuda:N, got 'cpu'")),
        (
            Config,
            {"cuda_graph": True, "device": "mps"},
            ("cuda_graph", "device cuda or cuda:N, got 'mps'"),
        ),
    ],
)
def test_options_that_contradict_each_other_are_named(cls, options, words):
    message = get_refusal(cls, **options)
    assert all(word in message for word in words)


def test_numbers_of_numpy_are_written_and_read_as_those_of_python(tmp_path):
    config = Config(
        seeds=tuple(np.arange(3)),
        num_envs=np.int64(4),
        save_every=np.float64(2.5),
        replay=ReplayConfig(batch_size=np.int32(64)),
    )
    save_config(config, tmp_path / "config.yaml")
    expected = Config(
        seeds=(0, 1, 2), num_envs=4, save_every=2.5, replay=ReplayConfig(batch_size=64)
    )
    assert load_config(tmp_path / "config.yaml") == expected


def test_a_truth_is_no_number():
    assert get_refusal(Config, num_envs=True) == "num_envs must be a whole number, got True"


def test_a_config_cannot_be_changed():
    for part in (Config(), *(cls() for cls in SECTIONS if cls is not Config), EvaluationConfig()):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(part, dataclasses.fields(part)[0].name, None)
