"""The bodies of a task in a MuJoCo model, their sensors, and what those read.

See `envs.simulation.bodies`. Held bodies are fixed to the body that carries the fingers; placed
ones, and those that jointed ones hang on, are MuJoCo's mocap bodies.
"""

# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false
# MuJoCo's Python package has no type stubs.

from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco import MjModel, MjsBody, MjSpec, mjtGeom, mjtObj

from envs.robots import Robot
from envs.simulation.bodies import (
    FREE,
    HAND,
    HELD,
    HINGE,
    JOINT_TORQUE,
    JOINTED,
    PLACED,
    ROBOT,
    TABLE,
    WRENCH,
    Body,
    BodyJoint,
    Geom,
    PhysicsSpec,
)
from envs.simulation.mujoco.bodies import Bodies, convert_quaternion, make_body_name
from envs.simulation.mujoco.contacts import Contacts
from envs.simulation.mujoco.shapes import get_contact_values, get_touch_bits

_KINDS = {
    "box": mjtGeom.mjGEOM_BOX,
    "cylinder": mjtGeom.mjGEOM_CYLINDER,
    "capsule": mjtGeom.mjGEOM_CAPSULE,
    "sphere": mjtGeom.mjGEOM_SPHERE,
}
_FOUND, _FORCE, _TORQUE, _DIST, _POS = (1 << bit for bit in range(5))  # of mjtConDataField
# Impedance of dry friction: MuJoCo's own lets a body under 0.9 times the friction creep at 10 mm/s.
_STICKING = (0.99, 0.999, 0.001, 0.5, 2.0)
_DEEPEST = 1  # a sensor's choice among contacts: mindist
_SUM = 3  # netforce


def add_bodies(
    spec: MjSpec, robot: Robot, bodies: Bodies, wanted: tuple[Body, ...], contacts: Contacts
) -> None:
    """Add the bodies of a task."""
    link, T_ct = _find_carrier(robot)
    carrier = bodies.by_link[link]
    for body in wanted:
        if body.motion == HELD:
            T = T_ct @ _make_pose(body)
            added = carrier.add_body(name=body.name, gravcomp=1.0)  # a payload that is known
            added.pos = T[:3, 3]
            added.quat = convert_quaternion(T[:3, :3])
        elif body.joint is not None:
            added = _add_jointed(spec, body.name, body.joint)
        else:
            added = spec.worldbody.add_body(
                name=body.name, pos=body.position, quat=body.quaternion, mocap=body.motion == PLACED
            )
        if body.motion == FREE:
            added.add_freejoint(name=make_joint_name(body.name))
        if body.motion in (HELD, FREE, JOINTED):
            _weigh(added, body)
        bits = get_touch_bits(body.motion == HELD)
        for number, geom in enumerate(body.geoms):
            size = (*geom.size, 0.0, 0.0)[:3]
            added.add_geom(
                **get_contact_values(contacts, geom.friction),
                **bits,
                name=f"{body.name}/{number}",
                type=_KINDS[geom.kind],
                size=size,
                pos=geom.position,
                quat=geom.quaternion,
            )


def _add_jointed(spec: MjSpec, name: str, joint: BodyJoint) -> MjsBody:
    """Add a body on a joint; its frame at joint position zero is a mocap body."""
    frame = spec.worldbody.add_body(name=make_frame_name(name), mocap=True)
    added = frame.add_body(name=name)
    hinge = joint.kind == HINGE
    added.add_joint(
        name=make_joint_name(name),
        type=mujoco.mjtJoint.mjJNT_HINGE if hinge else mujoco.mjtJoint.mjJNT_SLIDE,
        axis=joint.axis,
        pos=joint.anchor,
        limited=mujoco.mjtLimited.mjLIMITED_TRUE,
        range=joint.limits,
        frictionloss=joint.friction,
        solimp_friction=_STICKING,
        damping=joint.damping,
    )
    return added


def make_frame_name(name: str) -> str:
    """Return the name of the mocap body that a jointed body hangs on."""
    return f"{name}/frame"


def make_joint_name(name: str) -> str:
    """Return the name of a body's joint, which differs from those of arms, such as `joint1`."""
    return f"{name}/joint"


def compute_held_pose(robot: Robot, pose: np.ndarray) -> np.ndarray:
    """Return the pose (7,) in its carrier of a body at a pose (7,) in the TCP frame."""
    T = _find_carrier(robot)[1] @ _make_matrix(pose[:3], pose[3:])
    return np.concatenate((T[:3, 3], convert_quaternion(T[:3, :3])))


def _find_carrier(robot: Robot) -> tuple[str, np.ndarray]:
    """Find the link that carries held bodies, by its name, and the TCP's pose (4, 4) in it.

    It is the gripper's base, or the link whose frame is the TCP.
    """
    tools = robot.rtb.grippers
    if robot.gripper is not None and tools:
        return tools[0].links[0].name, np.asarray(robot.gripper.tcp)
    name = robot.rtb.links[-1].name if robot.tcp_link is None else robot.tcp_link
    return name, np.asarray(robot.rtb.tool.A)


def _make_pose(body: Body) -> np.ndarray:
    return _make_matrix(np.array(body.position), np.array(body.quaternion))


def _make_matrix(position: np.ndarray, quaternion: np.ndarray) -> np.ndarray:
    R = np.empty(9)
    mujoco.mju_quat2Mat(R, np.asarray(quaternion, float))
    T = np.eye(4)
    T[:3, :3] = R.reshape(3, 3)
    T[:3, 3] = position
    return T


def _weigh(added: MjsBody, body: Body) -> None:
    """Set mass and inertia of a body: those of a solid box around its geoms."""
    places = np.array([geom.position for geom in body.geoms])
    halves = np.array([_compute_half_sides(geom) for geom in body.geoms])
    low = (places - halves).min(0)
    high = (places + halves).max(0)
    added.mass = body.mass
    added.ipos = (low + high) / 2.0
    added.explicitinertial = True
    squares = (high - low) ** 2
    added.inertia = body.mass / 12.0 * (squares.sum() - squares)


def _compute_half_sides(geom: Geom) -> np.ndarray:
    """Compute the half sides (3,) of the box around a geom, along the axes of its body [m]."""
    size = np.array(geom.size)
    R = _make_matrix(np.zeros(3), np.array(geom.quaternion))[:3, :3]
    if geom.kind == "box":
        return np.abs(R) @ size
    if geom.kind == "sphere":
        return np.full(3, size[0])
    along = np.abs(R[:, 2])  # of its own axis
    across = 1.0 if geom.kind == "capsule" else np.sqrt((1.0 - along**2).clip(0.0))
    return size[0] * across + size[1] * along


def add_sensors(spec: MjSpec, root: str, hand: str, bodies: Bodies, needs: PhysicsSpec) -> None:
    """Add the sensors of contacts and of what is felt.

    Args:
        root, hand: names of MuJoCo's bodies that carry the whole arm, and the gripper.
    """

    def add(name: str, prm: list[int], first: str, second: str | None) -> None:
        sides = {}
        for side, what in (("obj", first), ("ref", second)):
            if what is not None:
                kind = mjtObj.mjOBJ_GEOM if what == TABLE else mjtObj.mjOBJ_XBODY
                sides |= {
                    f"{side}type": kind,
                    f"{side}name": {ROBOT: root, HAND: hand}.get(what, what),
                }
        spec.add_sensor(name=name, type=mujoco.mjtSensor.mjSENS_CONTACT, intprm=prm, **sides)

    for other in _list_others(needs):
        add(f"arm:{other}", [_FOUND | _DIST, _DEEPEST, 1], ROBOT, other)
    for number, contact in enumerate(needs.contacts):
        add(f"allowed{number}", [_FOUND | _FORCE, _SUM, 1], contact.first, contact.second)
        add(f"depth{number}", [_DIST, _DEEPEST, 1], contact.first, contact.second)
    if WRENCH in needs.senses:
        add(WRENCH, [_FORCE | _TORQUE | _POS, _SUM, 1], HAND, None)
    if JOINT_TORQUE in needs.senses:
        for name in bodies.joints:
            spec.add_sensor(
                name=f"{JOINT_TORQUE}:{name}",
                type=mujoco.mjtSensor.mjSENS_JOINTACTFRC,
                objtype=mjtObj.mjOBJ_JOINT,
                objname=name,
            )


def _list_others(needs: PhysicsSpec) -> list[str]:
    """List what the arm may touch only if `contacts` allow it."""
    return [TABLE, *(body.name for body in needs.bodies if body.motion != HELD)]


@dataclass(frozen=True)
class TaskIndex:
    """The places of a task's bodies and sensors in a model's arrays.

    Attributes:
        needs: what was asked for.
        free: index in qpos of the pose of each free body.
        joints: index in qpos of the position of each jointed body, by the scene's part.
        placed: the scene's parts with the poses of placed bodies, and of those that jointed ones
            hang on, in MuJoCo's order.
        others: for each thing that the arm may touch, by name, its sensor's columns: number of
            contacts, and distance of the deepest.
        allowed: (P, 4) columns of each allowed contact: number, and force (3).
        counted: (P, others) which of `others` an allowed contact counts for, see `_find_counted`.
        depth: (P,) columns of the distance of each.
        wrench: (9,) columns of the hand's contacts: force, torque and position; or None.
        torque: (n,) columns of the motors' torques, or None.
    """

    needs: PhysicsSpec
    free: dict[str, int]
    joints: dict[str, int]
    placed: tuple[str, ...]
    others: dict[str, np.ndarray]
    allowed: np.ndarray
    counted: np.ndarray
    depth: np.ndarray
    wrench: np.ndarray | None
    torque: np.ndarray | None

    def compute_forbidden_depth(self, sensed: np.ndarray) -> np.ndarray:
        """Compute the deepest penetration (B, S) in what must not be touched [m].

        Args:
            sensed: (B, S, ...) of all sensors.
        """
        found = np.stack([sensed[..., columns[0]] for columns in self.others.values()], -1)
        depth = np.stack([-sensed[..., columns[1]] for columns in self.others.values()], -1)
        expected = sensed[..., self.allowed[:, 0]] @ self.counted
        return np.where(found > expected + 0.5, depth, 0.0).max(-1).clip(0.0)

    def read_contacts(self, sensed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Read the greatest force [N] and depth [m] of each allowed contact (B, P)."""
        force = np.linalg.norm(sensed[..., self.allowed[:, 1:]], axis=-1).max(1)
        return force, -sensed[..., self.depth].min(1, initial=0.0)

    def read_wrench(self, sensed: np.ndarray, tcp: np.ndarray) -> np.ndarray:
        """Read the mean external wrench (B, 6) at TCPs (B, 3) in the base frame [N, Nm].

        MuJoCo gives what the hand exerts, at the centroid of its contacts.
        """
        values = sensed[..., self.wrench]
        force = values[..., :3]
        moment = values[..., 3:6] + np.cross(values[..., 6:] - tcp[:, None], force)
        return -np.concatenate((force, moment), -1).mean(1)


def index_task(model: MjModel, bodies: Bodies, needs: PhysicsSpec) -> TaskIndex:
    """Find a task's bodies and sensors in a compiled model."""

    def find_columns(name: str) -> np.ndarray:
        return model.sensor(name).adr[0] + np.arange(model.sensor(name).dim[0])

    frames = {body.name: body.name for body in needs.bodies if body.motion == PLACED}
    jointed = [body for body in needs.bodies if body.motion == JOINTED]
    frames |= {body.name: make_frame_name(body.name) for body in jointed}
    placed = sorted(frames, key=lambda name: int(model.body(frames[name]).mocapid[0]))
    others = {name: find_columns(f"arm:{name}") for name in _list_others(needs)}
    rows = range(len(needs.contacts))
    felt = JOINT_TORQUE in needs.senses
    return TaskIndex(
        needs=needs,
        free={
            body.name: int(model.joint(make_joint_name(body.name)).qposadr[0])
            for body in needs.bodies
            if body.motion == FREE
        },
        joints={
            body.joint_key: int(model.joint(make_joint_name(body.name)).qposadr[0])
            for body in jointed
        },
        placed=tuple(placed),
        others=others,
        allowed=np.array([find_columns(f"allowed{row}") for row in rows], int).reshape(-1, 4),
        counted=_find_counted(needs, list(others)),
        depth=np.array([find_columns(f"depth{row}")[0] for row in rows], int),
        wrench=find_columns(WRENCH) if WRENCH in needs.senses else None,
        torque=np.array([find_columns(f"{JOINT_TORQUE}:{name}")[0] for name in bodies.joints])
        if felt
        else None,
    )


def _find_counted(needs: PhysicsSpec, others: list[str]) -> np.ndarray:
    """Find which of `others` each allowed contact counts for, (P, others) of 0 and 1.

    A touch is counted once: not as that of what the hand holds if the hand is allowed it, too.
    """
    held = [body.name for body in needs.bodies if body.motion == HELD]
    counted = np.zeros((len(needs.contacts), len(others)))
    for column, other in enumerate(others):
        rows: dict[str, int] = {}  # of the arm's parts that may touch it
        for row, contact in enumerate(needs.contacts):
            pair = (contact.first, contact.second)
            if other in pair:
                rows[pair[pair[0] == other]] = row
        widest = next(([part] for part in (ROBOT, HAND) if part in rows), held)
        counted[[rows[part] for part in widest if part in rows], column] = 1.0
    return counted


def get_hand_name(robot: Robot) -> str:
    """Return the name of MuJoCo's body that carries the gripper, or of the TCP link without."""
    return make_body_name(_find_carrier(robot)[0])
