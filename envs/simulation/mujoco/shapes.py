"""Geoms that can touch: the arm's capsules, fingers and palm as boxes, the table, cubes.

In MuJoCo two geoms touch if the type of one is among the affinities of the other. The arm's
capsules are checked in pairs instead, those of `CollisionModel`; against the ground, those of its
`over_ground`.
"""

# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false
# MuJoCo's Python package has no type stubs.

import numpy as np
from mujoco import MjsBody, MjSpec, mjtGeom

from envs.collision import CollisionModel
from envs.collision.links import compute_link_pose
from envs.robots import Robot
from envs.simulation.mujoco.bodies import convert_quaternion
from envs.simulation.mujoco.contacts import MESHES, Contacts
from envs.simulation.mujoco.hulls import Hulls
from td3_robot.errors import not_none

TABLE = "table"
PADS = ("pad0", "pad1")
_TABLE = 1  # bits of types
_CUBE = 2
_BODY = 4  # of a task
_HELD = 8  # of a task, fixed to the hand
_PALM = 0.04  # [m] how thick the palm's box is


def add_table(spec: MjSpec, contacts: Contacts) -> None:
    """Add the table: the plane z = 0 of the base frame."""
    spec.worldbody.add_geom(
        **get_contact_values(contacts, contacts.table_friction),
        name=TABLE,
        type=mjtGeom.mjGEOM_PLANE,
        size=[2.0, 2.0, 0.1],
        contype=_TABLE,
        conaffinity=0,
    )


def add_cube(spec: MjSpec, contacts: Contacts, side: float, name: str) -> None:
    """Add a cube that is free to move; body, joint and geom have its name."""
    body = spec.worldbody.add_body(name=name)
    body.add_freejoint(name=name)
    body.mass = contacts.cube_mass
    body.ipos = [0.0, 0.0, 0.0]
    body.explicitinertial = True
    body.inertia = [contacts.cube_mass * side**2 / 6.0] * 3
    touch = get_contact_values(contacts, contacts.cube_friction)
    body.add_geom(
        **touch,
        name=name,
        type=mjtGeom.mjGEOM_BOX,
        size=[side / 2.0] * 3,
        contype=_CUBE,
        conaffinity=_TABLE | _CUBE,
    )


def add_capsules(
    spec: MjSpec,
    bodies: dict[str, MjsBody],
    robot: Robot,
    model: CollisionModel,
    contacts: Contacts,
) -> None:
    """Add the arm's capsules, or the meshes inside them, and those of a hand without boxes.

    A hand's boxes replace its capsules, which are larger, against the table and cubes.
    """
    hulls = Hulls(robot) if contacts.arm_shapes == MESHES else None
    hand = robot.gripper
    boxed = hand is not None and hand.pads is not None
    over_ground = set(model.over_ground.tolist())
    offsets = model.link_offsets.double().numpy()
    ends = np.concatenate([local.double().numpy().reshape(-1, 2, 4) for _, local in model.points])
    radius = model.radius[:, 0].tolist()
    for index, link in enumerate(model.capsule_links):
        name = model.links[link]
        in_hand = hand is not None and name == hand.name
        body = bodies[robot.rtb.grippers[0].links[0].name if in_hand else name]
        start, end = (ends[index] @ np.linalg.inv(offsets[link]).T)[:, :3]
        way = end - start
        long = np.linalg.norm(way) > 1e-6
        ground = _TABLE if index in over_ground else 0
        affinity = 0 if in_hand and boxed else _CUBE | _BODY | ground
        shape = {
            "type": mjtGeom.mjGEOM_CAPSULE if long else mjtGeom.mjGEOM_SPHERE,
            "size": [radius[index], np.linalg.norm(way) / 2.0 if long else 0.0, 0.0],
            "pos": (start + end) / 2.0,
            "quat": _align_z(way) if long else [1.0, 0.0, 0.0, 0.0],
        }
        geom = f"capsule{index}"
        if (
            hulls is not None
            and not in_hand
            and hulls.add(spec, geom, name, np.stack((start, end)), radius[index])
        ):
            shape = {"type": mjtGeom.mjGEOM_MESH, "meshname": geom}
        touch = get_contact_values(contacts, contacts.arm_friction)
        body.add_geom(**touch, **shape, name=geom, contype=0, conaffinity=affinity)
    touch = get_contact_values(contacts, contacts.arm_friction)
    sliding, torsion, rolling = touch["friction"]
    touch["friction"] = [sliding, sliding, torsion, rolling, rolling]  # as MuJoCo has it of pairs
    for first, second in zip(model.first.tolist(), model.second.tolist()):
        spec.add_pair(geomname1=f"capsule{first}", geomname2=f"capsule{second}", **touch)


def add_hand(bodies: dict[str, MjsBody], robot: Robot, contacts: Contacts) -> None:
    """Add the palm, and the fingers from it to their tips with the pads inside; see `Pads`."""
    hand = not_none(robot.gripper)
    tool = robot.rtb.grippers[0]
    pads = not_none(hand.pads)
    root = tool.links[0]
    # the hand's frame g at the TCP, see `envs.simulation.grasp`, in that of the gripper's base
    T_bg = hand.tcp.copy()
    T_bg[:3, :3] = T_bg[:3, :3] @ pads.axes
    shut = hand.compute_model_q(tool.links, hand.closed)
    links = {hand.strip_name(link): link for link in tool.links}
    behind, palm_x, palm_y = pads.palm
    half = np.array([pads.size[0], pads.finger, pads.tip + behind]) / 2.0
    for name, link, side in zip(PADS, pads.links, (1.0, -1.0)):
        carrier = links[link]
        center = [0.0, side * (pads.gap[0] + pads.finger) / 2.0, (pads.tip - behind) / 2.0]
        T = np.linalg.inv(compute_link_pose(carrier, shut, root)) @ T_bg
        touch = get_contact_values(contacts, contacts.pad_friction)
        _add_box(bodies[carrier.name], T, name, center, half, touch)
    touch = get_contact_values(contacts, contacts.arm_friction)
    _add_box(
        bodies[root.name],
        T_bg,
        "palm",
        [0.0, 0.0, -behind - _PALM / 2.0],
        [palm_x, palm_y, _PALM / 2.0],
        touch,
    )


def _add_box(body: MjsBody, T: np.ndarray, name: str, center, half, touch: dict) -> None:
    """Add a box in the frame T (4, 4) of a body."""
    place = {"pos": T[:3, :3] @ center + T[:3, 3], "quat": convert_quaternion(T[:3, :3])}
    body.add_geom(
        **touch,
        **place,
        name=name,
        type=mjtGeom.mjGEOM_BOX,
        size=half,
        contype=0,
        conaffinity=_TABLE | _CUBE | _BODY,
    )


def get_touch_bits(held: bool) -> dict[str, int]:
    """Return the bits of a geom of a task's body: held ones do not touch the arm itself."""
    touched = _TABLE | _CUBE | _BODY
    if held:
        return {"contype": _HELD, "conaffinity": touched}
    return {"contype": _BODY, "conaffinity": touched | _HELD}


def get_contact_values(contacts: Contacts, friction: float) -> dict:
    """Return a geom's constants of contact, with its own sliding friction."""
    return {
        "friction": [friction, 0.005, 0.0001],
        "solref": contacts.solref,
        "solimp": contacts.solimp,
        "condim": 3,
    }


def _align_z(way: np.ndarray) -> np.ndarray:
    """Return a quaternion (4,) that turns z along a vector."""
    z = way / np.linalg.norm(way)
    x = np.cross([0.0, 1.0, 0.0] if abs(z[1]) < 0.9 else [1.0, 0.0, 0.0], z)
    x /= np.linalg.norm(x)
    return convert_quaternion(np.stack((x, np.cross(z, x), z), 1))
