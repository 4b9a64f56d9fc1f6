"""Batched distances of an arm to itself, to the ground and to obstacles.

An arm is a set of capsules: all points within a radius of a segment; a sphere is one whose segment
has no length. `configs/collision/` holds them for every registered robot and gripper; those of a
user's URDF lie beside it. `python -m envs.collision.fitting NAME` writes such a file from
the model's own collision shapes and meshes. What is measured, and how exactly, is in
docs/explanation/collision-capsules.md.
"""

from envs.collision.capsules import CollisionModel
from envs.collision.compiler import compile_collision, find_collision_model
from envs.collision.contact_points import find_contact_points
from envs.collision.obstacles import Obstacles
from envs.collision.proximity import Nearest, compute_nearest, link_clearance
from envs.collision.queries import (
    clearance,
    ground_distance,
    link_poses,
    obstacle_distance,
    pair_distances,
    self_distance,
)
from td3_robot.utils.legacy import find_old_names

__all__ = [
    "CollisionModel",
    "Nearest",
    "Obstacles",
    "clearance",
    "compile_collision",
    "ground_distance",
    "find_collision_model",
    "link_clearance",
    "link_poses",
    "compute_nearest",
    "obstacle_distance",
    "pair_distances",
    "self_distance",
    "find_contact_points",
]

__getattr__ = find_old_names(__name__)
