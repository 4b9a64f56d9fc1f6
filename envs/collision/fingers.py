"""The moving links of a gripper at every opening, and its corners."""

import numpy as np
import torch

from envs.collision.capsules import Fingers
from envs.collision.files import BASE, Shapes
from envs.collision.links import compute_link_pose
from envs.robots import Robot
from td3_robot.errors import not_none

OPENINGS = 33  # between two of them a finger tip leaves its chord by less than 0.01 mm


def compile_fingers(
    robot: Robot, shapes: Shapes, base: np.ndarray, bearer: int, first: int
) -> Fingers:
    """Compile the gripper's moving links as further bodies.

    Args:
        shapes: of the gripper, with `moving` links.
        base: (4, 4) pose of its base in the arm's last body.
        bearer: see `Fingers`.
        first: number of the first of these bodies.
    """
    hand = not_none(robot.gripper)
    links = {hand.strip_name(link): link for link in robot.body.hand}
    openings = [
        hand.compute_model_q(robot.body.hand, driver)
        for driver in np.linspace(hand.closed, hand.opened, OPENINGS)
    ]
    # (O, G, 4, 4)
    poses = np.array(
        [
            [base @ compute_link_pose(links[name], q, robot.body.hand[0]) for name in shapes.moving]
            for q in openings
        ]
    )
    bodies = {name: first + index for index, name in enumerate(shapes.moving)}
    corners = [(bodies.get(name, robot.n), np.array(rows)) for name, rows in shapes.corners.items()]
    if BASE in shapes.corners:
        corners = [
            (body, rows @ base[:3, :3].T + base[:3, 3] if body == robot.n else rows)
            for body, rows in corners
        ]
    return Fingers(
        poses=torch.tensor(poses[:, :, :3].transpose(2, 3, 1, 0).copy(), dtype=torch.float32),
        shut=hand.closed,
        opened=hand.opened,
        corners=tuple((body, append_ones(rows)) for body, rows in corners),
        bearer=bearer,
    )


def append_ones(points: np.ndarray) -> torch.Tensor:
    """Return points (N, 3) as homogeneous ones (N, 4)."""
    return torch.tensor(np.c_[points, np.ones(len(points))], dtype=torch.float32)
