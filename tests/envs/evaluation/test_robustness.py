"""Success behind delay, noise and lag: what is played, and what it must and must not change."""

import json
import re

import numpy as np
import pytest
import torch

from envs.config.env_options import EnvOptions
from envs.evaluation import Evaluation
from envs.evaluation.report import charts
from envs.evaluation.robustness import SWEEPS, Robustness, sweep
from envs.view.playback import play_together


def transpose(env, gain=0.7):
    """It moves by the transpose of the Jacobian, at a pace at which about half of the goals are
    reached in time.
    """
    columns = env.layout["joint_error"]
    return lambda observation: torch.tanh(
        gain * torch.nn.functional.pad(observation[:, columns], (0, 1))
    )


def brisk(env):
    """The same at a pace at which nearly all of them are."""
    return transpose(env, 2.0)


def still(env):
    """It never moves."""
    return lambda observation: torch.zeros(env.num_envs, env.a_dim)


def evaluation(episodes: int, **options) -> Evaluation:
    made = Evaluation(EnvOptions(**options), episodes, seed=5)
    made.add("policy", transpose)
    made.add("brisk", brisk)
    made.add("still", still)
    made.add_baseline("random")
    return made


@pytest.fixture(scope="module")
def plain() -> Evaluation:
    return evaluation(12)


@pytest.mark.parametrize("guard", [False, True])
def test_without_disturbance_it_is_the_plain_evaluation(guard):
    disturbed = evaluation(
        12, guard=guard, latency=0.1, noise=0.01, servo_lag=0.1, assumed_latency=0.0
    )
    summaries = evaluation(12, guard=guard).play()
    # random actions look at nothing
    rates = {name: summaries[name]["success_rate"] for name in ("policy", "brisk", "still")}
    assert 0 < rates["policy"] < 1
    # what is measured in does not add to it
    assert disturbed.measure_success({"latency": 0.0}, 12) == rates


@pytest.mark.parametrize(
    "worst", [{"latency": 0.1}, {"noise": 0.1}, {"servo_lag": 0.1}], ids=lambda worst: [*worst][0]
)
def test_who_stands_still_does_not_mind_and_who_moves_does(plain, worst):
    """Where nothing is foreseen; a lag that is known leaves an arm where its commands led all the
    same, only later.
    """
    rates = plain.measure_success(worst | {"assumed_latency": 0.0}, 12)
    undisturbed = plain.measure_success({}, 12)
    assert (
        rates["still"] == undisturbed["still"] == 0.0
        and rates["brisk"] < undisturbed["brisk"] - 0.3
    )


DISTURBED = {
    "the same for all": EnvOptions(latency=0.07, servo_lag=0.05, assumed_latency=0.0),
    "drawn for each": EnvOptions(
        latency=0.05, latency_spread=0.05, joint_offset=0.02, tcp_offset=0.005, base_offset=0.01
    ),
    "drawn in each step": EnvOptions(latency=0.05, noise=0.05),
    # others that touch something begin again meanwhile, and draw noise from the same stream
    "ending early": EnvOptions(task="reach_avoid", noise=0.05),
}


@pytest.mark.parametrize("name", DISTURBED)
def test_one_episode_alone_is_played_and_shown_as_it_was_among_all(name, monkeypatch):
    monkeypatch.setattr("envs.evaluation.evaluation.ROUND", 4)

    def play(**chosen) -> Evaluation:
        made = Evaluation(DISTURBED[name], 10, 5, **chosen)
        made.add("policy", transpose)
        made.play(keep=True)
        return made

    every = play().trajectories["policy"]
    number = 5  # of the second round
    alone = play(episode=number)
    expected = every.select(number).series["q"][:, 0]
    assert torch.equal(alone.trajectories["policy"].select(0).series["q"][:, 0], expected)
    seed, row = alone.place
    (frames,) = play_together(alone.make_copies(), seed, number, row)
    assert torch.equal(torch.as_tensor(np.stack([frame.q for frame in frames[1:]])), expected)
    assert f"episode {number}, " in frames[-1].text


def test_every_disturbance_is_played_once_and_told_in_its_place():
    asked = []

    def play(given):
        asked.append(given)
        return {"policy": len(asked) / 100}

    robustness = sweep(play, 7)
    results = {
        name: [(value, rate["policy"]) for value, rate in robustness.iter_points(name)]
        for name in SWEEPS
    }
    assert len(asked) == 1 + 4 + 4 + 4 + 4  # none; latency, foreseen and not; noise at 50 ms; lag
    assert (
        results["latency"][0]
        == results["latency_without_foresight"][0]
        == results["servo_lag"][0]
        == (0.0, 0.01)
    )
    assert results["noise"][0][1] == dict(results["latency"])[0.05]
    rates = [rate for points in results.values() for _, rate in points]
    assert len(set(rates)) == len(asked)

    physics = sweep(play, 7, lagging=True)  # whose servos lag by themselves
    assert (
        SWEEPS.keys() - physics.success.keys()
        == {"servo_lag"}
        == SWEEPS.keys() - physics.to_dict().keys()
    )
    assert len(list(physics.iter_rows())) == 19 - 5

    results = robustness.to_dict()
    assert results.pop("episodes") == 7 and results.keys() == SWEEPS.keys()
    worst = {"latency": 0.05, "noise": 0.005}
    assert results["noise"][-1] == worst | {
        "success_rate": {"policy": 0.01 * (1 + asked.index(worst))}
    }
    assert json.loads(json.dumps(results)) == results


def test_a_row_of_the_table_names_its_disturbance():
    robustness = Robustness(
        7, {name: [{"policy": 0.125}] * len(one.values) for name, one in SWEEPS.items()}
    )
    rows = dict(robustness.iter_rows())
    assert len(rows) == 19 and set(map(tuple, rows.values())) == {("12.5",)}
    labels = [
        "latency 25 ms",
        "latency 50 ms, without latency compensation",
        "noise 0.5 mrad, latency 50 ms",
        "servo lag 100 ms",
    ]
    assert set(labels) < set(rows)
    assert "latency 0 ms, without latency compensation" not in rows  # the same as latency 0


def test_a_chart_keeps_the_colours_and_dashes_what_is_not_foreseen():
    success = {
        name: [{"policy": 1.0, "rrmc": 0.5}] * len(one.values) for name, one in SWEEPS.items()
    }
    drawn = {
        varied: charts.draw_success(varied, Robustness(7, success), ["policy", "random", "rrmc"])
        for varied in ("latency", "noise", "servo_lag")
    }
    for svg in drawn.values():
        assert (
            charts.COLOURS[0] in svg and charts.COLOURS[2] in svg and charts.COLOURS[1] not in svg
        )
        assert "policy" in svg and "rrmc" in svg
    dashed = {varied: len(re.findall("stroke-dasharray", svg)) for varied, svg in drawn.items()}
    assert dashed == {"latency": 2, "noise": 0, "servo_lag": 0}
