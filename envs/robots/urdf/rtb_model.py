"""The roboticstoolbox model of a robot description, for drawing and as a reference.

roboticstoolbox 1.5 has a reader of its own. It is not used: it fails on third-party files,
evaluates xacro files unguarded, ignores mimic, and turns the frame of a link whose joint has a skew
axis, shapes and all.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from envs.robots.links import Link
from envs.robots.urdf.links import AXIS, list_links
from envs.robots.urdf.tree import Shape, Tree
from td3_robot.errors import not_none


def build_model(tree: Tree, moving: Collection[str] | None = None):
    """Build a roboticstoolbox Robot with the names, frames, shapes and limits of a description.

    Shapes with a fault are left out; the link has what is wrong with them in its attribute
    `faults`, those of its collision shapes only if nothing else is drawn of it.

    Args:
        tree: the description.
        moving: names of the joints that move; see `list_links`.
    """
    import roboticstoolbox as rtb  # here: it takes over a second, and a wrong file should not

    links: dict[str, Any] = {}
    found = list_links(tree, moving)
    for link in found:
        parent = None if link.parent is None else links[link.parent.name]
        links[link.name] = _convert_link(tree, link, parent)
    for link in found:
        if link.follower is not None:
            leader = links[link.follower.leader.name]
            links[link.name].follower = replace(link.follower, leader=leader)
    for name, body in tree.links.items():
        links[name].faults = [
            shape.fault for shape in body.visuals or body.collisions if shape.fault
        ]
    return rtb.Robot(list(links.values()), name=tree.name)


def _convert_link(tree: Tree, link: Link, parent: Any) -> Any:
    """Convert a link with its shapes, its inertia and the limits of its joint.

    roboticstoolbox's joints move about or along x, y and z, and end their link.
    """
    from roboticstoolbox import ET, ETS
    from roboticstoolbox import Link as RtbLink

    parts = [] if link.parent is None else [ET.SE3(link.T)]
    named: dict[str, Any] = {}
    if link.joint is not None:
        named["joint_name"] = link.joint
    if link.motion is not None:
        joint = tree.joints[not_none(link.joint)]
        parts.append(getattr(ET, link.motion)(flip=link.isflip))
        named["qdlim"] = joint.velocity
        if joint.kind != "continuous" and joint.lower is not None:
            named["qlim"] = np.array([joint.lower, joint.upper])
    if link.name in tree.links:
        named |= _convert_body(tree, link.name)
    return RtbLink(ETS(parts), name=link.name, parent=parent, **named)


def find_file_name(link: Any) -> str:
    """Find the name that a link of a model has in the file.

    A joint about no axis of its frame moves a link that is not there, which carries the file's.
    """
    return link.children[0].name if link.name.endswith(AXIS) else link.name


def _convert_body(tree: Tree, link: str) -> dict[str, Any]:
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
