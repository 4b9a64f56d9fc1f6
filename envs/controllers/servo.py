"""How the TCP should move now, by the goal of any task that moves the TCP: position-based
servoing.
"""

import torch
from torch import Tensor

from envs.kinematics.rotations import rotation_error, to_matrix
from envs.world import Moment


def compute_pose_error(moment: Moment) -> Tensor:
    """What is left to the goal, in the base frame.

    Returns:
        (B, 3) [m] where the goal is a position (B, 3); (B, 6) [m, rad] where it is a pose (B, 7):
        the translation, then the rotation vector.
    """
    goal = moment.scene["goal"]
    translation = goal[:, :3] - moment.tcp
    if goal.shape[1] == 3:
        return translation
    return torch.cat(
        (translation, rotation_error(moment.T_be[:, :3, :3], to_matrix(goal[:, 3:]))), 1
    )


def compute_tcp_velocity(moment: Moment, gain: float) -> Tensor:
    """The TCP's velocity that lets the error fall as exp(-gain t), (B, 3) [m/s] or (B, 6) [m/s,
    rad/s], base frame.

    Gain times the error, and on top of it the velocity of a goal that moves, which without it would
    be followed at a distance of that velocity / gain (feed-forward; Siciliano et al., "Robotics:
    Modelling, Planning and Control" (2009), section 3.7.1).
    """
    velocity = gain * compute_pose_error(moment)
    if "goal_velocity" in moment.scene:
        velocity[:, :3] += moment.scene["goal_velocity"]
    return velocity


def has_orientation(moment: Moment) -> bool:
    """Whether the goal is a pose."""
    return moment.scene["goal"].shape[1] == 7
