"""Callbacks see the run, add to its metrics, stop it and keep checkpoints."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from td3_robot import checkpoint
from td3_robot.config.run import Config, EvaluationConfig, ExplorationConfig
from td3_robot.errors import ConfigError
from td3_robot.training.callbacks import (
    Callback,
    KeepCheckpoints,
    StopAt,
    StopWhenSolved,
    make_callbacks,
)

pytestmark = pytest.mark.usefixtures("no_fsync")


class Watch(Callback):
    """Remembers the weights' sizes it saw and logs the largest."""

    def __init__(self):
        self.seen = []

    def on_step(self, run):
        self.seen.append(run.env_steps)

    def on_evaluation(self, run, metrics):
        metrics["largest_weight"] = max(p.abs().max().item() for p in run.agent.actor.parameters())


def test_a_callback_sees_the_agent_and_its_metrics_are_logged(tmp_path, train):
    watch = Watch()
    trainer = train(tmp_path, steps=120, callbacks=[watch])
    trainer.run()
    assert watch.seen == list(range(4, 124, 4))
    expected = max(p.abs().max().item() for p in trainer.agent.actor.parameters())
    assert trainer.trackers[0][-1]["largest_weight"] == expected


def test_a_callback_stops_the_run_after_the_step_it_is_at_and_the_run_can_go_on(tmp_path, train):
    class Stop(Callback):
        def on_step(self, run):
            if run.steps == 100:
                run.stop()

    summary = train(tmp_path, callbacks=[Stop()]).run()
    assert (summary["env_steps"], summary["finished"]) == (100, False)
    resumed = train(tmp_path, agent_seed=9)
    resumed.resume()
    assert resumed.run()["finished"]


def test_a_run_ends_when_it_is_solved_and_counts_as_finished(tmp_path, train, scripted):
    rates = scripted([0.5, 0.98, 0.99, 1.0], episodes=100)
    trainer = train(
        tmp_path,
        evaluation_env=rates,
        evaluation=EvaluationConfig(60, 100),
        callbacks=[StopWhenSolved()],
    )
    summary = trainer.run()
    assert [row["success_rate"] for row in trainer.trackers[0]] == pytest.approx([0.5, 0.98, 0.99])
    assert (summary["env_steps"], summary["finished"]) == (180, True)
    assert summary["solved_at_s"] is not None
    assert json.loads((tmp_path / "summary.json").read_text()) == summary


def test_where_success_is_not_known_it_cannot_stop_the_run(tmp_path, train, point_env):
    class Silent(point_env):
        def step(self, action):
            return super().step(action)._replace(info={})

    trainer = train(tmp_path, make=Silent, evaluation_env=Silent(4), callbacks=[StopWhenSolved()])
    with pytest.raises(
        ConfigError, match="stop_when_solved needs an environment that reports success"
    ):
        trainer.run()


def test_success_that_is_told_at_an_episodes_end_alone_is_waited_for(tmp_path, train, point_env):
    """Without an evaluation environment: episodes of 40 steps, the first of which end at step 160
    of 4 environments.
    """

    class AtTheEnd(point_env):
        def step(self, action):
            step = super().step(0.0 * action)
            told = {"success": step.truncated} if step.truncated.any() else {}
            return step._replace(info=told)

    trainer = train(
        tmp_path,
        env=AtTheEnd(4, horizon=40),
        evaluation=EvaluationConfig(every=60, episodes=0),
        callbacks=[StopWhenSolved()],
    )
    assert trainer.run()["env_steps"] == 180


@pytest.mark.parametrize("middle", [200, 240])  # 240 has an evaluation
def test_stopped_in_the_middle_and_trained_on_it_is_as_in_one_go(
    tmp_path, train, assert_same, middle
):
    """Its schedules go by all the steps; the evaluation that is due at the stop is made before
    it.
    """
    whole = train(tmp_path / "whole")
    whole.run()
    first = train(tmp_path / "cut", callbacks=[StopAt(middle, 0, 400)])
    summary = first.run()
    assert (summary["env_steps"], summary["finished"]) == (middle, False)
    assert [row["env_steps"] for row in first.trackers[0]] == [60, 120, 180, 240][: middle // 60]
    second = train(tmp_path / "cut", agent_seed=9)
    second.resume()
    second.run()
    assert_same(second.agent.state_dicts(), whole.agent.state_dicts())
    clocks = {"wall_s", "env_steps_per_s", "updates_per_s", "left_s"}
    rows = [
        [repr(row[name]) for name in row.keys() - clocks]
        for row in first.trackers[0] + second.trackers[0]
    ]
    assert rows == [[repr(row[name]) for name in row.keys() - clocks] for row in whole.trackers[0]]


@pytest.mark.parametrize("steps, made", [(0, 0), (10, 10), (400, 0), (401, 0)])
def test_a_stop_must_be_ahead_and_before_the_end(steps, made):
    with pytest.raises(
        ConfigError, match=f"stop_at must be above {made} steps, made already, and below steps, 400"
    ):
        StopAt(steps, made, 400)


def test_checkpoints_are_kept_as_they_were(tmp_path, train):
    # evaluations at 60, 120, ... 360, 400; the last is no multiple
    trainer = train(tmp_path, callbacks=[KeepCheckpoints(every=2)])
    trainer.run()
    log = trainer.trackers[0]
    kept = sorted((path for path in tmp_path.glob("step_*")), key=lambda path: int(path.name[5:]))
    metadata = [checkpoint.load(path, names=()).metadata for path in kept]
    assert all(each["trained_on"] == trainer.metadata and "rewards" in each for each in metadata)
    assert [path.name for path in kept] == ["step_120", "step_240", "step_360"]
    for path, number in zip(kept, (1, 3, 5)):
        actor = checkpoint.read(path, names=("actor", "Q1", "Q2"))["actor"]
        assert all(torch.equal(actor[name], log.actors[number][name]) for name in actor)


@pytest.mark.parametrize("start_from", [None, Path("another")])
def test_a_kept_checkpoint_says_whether_its_actor_has_learned(tmp_path, train, start_from):
    """Nothing is learned in the first 150 steps; evaluations are at 60, 120, ..."""
    made = train(
        tmp_path,
        exploration=ExplorationConfig(start_steps=150),
        callbacks=[KeepCheckpoints(every=1), StopAt(120, 0, 400)],
        start_from=start_from,
    )
    made.run()

    def read_trained(name):
        return checkpoint.load(tmp_path / name, names=()).metadata["actor_trained"]

    other = start_from is not None
    assert [read_trained(name) for name in ("step_60", "step_120", "last")] == 3 * [other]
    resumed = train(tmp_path, exploration=made.config.exploration, callbacks=[KeepCheckpoints(1)])
    resumed.resume()
    resumed.run()
    assert [read_trained(name) for name in ("step_120", "step_180", "last")] == [other, True, True]


def test_a_policy_that_has_learned_stays_so_where_a_resume_raises_the_burn_in(
    tmp_path, train, scripted
):
    """Evaluations at 60, 120, ...; the one at 180 is the best, after the resume."""
    first = train(tmp_path, evaluation_env=scripted([0.2, 0.4]), callbacks=[StopAt(120, 0, 400)])
    first.run()
    rates = scripted([0.8, *9 * [0.3]])
    td3 = dataclasses.replace(first.config.td3, burn_in=10**6)
    callbacks = [KeepCheckpoints(every=1)]
    second = train(tmp_path, evaluation_env=rates, td3=td3, callbacks=callbacks)
    second.resume()
    assert second.run()["best_at_steps"] == 180
    assert checkpoint.load(tmp_path / "step_180", names=()).metadata["actor_trained"]


@pytest.mark.parametrize("evaluated", [False, True])
@pytest.mark.parametrize("later", [{"burn_in": 10**6}, {"policy_delay": 10**6}])
def test_a_run_ends_when_solved_also_where_a_resume_delays_the_actor(
    tmp_path, train, scripted, later, evaluated
):
    """Updates begin at 44; evaluations are at 60, 120, ...: the one at 180 is solved."""
    stop = 120 if evaluated else 56
    first = train(tmp_path, evaluation_env=scripted([0.2, 0.4]), callbacks=[StopAt(stop, 0, 400)])
    first.run()
    rates = scripted([1.0, 0.5] if evaluated else [0.2, 0.4, 1.0, 0.5])
    td3 = dataclasses.replace(first.config.td3, **later)
    second = train(tmp_path, evaluation_env=rates, td3=td3, callbacks=[StopWhenSolved()])
    second.resume()
    summary = second.run()
    assert (summary["env_steps"], summary["finished"]) == (180, True)
    assert summary["solved_at_s"] is not None


def test_the_configuration_asks_for_them():
    assert make_callbacks(Config()) == []
    made = make_callbacks(Config(stop_when_solved=True, evaluation=EvaluationConfig(keep=3)))
    assert [type(callback) for callback in made] == [StopWhenSolved, KeepCheckpoints]


def test_what_a_callback_raises_ends_the_run(tmp_path, train):
    class Broken(Callback):
        def on_evaluation(self, run, metrics):
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        train(tmp_path, callbacks=[Broken()]).run()
