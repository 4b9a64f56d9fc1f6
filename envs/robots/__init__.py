"""Robots and grippers: by name, or from a URDF or xacro file."""

from envs.robots.make import is_file, make_robot, robot_names, shipped_robots
from envs.robots.robot import Robot

__all__ = ["Robot", "is_file", "make_robot", "robot_names", "shipped_robots"]
