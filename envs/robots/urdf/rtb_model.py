"""The roboticstoolbox model of a robot description, for drawing and as a reference.

roboticstoolbox 1.5 has a reader of its own. It is not used: it fails on third-party files,
evaluates xacro files unguarded, ignores mimic, and turns the frame of a link whose joint has a skew
axis, shapes and all.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from envs.robots.followers import Follower, compute_motion
from envs.robots.urdf.tree import Joint, Shape, Tree
from td3_robot.errors import not_none

_AXIS = ":axis"  # end of the names of links that are not in the file
_AXES = ("x", "y", "z")


def build_model(tree: Tree, moving: Collection[str] | None = None):
    """Build a roboticstoolbox Robot with the names, frames, shapes and limits of a description.

    Shapes with a fault are left out; the link has what is wrong with them in its attribute
    `faults`, those of its collision shapes only if nothing else is drawn of it.

    Args:
        tree: the description.
        moving: names of the joints that move; None lets all move, mimic joints as if they were
            free. Mimic joints that follow one of them have a `Follower`. The others stand still: at
            zero, at the limit nearest to it, or where their leader there has a mimic joint.
    """
    import roboticstoolbox as rtb  # here: it takes over a second, and a wrong file should not

    links = {tree.root: rtb.Link(rtb.ETS(), name=tree.root, **_convert_link(tree, tree.root))}
    order = [tree.root]
    for parent in order:  # grows while it is walked: parents come before their children
        for joint in tree.find_joints_below(parent):
            free = joint.moves and (moving is None or joint.name in moving)
            links |= {link.name: link for link in _make_links(tree, joint, links[parent], free)}
            order.append(joint.child)
    for joint in tree.joints.values():
        if moving is not None and joint.name not in moving and joint.mimic is not None:
            leader, multiplier, offset = _find_leader(tree, joint, moving)
            if leader is not None:
                carrier = next(link for link in links.values() if _get_joint(link) == leader)
                links[joint.child].follower = Follower(  # pyright: ignore[reportAttributeAccessIssue]  ours
                    leader=carrier,
                    multiplier=multiplier,
                    offset=offset,
                    T=joint.pose.T,
                    axis=np.array(joint.axis),
                    prismatic=joint.kind == "prismatic",
                )
    for name, body in tree.links.items():
        faults = [shape.fault for shape in body.visuals or body.collisions if shape.fault]
        links[name].faults = faults  # pyright: ignore[reportAttributeAccessIssue]  ours
    return rtb.Robot(list(links.values()), name=tree.name)


def _find_leader(
    tree: Tree, joint: Joint, moving: Collection[str]
) -> tuple[str | None, float, float]:
    """Find the moving joint that a joint follows, with multiplier and offset; None for none."""
    multiplier = 1.0
    offset = 0.0
    while joint.mimic is not None and joint.name not in moving:
        offset += multiplier * joint.mimic.offset
        multiplier *= joint.mimic.multiplier
        joint = tree.joints[joint.mimic.joint]
    return (joint.name if joint.name in moving else None), multiplier, offset


def _get_joint(link) -> str | None:
    """Return the name of the joint in a link; None in one that is rigid."""
    return link._joint_name if link.isjoint else None


def _make_links(tree: Tree, joint: Joint, parent, free: bool) -> list:
    """Make the child link of a joint, after one that turns for it if its axis is skew.

    roboticstoolbox's joints move about or along x, y and z, and end their link. So a skew axis is
    turned onto z for one link without shape, and back for the child.
    """
    from roboticstoolbox import ET, ETS, Link

    shapes = _convert_link(tree, joint.child)
    if not free:
        T = joint.pose.T
        if joint.moves:
            position = find_resting_position(tree, joint)
            T = T @ compute_motion(joint.axis, position, joint.kind == "prismatic")
        return [
            Link(ETS(ET.SE3(T)), name=joint.child, parent=parent, joint_name=joint.name, **shapes)
        ]
    limits = {"joint_name": joint.name, "qdlim": joint.velocity}
    if joint.kind != "continuous" and joint.lower is not None:
        limits["qlim"] = np.array([joint.lower, joint.upper])
    letter = "t" if joint.kind == "prismatic" else "R"
    if 1.0 in np.abs(joint.axis):
        k = int(np.argmax(np.abs(joint.axis)))
        moves = getattr(ET, letter + _AXES[k])(flip=joint.axis[k] < 0)
        return [
            Link(
                ETS([ET.SE3(joint.pose.T), moves]),
                name=joint.child,
                parent=parent,
                **limits,
                **shapes,
            )
        ]
    turn = np.eye(4)
    turn[:3, :3] = make_axis_frame(joint.axis)
    onto = ETS([ET.SE3(joint.pose.T @ turn), getattr(ET, letter + "z")()])
    axis = Link(onto, name=f"{joint.name}{_AXIS}", parent=parent, **limits)
    return [axis, Link(ETS(ET.SE3(turn.T)), name=joint.child, parent=axis, **shapes)]


def find_file_name(link: Any) -> str:
    """Find the name that a link of a model has in the file.

    A joint about no axis of its frame moves a link that is not there, which carries the file's.
    """
    return link.children[0].name if link.name.endswith(_AXIS) else link.name


def make_axis_frame(axis: Sequence[float] | np.ndarray) -> np.ndarray:
    """Make a rotation (3, 3) whose third column is the axis; the identity for +z."""
    z = np.asarray(axis)
    x = np.cross([0.0, 1.0, 0.0] if abs(z[1]) < 0.9 else [0.0, 0.0, 1.0], z)
    x /= np.linalg.norm(x)
    return np.stack((x, np.cross(z, x), z), axis=1)


def find_resting_position(tree: Tree, joint: Joint) -> float:
    """Find the position of a joint that nothing moves [rad or m]."""
    if joint.mimic is not None:
        return (
            joint.mimic.multiplier * find_resting_position(tree, tree.joints[joint.mimic.joint])
            + joint.mimic.offset
        )
    if joint.lower is None or joint.kind == "continuous":
        return 0.0
    return min(max(0.0, joint.lower), not_none(joint.upper))


def _convert_link(tree: Tree, link: str) -> dict[str, Any]:
    """Convert a link's shapes and inertia to arguments of roboticstoolbox's Link."""
    body = tree.links[link]
    mass = body.inertial
    heavy = (
        {}
        if mass is None
        else {"m": mass.mass, "r": list(mass.center), "I": np.array(mass.inertia)}
    )
    return heavy | {
        "geometry": _convert_shapes(body.visuals),
        "collision": _convert_shapes(body.collisions),
    }


def _convert_shapes(shapes: Iterable[Shape]) -> list:
    """Convert the shapes that can be used."""
    return [part for shape in shapes if shape.fault is None for part in _convert_shape(shape)]


def _convert_shape(shape: Shape) -> list:
    """Convert a shape; a capsule becomes a cylinder and the spheres at its ends."""
    import spatialgeometry as sg

    common: dict[str, Any] = {"pose": shape.pose.T} | (
        {"color": shape.color} if shape.color else {}
    )
    match shape.kind:
        case "box":
            return [sg.Cuboid(shape.size, **common)]
        case "cylinder":
            return [sg.Cylinder(*shape.size, **common)]
        case "sphere":
            return [sg.Sphere(*shape.size, **common)]
        case "capsule":
            radius, length = shape.size
            ends = []
            for side in (-0.5, 0.5) if length > 0.0 else (0.0,):
                T = shape.pose.T
                T[:3, 3] += side * length * T[:3, 2]
                ends.append(sg.Sphere(radius, **common | {"pose": T}))
            return [sg.Cylinder(radius, length, **common), *ends] if length > 0.0 else ends
    return [sg.Mesh(str(shape.mesh), scale=shape.size, **common)]
