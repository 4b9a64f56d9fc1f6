"""A run that starts from another one's policy: this is evaluated before it learns, and is the best
until another one is better.
"""

import math
from pathlib import Path

import pytest

from td3_robot import checkpoint
from td3_robot.config.run import EvaluationConfig
from td3_robot.loggers.csv import CsvLog, read_metrics
from td3_robot.training.callbacks import Callback, StopWhenSolved
from td3_robot.training.periodic_evaluation import PeriodicEvaluation
from td3_robot.utils.signals import Stopped

pytestmark = pytest.mark.usefixtures("no_fsync")
STARTED = {"start_from": Path("another")}  # whose networks the command line loads
STEPS = [0, 60, 120, 180, 240, 300, 360, 400]


@pytest.mark.parametrize(("later", "best"), [((0.25, 0.25), 0), ((0.25, 0.75), 120)])
def test_the_policy_it_starts_from_is_the_best_until_one_is_better(
    tmp_path, train, scripted, assert_same, later, best
):
    rates = scripted([0.5, *later, *6 * [0.25], 0.5])
    trainer = train(tmp_path, evaluation_env=rates, **STARTED)
    summary = trainer.run()
    log = trainer.trackers[0]
    assert [row["env_steps"] for row in log] == STEPS
    assert log[0]["success_rate"] == 0.5 and log[0]["env_steps_per_s"] == 0.0
    assert_same(checkpoint.read(tmp_path)["actor"], log.actors[STEPS.index(best)])
    assert (summary["best_at_steps"], summary["solved_at_s"]) == (best, None)


def test_a_run_that_starts_solved_learns_nevertheless(tmp_path, train, scripted):
    """Until the first evaluation of what it has learned."""
    rates = scripted(5 * [1.0])
    trainer = train(tmp_path, evaluation_env=rates, callbacks=[StopWhenSolved()], **STARTED)
    assert trainer.run()["env_steps"] == 60


def test_the_file_of_metrics_has_all_that_later_rows_have(tmp_path, train):
    """At the start no training episode was played, and it is not known that they tell success."""
    trainer = train(tmp_path, **STARTED)
    trainer.trackers.append(CsvLog(tmp_path))
    trainer.run()
    log = trainer.trackers[0]
    assert "train_success_rate" not in log[0]
    first, *later = [row["train_success_rate"] for row in read_metrics(tmp_path)]
    assert math.isnan(first) and later == [row["train_success_rate"] for row in log[1:]]


class StopFirst(Callback):
    """A callback that stops a run after its first evaluation."""

    def on_evaluation(self, run, metrics):
        run.stop()


@pytest.mark.parametrize("when", ["in it", "after it", "later"])
def test_a_start_is_evaluated_once_wherever_the_run_is_resumed(tmp_path, train, monkeypatch, when):
    plain = train(tmp_path / "plain", **STARTED)
    plain.run()
    folder = tmp_path / "stopped"
    on_step = [lambda made: made == 100 and first.stop()] if when == "later" else []
    callbacks = [StopFirst()] if when == "after it" else []
    first = train(folder, on_step=on_step, callbacks=callbacks, **STARTED)

    def stop_here(self, agent, use):
        raise Stopped

    with monkeypatch.context() as patch:
        if when == "in it":
            patch.setattr(PeriodicEvaluation, "evaluate", stop_here)
        assert first.run()["finished"] is False
    assert first.steps == (100 if when == "later" else 0)
    again = train(folder, **STARTED)
    again.resume()
    again.run()
    rows = [*first.trackers[0], *again.trackers[0]]
    assert [row["env_steps"] for row in rows] == STEPS
    names = ("success_rate", "episode_return")
    for ours, theirs in zip(rows, plain.trackers[0], strict=True):
        assert [ours[name] for name in names] == [theirs[name] for name in names]
    assert again.state.best.score == plain.state.best.score


def test_nothing_is_evaluated_without_a_start_or_an_evaluation(tmp_path, train):
    unjudged = {"evaluation": EvaluationConfig(every=60, episodes=0)}
    for name, changes in (("fresh", {}), ("unjudged", STARTED | unjudged)):
        trainer = train(tmp_path / name, **changes)
        trainer.run()
        assert [row["env_steps"] for row in trainer.trackers[0]] == STEPS[1:]
