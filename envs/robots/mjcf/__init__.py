"""Robots from MJCF, MuJoCo's files: compiled by MuJoCo, read into the tree that URDFs become."""

from envs.robots.mjcf.arm import MjcfArm, load_mjcf

__all__ = ["MjcfArm", "load_mjcf"]
