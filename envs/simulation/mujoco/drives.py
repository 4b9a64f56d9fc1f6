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
from envs.simulation.bodies import PhysicsSpec
from envs.simulation.mujoco.bodies import Bodies
from td3_robot.errors import not_none

# [rad/s] of servos of unknown stiffness, at home: that of Menagerie's Panda, sqrt(4500 / 2.2)
BANDWIDTH = 45.0
FINGERS = "fingers"
# fingers that yield lose their grip
_STIFF = {"solref": [0.004, 1.0], "solimp": [0.999, 0.9999, 0.001, 0.5, 2.0]}


@dataclass(frozen=True)
class Ties:
    """The joints of F links that follow joints of the arm.

    Attributes:
        q, qd: (F,) their indices in qpos and qvel.
        leaders: (F,) the number of the arm's joint that each follows.
        multipliers, offsets: (F,) position = multiplier * the leader's + offset.
    """

    q: np.ndarray
    qd: np.ndarray
    leaders: np.ndarray
    multipliers: np.ndarray
    offsets: np.ndarray

    def compute_positions(self, q: np.ndarray) -> np.ndarray:
        """Compute their positions (..., F) from those of the arm's joints (..., n)."""
        return q[..., self.leaders] * self.multipliers + self.offsets

    def compute_rates(self, qd: np.ndarray) -> np.ndarray:
        """Compute their velocities or accelerations (..., F) from the arm's (..., n)."""
        return qd[..., self.leaders] * self.multipliers


def index_ties(model: MjModel, bodies: Bodies) -> Ties:
    """Find the joints of links that follow joints in a compiled model."""
    followers = bodies.followers.values()
    return Ties(
        q=np.array([model.joint(name).qposadr[0] for name in bodies.followers], int),
        qd=np.array([model.joint(name).dofadr[0] for name in bodies.followers], int),
        leaders=np.array([follower.leader.jindex for follower in followers], int),
        multipliers=np.array([follower.multiplier for follower in followers]),
        offsets=np.array([follower.offset for follower in followers]),
    )


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
    for name, follower in bodies.followers.items():
        leader = bodies.joints[follower.leader.jindex]
        _tie_joint(spec, name, leader, follower.multiplier, follower.offset)
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
            _tie_joint(spec, name, leader, multiple[name] / multiple[leader])


def _tie_joint(
    spec: MjSpec, name: str, leader: str, multiplier: float, offset: float = 0.0
) -> None:
    """Tie a joint's position to multiplier * the leader's + offset."""
    equality = spec.add_equality(
        type=mujoco.mjtEq.mjEQ_JOINT, objtype=mujoco.mjtObj.mjOBJ_JOINT, **_STIFF
    )
    equality.name1 = name
    equality.name2 = leader
    equality.data[:2] = (offset, multiplier)


def tune(
    model: MjModel, robot: Robot, dofs: np.ndarray, home: np.ndarray, ties: Ties, needs: PhysicsSpec
) -> Drives:
    """Set the gains of the actuators, and return them.

    Args:
        dofs: (n,) indices of the arm's joints in qvel.
        home: (nq,) positions at which the inertia is taken for unknown gains.
        ties: of links that follow those joints.
        needs: how much softer the arm's servos are.
    """
    hand = robot.gripper
    n = robot.n
    inertia = _compute_inertia(model, dofs, home, ties)
    servo = robot.physics
    stiffness = inertia * BANDWIDTH**2 if servo.stiffness is None else servo.stiffness
    damping = 2.0 * np.sqrt(stiffness * inertia) if servo.damping is None else servo.damping
    stiffness = needs.servo_stiffness * stiffness
    damping = needs.servo_damping * damping
    torque = np.full(n, np.inf) if servo.torque is None else servo.torque
    if model.nu > n:  # the tendon shares its force between two drivers
        fingers = not_none(hand).physics
        stiffness = np.append(stiffness, 2.0 * not_none(fingers.stiffness))
        damping = np.append(damping, 2.0 * not_none(fingers.damping))
        torque = np.append(torque, 2.0 * not_none(fingers.torque))
    model.actuator_gaintype[:] = mujoco.mjtGain.mjGAIN_FIXED
    model.actuator_biastype[:] = mujoco.mjtBias.mjBIAS_AFFINE
    model.actuator_gainprm[:, 0] = stiffness
    model.actuator_biasprm[:, 1] = -stiffness
    model.actuator_biasprm[:, 2] = -damping
    known = np.isfinite(torque)
    model.actuator_forcelimited[:] = known
    model.actuator_forcerange[known] = np.stack((-torque, torque), 1)[known]
    return Drives(stiffness, damping, torque)


def _compute_inertia(model: MjModel, dofs: np.ndarray, q: np.ndarray, ties: Ties) -> np.ndarray:
    """Compute the inertia (n,) that each joint feels with the others held [kg m2 or kg]."""
    data = mujoco.MjData(model)
    data.qpos[:] = q
    mujoco.mj_forward(model, data)
    product = np.zeros(model.nv)
    inertia = np.zeros(len(dofs))
    for i, dof in enumerate(dofs):
        motion = np.zeros(model.nv)
        motion[dof] = 1.0
        motion[ties.qd] = np.where(ties.leaders == i, ties.multipliers, 0.0)
        mujoco.mj_mulM(model, data, product, motion)
        inertia[i] = motion @ product
    return inertia
