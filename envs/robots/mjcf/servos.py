"""Servos, torques and friction of joints, from a model's actuators and degrees of freedom.

How an actuator's force follows from its gain and bias:
https://mujoco.readthedocs.io/en/stable/computation/index.html#actuation-model
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's Python package has no type stubs.

from typing import Any

import numpy as np

from envs.robots.mjcf.compile import CompiledFile
from envs.robots.mjcf.names import Names
from envs.robots.physics import Physics
from td3_robot.errors import ConfigError

JOINT = (0, 1)  # mjtTrn: joint, and joint in its parent's frame, the same for hinge and slide
_FIXED = 0  # mjtGain
_AFFINE = 1  # mjtBias


def read_physics(file: CompiledFile, names: Names, joints: list[int]) -> Physics:
    """Read the physics of joints; a value that a joint lacks is None for all.

    Args:
        joints: n indices.

    Raises:
        ConfigError: the motor of a joint pushes one way alone.
    """
    model = file.model
    actuators = [_find_actuator(model, joint) for joint in joints]
    dofs = model.jnt_dofadr[joints]
    gains = [_sum_gains(model, joint) for joint in joints]
    stiffness = np.array([stiff for stiff, _ in gains])
    known = bool((stiffness > 0.0).all())
    torque = np.array(
        [read_torque(model, joint, actuator) for joint, actuator in zip(joints, actuators)]
    )
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


def _find_actuator(model: Any, joint: int) -> int | None:
    """Find the actuator of a joint: of several the stiffest."""
    found = _list_actuators(model, joint)
    return max(found, key=lambda actuator: read_gains(model, actuator)[0], default=None)


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


def read_gains(model: Any, actuator: int | None) -> tuple[float, float]:
    """Read stiffness and damping of a servo in terms of its joint; 0 without one.

    A servo's force is g u - kp l - kv l', with the length l = gear q of its transmission.
    """
    if actuator is None or model.actuator_biastype[actuator] != _AFFINE:
        return 0.0, 0.0
    gear = float(model.actuator_gear[actuator, 0])
    _, kp, kv = model.actuator_biasprm[actuator, :3]
    return float(-kp * gear**2), float(max(-kv, 0.0) * gear**2)


def read_torque(model: Any, joint: int, actuator: int | None) -> float:
    """Read the most that the motor of a joint gives either way [Nm or N].

    Infinite where nothing limits it; 0 where it pushes one way alone, as with a range from 0 on.
    """
    limits = [np.inf]
    if model.jnt_actfrclimited[joint]:
        limits.append(_find_most(model.jnt_actfrcrange[joint]))
    if actuator is not None:
        gear = abs(float(model.actuator_gear[actuator, 0]))
        if model.actuator_forcelimited[actuator]:
            limits.append(gear * _find_most(model.actuator_forcerange[actuator]))
        motor = model.actuator_gaintype[actuator] == _FIXED and not np.any(
            model.actuator_biasprm[actuator, :3]
        )
        if motor and model.actuator_ctrllimited[actuator]:
            gain = abs(float(model.actuator_gainprm[actuator, 0]))
            limits.append(gear * gain * _find_most(model.actuator_ctrlrange[actuator]))
    return min(limits)


def _find_most(limits: np.ndarray) -> float:
    """Find the most that a range (2,) allows either way; 0 where it has one sign alone."""
    return max(0.0, float(min(-limits[0], limits[1])))
