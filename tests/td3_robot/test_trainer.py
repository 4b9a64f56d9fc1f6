"""The training loop: what it learns from, what it keeps, and that a stop loses nothing."""

import copy
import dataclasses
import json
import math
import os
import signal
import time
from pathlib import Path

import pytest
import torch

import envs
from td3_robot import TD3, checkpoint
from td3_robot.config import Config, EvaluationConfig, ExplorationConfig, ReplayConfig, ScheduleConfig, TD3Config
from td3_robot.errors import CheckpointError, ConfigError, NotFiniteError
from td3_robot.evaluation import evaluate
from td3_robot.trainer import LAST, Trainer
from td3_robot.vec_env import Step

CONFIG = Config(
    robot="point",
    task="origin",
    seed=3,
    envs=4,
    steps=400,
    save_every=1e9,
    td3=TD3Config(hidden=(16,), actor_lr=1e-3, critic_lr=1e-3, policy_delay=2),
    replay=ReplayConfig(capacity=150, batch_size=16),  # a ring that goes round more than twice
    exploration=ExplorationConfig(start_steps=40, noise=0.3, per_env=True),
    schedule=ScheduleConfig(lr="linear", noise="cosine"),
    evaluation=EvaluationConfig(every=60, episodes=8),
)


class Log(list):
    """A tracker that remembers; if given an agent, also the actor of each evaluation."""

    def __init__(self, agent: TD3 | None = None):
        self.agent, self.actors = agent, []

    def log(self, metrics):
        self.append(metrics)
        if self.agent:
            self.actors.append(copy.deepcopy(self.agent.actor.state_dict()))

    def close(self):
        pass


def make_trainer(folder: Path, env, evaluation_env, config: Config = CONFIG, agent_seed: int | None = None, **options):
    seed = config.seed if agent_seed is None else agent_seed
    agent = TD3(env.o_dim, env.a_dim, seed=seed, **dataclasses.asdict(config.td3))
    options = {"trackers": []} | options
    return Trainer(agent, env, evaluation_env, config, folder, time.perf_counter(), **options)


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch):
    """Only a power cut needs it, and it is slow."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def train(point_env):
    """A trainer on the toy environment; options as for make_trainer, and the environment itself."""

    def build(folder, config=CONFIG, env=None, evaluation_env=None, **options):
        env = env or point_env(config.envs, config.seed)
        evaluation_env = evaluation_env or point_env(config.evaluation.episodes, config.seed)
        return make_trainer(folder, env, evaluation_env, config, **options)

    return build


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    """Every number that the nine state dicts hold, by a name."""
    found = {}

    def collect(name, value):
        if isinstance(value, dict):
            for key, item in value.items():
                collect(f"{name}.{key}", item)
        elif isinstance(value, torch.Tensor):
            found[name] = value.clone()

    collect("", trainer.agent.state_dicts())
    return found


def assert_equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    different = [name for name in left if not torch.equal(left[name], right[name])]
    assert not different, f"{len(different)} of {len(left)} differ, {different[0]} first"


def stop_at(env_steps: int, number: int = signal.SIGINT):
    """An `on_step` that sends this process a signal when so many env steps are made."""
    return lambda made: signal.raise_signal(number) if made == env_steps else None


# What a run does and leaves ---------------------------------------------------------------------------------


def test_a_run_counts_evaluates_and_summarises(tmp_path, train):
    log = Log()
    trainer = train(tmp_path / "run", trackers=[log])
    made = []
    trainer.on_step = made.append
    summary = trainer.run()

    assert made == list(range(4, 404, 4))
    assert [row["env_steps"] for row in log] == [60, 120, 180, 240, 300, 360, 400]  # every 60, and the end
    assert [row["gradient_steps"] for row in log] == [5, 20, 35, 50, 65, 80, 90]  # none in the first 40 env steps
    assert all(0 <= row["success_rate"] <= 1 and math.isfinite(row["Q1_loss"]) for row in log)
    walls = [row["wall_s"] for row in log]
    assert walls == sorted(walls) and walls[0] > 0
    assert log[-1]["left_s"] == 0 and all(row["env_steps_per_s"] > 0 and row["updates_per_s"] > 0 for row in log)

    told = {"robot": "point", "task": "origin", "seed": 3, "env_steps": 400, "gradient_steps": 90, "finished": True}
    assert told.items() <= summary.items()
    assert {"success_rate", "episode_return", "wall_s", "solved_at_s"} <= summary.keys()
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == summary
    assert set(checkpoint.read(tmp_path / "run")) >= set(checkpoint.REQUIRED)
    assert set(checkpoint.read(tmp_path / "run" / LAST)) == set(checkpoint.NAMES)


def test_a_seed_fixes_the_run_and_another_seed_changes_it(tmp_path, train):
    runs = []
    for number, seed in enumerate((3, 3, 4)):
        trainer = train(tmp_path / str(number), dataclasses.replace(CONFIG, seed=seed, steps=120))
        trainer.run()
        runs.append(weights(trainer))
    assert_equal(runs[0], runs[1])
    assert not torch.equal(runs[0][".actor.layers.0.weight"], runs[2][".actor.layers.0.weight"])


def test_it_learns(tmp_path, train):
    config = dataclasses.replace(
        CONFIG,
        envs=16,
        steps=7200,
        td3=TD3Config(hidden=(64, 64), actor_lr=2e-3, critic_lr=2e-3, gamma=0.8, tau=0.02),
        replay=ReplayConfig(capacity=20_000, batch_size=64),
        exploration=ExplorationConfig(start_steps=1000, noise=0.3),
        schedule=ScheduleConfig(),
        evaluation=EvaluationConfig(every=7200, episodes=200),
    )
    trainer = train(tmp_path, config, trackers=[log := Log()])
    untrained = evaluate(trainer.agent.select_action, trainer.evaluation_env, seed=1)["success_rate"]
    trainer.run()
    assert untrained < 0.3
    assert log[-1]["success_rate"] > 0.8  # 97 to 100% with other seeds


def test_the_first_actions_are_uniform_and_the_later_ones_the_policys_with_noise(tmp_path, train, point_env):
    class Recording(point_env):
        actions, observations = [], []

        def step(self, action):
            self.actions.append(action.clone())
            self.observations.append(self.observation.clone())
            return super().step(action)

    exploration = ExplorationConfig(start_steps=2000, noise=0.05)
    config = dataclasses.replace(CONFIG, envs=50, steps=4000, exploration=exploration, schedule=ScheduleConfig())
    config = dataclasses.replace(config, td3=TD3Config(hidden=(16,), actor_lr=1e-30, critic_lr=1e-30))
    trainer = train(tmp_path, config, env=Recording(50, seed=0))
    trainer.run()
    first, later = torch.stack(Recording.actions[:40]), torch.stack(Recording.actions[40:])
    shares = torch.histc(first, 10, -1, 1) / first.numel()
    torch.testing.assert_close(shares, torch.full((10,), 0.1), atol=0.02, rtol=0)
    noise = later - trainer.agent.select_action(torch.stack(Recording.observations[40:]).flatten(0, 1)).view_as(later)
    assert noise.std().item() == pytest.approx(0.05, rel=0.1)


def test_the_folder_keeps_the_best_policy_and_last_the_last(tmp_path, train, point_env):
    class Scripted(point_env):
        """Success rates as written here, whatever the policy; one more line for the summary."""

        rates = iter([0.25, 0.75, 0.75, 0.5, 0.125, 0.0, 0.25, 1.0])

        def reset(self, seed=None):
            if seed is not None and self.calls:
                self.rate = next(self.rates)
            self.calls += 1
            return super().reset(seed)

        def __init__(self, *args):
            self.calls = 0
            super().__init__(*args)
            self.calls = 1

        def step(self, action):
            step = super().step(action)
            wins = torch.arange(self.num_envs) < self.rate * self.num_envs
            return step._replace(info={"success": wins})

    trainer = train(tmp_path, evaluation_env=Scripted(8, 0))
    log = Log(trainer.agent)
    trainer.trackers.append(log)
    summary = trainer.run()
    assert [row["success_rate"] for row in log] == [0.25, 0.75, 0.75, 0.5, 0.125, 0.0, 0.25]
    best = 1 if log[1]["episode_return"] >= log[2]["episode_return"] else 2  # equal success: the higher return
    kept, last = checkpoint.read(tmp_path)["actor"], checkpoint.read(tmp_path / LAST)["actor"]
    assert_equal(kept, log.actors[best])
    assert_equal(last, trainer.agent.actor.state_dict())
    assert summary["success_rate"] == 1.0 and summary["solved_at_s"] is None  # only periodic evaluations solve


def test_solved_is_the_first_evaluation_at_99_percent(tmp_path, train, point_env):
    class Solved(point_env):
        def step(self, action):
            step = super().step(action)
            return step._replace(info={"success": torch.arange(self.num_envs) < self.wins})

        def reset(self, seed=None):
            self.rounds = getattr(self, "rounds", -1) + 1  # the constructor's own reset is round 0
            self.wins = [0, 98, 99, 100][min(self.rounds, 3)]
            return super().reset(seed)

    log = Log()
    config = dataclasses.replace(CONFIG, evaluation=EvaluationConfig(60, 100), steps=240)
    summary = train(tmp_path, config, evaluation_env=Solved(100, 0), trackers=[log]).run()
    assert [row["success_rate"] for row in log] == pytest.approx([0.98, 0.99, 1.0, 1.0])
    assert log[1]["wall_s"] == pytest.approx(summary["solved_at_s"], abs=0.01)


# What it learns from ----------------------------------------------------------------------------------------


def test_every_transition_has_its_true_successor_and_only_termination_marks_it_done(tmp_path, train):
    trainer, batches = train(tmp_path), []
    update = trainer.agent.update
    trainer.agent.update = lambda batch: batches.append(batch) or update(batch)
    trainer.run()
    state, action, reward, successor, done = (torch.cat(parts) for parts in list(zip(*batches))[:5])
    moved = state + torch.cat((0.1 * action, torch.ones(len(state), 1)), 1)
    torch.testing.assert_close(successor, moved)  # also where the episode ended and a new one began
    torch.testing.assert_close(reward, -torch.linalg.vector_norm(moved[:, :2], dim=1, keepdim=True))
    outside, late = (moved[:, :2].abs() > 1).any(1), moved[:, 2] >= 7
    assert torch.equal(done[:, 0], outside.float())
    assert (outside & ~late).any() and (late & ~outside).any(), "the toy gave no ends of both kinds"


class OneStep:
    """Episodes of one step with reward 1 that end as asked; the observation never changes."""

    o_dim, a_dim, device = 1, 1, torch.device("cpu")

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
def test_bootstrapping_stops_at_terminated_and_not_at_truncated(tmp_path, terminated, truncated, value):
    config = dataclasses.replace(
        CONFIG,
        steps=1600,
        td3=TD3Config(hidden=(16,), gamma=0.5, tau=0.1, critic_lr=1e-2),
        schedule=ScheduleConfig(),
        evaluation=EvaluationConfig(10_000, 1),
    )
    trainer = make_trainer(tmp_path, OneStep(4, terminated, truncated), OneStep(1, True, False), config)
    trainer.run()
    inputs = torch.cat((torch.ones(50, 1), torch.linspace(-1, 1, 50)[:, None]), 1)
    assert trainer.agent.Q1(inputs).mean().item() == pytest.approx(value, abs=0.1)


# Stopping and going on --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, point_env):
    """Weights and log of the run of CONFIG that nobody stops."""
    log = Log()
    folder = tmp_path_factory.mktemp("uninterrupted")
    trainer = make_trainer(folder, point_env(4, 3), point_env(8, 3), trackers=[log])
    summary = trainer.run()
    return weights(trainer), list(log), summary, weights_in(folder)


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    """The networks that a folder holds."""
    states = checkpoint.read(folder)
    return {f"{name}.{key}": value for name in ("actor", "Q1", "Q2") for key, value in states[name].items()}


SCORES = ("env_steps", "gradient_steps", "success_rate", "episode_return")


@pytest.mark.parametrize(
    "stops, number",
    [
        ((8,), signal.SIGINT),  # before the first gradient step
        ((40,), signal.SIGINT),  # at it
        ((124,), signal.SIGTERM),  # after an odd number of gradient steps, between two evaluations
        ((240,), signal.SIGINT),  # on an evaluation
        ((52, 56, 204, 396), signal.SIGINT),  # again and again
    ],
)
def test_interrupted_and_resumed_it_ends_exactly_as_uninterrupted(tmp_path, train, uninterrupted, stops, number):
    log = []
    for sitting, stop in enumerate((*stops, None)):
        trainer = train(tmp_path / "run", agent_seed=100 + sitting, trackers=[part := Log()])  # nothing left over helps
        if sitting == 0:
            trainer = train(tmp_path / "run", trackers=[part := Log()])
        else:
            trainer.resume()
            assert trainer.env_steps == stops[sitting - 1]
        trainer.on_step = stop_at(stop, number)
        summary = trainer.run()
        assert summary["finished"] == (stop is None)
        assert summary["env_steps"] == (stop or 400)
        log += part
    expected_weights, expected_log, expected_summary, expected_best = uninterrupted
    assert_equal(weights(trainer), expected_weights)
    assert_equal(weights_in(tmp_path / "run"), expected_best)
    assert [[row[k] for k in SCORES] for row in log] == [[row[k] for k in SCORES] for row in expected_log]
    assert summary["success_rate"] == expected_summary["success_rate"]


def test_killed_at_any_moment_it_goes_on_from_the_last_save(tmp_path, train, uninterrupted, point_env):
    class Dying(point_env):
        def step(self, action):
            if self.calls == 57:
                raise ZeroDivisionError("the power went")
            return super().step(action)

    saving = dataclasses.replace(CONFIG, save_every=1e-9)  # after each step
    with pytest.raises(ZeroDivisionError):
        train(tmp_path, saving, env=Dying(4, 3)).run()
    trainer = train(tmp_path, agent_seed=99)
    trainer.resume()
    assert trainer.env_steps == 57 * 4
    trainer.run()
    assert_equal(weights(trainer), uninterrupted[0])


def test_dead_in_its_first_step_it_has_left_a_whole_checkpoint(tmp_path, train, point_env):
    class Dead(point_env):
        def step(self, action):
            raise ZeroDivisionError

    trainer = train(tmp_path / "run", env=Dead(4, 3))
    with pytest.raises(ZeroDivisionError):
        trainer.run()
    agent = TD3(3, 2, hidden=(16,), seed=8)
    agent.load(tmp_path / "run")
    o = torch.randn(5, 3)
    assert torch.equal(agent.select_action(o), trainer.agent.select_action(o))


def test_resuming_a_finished_run_changes_nothing(tmp_path, train):
    config = dataclasses.replace(CONFIG, steps=100)  # the end is no multiple of the evaluation's period
    first = train(tmp_path, config)
    summary = first.run()
    again = train(tmp_path, config, agent_seed=9, trackers=[log := Log()])
    again.resume()
    assert again.run() | {"wall_s": 0} == summary | {"wall_s": 0}
    assert_equal(weights(again), weights(first))
    assert log == []


def test_a_finished_run_can_go_on_to_more_steps(tmp_path, train):
    train(tmp_path, dataclasses.replace(CONFIG, steps=120)).run()
    trainer = train(tmp_path, dataclasses.replace(CONFIG, steps=240))
    trainer.resume()
    summary = trainer.run()
    assert summary["finished"] and summary["env_steps"] == 240
    assert summary["gradient_steps"] == 20 + 20  # the replay is not kept: 40 env steps fill a new one first


def test_the_clock_counts_earlier_sittings(tmp_path, train):
    first = train(tmp_path, on_step=stop_at(60))
    first._started -= 1000.0
    assert first.run()["wall_s"] > 1000
    second = train(tmp_path)
    second.resume()
    assert 1000 < second.run()["wall_s"] < 1100


def test_after_a_run_signals_do_what_they_did_before(tmp_path, train):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    train(tmp_path, on_step=stop_at(8)).run()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_second_ctrl_c_does_not_wait(tmp_path, train):
    def impatient(env_steps):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    trainer = train(tmp_path, on_step=impatient)
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    assert trainer.env_steps == 4


def test_there_must_be_something_to_resume(tmp_path, train):
    with pytest.raises(CheckpointError, match="last"):
        train(tmp_path).resume()
    trainer = train(tmp_path)
    trainer.agent.save(tmp_path / LAST)  # a policy, but not where the training stood
    with pytest.raises(CheckpointError, match="trainer_state"):
        train(tmp_path).resume()


def test_a_resumed_run_must_keep_its_number_of_environments(tmp_path, train):
    train(tmp_path, on_step=stop_at(60)).run()
    trainer = train(tmp_path, dataclasses.replace(CONFIG, envs=8), agent_seed=9)
    before = weights(trainer)
    with pytest.raises(ConfigError, match="envs.* 4.* 8"):
        trainer.resume()
    assert_equal(weights(trainer), before)


@pytest.mark.parametrize("capacity", [60, 1000])
def test_a_resumed_run_may_have_another_replay_capacity(tmp_path, train, capacity):
    train(tmp_path, on_step=stop_at(200)).run()
    config = dataclasses.replace(CONFIG, replay=ReplayConfig(capacity, 16))
    trainer, batches = train(tmp_path, config), []
    update = trainer.agent.update
    trainer.agent.update = lambda batch: batches.append(batch) or update(batch)
    trainer.resume()
    assert trainer.run()["finished"]
    state, action, _, successor, _ = (torch.cat(parts) for parts in list(zip(*batches))[:5])
    torch.testing.assert_close(successor, state + torch.cat((0.1 * action, torch.ones(len(state), 1)), 1))


def test_panda_reach_interrupted_and_resumed_ends_exactly_as_uninterrupted(tmp_path):
    config = dataclasses.replace(CONFIG, robot="panda", task="reach", envs=3, steps=3 * 150)
    config = dataclasses.replace(config, evaluation=EvaluationConfig(200, 5), replay=ReplayConfig(300, 16))

    def build(folder, **options):
        arms, evaluation_arms = (envs.make("panda", "reach", B, seed=3) for B in (3, 5))
        return make_trainer(folder, arms, evaluation_arms, config, **options)

    whole = build(tmp_path / "whole")
    whole.run()
    build(tmp_path / "cut", on_step=stop_at(3 * 77)).run()  # in the second episodes, after a reset
    resumed = build(tmp_path / "cut", agent_seed=9)
    resumed.resume()
    resumed.run()
    assert_equal(weights(resumed), weights(whole))


# Numbers that are none --------------------------------------------------------------------------------------


@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("save_every", [1e-9, 1e9])
def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_checkpoint(
    tmp_path, train, point_env, poison, save_every
):
    class Poisoned(point_env):
        def step(self, action):
            step = super().step(action)
            return step._replace(reward=step.reward + poison) if self.calls > 40 else step

    trainer = train(tmp_path, dataclasses.replace(CONFIG, save_every=save_every), env=Poisoned(4, 3))
    log = Log(trainer.agent)
    trainer.trackers.append(log)
    with pytest.raises(NotFiniteError) as caught:
        trainer.run()
    assert caught.value.exit_code == 1 and "\n" not in str(caught.value)
    assert [row["env_steps"] for row in log] == [60, 120]
    kept = checkpoint.read(tmp_path)["actor"]
    assert any(all(torch.equal(kept[name], actor[name]) for name in kept) for actor in log.actors)
    for folder in (tmp_path, *([tmp_path / LAST] if save_every < 1 else [])):
        assert all(torch.isfinite(value).all() for value in weights_in(folder).values())
    if save_every < 1:  # the resume point is from just before
        resumed = train(tmp_path, agent_seed=9)
        resumed.resume()
        assert 160 <= resumed.env_steps <= 168
        resumed.run()


def test_a_poisoned_run_cannot_be_saved_by_ctrl_c(tmp_path, train, point_env):
    class Poisoned(point_env):
        def step(self, action):
            step = super().step(action)
            return step._replace(reward=step.reward * math.nan)

    with pytest.raises(NotFiniteError):
        train(tmp_path, env=Poisoned(4, 3), on_step=stop_at(44)).run()
    assert not (tmp_path / LAST).exists()
