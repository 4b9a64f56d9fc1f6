"""An evaluation as a whole: the same question has the same answer."""

import json
import re

import numpy as np
import pytest
import torch

from envs.config.env_options import EnvOptions
from envs.evaluation import Evaluation
from td3_robot.data.dataset_file import collect
from td3_robot.errors import ConfigError
from td3_robot.td3.agent import TD3


def test_played_again_it_gives_the_same_figures():
    """Under noise, and for random actions, which are a stream of numbers too."""
    evaluation = Evaluation(EnvOptions(noise=0.02, latency=0.05), 5, seed=7)
    for name in ("rrmc", "random"):
        evaluation.add_baseline(name)
    first = dict(evaluation.play())
    for _ in range(2):
        assert dict(evaluation.play()) == first


def test_failures_of_the_physics_are_those_of_the_episodes_however_often_played(monkeypatch):
    """Of three arms the first is stopped in every step; counted are the episodes played last."""
    engine = pytest.importorskip("envs.simulation.mujoco.engine").MujocoEngine
    broken = np.array([True, False, False])
    monkeypatch.setattr(engine, "_find_failed", lambda self, model, physics: broken)

    every, second = (
        Evaluation(EnvOptions(engine="mujoco"), 3, seed=7, episode=episode) for episode in (None, 1)
    )
    for evaluation in (every, every, second):
        evaluation.add("still", lambda env: lambda seen: torch.zeros(env.num_envs, env.a_dim))
        steps = evaluation.play()["still"]["episode_length"]
        failures = steps["mean"] if evaluation is every else 0
        assert evaluation.unstable == evaluation.to_dict()["unstable"] == failures


def test_a_stop_that_is_kept_for_a_baseline_alone_is_named():
    evaluation = Evaluation(EnvOptions(task="reach_avoid", guard_stops=True), 2, seed=7)
    evaluation.add_baseline("rrmc")
    assert "stops kept" not in str(evaluation)
    evaluation.add_baseline("rrmc+guard")
    evaluation.play()
    assert "stops kept" in str(evaluation) and evaluation.to_dict()["guard_stops"] is True


def test_a_switch_that_is_off_is_called_so():
    options = EnvOptions(latency=0.05, estimate_latency=False)
    assert "estimate_latency off" in str(Evaluation(options, 2, seed=7))


REFUSED = {
    "nothing to play": (lambda made: made.play(), "play needs a controller: add one"),
    "nothing to copy": (lambda made: made.make_copy("rrmc"), "unknown controller 'rrmc'"),
    "nothing to compare": (lambda made: made.compare_with_random(), "needs a controller"),
    "nothing to disturb": (lambda made: made.play_robustness(2), "robustness needs a controller"),
    "no results": (lambda made: made.to_dict(), r"to_dict needs results: call play\(\) first"),
    "no table": (
        lambda made: made.print_table(),
        r"print_table needs results: call play\(\) first",
    ),
    "no report": (
        lambda made: made.render_report({}, (), str),
        r"render_report needs results: call play\(keep=True\) first",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_comes_too_early_says_what_is_needed_first(what):
    ask, expected = REFUSED[what]
    with pytest.raises(ConfigError, match=expected):
        ask(Evaluation(EnvOptions(), 2, seed=7))


def test_a_report_of_what_was_played_without_its_paths_says_how_to_keep_them():
    evaluation = Evaluation(EnvOptions(), 2, seed=7)
    evaluation.add_baseline("random")
    evaluation.play()
    with pytest.raises(ConfigError, match=r"call play\(keep=True\) first"):
        evaluation.render_report({}, (), str)


@pytest.mark.parametrize(
    "name, near", [("rrmc+gard", "rrmc+guard"), ("rrm+guard", "rrmc+guard"), ("rrm", "rrmc")]
)
def test_a_mistyped_baseline_is_near_one_with_or_without_a_guard(name, near):
    with pytest.raises(ConfigError, match=re.escape(f"did you mean '{near}'?")):
        Evaluation(EnvOptions(), 2).add_baseline(name)


@pytest.mark.parametrize("wrap", [lambda agent: agent, lambda agent: lambda env: agent])
def test_an_agent_in_place_of_a_function_is_told_what_is_needed(wrap):
    """Neither an agent nor a function that returns one can act; its `select_action` does."""
    evaluation = Evaluation(EnvOptions(env="Pendulum-v1"), 2)
    agent = TD3(3, 1, hidden=(8,))
    with pytest.raises(ConfigError, match=r"lambda env: agent.select_action; 'mine' gave a TD3$"):
        evaluation.add("mine", wrap(agent))
    assert not evaluation.controllers
    evaluation.add("mine", lambda env: agent.select_action)
    assert evaluation.play()["mine"]


def test_an_environment_of_others_says_what_only_robots_have():
    evaluation = Evaluation(EnvOptions(env="Pendulum-v1"), 2, seed=7)
    evaluation.add("still", lambda env: lambda observation: observation[:, :1] * 0.0)
    for ask in (
        lambda: evaluation.play(keep=True),
        lambda: evaluation.play_robustness(2),
        lambda: evaluation.measure_success({}, 2),
        lambda: evaluation.measure_success({"latency": 0.05}, 2),
        lambda: evaluation.render_report({}, (), str),
    ):
        with pytest.raises(ConfigError, match=r"is for our own robots; a Gymnasium environment"):
            ask()


def test_one_episode_of_an_environment_of_others_is_the_one_it_was_among_all():
    def play(**chosen):
        evaluation = Evaluation(EnvOptions(env="Pendulum-v1"), 3, seed=7, **chosen)
        evaluation.add("swing", lambda env: lambda observation: observation[:, 2:])
        return evaluation.play()["swing"]["episode_return"]

    alone = [play(episode=number)["mean"] for number in range(3)]
    every = play()
    found = (min(alone), max(alone), sum(alone) / 3)
    assert found == pytest.approx((every["min"], every["max"], every["mean"]), rel=1e-6)


@pytest.mark.parametrize("limit, copies", [(None, 2), (100, 4), (300, 1), (900, 1)])
def test_a_dataset_of_an_environment_of_others_has_whole_episodes(limit, copies):
    """Pendulum ends after 200 steps, unless it is told otherwise."""
    evaluation = Evaluation(EnvOptions(env="Pendulum-v1", time_limit=limit), 10)
    env = evaluation.make_dataset_env(400)
    played = collect(lambda observation: observation[:, 2:], env, 400, seed=0)
    ends = set(played.truncated.nonzero()[:, 0].tolist())
    whole = set(range((limit or 200) - 1, 400, limit or 200))
    assert env.num_envs == copies and ends == whole | {399}


@pytest.mark.parametrize(
    "name, value, valid",
    [
        ("episodes", 0, "[1, 10000000]"),
        ("episodes", 2.5, "[1, "),
        ("episodes", True, "[1, "),
        ("seed", -1, "[0, 4294967295]"),
        ("episode", 2, "[0, 1]"),
        ("episode", -1, "[0, 1]"),
    ],
)
def test_a_number_out_of_its_range_is_refused_with_the_range(name, value, valid):
    with pytest.raises(ConfigError) as refused:
        Evaluation(EnvOptions(), **({"episodes": 2} | {name: value}))
    assert str(refused.value).startswith(f"{name} must be an integer in {valid}")
    assert str(refused.value).endswith(f"got {value}")


def test_integers_of_numpy_are_integers():
    evaluation = Evaluation(EnvOptions(), *np.array([3, 7]), episode=np.int32(2))
    evaluation.add_baseline("rrmc")
    evaluation.play()
    same = Evaluation(EnvOptions(), 3, 7, episode=2)
    same.add_baseline("rrmc")
    same.play()
    assert json.dumps(evaluation.to_dict()) == json.dumps(same.to_dict())
