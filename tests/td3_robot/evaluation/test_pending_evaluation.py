"""Evaluations that are played beside the training: nothing but the clocks tells when their scores
came.
"""

import math

import pytest

from td3_robot import checkpoint
from td3_robot.checkpoint.resume_point import read_resume_point
from td3_robot.config.run import Config, EvaluationConfig
from td3_robot.errors import ConfigError, NotFiniteError
from td3_robot.evaluation.process import USE, wanted
from td3_robot.evaluation.rollout import evaluate
from td3_robot.loggers.csv import CsvLog, read_metrics
from td3_robot.training.callbacks import Callback, KeepCheckpoints
from td3_robot.utils.seeding import seed_of

pytestmark = pytest.mark.usefixtures("no_fsync")
CLOCKS = {"wall_s", "env_steps_per_s", "updates_per_s", "left_s"}
NEVER = 10**9


class Later:
    """An evaluation process in this one: scores are there after so many looks, or when they are
    waited for.
    """

    def __init__(self, env, looks: int):
        self._env, self._looks = env, looks

    def ready(self) -> bool:
        return True

    def begin(self, policy):
        self._policy, self._left = policy, self._looks
        return self

    def done(self) -> bool:
        self._left -= 1
        return self._left < 0

    def scores(self, answer, heed):
        heed()
        return evaluate(self._policy, self._env, seed_of(3, USE))


class Seen(Callback):
    """What it saw of the run at each evaluation."""

    def __init__(self):
        self.seen = []

    def on_evaluation(self, run, metrics):
        weights = [weight.sum().item() for weight in run.agent.actor.parameters()]
        self.seen.append(
            (run.steps, run.env_steps, run.agent.gradient_steps, run.config.seed, weights)
        )


class Ends(Callback):
    """Saves, stops or kills the run after so many steps."""

    def __init__(self, save=None, stop=None, kill=None):
        self._save, self._stop, self._kill = save, stop, kill

    def on_step(self, run):
        if run.steps == self._save:
            run.save_resume_point()
        if run.steps == self._stop:
            run.stop()
        if run.steps == self._kill:
            raise ZeroDivisionError("the power went")


def figures(rows: list[dict]) -> list[str]:
    """All but the clocks, in every digit and in their order."""
    return [repr([(name, row[name]) for name in row if name not in CLOCKS]) for row in rows]


@pytest.fixture
def later(point_env):
    """Builds a `Later` with environments of its own."""
    return lambda looks: Later(point_env(8, 3), looks)


@pytest.fixture(scope="module")
def in_line(tmp_path_factory, train):
    """The trainer whose evaluations hold it up, its summary, folder and callback."""
    folder, seen = tmp_path_factory.mktemp("in_line"), Seen()
    trainer = train(folder, callbacks=[seen, KeepCheckpoints(2)])
    return trainer, trainer.run(), folder, seen


@pytest.mark.parametrize(
    "looks", [1, 5, NEVER]
)  # of which 15 are made from one evaluation to the next
def test_whenever_the_scores_come_all_is_as_in_line(
    tmp_path, train, later, in_line, assert_same, looks
):
    whole, summary, folder, seen = in_line
    mine = Seen()
    trainer = train(tmp_path, evaluation_process=later(looks), callbacks=[mine, KeepCheckpoints(2)])
    told = trainer.run()
    assert figures(trainer.trackers[0]) == figures(whole.trackers[0])
    assert {name: told[name] for name in told.keys() - CLOCKS} == {
        name: summary[name] for name in told.keys() - CLOCKS
    }
    assert mine.seen == seen.seen
    assert_same(trainer.agent.state_dicts(), whole.agent.state_dicts())
    for part in ("", "step_120", "step_360"):
        assert_same(checkpoint.read(tmp_path / part), checkpoint.read(folder / part))
        mine, metadata = (
            checkpoint.load(run / part, names=()).metadata for run in (tmp_path, folder)
        )
        assert mine == metadata


@pytest.mark.parametrize(
    "sittings, looks",
    [
        ([{"stop": 64}], 5),  # while the scores of 60 are awaited
        ([{"save": 64, "kill": 100}], 5),  # when they have come since, too
        ([{"stop": 64}, {"save": 72, "kill": 172}], 5),
        ([{"stop": 400}], 5),
        ([{"stop": 120}, {"kill": 160}], 5),
        (
            [{"stop": 120}, {"kill": 160}],
            None,
        ),  # what was cut off was made anew and logged, but not saved
    ],
)
def test_stopped_or_killed_before_the_scores_come_it_goes_on_as_one_that_was_not(
    tmp_path, train, later, in_line, assert_same, sittings, looks
):
    for number, ends in enumerate([*sittings, {}]):
        played = None if looks is None else later(looks)
        trainer = train(
            tmp_path,
            evaluation_process=played,
            agent_seed=None if not number else 9,
            callbacks=[Ends(**ends)],
        )
        if number:
            trainer.resume()
        trainer.trackers.append(CsvLog(tmp_path, trainer.logged_steps))
        try:
            trainer.run()
        except ZeroDivisionError:
            continue
    whole, _, folder, _ = in_line
    assert figures(read_metrics(tmp_path)) == figures(
        [{k: float(v) for k, v in row.items()} for row in whole.trackers[0]]
    )
    assert_same(trainer.agent.state_dicts(), whole.agent.state_dicts())
    assert_same(checkpoint.read(tmp_path), checkpoint.read(folder))


def test_a_stop_does_not_wait_for_scores_and_a_later_one_at_the_end_does(tmp_path, train, later):
    first = train(tmp_path, evaluation_process=later(NEVER), callbacks=[Ends(stop=64)])
    assert not first.run()["finished"] and first.trackers[0] == []
    assert read_resume_point(tmp_path)[1]["begun"]["at"] == [
        60,
        60,
        0,
        5,
    ]  # learnt from steps 44 to 60
    second = train(tmp_path, evaluation_process=later(NEVER), agent_seed=9)
    second.resume()
    assert second.run()["finished"] and second.trackers[0][0]["env_steps"] == 60
    assert read_resume_point(tmp_path)[1]["begun"] is None


def test_a_run_that_diverges_still_keeps_the_policy_whose_scores_are_awaited(
    tmp_path, train, point_env, later, assert_same
):
    class Poisoned(point_env):
        def step(self, action):
            step = super().step(action)
            return step._replace(reward=step.reward * math.nan) if self.calls > 40 else step

    for name, played in (("in line", None), ("beside", later(NEVER))):
        trainer = train(tmp_path / name, make=Poisoned, evaluation_process=played)
        with pytest.raises(NotFiniteError):
            trainer.run()
        assert [row["env_steps"] for row in trainer.trackers[0]] == [60, 120]
    assert_same(*(checkpoint.read(tmp_path / name) for name in ("in line", "beside")))


# When it is used


def test_it_is_used_where_it_is_asked_for():
    assert not wanted(Config(), "it is elsewhere") and wanted(
        Config(evaluation=EvaluationConfig(process=True)), None
    )


@pytest.mark.parametrize(
    "changes, bound, words",
    [
        ({}, "it is elsewhere", "as it is elsewhere"),
        ({"device": "cuda"}, None, "as device is cuda, where the same sums"),
        ({"stop_when_solved": True}, None, "as stop_when_solved ends the run"),
    ],
)
def test_where_it_cannot_be_it_is_refused(changes, bound, words):
    with pytest.raises(ConfigError, match=f"^evaluation.process cannot be true, {words}"):
        wanted(Config(evaluation=EvaluationConfig(process=True), **changes), bound)
