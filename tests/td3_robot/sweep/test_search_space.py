"""The search space: draws that cover ranges and lists, every seed with each; one line an error."""

import functools
from collections import Counter

import pytest
import yaml

from envs.command_line import TrainFlags
from envs.config.env_options import EnvOptions
from td3_robot.cli import arguments
from td3_robot.errors import ConfigError
from td3_robot.sweep.search_space import FloatRange, find_trusted, read_search_space

parse_train = functools.partial(arguments.parse_train, environment=EnvOptions, flags=TrainFlags)


@pytest.fixture
def plan(tmp_path):
    """A plan from the content of its file."""

    def plan(options: dict, **settings):
        (tmp_path / "sweep.yaml").write_text(yaml.safe_dump({"options": options, **settings}))
        return read_search_space(tmp_path / "sweep.yaml")

    return plan


def test_draws_cover_every_range_and_list_evenly(plan):
    options = {
        "td3": {"tau": {"low": 0.001, "high": 0.1, "log": True}, "gamma": {"low": 0.5, "high": 0.9}}
    }
    options["replay.n_step"] = [1, 3]
    trials = plan(options, trials=8).make_trials()
    assert [trial.name for trial in trials] == [f"trial{i}" for i in range(8)]
    drawn = {name: [trial.options[name] for trial in trials] for name in trials[0].options}
    for i, gamma in enumerate(sorted(drawn["td3.gamma"])):
        assert 0.5 + 0.05 * i - 1e-3 <= gamma <= 0.5 + 0.05 * (i + 1) + 1e-3
    for i, tau in enumerate(sorted(drawn["td3.tau"])):
        assert 0.999 * 10 ** (-3 + i / 4) <= tau <= 1.001 * 10 ** (-3 + (i + 1) / 4)
    assert Counter(drawn["replay.n_step"]) == {1: 4, 3: 4}
    assert drawn["td3.gamma"] != sorted(drawn["td3.gamma"])
    assert (
        plan(options, trials=8).make_trials()
        == trials
        != plan(options, trials=8, seed=1).make_trials()
    )


def test_each_draw_is_tried_with_each_seed(plan):
    trials = plan({"td3.tau": {"low": 0.1, "high": 0.2}, "seed": [3, 4]}, trials=6).make_trials()
    assert [trial.options["seed"] for trial in trials] == [3, 4] * 3
    taus = [trial.options["td3.tau"] for trial in trials]
    assert taus[::2] == taus[1::2] and len(set(taus)) == 3


def test_without_a_number_every_combination_is_tried(plan):
    trials = plan(
        {"replay.n_step": [1, 2], "td3.tau": [0.1, 0.2, 0.3], "task": "track"}
    ).make_trials()
    assert len({tuple(trial.options.items()) for trial in trials}) == 6
    assert {(trial.options["task"], trial.options["seed"]) for trial in trials} == {("track", 0)}


def test_as_many_as_there_are_combinations_may_be_drawn_and_pbt_may_begin_with_equal_ones(plan):
    options = {"replay.n_step": [1, 2], "td3.tau": [0.1, 0.2], "seed": [0, 1]}
    assert len(plan(options, trials=8).make_trials()) == 8
    assert len(plan(options, trials=10, scheduler="pbt").make_trials()) == 10


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("trials", [4, 6])
def test_no_draw_comes_twice(plan, trials, seed):
    # trained again with the same seed, it counted as one more seed whose spread is zero
    steps = {"low": 1, "high": 3, "whole": True}
    space = plan({"td3.tau": [0.1, 0.2], "replay.n_step": steps}, trials=trials, seed=seed)
    drawn = [tuple(trial.options.items()) for trial in space.make_trials()]
    assert len(set(drawn)) == len(drawn) == trials


def test_four_digits_of_a_value_lie_in_its_range():
    for low, high in ((0.99, 0.99999), (0.12345, 0.2), (1e-5, 1.23456e-4)):
        interval = FloatRange(low, high, log=low < 1e-3)
        drawn = [interval.interpolate(share / 1000) for share in range(1001)] + [
            interval.clip(x) for x in (low, high, 9.0)
        ]
        assert all(low <= value <= high for value in drawn) and len(set(drawn)) > 50


def test_whole_numbers_have_equal_parts():
    interval = FloatRange(1, 4, whole=True)
    assert Counter(interval.interpolate(i / 100) for i in range(100)) == {
        1: 25,
        2: 25,
        3: 25,
        4: 25,
    }
    assert [
        FloatRange(1, 8, log=True, whole=True).interpolate(share) for share in (0.0, 0.999999)
    ] == [1, 8]
    assert [interval.clip(value) for value in (-3, 2.4, 9)] == [1, 2, 4]


def test_a_trial_is_the_training_that_a_user_would_write(plan):
    options = {
        "td3": {
            "hidden": [[32, 16]],
            "normalize_observations": True,
            "critic_grad_clip": None,
            "tau": 3e-5,
        },
        "evaluation.every": 2_000,
        "schedule.lr": "linear",
    }
    (trial,) = plan(options).make_trials()
    config = parse_train(trial.words).config
    assert (config.td3.hidden, config.td3.normalize_observations) == ((32, 16), True)
    assert (config.td3.critic_grad_clip, config.td3.tau) == (None, 3e-5)
    assert (config.evaluation.every, config.schedule.lr, config.seed) == (2_000, "linear", 0)


def test_a_name_may_be_written_as_the_command_line_takes_it_and_plugins_are_for_every_trial(plan):
    found = plan({"td3": {"actor-lr": [1e-3, 1e-4]}, "plugins": ["mine", "ours"]})
    assert list(found.varied) == ["td3.actor_lr"] and found.fixed == {"plugins": ["mine", "ours"]}
    trial = found.make_trials()[1]
    assert parse_train(trial.words).flags.plugins == ("mine", "ours")
    assert find_trusted(trial.options) == ["plugins"]
    assert find_trusted({"env": "mine:Mine-v0"}) == ["env"]
    assert find_trusted({"env": "Pendulum-v1"}) == find_trusted({"env": None}) == []


RANGE = {"td3.tau": {"low": 0.1, "high": 0.2}}


@pytest.mark.parametrize(
    "options, settings, words",
    [
        (RANGE, {"trials": 0}, r"trials must be in \[1, 1_000_000\], got 0"),
        (RANGE, {}, "set trials, the number of trainings: td3.tau has a range"),
        (
            {**RANGE, "seed": [0, 1]},
            {"trials": 3},
            "trials must be a multiple of the 2 seeds, got 3",
        ),
        (
            {"td3.tau": [0.1, 0.2], "replay.n_step": [1, 2, 3], "seed": [0, 1]},
            {"trials": 14},
            "trials must be at most 12, all that there are with these values and seeds, got 14",
        ),
        ({"task": "track"}, {"trials": 2}, "trials must be at most 1, all that there are"),
        ({"td3.tau": []}, {}, "td3.tau must have at least one value: its list is empty"),
        (
            {"td3.tau": {"low": 2, "high": 1}},
            {"trials": 1},
            "td3.tau: a range is {low: 1e-4, high: 1e-2}",
        ),
        ({"td3.tau": {"low": 0, "hihg": 1}}, {"trials": 1}, "td3.tau: a range is"),
        (
            {"td3": {"tau": {"min": 0.1, "max": 0.2}}},
            {"trials": 2},
            "td3.tau: a range is .*; got {'max': 0.2, 'min': 0.1}",
        ),
        (
            {"td3.tau": {"low": 0, "high": 1, "log": True}},
            {"trials": 1},
            "td3.tau: .* must have low above 0, got 0",
        ),
        (
            {"replay.n_step": {"low": 1, "high": 2.5, "whole": True}},
            {"trials": 1},
            "n_step: .* whole ends, got 1 and 2.5",
        ),
        (
            {"replay.n_step": {"low": 1, "high": 3, "whole": True}, "td3.tau": [0.1, 0.2]},
            {"trials": 7},
            "trials must be at most 6, all that there are with these values and seeds, got 7",
        ),
        ({"seed": [0, 0]}, {}, "seed must not have a value twice"),
        ({"td3.tau": [0.1, 0.2, 0.1]}, {}, "td3.tau must not have a value twice, got"),
        ({"steps": 400, "td3": {"tau": {}}}, {}, "td3.tau must have a value, got {}"),
        ({"td3.tau": 0.1, "td3": {"tau": [0.1, 0.2]}}, {}, "options set td3.tau twice"),
        ({"seed": "x"}, {}, "seed must be a whole number"),
        ({"run": "x"}, {}, "options cannot have run: every trial is a run of its own"),
        ({}, {}, "options must list what to vary"),
        (
            RANGE,
            {"trials": 1, "scheduler": "hyperband"},
            "scheduler must be one of none, asha, pbt, got 'hyperband'",
        ),
        (RANGE, {"trials": 1, "metrik": "x"}, "unknown option 'metrik'; did you mean metric?"),
        (RANGE, {"trials": 1, "resources": {"cpus": 0}}, r"resources.cpus must be in \(0"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(plan, options, settings, words):
    with pytest.raises(ConfigError, match=words):
        plan(options, **settings).make_trials()


def test_renamed_options_are_drawn_as_before(plan):
    options = {"envs": [8, 16], "td3.tau": [0.1, 0.2], "steps": 100}
    drawn = plan(options, trials=2)
    renamed = drawn.rename({"envs": "num_envs", "unused": "other"})
    assert (list(renamed.fixed), list(renamed.varied)) == (["steps"], ["num_envs", "td3.tau"])
    for before, after in zip(drawn.make_trials(), renamed.make_trials(), strict=True):
        assert list(after.options.values()) == list(before.options.values())
