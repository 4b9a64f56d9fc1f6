"""Servos, torques and friction of joints, from a model's actuators and degrees of freedom.

How an actuator's force follows from its gain and bias:
https://mujoco.readthedocs.io/en/stable/computation/index.html#actuation-model
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's Python package has no type stubs.

from collections.abc import Sequence
from typing import Any

import numpy as np

from envs.robots.mjcf.compile import CompiledFile
from envs.robots.mjcf.names import Names
from envs.robots.physics import Physics
from td3_robot.errors import ConfigError

JOINT = (0, 1)  # mjtTrn: joint, and joint in its parent's frame, the same for hinge and slide
_FIXED = 0  # mjtGain
_AFFINE = 1  # mjtBias
_UNLIMITED = np.array([-np.inf, np.inf])


def read_physics(file: CompiledFile, names: Names, joints: list[int]) -> Physics:
    """Read the physics of joints; a value that a joint lacks is None for all.

    Args:
        joints: n indices.

    Raises:
        ConfigError: the motor of a joint pushes one way alone.
    """
    model = file.model
    dofs = model.jnt_dofadr[joints]
    gains = [_sum_gains(model, joint) for joint in joints]
    stiffness = np.array([stiff for stiff, _ in gains])
    known = bool((stiffness > 0.0).all())
    torque = np.array([read_torque(model, joint, _list_motors(model, joint)) for joint in joints])
    if not torque.all():
        name = names.joints[joints[int(torque.argmin())]]
        raise ConfigError(
            f"{file.source}: the motor of joint {name!r} gives no torque one way: its ranges of "
            "force and control must reach to both sides of 0"
        )
    return Physics(
        stiffness=stiffness if known else None,
        damping=np.array([damp for _, damp in gains]) if known else None,
        torque=torque if np.isfinite(torque).all() else None,
        armature=np.array(model.dof_armature[dofs]),
        friction=np.array(model.dof_damping[dofs]),
        dry_friction=np.array(model.dof_frictionloss[dofs]),
    )


def _list_motors(model: Any, joint: int) -> list[int]:
    """List the actuators that move a joint: those that hold its position, or else all."""
    found = _list_actuators(model, joint)
    return [actuator for actuator in found if read_gains(model, actuator)[0] > 0.0] or found


def _list_actuators(model: Any, joint: int) -> list[int]:
    return [
        actuator
        for actuator in range(model.nu)
        if model.actuator_trntype[actuator] in JOINT and model.actuator_trnid[actuator, 0] == joint
    ]


def _sum_gains(model: Any, joint: int) -> tuple[float, float]:
    """Sum stiffness and damping of a joint's actuators, such as a position and a velocity one."""
    gains = [read_gains(model, actuator) for actuator in _list_actuators(model, joint)]
    return sum(stiff for stiff, _ in gains), sum(damp for _, damp in gains)


def read_gains(model: Any, actuator: int) -> tuple[float, float]:
    """Read stiffness and damping of a servo in terms of its joint; 0 where it is none.

    A servo's force is g u - kp l - kv l', with the length l = gear q of its transmission.
    """
    if model.actuator_biastype[actuator] != _AFFINE:
        return 0.0, 0.0
    gear = float(model.actuator_gear[actuator, 0])
    _, kp, kv = model.actuator_biasprm[actuator, :3]
    return float(-kp * gear**2), float(max(-kv, 0.0) * gear**2)


def read_torque(model: Any, joint: int, actuators: Sequence[int]) -> float:
    """Read the most that the motors of a joint give together either way [Nm or N].

    Infinite where nothing limits it; 0 where they push one way alone, as with a range from 0 on.
    """
    ranges = [_find_range(model, actuator) for actuator in actuators]
    limits = np.sum(ranges, 0) if ranges else _UNLIMITED
    if model.jnt_actfrclimited[joint]:
        limits = _intersect(limits, model.jnt_actfrcrange[joint])
    return max(0.0, float(min(-limits[0], limits[1])))


def _find_range(model: Any, actuator: int) -> np.ndarray:
    """Find the range (2,) of an actuator's force on its joint [Nm or N]."""
    limits = _UNLIMITED
    gear = float(model.actuator_gear[actuator, 0])
    if model.actuator_forcelimited[actuator]:
        limits = _intersect(limits, gear * model.actuator_forcerange[actuator])
    motor = model.actuator_gaintype[actuator] == _FIXED and not np.any(
        model.actuator_biasprm[actuator, :3]
    )
    if motor and model.actuator_ctrllimited[actuator]:
        gain = float(model.actuator_gainprm[actuator, 0])
        limits = _intersect(limits, gear * gain * model.actuator_ctrlrange[actuator])
    return limits


def _intersect(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return what two ranges (2,) share; the ends of the second in any order."""
    return np.array([max(first[0], second.min()), min(first[1], second.max())])
