"""Observations for Gymnasium: vectors, or dictionaries with goals."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from envs.arm_env.arm_env import ArmEnv
from envs.world import Moment
from td3_robot.errors import ConfigError
from td3_robot.vec_env import Step

Observation = np.ndarray | dict[str, np.ndarray]  # an observation, or a batch of them


def make_box(size: int, bound: float = np.inf) -> spaces.Box:
    """Make a Box with the same bound everywhere, by default none."""
    return spaces.Box(-bound, bound, (size,), np.float32)


class VectorObservations:
    """Observations as vectors."""

    def __init__(self, arms: ArmEnv):
        self.space = make_box(arms.o_dim)

    def make(self, observation: Tensor, moment: Moment) -> np.ndarray:
        """Convert observations (B, o_dim) to an array."""
        return convert_to_array(observation)

    def compute_reward(self, step: Step, observation: Observation) -> np.ndarray:
        """Return the rewards (B,)."""
        return convert_to_array(step.reward)


class GoalObservations:
    """Observations as dictionaries of desired goal, achieved goal and the rest.

    The rest does not depend on the goal: after hindsight it would reveal the former goal.
    """

    def __init__(self, arms: ArmEnv):
        self._arms = arms
        self._goal = arms.layout["goal"]
        names = [column.name for column in arms.layout.columns if not column.tells_goal]
        self._rest = [i for name in names for i in range(arms.o_dim)[arms.layout[name]]]
        goal = make_box(arms.goal.shape[1])
        self.space = spaces.Dict(
            {"observation": make_box(len(self._rest)), "achieved_goal": goal, "desired_goal": goal}
        )

    def make(self, observation: Tensor, moment: Moment) -> dict[str, np.ndarray]:
        """Convert observations (B, o_dim) of a moment to a dictionary of arrays (B, ...)."""
        return {
            "observation": convert_to_array(observation[:, self._rest]),
            "achieved_goal": convert_to_array(
                self._arms.task.achieved_goal(self._arms.world, moment)
            ),
            "desired_goal": convert_to_array(observation[:, self._goal]),
        }

    def compute_reward(self, step: Step, observation: Observation) -> np.ndarray:
        """Compute the rewards (B,) from the goals of the true successors."""
        return self.compute_goal_reward(observation["achieved_goal"], observation["desired_goal"])

    def compute_goal_reward(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """Compute rewards (...) of goals (..., g): 0 where the desired one is met, else -1."""
        rows = [
            torch.as_tensor(np.asarray(goal, np.float32)).reshape(-1, goal.shape[-1])
            for goal in (achieved, desired)
        ]
        met = self._arms.task.is_goal_met(*rows)
        return (met.numpy().astype(np.float32) - 1.0).reshape(np.shape(achieved)[:-1])


def require_sparse(options: dict[str, Any]) -> None:
    """Take `sparse` out of the keywords of an environment with goals, whose reward is sparse.

    Raises:
        ConfigError: it is False.
    """
    if not options.pop("sparse", True):
        raise ConfigError(
            "an environment with goals has the sparse reward: sparse cannot be False; the id "
            "without Goal has the dense one"
        )


def select_row(observation: Observation, row: int) -> Observation:
    """Select one observation of a batch."""
    if isinstance(observation, dict):
        return {name: value[row] for name, value in observation.items()}
    return observation[row]


def convert_info(step: Step) -> dict[str, np.ndarray]:
    """Convert the info of a step to arrays (B, ...) under Gymnasium's names."""
    return {
        "is_success" if name == "success" else name: convert_to_array(value)
        for name, value in step.info.items()
    }


def convert_to_array(values: Tensor) -> np.ndarray:
    """Copy a tensor, which may be the simulator's own, to an array."""
    return values.cpu().numpy().copy()
