"""Reach: bring the TCP to a point and hold it there until the episode ends.

Success is the TCP within `tolerance` of the goal at the end of the episode; nothing ends early.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from envs.observation import Layout, batched_o
from envs.simulator import SimModel, SimState


@dataclass(frozen=True)
class Reach:
    """The constants of the task; its values live in configs/tasks/reach.yaml.

    Attributes:
        dt: control period [s].
        horizon: control steps an episode.
        start_spread: episodes start at home plus a uniform offset up to this, each joint [rad].
        tolerance: success distance [m].
        distance_weight: reward lost per metre of distance, each step.
        precision_weight: height of the reward bonus at the goal.
        precision_scale: distance at which the bonus has fallen to 1/e [m].
        action_weight: reward lost for a full-speed command of all joints.
        stillness_weight: the same on top of it at the goal, falling to 1/e at `stillness_scale` from it [m]. In
            proportion to the command, not to its square, which would forgive a slow drift: without this term
            idle joints wander until they end at a limit and take the TCP off the goal.
        error_unit: length in which the observation gives the error [m]. Errors matter at the scale of
            centimetres beside joint angles of radians; in metres the networks learn to see them last.
    """

    dt: float
    horizon: int
    start_spread: float
    tolerance: float
    distance_weight: float
    precision_weight: float
    precision_scale: float
    action_weight: float
    stillness_weight: float
    stillness_scale: float
    error_unit: float

    def layout(self, model: SimModel) -> Layout:
        """Columns of the observation that `observe` gives."""
        n, drivers, k = len(model.qdlim), len(model.driver_mimic), model.position_joints
        parts = [("q", n), ("drivers", drivers), ("qd", n), ("tcp", 3), ("goal", 3), ("error", 3), ("joint_error", k)]
        return Layout(parts)


def observe(task: Reach, model: SimModel, state: SimState, tcp: Tensor, J: Tensor, goal: Tensor) -> Tensor:
    """What the policy sees.

    Args:
        tcp, goal: (B, 3) positions in the base frame [m].
        J: (B, 6, n) geometric Jacobian in the base frame.

    Returns:
        (B, o_dim), the columns of `Reach.layout`: o [rad, m]; qd [rad/s]; tcp and goal [m]; error = goal - tcp
        [error_unit]; joint_error = J_v^T error, the joint motion that shortens the error fastest, without the
        joints that cannot.
    """
    return torch.cat((batched_o(model, state), state.qd, tcp, goal_columns(task, model, tcp, J, goal)), 1)


def goal_columns(task: Reach, model: SimModel, tcp: Tensor, J: Tensor, goal: Tensor) -> Tensor:
    """The last columns of the observation, those that depend on the goal: goal, error, joint_error."""
    error = (goal - tcp) / task.error_unit
    J_v = J[:, :3, : model.position_joints]
    joint_error = sum(J_v[:, axis] * error[:, axis, None] for axis in range(3))  # far faster than a strided sum
    return torch.cat((goal, error, joint_error), 1)


def reward_terms(task: Reach, distance: Tensor, action: Tensor) -> dict[str, Tensor]:
    """The named terms whose sum is the reward.

    Args:
        distance: (B,) between TCP and goal [m].
        action: (B, n) in [-1, 1].

    Returns:
        Each term (B,).
    """
    effort = action.square().mean(1)
    nearness = torch.exp(-distance / task.stillness_scale)
    return {
        "distance": -task.distance_weight * distance,
        "precision": task.precision_weight * torch.exp(-distance / task.precision_scale),
        "action": -task.action_weight * effort,
        "stillness": -task.stillness_weight * nearness * effort.sqrt(),
    }


def grip(task: Reach, distance: Tensor) -> Tensor:
    """(B,) wanted gripper opening: open on the way, shut at the goal, so that arrival can be seen."""
    return (distance > task.tolerance).to(distance.dtype)
