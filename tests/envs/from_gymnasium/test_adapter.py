"""Gymnasium environments as VecEnvs: bounds, autoreset modes, success, seeds, and refused
environments.
"""

import re

import gymnasium as gym
import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.from_gymnasium import DiscreteAsBox, GymnasiumEnv, make_gymnasium
from td3_robot.data.episode_stats import EpisodeStatistics
from td3_robot.errors import ConfigError, NotFiniteError
from td3_robot.evaluation.rollout import compute_episode_statistics, play_seeded
from td3_robot.vec_env import VecEnv

LOW = np.array([-2.0, 0.0], np.float32)
HIGH = np.array([2.0, 10.0], np.float32)


class Diary(gym.Env):
    """Observes (copy, episode, step, last action); episodes of 2 to 4 steps, ending in turn in both
    ways.

    The reward is the step. Success, where it is told, is an odd step; `at_end`: by the last alone.
    """

    def __init__(self, copy: int = 0, tells: str | None = None, at_end: bool = False):
        self.copy = copy
        self.tells = tells
        self.at_end = at_end
        self.episode = -1
        self.observation_space = spaces.Box(-100, 100, (5,), np.float64)
        self.action_space = spaces.Box(LOW, HIGH)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode = 0 if seed is not None else self.episode + 1
        self.time = 0
        self.ended = False
        return self._observe(np.zeros(2)), self._told()

    def step(self, action):
        assert not self.ended and action in self.action_space
        self.time += 1
        self.ended = self.time == 2 + (self.copy + self.episode) % 3
        cut = self.episode % 2 == 1
        return (
            self._observe(action),
            float(self.time),
            self.ended and not cut,
            self.ended and cut,
            self._told(),
        )

    def _observe(self, action):
        return np.array([self.copy, self.episode, self.time, *action], float)

    def _told(self):
        if self.tells is None or (self.at_end and not self.ended):
            return {}
        return {self.tells: self.time % 2 == 1}


class Fixed(gym.Env):
    """Given spaces, given observations and rewards, one a step; the first observation is that of
    the reset.
    """

    def __init__(
        self,
        observation_space=None,
        action_space=None,
        observations=(0.0,),
        rewards=(0.0,),
        ends=None,
    ):
        self.observation_space = observation_space or spaces.Box(-1, 1, (2,))
        self.action_space = action_space or spaces.Box(-1, 1, (2,))
        self.observations = observations
        self.rewards = rewards
        self.ends = ends

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def _observe(self):
        value = self.observations[min(self.time, len(self.observations) - 1)]
        return np.array([0.0, value], np.float32)

    def step(self, action):
        self.time = self.time + 1
        self.action = action
        reward = self.rewards[min(self.time - 1, len(self.rewards) - 1)]
        return self._observe(), reward, False, self.time == self.ends, {}


class Reusing(SyncVectorEnv):
    """Hands out the same arrays at every step."""

    def step(self, actions):
        observations, *_, infos = super().step(actions)
        return observations, self._rewards, self._terminations, self._truncations, infos


every_mode = pytest.mark.parametrize("mode", list(AutoresetMode))


def diaries(mode=AutoresetMode.SAME_STEP, copies=3, tells=None, at_end=False) -> GymnasiumEnv:
    makers = [lambda i=i: Diary(i, tells, at_end) for i in range(copies)]
    return GymnasiumEnv(Reusing(makers, autoreset_mode=mode, copy=False))


def fixed(**given) -> GymnasiumEnv:
    return GymnasiumEnv(
        SyncVectorEnv([lambda: Fixed(**given)] * 2, autoreset_mode=AutoresetMode.SAME_STEP),
        name="toy",
    )


def policy(observation: torch.Tensor) -> torch.Tensor:
    """Actions that tell copies, episodes and steps apart."""
    return torch.stack(
        (observation @ torch.tensor([0.1, 0.01, -0.2, 0, 0]), observation[:, 2] / 4), 1
    ).clamp(-1, 1)


def transitions(env: GymnasiumEnv, steps: int) -> list[list[tuple]]:
    """What a learner would keep, for every copy in order."""
    kept = [[] for _ in range(env.num_envs)]
    observation = env.reset(0)
    for _ in range(steps):
        action = policy(observation)
        step = env.step(action)
        columns = (
            observation,
            action,
            step.reward,
            step.next_observation,
            step.terminated,
            step.truncated,
        )
        for i in range(env.num_envs):
            if step.valid is None or step.valid[i]:
                kept[i].append(tuple(column[i].tolist() for column in columns))
        observation = step.observation
    return kept


def loop(copy: int, steps: int) -> list[tuple]:
    """The same from one environment and Gymnasium's plain loop."""
    env = Diary(copy)
    kept = []
    observation, _ = env.reset(seed=0)
    for _ in range(steps):
        state = torch.tensor(observation[None], dtype=torch.float32)
        action = policy(state)
        physical = LOW + (action[0].numpy() + 1) / 2 * (HIGH - LOW)
        observation, reward, terminated, truncated, _ = env.step(physical.astype(np.float32))
        kept.append(
            (
                state[0].tolist(),
                action[0].tolist(),
                reward,
                observation.tolist(),
                terminated,
                truncated,
            )
        )
        if terminated or truncated:
            observation, _ = env.reset()
    return kept


@every_mode
def test_what_is_learned_from_is_the_same_under_every_autoreset_mode(mode):
    kept = transitions(diaries(mode), 40)
    for copy, rows in enumerate(kept):
        expected = loop(copy, 40)[: len(rows)]
        assert len(rows) >= 28
        for row, other in zip(rows, expected):
            for value, wanted in zip(row, other):
                assert value == pytest.approx(wanted, abs=1e-6)


def test_only_rows_that_start_an_episode_are_no_transitions():
    env = diaries(AutoresetMode.NEXT_STEP)
    ended = torch.zeros(3, dtype=torch.bool)
    observation = env.reset(0)
    for _ in range(30):
        step = env.step(policy(observation))
        assert torch.equal(step.valid, ~ended)
        assert (step.observation[ended, 2] == 0).all()
        ended = step.terminated | step.truncated
        observation = step.observation
    env.step(policy(observation))
    env.reset()
    assert env.step(torch.zeros(3, 2)).valid.all()


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_without_such_rows_nothing_is_marked(mode):
    assert diaries(mode).step(torch.zeros(3, 2)).valid is None


@every_mode
def test_what_was_handed_out_does_not_change_later(mode):
    env = diaries(mode, tells="success")
    handed = []
    for _ in range(10):
        step = env.step(torch.zeros(3, 2))
        tensors = [
            value for value in (*step[:5], *step.info.values(), step.valid) if value is not None
        ]
        handed += [(value, value.clone()) for value in tensors]
    assert all(torch.equal(now, then) for now, then in handed)


def test_it_is_a_vec_env_of_flat_float32():
    env = diaries()
    assert isinstance(env, VecEnv) and (env.num_envs, env.o_dim, env.a_dim) == (3, 5, 2)
    assert env.reset(0).dtype == torch.float32
    step = env.step(torch.zeros(3, 2))
    assert (
        step.observation.dtype == step.reward.dtype == torch.float32
        and step.terminated.dtype == torch.bool
    )


# Actions


def sent(action: list[float], low, high, dtype=np.float32) -> list:
    """What reaches an environment with these bounds."""
    env = fixed(action_space=spaces.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype))
    env.step(torch.tensor([action] * 2))
    return env._gym.envs[1].unwrapped.action.tolist()


def test_actions_are_scaled_to_the_bounds_of_each_dimension():
    assert sent([-1.0, 1.0, 0.5], [-2, 0, -1], [2, 10, 1]) == [-2, 10, 0.5]
    assert sent([0.0, 0.5, -0.5], [-2, 0, -3], [2, 10, -1]) == [0, 7.5, -2.5]
    assert sent([-7.0, 3.0, 1.5], [-2, 0, -3], [2, 10, -1]) == [-2, 10, -1]


def test_a_box_of_integers_gets_integers():
    assert sent([-1.0, 0.3, 1.0], [0, 0, 0], [4, 4, 4], np.int64) == [0, 3, 4]
    assert sent([-9.0, 9.0, -0.999], [-2, -2, 7], [2, 2, 8], np.int8) == [-2, 2, 7]


def test_every_integer_of_a_box_has_an_equal_share_of_the_actions():
    env = fixed(action_space=spaces.Box(-1, 3, (1000,), np.int64))
    actions = torch.linspace(-0.9995, 0.9995, 1000).repeat(2, 1)
    env.step(actions)
    values, counts = np.unique(env._gym.envs[0].unwrapped.action, return_counts=True)
    assert values.tolist() == [-1, 0, 1, 2, 3] and counts.tolist() == [200] * 5


def test_shapes_of_actions_and_observations_are_the_environments_own():
    env = fixed(action_space=spaces.Box(0, 1, (2, 3)))
    assert env.a_dim == 6
    env.step(torch.linspace(-1, 1, 6).repeat(2, 1))
    assert env._gym.envs[0].unwrapped.action.shape == (2, 3)
    assert env._gym.envs[0].unwrapped.action.ravel() == pytest.approx(np.linspace(0, 1, 6))


bound = st.floats(-1e6, 1e6, width=32)


@settings(max_examples=40)
@given(bound, bound, arrays.arrays(np.float32, 5, elements=st.floats(-2, 2, width=32)))
def test_no_action_leaves_the_bounds(first, second, values):
    low = np.float32(min(first, second))
    high = np.float32(max(first, second))
    if low == high:
        return
    box = spaces.Box(low, high, (5,))
    env = fixed(action_space=box)
    env.step(torch.from_numpy(np.stack((values, values))))
    action = env._gym.envs[0].unwrapped.action
    assert action in box
    wanted = np.float64(low) + (values.clip(-1, 1).astype(float) + 1) / 2 * (np.float64(high) - low)
    assert np.abs(action - wanted).max() <= 1e-6 * max(abs(low), abs(high))


def test_an_action_may_be_an_array():
    action = np.array([[0.5, -0.5], [0.0, 1.0]])
    of_array = fixed()
    of_tensor = fixed()
    of_array.step(action)
    of_tensor.step(torch.from_numpy(action))
    for one, other in zip(of_array._gym.envs, of_tensor._gym.envs):
        assert np.array_equal(one.unwrapped.action, other.unwrapped.action)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_action_that_is_not_finite_is_refused(value):
    with pytest.raises(NotFiniteError, match="action has a value that is NaN or infinite"):
        fixed().step(torch.tensor([[0.0, 0.0], [0.0, value]]))


def test_an_action_of_another_shape_is_refused():
    with pytest.raises(ConfigError, match=re.escape("shape (2, 2), got (2, 3)")):
        fixed().step(torch.zeros(2, 3))


def test_the_greatest_score_is_the_discrete_action():
    env = DiscreteAsBox(Fixed(action_space=spaces.Discrete(3, start=5)))
    env.reset()
    assert env.action_space == spaces.Box(-1, 1, (3,))
    chosen = []
    for scores in ([0.1, 0.9, 0.2], [-0.9, -1, -0.8], [0.5, 0.5, 0.1]):
        env.step(np.array(scores, np.float32))
        chosen.append(env.unwrapped.action)
    assert chosen == [6, 7, 5]
    assert all(action in env.unwrapped.action_space for action in chosen)


# Success, seeds and state


@every_mode
@pytest.mark.parametrize("name", ["success", "is_success"])
def test_success_is_that_of_the_step_made_and_not_of_the_reset(mode, name):
    env = diaries(mode, tells=name)
    observation = env.reset(0)
    for _ in range(20):
        step = env.step(policy(observation))
        assert torch.equal(step.info["success"], step.next_observation[:, 2] % 2 == 1)
        observation = step.observation


@every_mode
def test_success_that_is_told_at_the_end_alone_is_seen(mode):
    """First episodes of 2, 3 and 4 steps, the odd one with success; then one of each in turn."""
    env = diaries(mode, tells="is_success", at_end=True)
    played = play_seeded(policy, env, 0)
    assert compute_episode_statistics(played)["success"].tolist() == [False, True, False]
    env = diaries(mode, tells="is_success", at_end=True)
    statistics = EpisodeStatistics(3, "cpu")
    observation = env.reset(0)
    ends = []
    for _ in range(12):
        step = env.step(policy(observation))
        observation = step.observation
        ended = (step.terminated | step.truncated) & (True if step.valid is None else step.valid)
        ends += (step.next_observation[ended, 2] % 2 == 1).tolist()
        statistics.count(step)
    assert statistics.pop_means()["train_success_rate"] == pytest.approx(sum(ends) / len(ends))


def test_nothing_is_told_where_the_environment_tells_nothing():
    env = diaries()
    assert all(env.step(torch.zeros(3, 2)).info == {} for _ in range(6))


def play(env, steps: int = 30) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    actions = torch.rand(steps, env.num_envs, env.a_dim, generator=generator) * 2 - 1
    return torch.stack([env.step(action).observation for action in actions])


def test_seeds_repeat_and_differ():
    env, other = (make_gymnasium("Pendulum-v1", 2, seed=seed) for seed in (0, 1))
    first = env.reset(3)
    played = play(env)
    then = env.reset()
    assert not torch.equal(first, then) and len(torch.cat((first, then)).unique(dim=0)) == 4
    assert (
        torch.equal(first, other.reset(3))
        and torch.equal(played, play(other))
        and torch.equal(then, other.reset())
    )
    assert not torch.equal(first, env.reset(4))


def test_the_seed_of_the_constructor_is_that_of_a_reset():
    assert torch.equal(
        play(make_gymnasium("Pendulum-v1", 2, seed=3)),
        play_from(make_gymnasium("Pendulum-v1", 2), 3),
    )


def play_from(env, seed: int) -> torch.Tensor:
    env.reset(seed)
    return play(env)


def test_a_saved_state_starts_new_episodes_that_repeat():
    env = make_gymnasium("Pendulum-v1", 2, seed=5)
    other = make_gymnasium("Pendulum-v1", 2, seed=6)
    play(env)
    state = env.state_dict()
    resumed = env.load_state_dict(state)
    assert torch.equal(resumed, other.load_state_dict(state))
    assert torch.equal(play(env), play(other)) and env.state_dict() == other.state_dict()
    again = env.load_state_dict(env.state_dict())
    assert len(torch.cat((env.reset(5), resumed, again)).unique(dim=0)) == 6


# Environments that cannot be learned with

big = np.finfo(np.float32).max


def pair(low, high):
    return spaces.Box(np.array([-1, low], np.float32), np.array([1, high], np.float32))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (pair(-np.inf, 1), "env 'toy': action dimension 1 has no finite bounds: [-inf, 1]"),
        (pair(0, np.inf), "env 'toy': action dimension 1 has no finite bounds: [0, inf]"),
        (pair(-big, big), "env 'toy': action dimension 1 has no finite bounds: [-3.4"),
        (pair(0.5, 0.5), "env 'toy': action dimension 1 has zero width: [0.5, 0.5]"),
        (
            spaces.MultiDiscrete([2, 3]),
            "env 'toy': action space MultiDiscrete([2 3]) is not supported; it must be",
        ),
        (
            spaces.Discrete(3),
            "env 'toy': action space Discrete(3) is not supported; it must be a Box",
        ),
    ],
)
def test_action_spaces_that_cannot_be_acted_in_are_named(space, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        fixed(action_space=space)


@pytest.mark.parametrize(
    "space", [spaces.Discrete(3), spaces.Sequence(spaces.Discrete(2)), spaces.Dict(a=pair(0, 1))]
)
def test_observation_spaces_that_are_not_numbers_are_named(space):
    vector = SyncVectorEnv([Fixed], autoreset_mode=AutoresetMode.SAME_STEP)
    vector.single_observation_space = space
    shown = " ".join(str(space).split())
    with pytest.raises(
        ConfigError, match=re.escape(f"env 'toy': observation space {shown} is not supported")
    ):
        GymnasiumEnv(vector, name="toy")


def test_a_vector_environment_without_an_autoreset_mode_is_refused():
    vector = SyncVectorEnv([Fixed])
    vector.metadata = {}
    with pytest.raises(ConfigError, match="metadata\\['autoreset_mode'\\] must be"):
        GymnasiumEnv(vector)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
def test_observations_and_rewards_that_are_not_finite_stop_the_run(value):
    with (
        np.errstate(over="ignore"),
        pytest.raises(NotFiniteError, match=r"env 'toy': observation\[1\] of copy 0 is"),
    ):
        fixed(observations=[value])
    env = fixed(observations=[0.0, 0.0, 0.0, value])
    env.step(torch.zeros(2, 2))
    env.step(torch.zeros(2, 2))
    with (
        np.errstate(over="ignore"),
        pytest.raises(NotFiniteError, match=r"observation\[1\] of copy 0 is .* at step 3"),
    ):
        env.step(torch.zeros(2, 2))
    with (
        np.errstate(over="ignore"),
        pytest.raises(NotFiniteError, match=r"observation\[1\] of copy 0 is .* at step 2"),
    ):
        # the last of its episode, that nobody acts on
        env = fixed(observations=[0.0, 0.0, value], ends=2)
        env.step(torch.zeros(2, 2))
        env.step(torch.zeros(2, 2))
    env = fixed(rewards=[0.0, value])
    env.step(torch.zeros(2, 2))
    wrong = (
        "env 'toy': reward of copy 0 is .* at step 2 and was not stored; .* check the environment"
    )
    with np.errstate(over="ignore"), pytest.raises(NotFiniteError, match=wrong) as caught:
        env.step(torch.zeros(2, 2))
    shapes = {name: tuple(part.shape) for name, part in caught.value.evidence.items()}
    assert shapes == {"observation": (2,), "action": (2,), "reward": (), "next_observation": (2,)}
    assert not caught.value.evidence["reward"].isfinite()
