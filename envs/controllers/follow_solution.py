"""Straight in joint space to where the goal is there: inverse kinematics once, then one move, as
arms' programs do.
"""

import torch
from torch import Tensor

from envs.controllers.controlled import Controlled
from envs.simulation.engine import Scene, SimModel
from td3_robot.errors import ConfigError


def compute_joint_move(model: SimModel, q: Tensor, target: Tensor, gain: float) -> Tensor:
    """(B, n) in [-1, 1] that takes arms at q (B, n) to joint positions (B, n): every joint moves at
    gain times its distance, and all are scaled down together where one is over its limit, or over
    what it can brake from in time.
    """
    distance = target - q
    action = gain * distance / model.qdlim
    over = torch.maximum(
        action.abs(), gain * (distance.abs() / (2.0 * model.dqd / model.dt)).sqrt()
    )
    return action / over.amax(1, keepdim=True).clamp_min(1.0)


def select_waypoint(scene: Scene) -> Tensor:
    """(B, n) what comes next on the way to `solution`: `via`, where there is one that is not
    `passed`.
    """
    if "via" not in scene:
        return scene["solution"]
    return torch.where(scene["passed"][:, None] > 0, scene["solution"], scene["via"])


class FollowSolution:
    """Straight in joint space to `solution` in the scene, over `via` if there is one.

    Both are joint positions (B, n); `passed` (B,) says whether the latter is behind. See
    `compute_joint_move`.

    Args:
        env: the environment to act in.
        gain: joint speed per distance [1/s]; None: the task's `move_gain`.

    Raises:
        ConfigError: the task's scenes hold no solution.
    """

    def __init__(self, env: Controlled, gain: float | None = None):
        if "solution" not in env.moment.scene:
            raise ConfigError(
                "exploration.expert solution needs a task whose scenes hold one: reach_pose, reach_avoid"
            )
        self._env, self._gain = env, env.task.move_gain if gain is None else gain

    def __call__(self, observation: Tensor) -> Tensor:
        """(B, o_dim) -> (B, a_dim) in [-1, 1]; of the observation only the moment matters, not the
        values.
        """
        following = select_waypoint(self._env.moment.scene)
        return compute_joint_move(self._env.model, self._env.moment.state.q, following, self._gain)
