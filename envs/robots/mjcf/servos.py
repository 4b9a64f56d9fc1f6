"""Servos, torques and friction of joints, from a model's actuators and degrees of freedom.

How an actuator's force follows from its gain and bias:
https://mujoco.readthedocs.io/en/stable/computation/index.html#actuation-model
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's Python package has no type stubs.

from typing import Any

import numpy as np

from envs.robots.physics import Physics

JOINT = (0, 1)  # mjtTrn: joint, and joint in its parent's frame, the same for hinge and slide
_FIXED = 0  # mjtGain
_AFFINE = 1  # mjtBias


def read_physics(model: Any, joints: list[int]) -> Physics:
    """Read the physics of joints; a value that a joint lacks is None for all.

    Args:
        joints: n indices.
    """
    actuators = [_find_actuator(model, joint) for joint in joints]
    dofs = model.jnt_dofadr[joints]
    gains = [_sum_gains(model, joint) for joint in joints]
    stiffness = np.array([stiff for stiff, _ in gains])
    known = bool((stiffness > 0.0).all())
    torque = np.array(
        [read_torque(model, joint, actuator) for joint, actuator in zip(joints, actuators)]
    )
    return Physics(
        stiffness=stiffness if known else None,
        damping=np.array([damp for _, damp in gains]) if known else None,
        torque=torque if np.isfinite(torque).all() and (torque > 0.0).all() else None,
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
    """Read the most that the motor of a joint gives [Nm or N]; infinite where nothing limits it."""
    limits = [np.inf]
    if model.jnt_actfrclimited[joint]:
        limits.append(float(np.abs(model.jnt_actfrcrange[joint]).min()))
    if actuator is not None:
        gear = abs(float(model.actuator_gear[actuator, 0]))
        if model.actuator_forcelimited[actuator]:
            limits.append(gear * float(np.abs(model.actuator_forcerange[actuator]).min()))
        motor = model.actuator_gaintype[actuator] == _FIXED and not np.any(
            model.actuator_biasprm[actuator, :3]
        )
        if motor and model.actuator_ctrllimited[actuator]:
            gain = abs(float(model.actuator_gainprm[actuator, 0]))
            most = float(np.abs(model.actuator_ctrlrange[actuator]).min())
            limits.append(gear * gain * most)
    return min(limits)
