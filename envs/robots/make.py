"""Robots by name: a file of values and a roboticstoolbox model make one; or by the path of a URDF,
xacro or MJCF file.
"""

import functools
import os
from collections.abc import Collection, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from envs.config.yaml_values import CONFIGS, check_keys, make_pose, parse_numbers, read_values
from envs.kinematics import compile_ets
from envs.robots.body import find_flange, join_links, list_moving, list_transforms, take_links
from envs.robots.gripper import Gripper, make_gripper
from envs.robots.physics import read_physics
from envs.robots.robot import Robot
from envs.robots.sources import read_source
from envs.robots.urdf.links import list_links
from td3_robot.errors import ConfigError, unknown

_NEEDED = ("model", "flange", "home", "qlim", "qdlim", "workspace")
_OPTIONAL = ("gripper", "mount", "qddlim", "qdddlim", "physics")
_ARRAYS = ("home", "qlim", "qdlim", "qddlim", "qdddlim", "workspace")


def robot_names() -> list[str]:
    """List the registered robots."""
    return sorted(path.stem for path in (CONFIGS / "robots").glob("*.yaml"))


def shipped_robots() -> list[str]:
    """List the registered robots whose models come with installed packages.

    The others are fetched on first use.
    """
    models = {
        name: read_values(CONFIGS / "robots" / f"{name}.yaml")["model"] for name in robot_names()
    }
    return [name for name, model in models.items() if "repository" not in model]


def is_file(name: str) -> bool:
    """Tell if a robot's name is a path to a URDF, xacro or MJCF file, not a registry name."""
    return name.endswith((".urdf", ".xacro", ".xml")) or any(
        mark in name for mark in (os.sep, os.altsep) if mark
    )


def make_robot(
    name: str | os.PathLike[str],
    gripper: str | None = None,
    tcp: str | None = None,
    *,
    xacro: Mapping[str, object] | None = None,
    base: str | None = None,
    velocity: float | Sequence[float] = (),
    acceleration: float | None = None,
) -> Robot:
    """Build a robot.

    Args:
        name: a registered robot, or the path of a URDF, xacro or MJCF file.
        gripper: the gripper it wears, a registered one or "none"; None leaves the choice to its
            file.
        tcp: for such a file, the link, or in MJCF the site or body, that is the TCP.
        xacro: for a xacro file, the values of its arguments.
        base: for an MJCF file, the body at the base of the arm.
        velocity: for a file, the limit of every joint, or one for each [rad/s or m/s].
        acceleration: the limit of every joint, for a robot whose file has none [rad/s2 or m/s2].

    Raises:
        ConfigError: no such robot or gripper, values in its file that cannot be right, or something
            given that the file has already.
    """
    limits = np.ravel(velocity)
    if limits.size and limits.dtype.kind not in "iuf":
        raise ConfigError(f"velocity must be a number, or one for each joint, got {velocity!r}")
    robot = _make_robot(os.fspath(name), gripper, tcp, xacro or {}, base, limits.tolist())
    if acceleration is not None:
        if robot.qddlim is not None:
            raise ConfigError(
                f"{robot.owner} has acceleration limits of its own; acceleration is for one without"
            )
        if not isinstance(acceleration, Real) or not 0.0 < acceleration < np.inf:
            raise ConfigError(f"acceleration must be a positive number, got {acceleration!r}")
        robot.qddlim = np.full(robot.n, float(acceleration))
    return robot


def _make_robot(
    name: str,
    gripper: str | None,
    tcp: str | None,
    xacro: Mapping[str, object],
    base: str | None,
    velocity: Sequence[float],
) -> Robot:
    """Build a robot from its registry file or its description."""
    if is_file(name):
        from envs.robots.from_file import (
            make_robot_from_file,  # here: a registered robot does without
        )

        return make_robot_from_file(name, gripper, tcp, xacro, base=base, velocity=velocity)
    if name not in robot_names():
        if os.path.isfile(name):
            raise ConfigError(f"robot file {name!r} must end in .urdf, .xacro or .xml")
        raise unknown("robot", name, robot_names())
    if tcp is not None:
        raise ConfigError(
            f"robot {name!r} has its TCP in configs/robots/{name}.yaml; "
            "tcp is for URDF, xacro and MJCF files"
        )
    if xacro:
        raise ConfigError(f"robot {name!r} takes no xacro arguments; they are for a .xacro file")
    if base is not None or velocity:
        given = "velocity" if velocity else "base"
        raise ConfigError(f"robot {name!r} needs no {given}, which is for URDF or MJCF files")
    return _make_registered(name, gripper)


def _make_registered(name: str, gripper: str | None) -> Robot:
    values = read_values(CONFIGS / "robots" / f"{name}.yaml")
    owner = f"robot {name!r}"
    file = f"configs/robots/{name}.yaml"
    check_keys(owner, values, file, _NEEDED, _OPTIONAL)
    own = _make_hand(values.get("gripper", "none"))
    hand = own if gripper is None else _make_hand(gripper)
    whole = hand is None and (own is None or own.source is not None)
    mount = make_pose(parse_numbers(owner, "mount", values.get("mount", [0] * 6), (6,)))

    flange = str(values["flange"])
    tree = read_source(owner, values["model"])
    moving = None
    if tree is not None:
        flange = find_flange(name, tree, flange, hand)
        moving = list_moving(tree, flange, hand)
    mounted = (flange, hand, mount, whole)
    make_rtb = functools.partial(_make_rtb, name, values["model"], moving, *mounted)
    body = None if tree is None else join_links(name, list_links(tree, moving), *mounted)
    if body is None:
        make_rtb = functools.cache(make_rtb)
        body = take_links(make_rtb())
    chain = compile_ets(list_transforms(body, flange))
    arrays: dict[str, Any] = {key: values.get(key) for key in _ARRAYS}
    physics = read_physics(owner, values.get("physics", {}), chain.n, file)
    return Robot(
        name=name,
        make_rtb=make_rtb,
        body=body,
        chain=chain,
        gripper=hand,
        physics=physics,
        tcp_link=flange,
        **arrays,
    )


def _make_hand(name: str) -> Gripper | None:
    return None if name == "none" else make_gripper(name)


def _make_rtb(
    name: str,
    source: object,
    moving: Collection[str] | None,
    flange: str,
    hand: Gripper | None,
    mount: np.ndarray,
    whole: bool,
) -> Any:
    """Make the roboticstoolbox model of a registered robot."""
    from envs.robots.assembly import assemble, load_model  # here: it takes seconds

    model = load_model(f"robot {name!r}", source, moving)
    return assemble(name, model, flange, hand, mount, whole)
