"""Goal environments: the order of their observations, and transitions relabelled with other
goals.
"""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envs.from_gymnasium import GoalGymnasiumEnv, GymnasiumEnv, make_gymnasium
from envs.from_gymnasium.goals import GoalRules
from td3_robot.config.run import Config, ReplayConfig
from td3_robot.errors import ConfigError
from td3_robot.replay.factory import make_replay
from td3_robot.vec_env import GoalVecEnv
from tests.support import needs_fetch


class Line(gym.Env):
    """A point on a line, moved by up to 1; its goal is drawn from [-3, 3] and met within 0.5.

    `batched` is whether the rules take batches; `ends` whether an episode ends at the goal, and
    `told` whether that can be asked. Asking moves the goal, as in gymnasium-robotics' AntMaze.
    """

    def __init__(self, batched: bool = True, ends: bool = True, told: bool = True):
        self.batched = batched
        self.ends = ends

        def box(low, high, size):
            return spaces.Box(low, high, (size,), np.float64)

        self.observation_space = spaces.Dict(
            {
                "desired_goal": box(-3, 3, 1),
                "observation": box(-9, 9, 2),
                "achieved_goal": box(-9, 9, 1),
            }
        )
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)
        if told:
            self.compute_terminated = self._asked

    def _near(self, achieved, desired):
        near = np.abs(achieved - desired)[..., 0] <= 0.5
        return near if self.batched else bool(near)

    def compute_reward(self, achieved_goal, desired_goal, info):
        return self._near(achieved_goal, desired_goal) - 1.0

    def _asked(self, achieved_goal, desired_goal, info):
        self.goal = self.goal + 100
        return np.logical_and(self.ends, self._near(achieved_goal, desired_goal))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.zeros(1)
        self.time = 0
        self.goal = self.np_random.uniform(-3, 3, 1)
        return self._observe(), {}

    def step(self, action):
        self.place = self.place + action
        self.time = self.time + 1
        near = bool(
            self._near(self.place[None], self.goal[None])[0]
            if self.batched
            else self._near(self.place, self.goal)
        )
        return self._observe(), near - 1.0, self.ends and near, self.time == 8, {"is_success": near}

    def _observe(self):
        return {
            "achieved_goal": self.place,
            "desired_goal": self.goal,
            "observation": np.append(self.place, self.time),
        }


def lines(copies: int = 3, **kind) -> GoalGymnasiumEnv:
    vector = SyncVectorEnv([lambda: Line(**kind)] * copies, autoreset_mode=AutoresetMode.SAME_STEP)
    return GoalGymnasiumEnv(vector, GoalRules(Line(**kind)))


def played(env, steps: int = 60) -> list[tuple]:
    """Transitions (state, action, Step) of random actions."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    observation = env.reset(0)
    for _ in range(steps):
        action = torch.rand(env.num_envs, env.a_dim, generator=generator) * 2 - 1
        step = env.step(action)
        rows.append((observation, action, step))
        observation = step.observation
    return rows


every_kind = pytest.mark.parametrize(
    "kind", [{}, {"batched": False}, {"told": False, "ends": False}]
)


@every_kind
def test_columns_are_observation_achieved_and_desired_goal(kind):
    env = lines(**kind)
    assert isinstance(env, GoalVecEnv) and env.o_dim == 4
    for state, action, step in played(env):
        place = state[:, 0] + action[:, 0]
        expected = torch.stack((place, state[:, 1] + 1, place, state[:, 3]), 1)
        assert torch.allclose(step.next_observation, expected, atol=1e-5)
        assert torch.equal(env.achieved_goal(step.next_observation), step.next_observation[:, 2:3])


@every_kind
def test_a_transition_keeps_its_worth_under_its_own_goal(kind):
    env = lines(**kind)
    for state, action, step in played(env):
        same = env.relabel(state, action, step.next_observation, state[:, 3:])
        for value, wanted in zip(
            same, (state, step.next_observation, step.reward, step.terminated)
        ):
            assert torch.equal(value, wanted) and value.dtype == wanted.dtype


@every_kind
def test_another_goal_gives_its_reward_and_end(kind):
    env = lines(**kind)
    for state, action, step in played(env, 20):
        before = state.clone()
        goal = env.achieved_goal(step.next_observation) + torch.tensor([[0.0], [0.4], [0.6]])
        new_state, next_state, reward, terminated = env.relabel(
            state, action, step.next_observation, goal
        )
        assert reward.tolist() == [0, 0, -1]
        assert terminated.tolist() == [kind.get("ends", True), kind.get("ends", True), False]
        assert torch.equal(new_state[:, 3:], goal) and torch.equal(next_state[:, 3:], goal)
        assert torch.equal(new_state[:, :3], state[:, :3]) and torch.equal(state, before)


def test_asking_for_rules_leaves_the_environments_alone():
    env = lines()
    untouched = lines()
    for (state, action, step), (_, _, other) in zip(played(env), played(untouched)):
        env.relabel(state, action, step.next_observation, torch.ones(3, 1))
        assert torch.equal(step.next_observation, other.next_observation)
    step = env.step(torch.zeros(3, 1))
    assert (step.next_observation[:, 3].abs() <= 3).all()


def test_an_episode_that_ends_unasked_is_taken_to_go_on():
    env = lines(told=False, ends=True)
    state, action, step = played(env, 1)[0]
    goal = env.achieved_goal(step.next_observation)
    assert env.relabel(state, action, step.next_observation, goal)[3].tolist() == [False] * 3


@pytest.mark.parametrize(
    "env_id",
    [pytest.param("FetchReach-v4", marks=needs_fetch), "PandaReach-v3", "PointMaze_UMaze-v3"],
)
def test_rules_of_published_environments_agree_with_their_steps(env_id):
    env = make_gymnasium(env_id, 2)
    assert isinstance(env, GoalVecEnv)
    g = env.achieved_goal(env.reset(0)).shape[1]
    for state, action, step in played(env, 55):
        same = env.relabel(state, action, step.next_observation, state[:, -g:])
        assert torch.equal(same[2], step.reward) and torch.equal(same[3], step.terminated)
        met = env.relabel(
            state, action, step.next_observation, env.achieved_goal(step.next_observation)
        )
        assert (met[2] >= step.reward).all() and (met[2] == met[2].max()).all()
        assert (met[3] == (env_id == "PandaReach-v3")).all()  # panda-gym ends an episode at success
        assert torch.equal(step.info["success"], step.reward == met[2])
    env.close()


class NeedsInfo(Line):
    def compute_reward(self, achieved_goal, desired_goal, info):
        return info["cost"]


class NotOnlyGoals(Line):
    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Dict(**self.observation_space, extra=spaces.Box(0, 1, (2,)))

    def _observe(self):
        return super()._observe() | {"extra": np.zeros(2, np.float32)}


@pytest.mark.parametrize(("kind", "o_dim"), [(NeedsInfo, 4), (NotOnlyGoals, 6)])
def test_an_environment_without_usable_rules_is_still_an_environment(kind, o_dim):
    gym.register("toys/Odd-v0", kind)
    env = make_gymnasium("toys/Odd-v0", 2)
    del gym.registry["toys/Odd-v0"]
    assert type(env) is GymnasiumEnv and env.o_dim == o_dim and not isinstance(env, GoalVecEnv)
    assert env.step(torch.zeros(2, 1)).observation.shape == (2, o_dim)


class Mistaken(Line):
    def compute_reward(self, achieved_goal, desired_goal, info):
        return -info["cost"]


def test_why_goals_cannot_be_others_is_told_to_whoever_wants_them():
    gym.register("toys/MistakenLine-v0", Mistaken)
    env = make_gymnasium("toys/MistakenLine-v0", 2)
    config = Config(replay=ReplayConfig(capacity=1000, hindsight="future"))
    with pytest.raises(
        ConfigError, match="this has none: compute_reward cannot be asked .*: KeyError: 'cost'"
    ):
        make_replay((2, env.o_dim, env.a_dim), config, torch.Generator(), env)
