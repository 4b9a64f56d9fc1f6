"""The training loop: what it learns from, what it measures and what it keeps."""

import dataclasses
import json
import math
import threading
import time

import pytest
import torch

from td3_robot import checkpoint
from td3_robot.checkpoint.resume_point import LAST
from td3_robot.cli.train_run import report
from td3_robot.config.run import (
    EvaluationConfig,
    ExplorationConfig,
    ReplayConfig,
    ScheduleConfig,
    TD3Config,
)
from td3_robot.errors import ConfigError, NotFiniteError
from td3_robot.evaluation.rollout import evaluate
from td3_robot.training.trainer import Trainer
from td3_robot.vec_env import Step

pytestmark = pytest.mark.usefixtures("no_fsync")


# What a run does and leaves


def test_a_run_counts_evaluates_and_summarises(tmp_path, train):
    made = []
    trainer = train(tmp_path / "run", on_step=[made.append])
    summary = trainer.run()
    log = trainer.trackers[0]

    assert made == list(range(4, 404, 4))
    # every 60, and the end
    assert [row["env_steps"] for row in log] == [60, 120, 180, 240, 300, 360, 400]
    # none in the first 40 env steps
    assert [row["gradient_steps"] for row in log] == [5, 20, 35, 50, 65, 80, 90]
    assert all(0 <= row["success_rate"] <= 1 and math.isfinite(row["Q1_loss"]) for row in log)
    walls = [row["wall_s"] for row in log]
    assert walls == sorted(walls) and walls[0] > 0
    assert log[-1]["left_s"] == 0 and all(
        row["env_steps_per_s"] > 0 and row["updates_per_s"] > 0 for row in log
    )

    told = {"robot": "point", "seed": 3, "env_steps": 400, "gradient_steps": 90, "finished": True}
    assert told.items() <= summary.items()
    assert {"success_rate", "episode_return", "wall_s", "solved_at_s"} <= summary.keys()
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == summary
    assert set(checkpoint.read(tmp_path / "run")) >= set(checkpoint.REQUIRED)
    assert set(checkpoint.read(tmp_path / "run" / LAST)) == set(checkpoint.NAMES) - {"normalizer"}


def test_a_folder_may_be_given_by_its_name(tmp_path, train):
    summary = train(str(tmp_path / "run"), steps=80).run()
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == summary
    assert checkpoint.read(tmp_path / "run").keys() >= set(checkpoint.REQUIRED)


def test_a_seed_fixes_the_run_and_another_seed_changes_it(tmp_path, train, assert_same):
    runs = []
    for number, seed in enumerate((3, 3, 4)):
        trainer = train(tmp_path / str(number), seed=seed, steps=120)
        trainer.run()
        runs.append(trainer.agent.state_dicts())
    assert_same(runs[0], runs[1])
    with pytest.raises(AssertionError, match="differ"):
        assert_same(runs[0], runs[2])


def test_it_learns(tmp_path, train):
    trainer = train(
        tmp_path,
        num_envs=16,
        steps=7200,
        td3=TD3Config(hidden=(64, 64), actor_lr=2e-3, critic_lr=2e-3, gamma=0.8, tau=0.02),
        replay=ReplayConfig(capacity=20_000, batch_size=64),
        exploration=ExplorationConfig(start_steps=1000, noise=0.3),
        schedule=ScheduleConfig(),
        evaluation=EvaluationConfig(every=7200, episodes=200),
    )
    untrained = evaluate(trainer.agent.select_action, trainer.evaluation_env, seed=1)[
        "success_rate"
    ]
    trainer.run()
    assert untrained < 0.3
    assert trainer.trackers[0][-1]["success_rate"] > 0.8  # 97 to 100% with other seeds


def test_the_first_actions_are_uniform_and_the_later_ones_the_policys_with_noise(
    tmp_path, train, point_env
):
    actions = []
    observations = []

    class Recording(point_env):
        def step(self, action):
            actions.append(action.clone())
            observations.append(self.observation.clone())
            return super().step(action)

    still = TD3Config(hidden=(16,), actor_lr=1e-30, critic_lr=1e-30)  # a policy that stays as it is
    exploration = ExplorationConfig(start_steps=2000, noise=0.05)
    trainer = train(
        tmp_path,
        Recording,
        num_envs=50,
        steps=4000,
        td3=still,
        exploration=exploration,
        schedule=ScheduleConfig(),
    )
    trainer.run()
    first = torch.stack(actions[:40])
    later = torch.stack(actions[40:])
    shares = torch.histc(first, 10, -1, 1) / first.numel()
    torch.testing.assert_close(shares, torch.full((10,), 0.1), atol=0.02, rtol=0)
    noise = later - trainer.agent.select_action(
        torch.stack(observations[40:]).flatten(0, 1)
    ).view_as(later)
    assert noise.std().item() == pytest.approx(0.05, rel=0.1)


def test_the_folder_keeps_the_best_policy_and_last_the_last(tmp_path, train, scripted, assert_same):
    rates = [0.25, 0.75, 0.75, 0.5, 0.125, 0.0, 0.25]
    trainer = train(tmp_path, evaluation_env=scripted([*rates, 1.0]))
    summary = trainer.run()
    log = trainer.trackers[0]
    assert [row["success_rate"] for row in log] == rates
    # equal success: the higher return
    best = 1 if log[1]["episode_return"] >= log[2]["episode_return"] else 2
    assert_same(checkpoint.read(tmp_path)["actor"], log.actors[best])
    assert_same(checkpoint.read(tmp_path / LAST)["actor"], log.actors[-1])
    # only periodic evaluations solve
    assert summary["success_rate"] == 1.0 and summary["solved_at_s"] is None


def test_solved_is_the_first_evaluation_at_99_percent(tmp_path, train, scripted):
    evaluation_env = scripted([0.98, 0.99, 1.0, 0.5, 1.0], episodes=100)
    trainer = train(
        tmp_path, evaluation_env=evaluation_env, evaluation=EvaluationConfig(60, 100), steps=240
    )
    summary = trainer.run()
    log = trainer.trackers[0]
    assert [row["success_rate"] for row in log] == pytest.approx([0.98, 0.99, 1.0, 0.5])
    assert log[0]["wall_s"] < log[1]["wall_s"] <= summary["solved_at_s"] < log[2]["wall_s"]


def test_any_policy_that_has_learnt_is_better_than_one_that_has_not(
    tmp_path, train, scripted, assert_same
):
    """The controller that a policy corrects is as good as it is before the first update of the
    actor.
    """
    rates = [1.0, 0.25, 0.5, 0.25]
    td3 = TD3Config(hidden=(16,), burn_in=11)
    trainer = train(tmp_path, evaluation_env=scripted([*rates, 1.0]), td3=td3, steps=240)
    summary = trainer.run()
    log = trainer.trackers[0]
    assert [row["success_rate"] for row in log] == rates
    assert log[0]["gradient_steps"] <= td3.burn_in < log[1]["gradient_steps"]
    assert_same(checkpoint.read(tmp_path)["actor"], log.actors[2])
    assert summary["solved_at_s"] is None


# What it learns from


def test_every_transition_has_its_true_successor_and_only_termination_marks_it_done(
    tmp_path, train
):
    trainer = train(tmp_path)
    batches = []
    update = trainer.agent.update
    trainer.agent.update = lambda batch: batches.append(batch) or update(batch)
    trainer.run()
    state, action, reward, successor, done = (torch.cat(parts) for parts in list(zip(*batches))[:5])
    moved = state + torch.cat((0.1 * action, torch.ones(len(state), 1)), 1)
    torch.testing.assert_close(successor, moved)  # also where the episode ended and a new one began
    torch.testing.assert_close(reward, -torch.linalg.vector_norm(moved[:, :2], dim=1, keepdim=True))
    outside = (moved[:, :2].abs() > 1).any(1)
    late = moved[:, 2] >= 7
    assert torch.equal(done[:, 0], outside.float())
    assert (outside & ~late).any() and (late & ~outside).any(), "the toy gave no ends of both kinds"


class OneStep:
    """Episodes of one step with reward 1 that end as asked; the observation never changes."""

    o_dim = 1
    a_dim = 1
    device = torch.device("cpu")

    def __init__(self, num_envs: int, terminated: bool, truncated: bool):
        self.num_envs = num_envs
        self.ends = [torch.full((num_envs,), end) for end in (terminated, truncated)]

    def reset(self, seed=None):
        return torch.ones(self.num_envs, 1)

    def step(self, action):
        one = torch.ones(self.num_envs, 1)
        return Step(one, one[:, 0], *self.ends, one, {"success": self.ends[0]})

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


@pytest.mark.parametrize(
    "terminated, truncated, value",
    [(True, False, 1.0), (False, True, 2.0), (True, True, 1.0)],  # 1 + 1/2 + 1/4 + ... = 2
)
def test_bootstrapping_stops_at_terminated_and_not_at_truncated(
    tmp_path, train, terminated, truncated, value
):
    trainer = train(
        tmp_path,
        env=OneStep(4, terminated, truncated),
        evaluation_env=OneStep(1, True, False),
        steps=1600,
        td3=TD3Config(hidden=(16,), gamma=0.5, tau=0.1, critic_lr=1e-2),
        schedule=ScheduleConfig(),
        evaluation=EvaluationConfig(10_000, 1),
    )
    trainer.run()
    inputs = torch.cat((torch.ones(50, 1), torch.linspace(-1, 1, 50)[:, None]), 1)
    assert trainer.agent.Q1(inputs).mean().item() == pytest.approx(value, abs=0.1)


# Numbers that are none


def poisoned(point_env, poison: float, after: int):
    """An environment whose rewards are no numbers after so many steps."""

    class Poisoned(point_env):
        def step(self, action):
            step = super().step(action)
            return step._replace(reward=step.reward + poison) if self.calls > after else step

    return Poisoned


def assert_finite(folder) -> None:
    states = checkpoint.read(folder)
    assert all(
        torch.isfinite(value).all()
        for name in ("actor", "Q1", "Q2")
        for value in states[name].values()
    )


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_best_policy(
    tmp_path, train, point_env, assert_same, poison
):
    trainer = train(tmp_path, poisoned(point_env, poison, after=40))
    with pytest.raises(NotFiniteError) as caught:
        trainer.run()
    assert caught.value.exit_code == 1 and "\n" not in str(caught.value)
    log = trainer.trackers[0]
    assert [row["env_steps"] for row in log] == [60, 120]
    best = max((0, 1), key=lambda i: (log[i]["success_rate"], log[i]["episode_return"]))
    assert_same(checkpoint.read(tmp_path)["actor"], log.actors[best])
    assert_finite(tmp_path)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_the_resume_point_is_from_before_the_first_number_that_is_none(
    tmp_path, train, point_env, poison
):
    # saves after each step
    trainer = train(tmp_path, poisoned(point_env, poison, after=40), save_every=1e-9)
    with pytest.raises(NotFiniteError):
        trainer.run()
    assert_finite(tmp_path / LAST)
    resumed = train(tmp_path, agent_seed=9)
    resumed.resume()
    assert resumed.env_steps == 160
    assert resumed.run()["finished"]


# Without an evaluation environment


def test_without_an_evaluation_environment_the_training_episodes_judge_the_policy(
    tmp_path, train, assert_same
):
    trainer = train(tmp_path, evaluation=EvaluationConfig(every=60, episodes=0))
    summary = trainer.run()
    log = trainer.trackers[0]
    assert all("episode_return" not in row and math.isfinite(row["train_return"]) for row in log)
    scores = [(row["train_success_rate"], row["train_return"]) for row in log]
    assert_same(checkpoint.read(tmp_path)["actor"], log.actors[scores.index(max(scores))])
    assert (summary["train_success_rate"], summary["train_return"]) == max(scores)
    assert (
        "episode_return" not in summary
        and json.loads((tmp_path / "summary.json").read_text()) == summary
    )


def test_as_long_as_no_episode_has_ended_the_newest_policy_counts_as_the_best(
    tmp_path, train, point_env, assert_same
):
    class Endless(point_env):
        def step(self, action):
            never = torch.zeros(self.num_envs, dtype=torch.bool)
            return super().step(action)._replace(terminated=never, truncated=never)

    trainer = train(tmp_path, make=Endless, evaluation=EvaluationConfig(every=60, episodes=0))
    summary = trainer.run()
    log = trainer.trackers[0]
    assert all(math.isnan(row["train_return"]) for row in log) and summary["train_return"] is None
    assert_same(checkpoint.read(tmp_path)["actor"], log.actors[-1])


def test_stopped_between_two_evaluations_and_run_again_no_training_episode_is_lost(tmp_path, train):
    judged = {"evaluation": EvaluationConfig(every=100, episodes=0)}
    whole = train(tmp_path / "whole", **judged)
    whole.run()
    cut = train(tmp_path / "cut", on_step=[lambda made: made == 152 and cut.stop()], **judged)
    stopped = cut.run()
    names = ("train_success_rate", "train_return")
    scores = [[[row[name] for name in names] for row in run.trackers[0]] for run in (whole, cut)]
    assert not stopped["finished"] and [stopped[name] for name in names] == scores[0][0]
    cut.run()
    again = [[row[name] for name in names] for row in cut.trackers[0]]
    assert again == scores[0] and scores[1] == scores[0][:1]


@pytest.mark.parametrize("poison", [math.inf, -math.inf, math.nan])
def test_a_return_that_is_no_number_is_neither_the_best_nor_the_end_of_the_run(
    tmp_path, train, point_env, poison
):
    class Poisoned(point_env):
        resets = 0

        def reset(self, seed=None):
            self.resets += 1
            return super().reset(seed)

        def step(self, action):
            step = super().step(action)
            # all but the first
            return step if self.resets == 2 else step._replace(reward=step.reward + poison)

    trainer = train(tmp_path, evaluation_env=Poisoned(4), steps=180)
    summary = trainer.run()
    assert summary["finished"] and summary["episode_return"] is None
    assert trainer.state.best.score == tuple(
        trainer.trackers[0][0][name] for name in ("success_rate", "episode_return")
    )
    json.loads((tmp_path / "summary.json").read_text(), parse_constant=pytest.fail)


def test_training_episodes_are_logged_beside_the_evaluations(tmp_path, train):
    trainer = train(tmp_path)
    trainer.run()
    assert all(
        -7 * 1.5 < row["train_return"] < 0 and 0 <= row["train_success_rate"] <= 1
        for row in trainer.trackers[0]
    )


# In a thread


def test_it_runs_in_a_thread_and_is_stopped_from_another(tmp_path, train, assert_same):
    trainer = train(tmp_path / "cut", steps=10**9, save_every=1e9)
    summaries = []
    thread = threading.Thread(target=lambda: summaries.append(trainer.run()))
    thread.start()
    while trainer.env_steps < 50:
        time.sleep(0.01)
    trainer.stop()
    thread.join(30)
    assert not thread.is_alive() and not summaries[0]["finished"]
    again = train(tmp_path / "cut", steps=trainer.env_steps + 60, agent_seed=9)
    again.resume()
    assert again.env_steps == summaries[0]["env_steps"] and again.run()["finished"]


def test_an_agent_and_a_configuration_that_disagree_are_refused(tmp_path, train):
    trainer = train(tmp_path)
    config = dataclasses.replace(
        trainer.config, td3=dataclasses.replace(trainer.config.td3, gamma=0.5)
    )
    with pytest.raises(
        ConfigError, match=r"^td3.gamma is 0.5 in the configuration and 0.99 in the agent$"
    ):
        Trainer(trainer.agent, trainer.source, trainer.evaluation_env, config, tmp_path)


def test_the_folder_says_what_was_trained_on_and_the_score_that_made_it_the_best(
    tmp_path, train, scripted, capsys
):
    plays = {
        "evaluation_env": scripted([0.2, 0.6, 0.4, 0.8], 5),
        "evaluation": EvaluationConfig(60, 5),
    }
    trainer = train(tmp_path, **plays, steps=180)
    summary = trainer.run()
    row = trainer.trackers[0][1]
    metadata = checkpoint.load(tmp_path, names=()).metadata
    assert metadata["trained_on"] == {"robot": "point"}
    assert metadata["steps"] == summary["best_at_steps"] == row["env_steps"] == 120
    assert metadata["score"] == {name: row[name] for name in ("success_rate", "episode_return")}
    assert checkpoint.load(tmp_path / LAST, names=()).metadata.keys() == {
        "agent",
        "trained_on",
        "rewards",
        "actor_trained",
    }
    assert (summary["success_rate"], row["success_rate"]) == (0.8, 0.6)  # in every digit
    report(trainer, summary, "python train.py", None)
    said = capsys.readouterr().out
    assert said.startswith("success rate 80.0%, return ")
    assert " (the best policy, of 120 env steps) after " in said


def test_torch_has_the_threads_of_the_configuration_while_it_runs(tmp_path, train):
    before = torch.get_num_threads()
    seen = set()
    trainer = train(
        tmp_path, threads=before + 1, on_step=[lambda made: seen.add(torch.get_num_threads())]
    )
    trainer.run()
    assert seen == {before + 1}
    assert torch.get_num_threads() == before
