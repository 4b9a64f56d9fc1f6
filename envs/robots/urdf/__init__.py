"""Robots from URDF and xacro files: safe reading, and the arm that a chosen TCP makes of one."""

from envs.robots.urdf.arm import UrdfArm, load_urdf
from envs.robots.urdf.read import read_urdf
from envs.robots.urdf.rtb_model import build_model
from envs.robots.urdf.tree import Joint, Link, Mimic, Pose, Shape, Tree

__all__ = [
    "Joint",
    "Link",
    "Mimic",
    "Pose",
    "Shape",
    "Tree",
    "UrdfArm",
    "build_model",
    "load_urdf",
    "read_urdf",
]
