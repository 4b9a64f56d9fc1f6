"""Robots and grippers: by name, or from a URDF or xacro file."""

from envs.robots.robot import Robot, is_file, make_robot, robot_names, shipped_robots

__all__ = ["Robot", "is_file", "make_robot", "robot_names", "shipped_robots"]
