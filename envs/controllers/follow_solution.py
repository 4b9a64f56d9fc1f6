"""Joint-space motion to an inverse-kinematics solution of the goal, as robot programs do."""

import torch
from torch import Tensor

from envs.controllers.controlled import Controlled
from envs.simulation.engine import Scene, SimModel
from td3_robot.errors import ConfigError

AT_VIA = 0.15  # distance of every joint from via below which the path continues [rad or m]


def compute_joint_move(model: SimModel, q: Tensor, target: Tensor, gain: float) -> Tensor:
    """Compute the action (B, n) in [-1, 1] that moves arms from q to target, both (B, n).

    The speed of every joint is gain times its distance. All are scaled down together if one exceeds
    its limit, or the speed that it can brake from in time.
    """
    distance = target - q
    action = gain * distance / model.qdlim
    over = torch.maximum(
        action.abs(), gain * (distance.abs() / (2.0 * model.dqd / model.dt)).sqrt()
    )
    return action / over.amax(1, keepdim=True).clamp_min(1.0)


def select_waypoint(scene: Scene) -> Tensor:
    """Return the next waypoint (B, n) of the path: `via` until it is `passed`, then `solution`."""
    if "via" not in scene:
        return scene["solution"]
    return torch.where(scene["passed"][:, None] > 0, scene["solution"], scene["via"])


class FollowSolution:
    """Controller that moves straight in joint space to the scene's `solution`, over `via` if any.

    Both are joint positions (B, n); `passed` (B,) tells whether `via` has been reached. See
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
                "exploration.expert solution needs a task whose scenes hold one: "
                "reach_pose, reach_avoid"
            )
        self._env = env
        self._gain = env.task.move_gain if gain is None else gain

    def __call__(self, observation: Tensor) -> Tensor:
        """Return the action (B, a_dim) in [-1, 1] for the environment's moment."""
        waypoint = select_waypoint(self._env.moment.scene)
        return compute_joint_move(self._env.model, self._env.moment.state.q, waypoint, self._gain)
