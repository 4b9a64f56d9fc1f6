"""Conversion of a compiled MJCF model into the tree that URDFs are read into.

How MuJoCo's joints move bodies: https://mujoco.readthedocs.io/en/stable/computation, and
https://mujoco.readthedocs.io/en/stable/XMLreference.html for `ref`, `pos` and `axis` of a joint.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's Python package has no type stubs.

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from envs.robots.followers import compute_motion
from envs.robots.mjcf.compile import CompiledFile
from envs.robots.mjcf.frames import make_pose, make_transform
from envs.robots.mjcf.names import Names
from envs.robots.mjcf.shapes import read_shapes
from envs.robots.urdf.tree import Inertial, Joint, Link, Mimic, Pose, Tree, make_tree

_HINGE = 3  # mjtJoint
_JOINT_EQUALITY = 2  # mjtEq
_AT_ANCHOR = 1e-12  # [m] what is nearer counts as the same place
# Between two joints of a body there is nothing; a gram stands for it, as less is taken for unknown.
_NOTHING = Inertial(1e-3, (0.0, 0.0, 0.0), ((1e-8, 0.0, 0.0), (0.0, 1e-8, 0.0), (0.0, 0.0, 1e-8)))


def convert_model(file: CompiledFile, names: Names, root: int, bodies: list[int]) -> Tree:
    """Convert a part of a model: a body, and those below it that joints of one axis move.

    A link is called like its body. It has the body's frame, also where a joint's anchor lies
    elsewhere. Sites become links without shape, fixed to those of their bodies.

    Args:
        root: the body at the base. A root that moves hangs on a link `NAME:base`, which is where
            the body is at joint position 0.
        bodies: the root, and what is below it, parents first.
    """
    model = file.model
    links = []
    joints = []
    if names.is_moving(root):
        links.append(Link(f"{names.bodies[root]}:base"))
    for body in bodies:
        links.append(_read_link(file, names, body))
        if body == root:
            parent = links[0].name
            pose = np.eye(4)
        else:
            parent = names.bodies[model.body_parentid[body]]
            pose = make_transform(model.body_pos[body], model.body_quat[body])
        if body != root or names.is_moving(root):
            new_links, new_joints = _read_joints(model, names, body, parent, pose)
            links += new_links
            joints += new_joints
    inside = set(bodies)
    for site in range(model.nsite):
        body = int(model.site_bodyid[site])
        if body in inside:
            T = make_transform(model.site_pos[site], model.site_quat[site])
            name = names.sites[site]
            links.append(Link(name))
            joints.append(Joint(f"{name}:fixed", "fixed", names.bodies[body], name, make_pose(T)))
    joints, notices = _add_mimics(model, names, joints)
    return make_tree(file.source, names.model, links, joints, (*file.notices, *notices))


def _read_link(file: CompiledFile, names: Names, body: int) -> Link:
    visuals, collisions = read_shapes(file, body)
    return Link(names.bodies[body], visuals, collisions, _read_inertial(file, names, body))


def _read_inertial(file: CompiledFile, names: Names, body: int) -> Inertial | None:
    model = file.model
    mass = float(model.body_mass[body])
    if mass <= 0.0 or names.bodies[body] in file.weightless:
        return None
    R = make_transform(model.body_ipos[body], model.body_iquat[body])[:3, :3]
    matrix = R @ np.diag(model.body_inertia[body]) @ R.T
    center = tuple(model.body_ipos[body].tolist())
    return Inertial(mass, center, tuple(map(tuple, matrix.tolist())))


def _read_joints(
    model: Any, names: Names, body: int, parent: str, pose: np.ndarray
) -> tuple[list[Link], list[Joint]]:
    """Read what holds a body: one joint after the other, or a fixed one; and the links between.

    A joint's frame is at its anchor, with the body's orientation. The joint turns what is beyond
    it, so several of a body come one after the other.
    """
    child = names.bodies[body]
    first = int(model.body_jntadr[body])
    count = int(model.body_jntnum[body])
    if count == 0:
        return [], [Joint(f"{child}:fixed", "fixed", parent, child, make_pose(pose))]
    links = []
    joints = []
    for index in range(first, first + count):
        anchor = np.eye(4)
        if model.jnt_type[index] == _HINGE:  # it does not matter where a slide is
            anchor[:3, 3] = model.jnt_pos[index]
        last = index == first + count - 1
        centred = last and np.linalg.norm(anchor[:3, 3]) < _AT_ANCHOR
        end = child if centred else f"{names.joints[index]}:moved"  # the link that the joint moves
        if not centred:
            links.append(Link(end, inertial=None if last else _NOTHING))
        joint = _read_joint(model, names, index, parent, end)
        start = float(model.qpos0[model.jnt_qposadr[index]])
        rest = compute_motion(joint.axis, -start, joint.kind == "prismatic")
        joints.append(replace(joint, pose=make_pose(pose @ anchor @ rest)))
        parent = end
        pose = np.linalg.inv(anchor)
        if last and not centred:
            joints.append(Joint(f"{child}:fixed", "fixed", parent, child, make_pose(pose)))
    return links, joints


def _read_joint(model: Any, names: Names, index: int, parent: str, child: str) -> Joint:
    """Read a joint without its pose."""
    hinge = model.jnt_type[index] == _HINGE
    limited = bool(model.jnt_limited[index])
    lower, upper = model.jnt_range[index].tolist() if limited else (None, None)
    axis = model.jnt_axis[index]
    x, y, z = (axis / np.linalg.norm(axis)).tolist()
    kind = "prismatic"
    if hinge:
        kind = "revolute" if limited else "continuous"
    name = names.joints[index]
    return Joint(name, kind, parent, child, Pose(), (x, y, z), lower, upper)


def iter_joint_equalities(model: Any) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield active equalities of joints: the follower, its leader, and the polynomial (5,).

    The leader of a joint that is held at a position is -1.
    """
    for index in range(model.neq):
        if model.eq_type[index] == _JOINT_EQUALITY and model.eq_active0[index]:
            follower = int(model.eq_obj1id[index])
            yield follower, int(model.eq_obj2id[index]), model.eq_data[index, :5]


def _add_mimics(model: Any, names: Names, joints: list[Joint]) -> tuple[list[Joint], list[str]]:
    """Add to joints whom they follow: y - y0 = a0 + a1 (x - x0).

    Of equalities in a circle the last is left out.

    Returns:
        The joints, and notices of what is not taken: higher terms, and joints that are held.
    """
    known = {joint.name for joint in joints}
    mimics: dict[str, Mimic] = {}
    notices = []
    for follower, leader, (a0, a1, *higher) in iter_joint_equalities(model):
        name = names.joints[follower]
        if leader < 0:
            if name in known:
                notices.append(f"joint {name!r} moves, though an equality holds it in place")
            continue
        x0 = float(model.qpos0[model.jnt_qposadr[leader]])
        y0 = float(model.qpos0[model.jnt_qposadr[follower]])
        led = names.joints[leader]
        if not known.issuperset((name, led)) or _is_led_by(mimics, led, name):
            continue
        mimics[name] = Mimic(led, float(a1), float(y0 + a0 - a1 * x0))
        if any(higher):
            curve = f"joint {name!r} follows {led!r} along a curve"
            notices.append(f"{curve}; only its straight part is taken, {a1:g} times")
    return [replace(joint, mimic=mimics.get(joint.name)) for joint in joints], notices


def _is_led_by(mimics: dict[str, Mimic], joint: str, leader: str) -> bool:
    """Tell if a joint is, or follows in the end, another."""
    while joint != leader and joint in mimics:
        joint = mimics[joint].joint
    return joint == leader
