"""What our environments look like to Gymnasium: vectors, or dictionaries of goals."""

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from envs.arm_env.arm_env import ArmEnv
from envs.world import Moment
from td3_robot.vec_env import Step

Shown = np.ndarray | dict[str, np.ndarray]  # an observation, or a batch of them


def box(size: int, bound: float = np.inf) -> spaces.Box:
    """Observations have no bounds, since speeds and errors have none that is tight; actions are in
    [-1, 1].
    """
    return spaces.Box(-bound, bound, (size,), np.float32)


class Vectors:
    """Observations as they are."""

    def __init__(self, arms: ArmEnv):
        self.space = box(arms.o_dim)

    def show(self, observation: Tensor, moment: Moment) -> np.ndarray:
        """Observations (B, o_dim) of a moment -> the same as an array."""
        return array(observation)

    def reward(self, step: Step, shown: Shown) -> np.ndarray:
        """(B,)."""
        return array(step.reward)


class Goals:
    """Observations as dictionaries of the goal, what was achieved of it, and the rest.

    The rest is what stays the same under another goal, or else it would tell the old one after
    hindsight.
    """

    def __init__(self, arms: ArmEnv):
        self._arms, self._goal = arms, arms.layout["goal"]
        names = [column.name for column in arms.layout.columns if not column.tells_goal]
        self._rest = [i for name in names for i in range(arms.o_dim)[arms.layout[name]]]
        goal = box(arms.goal.shape[1])
        self.space = spaces.Dict(
            {"observation": box(len(self._rest)), "achieved_goal": goal, "desired_goal": goal}
        )

    def show(self, observation: Tensor, moment: Moment) -> dict[str, np.ndarray]:
        """Observations (B, o_dim) of a moment -> arrays with the names of the interface, (B, ...)
        each.
        """
        return {
            "observation": array(observation[:, self._rest]),
            "achieved_goal": array(self._arms.task.achieved_goal(self._arms.world, moment)),
            "desired_goal": array(observation[:, self._goal]),
        }

    def reward(self, step: Step, shown: Shown) -> np.ndarray:
        """(B,), of the goals in the true successors."""
        return self.reward_of(shown["achieved_goal"], shown["desired_goal"])

    def reward_of(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """Goals (..., g) -> (...) 0 where the desired one is met and -1 elsewhere."""
        rows = [
            torch.as_tensor(np.asarray(goal, np.float32)).reshape(-1, goal.shape[-1])
            for goal in (achieved, desired)
        ]
        met = self._arms.task.goal_met(*rows)
        return (met.numpy().astype(np.float32) - 1.0).reshape(np.shape(achieved)[:-1])


def row_of(shown: Shown, row: int) -> Shown:
    """One observation of a batch."""
    return (
        {name: value[row] for name, value in shown.items()}
        if isinstance(shown, dict)
        else shown[row]
    )


def measurements(step: Step) -> dict[str, np.ndarray]:
    """The info of a step under Gymnasium's names, each (B, ...)."""
    return {
        "is_success" if name == "success" else name: array(value)
        for name, value in step.info.items()
    }


def array(values: Tensor) -> np.ndarray:
    """A copy: the tensors may be the simulator's own."""
    return values.cpu().numpy().copy()
