"""Batched forward kinematics, Jacobians, rotations and inverse kinematics."""

from envs.kinematics.chain import (
    Chain,
    ElementaryTransform,
    compile_ets,
    compute_jacobian,
    compute_tcp_pose,
    fkine,
    fkine_jacob0,
    jacob0,
    link_frames,
    pose_jacobian,
)

__all__ = [
    "Chain",
    "ElementaryTransform",
    "compile_ets",
    "compute_jacobian",
    "compute_tcp_pose",
    "fkine",
    "fkine_jacob0",
    "jacob0",
    "link_frames",
    "pose_jacobian",
]
