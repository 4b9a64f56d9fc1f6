"""Simulated arms and grippers, their tasks, viewers and classical controllers."""

from envs.observation import o
from envs.registry import make
from envs.robots import make_robot

__all__ = ["make", "make_robot", "o"]
