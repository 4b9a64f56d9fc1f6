"""A stop loses nothing: interrupted and resumed, a training ends exactly as uninterrupted."""

import copy
import math
import signal

import pytest
import torch

import envs
from td3_robot import TD3, checkpoint
from td3_robot.checkpoint.resume_point import LAST
from td3_robot.config.run import EvaluationConfig, ReplayConfig, RewardConfig
from td3_robot.errors import CheckpointError, ConfigError, NotFiniteError
from td3_robot.training.callbacks import Callback
from td3_robot.training.meters import LOSSES
from td3_robot.utils import signals
from td3_robot.vec_env import restore_generator

pytestmark = pytest.mark.usefixtures("no_fsync")
FIGURES = ("env_steps", "gradient_steps", "success_rate", "episode_return", "train_return", *LOSSES)


def stop_at(env_steps: int | None, number: int = signal.SIGINT) -> list:
    """An `on_step` that sends this process a signal when so many env steps are made."""
    return [lambda made: signal.raise_signal(number) if made == env_steps else None]


def policies(folder) -> dict:
    """The best networks, which a run folder holds itself."""
    return checkpoint.read(folder, names=("actor", "Q1", "Q2"))


def figures(log: list[dict]) -> list[str]:
    """All of a row but its clocks, in every digit, NaN like any other."""
    return [repr([row[name] for name in FIGURES]) for row in log]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, train):
    """The run that nobody stops, its summary and its folder."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    trainer = train(folder)
    return trainer, trainer.run(), folder


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
def test_interrupted_and_resumed_it_ends_exactly_as_uninterrupted(
    tmp_path, train, uninterrupted, assert_same, stops, number
):
    log = []
    for sitting, stop in enumerate((*stops, None)):
        agent_seed = 100 + sitting if sitting else None  # nothing but the resume point may help
        trainer = train(tmp_path, agent_seed=agent_seed, on_step=stop_at(stop, number))
        if sitting:
            trainer.resume()
            assert trainer.env_steps == stops[sitting - 1]
        summary = trainer.run()
        assert summary["finished"] == (stop is None)
        assert summary["env_steps"] == (stop or 400)
        log += trainer.trackers[0]
    whole, whole_summary, whole_folder = uninterrupted
    assert_same(trainer.agent.state_dicts(), whole.agent.state_dicts())
    assert_same(policies(tmp_path), policies(whole_folder))
    assert figures(log) == figures(whole.trackers[0])
    assert summary["success_rate"] == whole_summary["success_rate"]


def test_a_resumed_run_remembers_its_best_policy_and_when_it_was_solved(
    tmp_path, train, scripted, assert_same
):
    first = train(tmp_path, evaluation_env=scripted([0.5, 1.0, 0.75, 0.0]), on_step=stop_at(200))
    solved_at_s = first.run()["solved_at_s"]
    second = train(tmp_path, evaluation_env=scripted([0.875, 0.75, 0.5, 0.25, 0.0]), agent_seed=9)
    second.resume()
    assert second.run()["solved_at_s"] == solved_at_s is not None
    assert_same(checkpoint.read(tmp_path)["actor"], first.trackers[0].actors[1])


def test_killed_it_goes_on_from_the_last_save(
    tmp_path, train, uninterrupted, point_env, assert_same
):
    class Dying(point_env):
        def step(self, action):
            if self.calls == 57:
                raise ZeroDivisionError("the power went")
            return super().step(action)

    with pytest.raises(ZeroDivisionError):
        train(tmp_path, Dying, save_every=1e-9).run()  # saves after each step
    trainer = train(tmp_path, agent_seed=99)
    trainer.resume()
    assert trainer.env_steps == 57 * 4
    trainer.run()
    assert_same(trainer.agent.state_dicts(), uninterrupted[0].agent.state_dicts())


def test_killed_in_its_first_step_it_has_left_a_whole_checkpoint(tmp_path, train, point_env):
    class Dead(point_env):
        def step(self, action):
            raise ZeroDivisionError

    trainer = train(tmp_path / "run", Dead)
    with pytest.raises(ZeroDivisionError):
        trainer.run()
    agent = TD3(3, 2, hidden=(16,), seed=8)
    o = torch.randn(5, 3)
    agent.load(tmp_path / "run")
    assert torch.equal(agent.select_action(o), trainer.agent.select_action(o))


def test_panda_reach_interrupted_and_resumed_ends_exactly_as_uninterrupted(
    tmp_path, train, assert_same
):
    def build(folder, **options):
        arms, evaluation_arms = (envs.make("panda", "reach", B, seed=3) for B in (3, 5))
        sizes = {
            "num_envs": 3,
            "steps": 3 * 150,
            "replay": ReplayConfig(300, 16),
            "evaluation": EvaluationConfig(200, 5),
        }
        return train(folder, env=arms, evaluation_env=evaluation_arms, **sizes, **options)

    whole = build(tmp_path / "whole")
    whole.run()
    build(tmp_path / "cut", on_step=stop_at(3 * 77)).run()  # in the second episodes, after a reset
    resumed = build(tmp_path / "cut", agent_seed=9)
    resumed.resume()
    resumed.run()
    assert_same(resumed.agent.state_dicts(), whole.agent.state_dicts())


def test_killed_a_run_does_not_give_its_best_policy_away_for_a_worse_one(
    tmp_path, train, scripted, assert_same
):
    """After the resume point was written; an environment that cannot restore itself then finds
    another policy.
    """

    class Killed(Callback):
        def on_step(self, run):
            if run.steps == 64:
                run.state.write(run.state.gather())
            if run.steps == 180:
                raise ZeroDivisionError("the power went")

    with pytest.raises(ZeroDivisionError):
        train(tmp_path, evaluation_env=scripted([0.25, 0.75]), callbacks=[Killed()]).run()
    best = checkpoint.read(tmp_path)["actor"]
    second = train(tmp_path, evaluation_env=scripted([0.5] * 9), agent_seed=9)
    second.resume()
    second.run()
    assert_same(checkpoint.read(tmp_path)["actor"], best)


# Runs that were finished


@pytest.mark.parametrize("steps", [100, 120])  # 100 is no multiple of the evaluation's period
def test_resuming_a_finished_run_changes_nothing(tmp_path, train, assert_same, steps):
    first = train(tmp_path, steps=steps)
    summary = first.run()
    again = train(tmp_path, steps=steps, agent_seed=9)
    again.resume()
    assert again.run() | {"wall_s": 0} == summary | {"wall_s": 0}
    assert_same(again.agent.state_dicts(), first.agent.state_dicts())
    assert again.trackers[0] == []


def test_a_finished_run_can_go_on_to_more_steps(tmp_path, train, assert_same):
    """Its replay is not kept, so five batches of 16 fill a new one first; a stop while they do
    changes nothing.
    """
    ends = []
    for name, stops in (("whole", ()), ("cut", (140,))):
        train(tmp_path / name, steps=120).run()
        for stop in (*stops, None):
            trainer = train(tmp_path / name, steps=240, on_step=stop_at(stop))
            trainer.resume()
            summary = trainer.run()
        assert summary["finished"] and summary["env_steps"] == 240
        assert summary["gradient_steps"] == 20 + 10
        ends.append(trainer.agent.state_dicts())
    assert_same(*ends)


# Signals and clocks


def test_the_clock_counts_earlier_sittings(tmp_path, train):
    first = train(tmp_path, on_step=stop_at(60))
    first.state._started -= 1000.0
    assert first.run()["wall_s"] > 1000
    second = train(tmp_path)
    second.resume()
    assert 1000 < second.run()["wall_s"] < 1100


def test_after_a_run_signals_do_what_they_did_before(tmp_path, train):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    train(tmp_path, on_step=stop_at(8)).run()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_two_quick_ctrl_c_are_one(tmp_path, train):
    trainer = train(tmp_path, on_step=2 * stop_at(4))
    assert not trainer.run()["finished"]
    assert train(tmp_path).resume() == [] and trainer.env_steps == 4


def test_a_later_second_ctrl_c_does_not_wait(tmp_path, train, monkeypatch):
    monkeypatch.setattr(signals, "PATIENCE", -1.0)
    trainer = train(tmp_path, on_step=2 * stop_at(4))
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    assert trainer.env_steps == 4


class Interrupted:
    """In the given evaluation of this environment a signal comes; if it is not heeded, that goes on
    for ever.
    """

    def __init__(self, env, number: int, play: int):
        self._env = env
        self._number = number
        self._play = play
        self.steps = 0

    def __getattr__(self, name):
        return getattr(self._env, name)

    def reset(self, seed=None):
        self._play -= 1
        return self._env.reset(seed)

    def step(self, action):
        step = self._env.step(action)
        if self._play != -1:
            return step
        self.steps += 1
        assert self.steps < 10, "not heeded"
        signal.raise_signal(self._number)
        return step._replace(terminated=step.terminated & False, truncated=step.truncated & False)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)]
)
@pytest.mark.parametrize(
    "play", [0, 3, 6, 7]
)  # the first, one of the middle, that at the end, that of the summary
def test_no_evaluation_holds_a_stop_up_and_all_of_it_is_made_anew(
    tmp_path, train, uninterrupted, assert_same, point_env, number, play
):
    env = Interrupted(point_env(8, 3), number, play)
    first = train(tmp_path, evaluation_env=env)
    summary = first.run()
    assert not summary["finished"] and env.steps == 1 and not first.summarised
    assert ("episode_return" in summary) == (play > 0)  # of the best so far
    second = train(tmp_path, agent_seed=9)
    second.resume()
    assert not second.summarised
    whole, whole_summary, whole_folder = uninterrupted
    of_the_machine = dict.fromkeys(("wall_s", "solved_at_s", "peak_memory_gb"), 0)
    assert second.run() | of_the_machine == whole_summary | of_the_machine
    assert second.summarised
    assert_same(second.agent.state_dicts(), whole.agent.state_dicts())
    assert_same(policies(tmp_path), policies(whole_folder))
    assert figures(first.trackers[0] + second.trackers[0]) == figures(whole.trackers[0])


def test_ctrl_c_does_not_save_a_run_that_diverged(tmp_path, train, point_env):
    class Poisoned(point_env):
        def step(self, action):
            step = super().step(action)
            return step._replace(reward=step.reward * math.nan)

    with pytest.raises(NotFiniteError):
        train(tmp_path, Poisoned, on_step=stop_at(44)).run()
    assert not (tmp_path / LAST).exists()


# What cannot be resumed


def test_there_must_be_something_to_resume(tmp_path, train):
    with pytest.raises(CheckpointError, match="nothing to resume"):
        train(tmp_path).resume()
    train(tmp_path).agent.save(tmp_path / LAST)  # a policy, but not where the training stood
    with pytest.raises(CheckpointError, match="trainer_state"):
        train(tmp_path).resume()


def test_a_resumed_run_must_keep_its_number_of_environments(tmp_path, train, assert_same):
    train(tmp_path, on_step=stop_at(60)).run()
    trainer = train(tmp_path, num_envs=8, agent_seed=9)
    before = copy.deepcopy(trainer.agent.state_dicts())
    with pytest.raises(ConfigError, match="envs.* 4.* 8"):
        trainer.resume()
    assert_same(trainer.agent.state_dicts(), before)


@pytest.mark.parametrize("capacity", [60, 1000])
def test_a_resumed_run_may_have_another_replay_capacity(tmp_path, train, capacity):
    train(tmp_path, on_step=stop_at(200)).run()
    trainer = train(tmp_path, replay=ReplayConfig(capacity, 16))
    batches = []
    update = trainer.agent.update
    trainer.agent.update = lambda batch: batches.append(batch) or update(batch)
    trainer.resume()
    assert trainer.run()["finished"]
    state, action, _, successor, _ = (torch.cat(parts) for parts in list(zip(*batches))[:5])
    torch.testing.assert_close(
        successor, state + torch.cat((0.1 * action, torch.ones(len(state), 1)), 1)
    )


@pytest.mark.parametrize(
    "path",
    ["source", "source.noise", "source.generator", "best", "source.env", "source.replay.rows"],
)
@pytest.mark.parametrize("value", [None, 3, {}, "text"])
def test_a_resume_point_with_wrong_entries_is_one_line(tmp_path, train, path, value):
    train(tmp_path, on_step=stop_at(60)).run()
    states, metadata = checkpoint.load(tmp_path / LAST)
    *parents, last = path.split(".")
    entry = states["trainer_state"]
    for name in parents:
        entry = entry[name]
    entry[last] = value
    checkpoint.write(tmp_path / LAST, states, metadata)
    # no score
    checkpoint.write(
        tmp_path, {name: state for name, state in states.items() if name != "trainer_state"}
    )
    try:
        train(tmp_path).resume()
        assert (path, value) == ("source.noise", None)  # a run may have been without it
    except (CheckpointError, ConfigError) as error:
        assert "\n" not in str(error)


# Other devices


def test_a_generator_of_another_device_begins_a_stream_that_the_state_fixes():
    states = [torch.Generator().manual_seed(seed).get_state() for seed in (1, 1, 2)]
    same = torch.Generator()
    restore_generator(same, states[0])
    assert torch.equal(same.get_state(), states[0])
    drawn = []
    for state in states:
        generator = torch.Generator()
        restore_generator(generator, state[:16])  # CUDA's have 16 bytes
        restore_generator(generator, state[100:116])
        drawn.append(torch.rand(5, generator=generator))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


def test_a_state_that_cannot_be_saved_is_refused_before_anything_is_learnt(
    tmp_path, train, point_env
):
    class Arrays(point_env):
        def state_dict(self):
            return {**super().state_dict(), "place": self.observation.numpy()}

    trainer = train(tmp_path / "run", Arrays)
    with pytest.raises(
        TypeError, match=r"^source\['env'\]\['place'\] is a ndarray; a checkpoint holds tensors and"
    ):
        trainer.run()
    assert trainer.env_steps == 0 and not (tmp_path / "run").exists()


def test_a_run_that_begins_with_anothers_networks_takes_over_what_rewards_were_divided_by(
    tmp_path, train
):
    normalize = {"reward": RewardConfig(normalize=True)}
    first = train(tmp_path, **normalize, steps=120, evaluation=EvaluationConfig(120, 8))
    first.run()
    rewards = checkpoint.load(tmp_path, names=()).metadata["rewards"]
    assert rewards == first.source.metadata()["rewards"] and rewards["count"] == 120
    # --start_from takes it, too
    assert checkpoint.load(tmp_path / "last", names=()).metadata["rewards"] == rewards
    second = train(tmp_path / "next", **normalize)
    second.source.take_reward_statistics(rewards)
    assert second.source.metadata()["rewards"] == rewards

    def scale(run):
        return run.source.scaler.scale(torch.ones(1))

    assert torch.equal(scale(first), scale(second)) and scale(first) != 1
    train(tmp_path / "plain").source.take_reward_statistics(rewards)  # does not normalise
    for wrong in ({}, {"count": 1}, {**rewards, "mean": "x"}, {**rewards, "variance": -1.0}, [1]):
        with pytest.raises(
            CheckpointError, match="statistics of rewards must be the numbers count, mean, variance"
        ):
            second.source.take_reward_statistics(wrong)
