"""Goal environments: what a transition would have been worth had another goal been the goal.

The interface is that of gymnasium_robotics.core.GoalEnv: `compute_reward` and `compute_terminated`,
each called with (achieved_goal, desired_goal, info). Its use is hindsight, Andrychowicz et al.,
"Hindsight Experience Replay", 2017.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from envs.from_gymnasium.adapter import GOAL_KEYS, GymnasiumEnv
from td3_robot.vec_env import Step

Rule = Callable[[np.ndarray, np.ndarray], np.ndarray]  # achieved and desired goals (N, g) -> (N,)


class GoalRules:
    """The reward and the termination of N transitions, from their achieved and desired goals (N,
    g).

    A transition terminates where `compute_terminated` says so; without it, at success in the
    environments of panda-gym, which end an episode there; and never elsewhere.

    Args:
        env: a copy that nobody steps, since `compute_terminated` of gymnasium-robotics' AntMaze
            moves its goal.

    Raises:
        Exception: whatever `compute_reward` raises, called with an empty info.
    """

    def __init__(self, env: Any):
        self.close = env.close
        task, space = env.unwrapped, env.observation_space["desired_goal"]
        observed, _ = env.reset(seed=0)
        a = np.asarray(observed["achieved_goal"], space.dtype)
        # goals that are met and goals far away, in an order that no single answer fits
        examples = np.stack((a, a, a + 10, a - 10)), np.stack((a, a + 10, a + 10, a))
        self._shape, self._dtype = space.shape, space.dtype
        self.reward = _batched(lambda a, d: task.compute_reward(a, d, {}), examples)
        if hasattr(task, "compute_terminated"):
            self.terminated = _batched(lambda a, d: task.compute_terminated(a, d, {}), examples)
        elif any(kind.__module__.startswith("panda_gym.") for kind in type(task).__mro__):
            self.terminated = _batched(task.task.is_success, examples)
        else:
            self.terminated = lambda achieved, desired: np.zeros(len(achieved), bool)

    def __call__(self, achieved: np.ndarray, desired: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(N, g), (N, g) -> reward (N,) float32, terminated (N,) bool."""
        achieved, desired = (
            x.astype(self._dtype).reshape(-1, *self._shape) for x in (achieved, desired)
        )
        reward, terminated = self.reward(achieved, desired), self.terminated(achieved, desired)
        return reward.astype(np.float32), terminated.astype(bool)


def _batched(rule: Rule, examples: tuple[np.ndarray, np.ndarray]) -> Rule:
    """The rule itself if it takes batches, otherwise a loop over it; tried on the examples.

    Many rules are written for one goal: with a batch they fail, or give one answer for all of it.
    """

    def looped(achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        return np.array([np.asarray(rule(a, d)).item() for a, d in zip(achieved, desired)])

    def whole(achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        return np.broadcast_to(
            rule(achieved, desired), len(achieved)
        )  # "never terminated" may be one False

    expected = looped(*examples)
    with contextlib.suppress(Exception):  # an environment's own code, which may fail in any way
        if np.allclose(whole(*examples), expected):
            return whole
    return looped


class GoalGymnasiumEnv(GymnasiumEnv):
    """B goal environments of Gymnasium; a `td3_robot.vec_env.GoalVecEnv`.

    Args:
        vector_env: environments whose observations are goal dictionaries.
        rules: their reward and termination.
        device, seed, name, restorable: as in GymnasiumEnv.
    """

    def __init__(
        self,
        vector_env: VectorEnv,
        rules: GoalRules,
        device: torch.device | str = "cpu",
        seed: int = 0,
        name: str = "",
        *,
        restorable: bool = False,
    ):
        super().__init__(vector_env, device, seed, name, restorable=restorable)
        self.memory_dim = self.o_dim
        space: Any = vector_env.single_observation_space
        o, g, _ = (int(np.prod(space[key].shape)) for key in GOAL_KEYS)
        self._achieved, self._desired = slice(o, o + g), slice(o + g, None)
        self._rules = rules

    def memory(self, arrived: bool = False) -> Tensor:
        """See `GoalVecEnv.memory`: the observation."""
        return self._arrived if arrived else self._now

    def observe(self, memory: Tensor) -> Tensor:
        """See `GoalVecEnv.observe`."""
        return memory

    def achieved_goal(self, memory: Tensor) -> Tensor:
        """See `GoalVecEnv.achieved_goal`."""
        return memory[:, self._achieved]

    def relabel(
        self, memory: Tensor, action: Tensor, next_memory: Tensor, goal: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """See `GoalVecEnv.relabel`. The rules are numpy's: on an accelerator this waits for the
        copy to the host.
        """
        state, next_state = memory.clone(), next_memory.clone()
        state[:, self._desired] = next_state[:, self._desired] = goal
        reward, terminated = self._rules(
            self.achieved_goal(next_state).cpu().numpy(), goal.cpu().numpy()
        )
        paid, ended = (torch.tensor(values, device=state.device) for values in (reward, terminated))
        return state, next_state, paid, ended

    def _start(self, stream: int | None) -> Tensor:
        self._now = self._arrived = super()._start(stream)
        return self._now

    def step(self, action: Tensor) -> Step:
        """See `GymnasiumEnv.step`."""
        step = super().step(action)
        self._now, self._arrived = step.observation, step.next_observation
        return step

    def load_state_dict(self, state: dict[str, Any]) -> Tensor:
        """See `GymnasiumEnv.load_state_dict`."""
        self._now = self._arrived = super().load_state_dict(state)
        return self._now

    def close(self) -> None:
        """End the environments, and the one whose rules were asked."""
        super().close()
        self._rules.close()
