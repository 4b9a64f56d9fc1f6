"""Robots from URDF and xacro files: safe reading, and the arm that a chosen TCP makes of one."""

from envs.urdf.arm import UrdfArm, load_urdf
from envs.urdf.model import build_model
from envs.urdf.read import read_urdf
from envs.urdf.tree import Joint, Link, Mimic, Pose, Shape, Tree

__all__ = ["Joint", "Link", "Mimic", "Pose", "Shape", "Tree", "UrdfArm", "build_model", "load_urdf", "read_urdf"]
