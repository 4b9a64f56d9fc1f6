"""Where a resumed run ends: finished, solved, stopped in its last evaluation, or to be longer."""

import pytest

from td3_robot.cli.train_run import resume
from td3_robot.config.run import Config, EvaluationConfig, ExplorationConfig, RewardConfig
from td3_robot.config.td3 import TD3Config
from td3_robot.errors import ConfigError
from td3_robot.training.callbacks import StopWhenSolved
from td3_robot.training.periodic_evaluation import PeriodicEvaluation
from td3_robot.utils.signals import Stopped

pytestmark = pytest.mark.usefixtures("no_fsync")


def test_a_run_that_was_stopped_in_its_last_evaluation_ends_there(tmp_path, train, monkeypatch):
    """Its 4 environments made 404 steps of 402 when it was stopped."""

    def stop_here(self, agent, use):
        raise Stopped

    changes = {"steps": 402, "evaluation": EvaluationConfig(every=1000, episodes=8)}
    with monkeypatch.context() as patch:
        patch.setattr(PeriodicEvaluation, "evaluate", stop_here)
        assert train(tmp_path, **changes).run()["finished"] is False
    again = train(tmp_path, **changes)
    assert resume(again) is False
    summary = again.run()
    assert (summary["env_steps"], summary["finished"]) == (404, True)
    assert "success_rate" in summary


def test_a_round_more_than_its_steps_is_too_many(tmp_path, train):
    first = train(
        tmp_path, steps=500, on_step=[lambda made: made == 400 and first.stop(at_once=False)]
    )
    first.run()
    assert resume(train(tmp_path, steps=397)) is False
    with pytest.raises(ConfigError, match="steps must be at least 400, made already, got 396"):
        resume(train(tmp_path, steps=396))


def test_a_solved_run_is_finished_until_it_need_not_stop_there(tmp_path, train, scripted, capsys):
    solved = {
        "evaluation": EvaluationConfig(every=60, episodes=8),
        "callbacks": [StopWhenSolved()],
        "stop_when_solved": True,
    }
    summary = train(tmp_path, evaluation_env=scripted([0.5, 1.0, 1.0]), **solved).run()
    assert (summary["env_steps"], summary["success_rate"]) == (120, 1.0)
    assert resume(train(tmp_path, **solved)) is True
    assert "set stop_when_solved false to train on" in capsys.readouterr().out

    longer = train(tmp_path, evaluation_env=scripted([0.0] * 9))
    assert resume(longer) is False
    assert longer.run()["env_steps"] == 400


def test_a_run_that_was_solved_before_stops_at_the_next_evaluation_that_is(
    tmp_path, train, scripted
):
    train(tmp_path, evaluation_env=scripted([1.0, 1.0]), steps=60).run()
    rates = scripted([0.25, 1.0, 1.0, 0.0])
    again = train(tmp_path, evaluation_env=rates, callbacks=[StopWhenSolved()])
    again.resume()
    assert again.run()["env_steps"] == 180
    assert [row["success_rate"] for row in again.trackers[0]] == [0.25, 1.0]


def test_a_stopped_trainer_runs_on_when_it_is_run_again(tmp_path, train):
    trainer = train(tmp_path, on_step=[lambda made: made == 100 and trainer.stop()])
    assert trainer.run()["env_steps"] == 100
    assert trainer.run()["env_steps"] == 400


def test_a_resumed_run_waits_for_the_start_steps_of_now(tmp_path, train):
    """Random steps end and learning begins at the same step."""

    def explore(start: int) -> ExplorationConfig:
        return ExplorationConfig(start_steps=start, noise=0.3)

    first = train(
        tmp_path, exploration=explore(300), on_step=[lambda made: made == 100 and first.stop()]
    )
    first.run()
    second = train(
        tmp_path, exploration=explore(160), on_step=[lambda made: made == 200 and second.stop()]
    )
    second.resume()
    second.run()
    assert second.agent.gradient_steps == (200 - 160) / 4


@pytest.mark.parametrize(
    "steps, updates, described",
    [
        (240, 0, "until step 280 a new one is only collected, so nothing is learned by step 240"),
        (280, 0, "until step 280 a new one is only collected, so nothing is learned by step 280"),
        (300, 5, "until step 280 of 300 a new one is only collected"),
    ],
)
def test_a_finished_run_says_until_when_it_only_collects(
    tmp_path, train, capsys, steps, updates, described
):
    """It keeps no replay, and collects five batches of 16; one that ends there learns nothing."""
    before = train(tmp_path, steps=200).run()["gradient_steps"]
    assert resume(train(tmp_path, steps=200)) is True
    capsys.readouterr()
    longer = train(tmp_path, steps=steps)
    assert resume(longer) is False
    remedy = "" if updates else "; raise --steps"
    assert f"keeps no replay: {described}{remedy}\n" in capsys.readouterr().out
    assert longer.run()["gradient_steps"] == before + updates


@pytest.mark.parametrize("name, value", [("scale", 10.0), ("normalize", True)])
def test_a_bound_of_unscaled_rewards_and_scaled_ones_are_refused(name, value):
    """With the remedy that helps: the one option would be refused as the other is."""
    refusal = f"^reward.{name} and td3.r_min or r_max exclude .* gives them; leave one of them out$"
    with pytest.raises(ConfigError, match=refusal):
        Config(td3=TD3Config(r_min=-1.0), reward=RewardConfig(**{name: value}))
    Config(td3=TD3Config(r_min=-1.0), reward=RewardConfig(clip=10.0))
