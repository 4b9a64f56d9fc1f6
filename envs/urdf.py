"""URDF and xacro files; their home is envs/robots/urdf."""

from envs.robots.urdf import UrdfArm, build_model, load_urdf, read_urdf

__all__ = ["UrdfArm", "build_model", "load_urdf", "read_urdf"]
