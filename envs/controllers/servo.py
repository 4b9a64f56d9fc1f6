"""Position-based servoing: the velocity of the TCP towards the goal of any task that moves it."""

import torch
from torch import Tensor

from envs.kinematics.rotations import rotation_error, to_matrix
from envs.world import Moment


def compute_pose_error(moment: Moment) -> Tensor:
    """Compute the error of the TCP to the goal in the base frame.

    Returns:
        (B, 3) [m] if the goal is a position (B, 3); (B, 6) [m, rad] if it is a pose (B, 7): the
        translation, then the rotation vector.
    """
    goal = moment.scene["goal"]
    translation = goal[:, :3] - moment.tcp
    if goal.shape[1] == 3:
        return translation
    return torch.cat(
        (translation, rotation_error(moment.T_be[:, :3, :3], to_matrix(goal[:, 3:]))), 1
    )


def compute_tcp_velocity(moment: Moment, gain: float) -> Tensor:
    """Compute the TCP's velocity that lets the error fall as exp(-gain t), (B, 3) [m/s] or (B, 6)
    [m/s, rad/s], in the base frame.

    It is gain times the error plus the velocity of a goal that moves, which otherwise would be
    followed at a distance of that velocity / gain (feed-forward; Siciliano et al., "Robotics:
    Modelling, Planning and Control" (2009), section 3.7.1).
    """
    velocity = gain * compute_pose_error(moment)
    if "goal_velocity" in moment.scene:
        velocity[:, :3] += moment.scene["goal_velocity"]
    return velocity


def has_orientation(moment: Moment) -> bool:
    """Tell whether the goal is a pose."""
    return moment.scene["goal"].shape[1] == 7
