"""Goal environments, whose reward and termination can be computed for other goals.

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
    """Reward and termination of N transitions from achieved and desired goals (N, g).

    Termination is `compute_terminated`; without it, success in environments of panda-gym, and never
    in others.

    Args:
        env: a copy that is not stepped: `compute_terminated` of AntMaze moves its goal.

    Raises:
        Exception: any that `compute_reward` raises with an empty info.
    """

    def __init__(self, env: Any):
        self.close = env.close
        task = env.unwrapped
        space = env.observation_space["desired_goal"]
        observed, _ = env.reset(seed=0)
        a = np.asarray(observed["achieved_goal"], space.dtype)
        # met goals and far goals, so that one answer for the whole batch is wrong
        examples = np.stack((a, a, a + 10, a - 10)), np.stack((a, a + 10, a + 10, a))
        self._shape = space.shape
        self._dtype = space.dtype
        self.reward = _vectorize(lambda a, d: task.compute_reward(a, d, {}), examples)
        if hasattr(task, "compute_terminated"):
            self.terminated = _vectorize(lambda a, d: task.compute_terminated(a, d, {}), examples)
        elif any(kind.__module__.startswith("panda_gym.") for kind in type(task).__mro__):
            self.terminated = _vectorize(task.task.is_success, examples)
        else:
            self.terminated = lambda achieved, desired: np.zeros(len(achieved), bool)

    def __call__(self, achieved: np.ndarray, desired: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(N, g), (N, g) -> reward (N,) float32, terminated (N,) bool."""
        achieved, desired = (
            x.astype(self._dtype).reshape(-1, *self._shape) for x in (achieved, desired)
        )
        reward = self.reward(achieved, desired)
        return reward.astype(np.float32), self.terminated(achieved, desired).astype(bool)


def _vectorize(rule: Rule, examples: tuple[np.ndarray, np.ndarray]) -> Rule:
    """Return the rule if it takes batches, as tried on the examples, otherwise a loop over it.

    Many rules are written for one goal: with a batch they fail or return one answer for all.
    """

    def run_looped(achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        return np.array([np.asarray(rule(a, d)).item() for a, d in zip(achieved, desired)])

    def run_batched(achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        # "never terminated" may be one False
        return np.broadcast_to(rule(achieved, desired), len(achieved))

    expected = run_looped(*examples)
    with contextlib.suppress(Exception):  # an environment's own code, which may fail in any way
        if np.allclose(run_batched(*examples), expected):
            return run_batched
    return run_looped


class GoalGymnasiumEnv(GymnasiumEnv):
    """Goal environments of Gymnasium as a `td3_robot.vec_env.GoalVecEnv`.

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
        self._achieved = slice(o, o + g)
        self._desired = slice(o + g, None)
        self._rules = rules

    def memory(self, arrived: bool = False) -> Tensor:
        """Return the observation, which is all that must be remembered."""
        return self._arrived if arrived else self._now

    def observe(self, memory: Tensor) -> Tensor:
        """Return the observation of a memory: the same."""
        return memory

    def achieved_goal(self, memory: Tensor) -> Tensor:
        """Return the achieved goals (B, g) of a memory."""
        return memory[:, self._achieved]

    def relabel(
        self, memory: Tensor, action: Tensor, next_memory: Tensor, goal: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Relabel transitions with goals; on an accelerator it waits for a copy to the host."""
        state = memory.clone()
        next_state = next_memory.clone()
        state[:, self._desired] = next_state[:, self._desired] = goal
        reward, terminated = self._rules(
            self.achieved_goal(next_state).cpu().numpy(), goal.cpu().numpy()
        )
        paid, ended = (torch.tensor(values, device=state.device) for values in (reward, terminated))
        return state, next_state, paid, ended

    def _start(self, seed: int | None) -> Tensor:
        self._now = self._arrived = super()._start(seed)
        return self._now

    def step(self, action: Tensor) -> Step:
        """Step every environment, see `GymnasiumEnv.step`."""
        step = super().step(action)
        self._now = step.observation
        self._arrived = step.next_observation
        return step

    def load_state_dict(self, state: dict[str, Any]) -> Tensor:
        """Restore the episodes, see `GymnasiumEnv.load_state_dict`."""
        self._now = self._arrived = super().load_state_dict(state)
        return self._now

    def close(self) -> None:
        """Close the environments, the one of the rules too."""
        super().close()
        self._rules.close()
