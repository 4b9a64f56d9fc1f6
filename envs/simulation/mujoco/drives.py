"""Actuators of joints and fingers: position servos with a velocity reference, and mimic joints.

One affine actuator acts as a position and a velocity actuator together, with the torque limit on
both: commanded u = q_ref + kv/kp qd_ref, it gives kp (u - q) - kv qd = kp (q_ref - q) +
kv (qd_ref - qd).
"""

# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false
# MuJoCo's Python package has no type stubs.

from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco import MjModel, MjSpec, mjtTrn

from envs.robots import Robot
from envs.simulation.mujoco.bodies import Bodies
from td3_robot.errors import not_none

# [rad/s] of servos of unknown stiffness, at home: that of Menagerie's Panda, sqrt(4500 / 2.2)
BANDWIDTH = 45.0
FINGERS = "fingers"
# fingers that yield lose their grip
_STIFF = {"solref": [0.004, 1.0], "solimp": [0.999, 0.9999, 0.001, 0.5, 2.0]}


@dataclass(frozen=True)
class Drives:
    """The servos of a compiled model.

    Attributes:
        stiffness, damping: (a,) of each actuator: those of the n joints, then that of the gripper
            if there is one.
        torque: (a,) the most that each gives; infinite where no limit is known.
    """

    stiffness: np.ndarray
    damping: np.ndarray
    torque: np.ndarray


def add_drives(spec: MjSpec, robot: Robot, bodies: Bodies) -> None:
    """Add an actuator for each joint and one for both fingers; `tune` sets their gains."""
    for name in bodies.joints:
        spec.add_actuator(name=name, trntype=mjtTrn.mjTRN_JOINT, target=name)
    if bodies.drivers:
        _tie_fingers(spec, robot, bodies)
        spec.add_actuator(name=FINGERS, trntype=mjtTrn.mjTRN_TENDON, target=FINGERS)


def _tie_fingers(spec: MjSpec, robot: Robot, bodies: Bodies) -> None:
    """Tie all joints of a gripper to its first driver; a tendon of the drivers' mean moves both."""
    hand = not_none(robot.gripper)
    multiple = dict(zip(hand.joints, hand.mimic))
    leader = bodies.drivers[0]
    moving = {joint.name for joint in spec.joints}
    tendon = spec.add_tendon(name=FINGERS)
    for name in bodies.drivers:
        tendon.wrap_joint(name, 1.0 / (len(bodies.drivers) * multiple[name]))
    for name in hand.joints:
        if name in moving and name != leader:
            equality = spec.add_equality(
                type=mujoco.mjtEq.mjEQ_JOINT, objtype=mujoco.mjtObj.mjOBJ_JOINT, **_STIFF
            )
            equality.name1 = name
            equality.name2 = leader
            equality.data[:2] = (0.0, multiple[name] / multiple[leader])


def tune(model: MjModel, robot: Robot, dofs: np.ndarray, home: np.ndarray) -> Drives:
    """Set the gains of the actuators, and return them.

    Args:
        dofs: (n,) indices of the arm's joints in qvel.
        home: (nq,) positions at which the inertia is taken for unknown gains.
    """
    hand = robot.gripper
    n = robot.n
    inertia = _compute_inertia(model, dofs, home)
    servo = robot.physics
    stiffness = inertia * BANDWIDTH**2 if servo.stiffness is None else servo.stiffness
    damping = 2.0 * np.sqrt(stiffness * inertia) if servo.damping is None else servo.damping
    torque = np.full(n, np.inf) if servo.torque is None else servo.torque
    if model.nu > n:  # the tendon shares its force between two drivers
        fingers = not_none(hand).physics
        both = [
            2.0 * not_none(values)
            for values in (fingers.stiffness, fingers.damping, fingers.torque)
        ]
        stiffness, damping, torque = (
            np.append(a, b) for a, b in zip((stiffness, damping, torque), both)
        )
    model.actuator_gaintype[:] = mujoco.mjtGain.mjGAIN_FIXED
    model.actuator_biastype[:] = mujoco.mjtBias.mjBIAS_AFFINE
    model.actuator_gainprm[:, 0] = stiffness
    model.actuator_biasprm[:, 1] = -stiffness
    model.actuator_biasprm[:, 2] = -damping
    known = np.isfinite(torque)
    model.actuator_forcelimited[:] = known
    model.actuator_forcerange[known] = np.stack((-torque, torque), 1)[known]
    return Drives(stiffness, damping, torque)


def _compute_inertia(model: MjModel, dofs: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Compute the inertia (n,) that each joint feels with the others held [kg m2 or kg]."""
    data = mujoco.MjData(model)
    data.qpos[:] = q
    mujoco.mj_forward(model, data)
    one = np.eye(model.nv)
    product = np.zeros(model.nv)
    inertia = np.zeros(len(dofs))
    for i, dof in enumerate(dofs):
        mujoco.mj_mulM(model, data, product, one[dof])
        inertia[i] = product[dof]
    return inertia
