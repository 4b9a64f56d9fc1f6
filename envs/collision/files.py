"""Files of capsules: one for each arm, and one for each gripper."""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import yaml

from envs.config.yaml_values import CONFIGS, check_keys, parse_numbers, read_values
from envs.robots import Robot
from envs.robots.gripper import Gripper
from envs.robots.links import is_drawn
from envs.robots.robot import name_arm
from td3_robot.errors import ConfigError

CAPSULES = CONFIGS / "collision"


def find_capsule_file(robot: Robot) -> Path:
    """Return the file of an arm's capsules: configs/collision/NAME.yaml, or next to its URDF.

    A user's panda.urdf is not the registered Panda, so it has a file of its own,
    panda.urdf.collision.yaml. Of several arms in a file, each has one with the name of its base.
    """
    if robot.file is None:
        return CAPSULES / f"{robot.name}.yaml"
    name = name_arm(robot.file, *robot.chosen.get("base", ()))
    return robot.file.with_name(f"{name}.collision.yaml")


def find_gripper_file(gripper: Gripper) -> Path:
    """Return the file of a gripper's capsules: configs/collision/NAME.yaml, or by its robot's."""
    if gripper.file is None:
        return CAPSULES / f"{gripper.name}.yaml"
    return gripper.file.with_name(f"{gripper.name}.collision.yaml")


def has_capsules(robot: Robot) -> bool:
    """Tell if an arm, and its gripper if it has one, have files of capsules."""
    hand = robot.gripper
    return find_capsule_file(robot).is_file() and (
        hand is None or find_gripper_file(hand).is_file()
    )


def format_path(path: Path) -> str:
    """Format the path of a file of capsules for messages."""
    return f"configs/collision/{path.name}" if path.parent == CAPSULES else str(path)


@dataclass(frozen=True)
class Shapes:
    """The content of a file of capsules: (7,) each, both ends of a segment and its radius [m].

    Attributes:
        links: the capsules on every link in its frame; a gripper's in that of its base, and under
            `fingers` those that hold its fingers at every opening.
        apart: pairs of links that need no check, since their meshes never touch.
        moving: of a gripper, the capsules on each link that its driver moves, in the frame of that
            link.
        corners: of a gripper, (3,) points by link as in `moving`, or under `base` in the frame of
            its base: what of it is outermost, so that a plane touches the gripper where it touches
            one of them [m].
    """

    links: dict[str, list[np.ndarray]]
    apart: Sequence[tuple[str, str]] = ()
    moving: dict[str, list[np.ndarray]] = field(default_factory=dict)
    corners: dict[str, list[np.ndarray]] = field(default_factory=dict)


_PLAIN = re.compile(r"[A-Za-z_][\w/.-]*")  # a name that may need no quotes
FITTING = "python -m envs.collision.fitting "  # the command that writes a file of capsules
BASE = "base"  # names in a gripper's file that are no links
FINGERS = "fingers"
_CAPSULE = "capsules [x0 y0 z0 x1 y1 z1 radius]"
_POINT = "points [x y z]"


def format_fitting(robot: Robot) -> str:
    """Format the command that writes the capsules of a robot and its gripper."""
    words = [robot.name if robot.file is None else str(robot.file)]
    if robot.file is not None and robot.file.suffix == ".xml" and robot.tcp_link is not None:
        words += ["--tcp", robot.tcp_link]  # several frames of an MJCF file could be it
    for option, values in robot.chosen.items():
        words += [f"--{option}", *values]
    hand = robot.gripper
    if hand is not None and hand.file is None and not find_gripper_file(hand).is_file():
        words += ["--gripper", hand.name]
    return f"{FITTING}{shlex.join(words)}"


def has_shapes(robot: Robot) -> bool:
    """Tell if anything is drawn of an arm, or has a collision shape."""
    return any(map(is_drawn, robot.body.arm))


def read_capsules(name: str, path: Path | None = None, robot: Robot | None = None) -> Shapes:
    """Read the capsules of an arm or its gripper.

    Args:
        path: their file, see `find_capsule_file`; None for configs/collision/NAME.yaml.
        robot: the arm, for the command that writes a missing file; None: `name` is its name.

    Raises:
        ConfigError: there is no such file, or it is not as it should be.
    """
    path = path or CAPSULES / f"{name}.yaml"
    file = format_path(path)
    if not path.is_file():
        if robot is not None and name == robot.name and not has_shapes(robot):
            raise ConfigError(
                f"{name!r} has no collision geometry, and no shapes to make it from: give the "
                f"links of {robot.file or name} <visual> or <collision> elements first"
            )
        raise ConfigError(
            f"{name!r} has no collision geometry; write {file} with: "
            f"{FITTING + name if robot is None else format_fitting(robot)}"
        )
    values = read_values(path)
    check_keys(name, values, file, needed=("links",), optional=("never_close", "moving", "corners"))
    links = _read_rows(file, values, "links", _CAPSULE, 7)
    apart = values.get("never_close", [])
    if not isinstance(apart, list) or not all(
        isinstance(pair, list) and len(pair) == 2 for pair in apart
    ):
        raise ConfigError(f"{file}: never_close must be a list of pairs of links, got {apart!r}")
    if strangers := [link for pair in apart for link in pair if link not in links]:
        raise ConfigError(f"{file}: never_close names {strangers[0]!r}, which has no capsules")
    moving, corners = (
        _read_rows(file, values, key, what, size) if key in values else {}
        for key, what, size in (("moving", _CAPSULE, 7), ("corners", _POINT, 3))
    )
    if bool(moving) != bool(corners):
        raise ConfigError(f"{file}: moving and corners need each other")
    if strangers := [link for link in corners if link not in (BASE, *moving)]:
        raise ConfigError(
            f"{file}: corners names {strangers[0]!r}, which is not among "
            f"{', '.join((BASE, *moving))}"
        )
    return Shapes(links, [tuple(pair) for pair in apart], moving, corners)


def _read_rows(
    file: str, values: dict, key: str, what: str, size: int
) -> dict[str, list[np.ndarray]]:
    """Read one mapping of a file, from links to rows of numbers."""
    found = {}
    if not isinstance(values[key], dict) or not values[key]:
        raise ConfigError(
            f"{file}: {key} must map every link to its {what.split()[0]}, got {values[key]!r}"
        )
    for link, rows in values[key].items():
        if not isinstance(rows, list) or not rows:
            raise ConfigError(f"{file}: {link} must have a list of {what}, got {rows!r}")
        found[str(link)] = [parse_numbers(file, str(link), row, (size,)) for row in rows]
        if size == 7 and any(capsule[6] <= 0 for capsule in found[str(link)]):
            raise ConfigError(f"{file}: {link} has a radius that is not positive")
    return found


def write_capsules(path: Path, source: str, shapes: Shapes) -> None:
    """Write a file of capsules, whole or not at all.

    Args:
        path: the file, see `find_capsule_file`.
        source: the robot it was made from.

    Raises:
        ConfigError: it cannot be written there.
    """
    lines = [
        f"# Written by `python -m envs.collision.fitting {source}`, "
        "see docs/explanation/collision-capsules.md.",
        "# In each link's frame, or that of a gripper's base, the capsules on it: x0 y0 z0 x1 y1 "
        "z1 radius [m].",
        *_format_lines("links", shapes.links),
    ]
    if shapes.apart:
        lines += ["# Pairs whose meshes never touch, so that an overlap of capsules means nothing."]
        lines += [
            "never_close:",
            *(
                f"  - [{_format_name(first)}, {_format_name(second)}]"
                for first, second in shapes.apart
            ),
        ]
    if shapes.moving:
        lines += [
            "# The same for the links that the driver moves, each in its own frame.",
            *_format_lines("moving", shapes.moving),
        ]
    if shapes.corners:
        lines += [
            "# What is outermost of them, and of the base: x y z [m].",
            *_format_lines("corners", shapes.corners),
        ]
    draft = path.with_suffix(".part")
    try:
        path.parent.mkdir(exist_ok=True)
        draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write {format_path(path)}: {error.strerror}") from None


def _format_lines(key: str, groups: dict[str, list[np.ndarray]]) -> list[str]:
    def format_row(values):
        return "    - [" + ", ".join(f"{round(x, 6) + 0.0:g}" for x in values) + "]"

    return [
        f"{key}:",
        *(
            line
            for link, rows in groups.items()
            for line in (f"  {_format_name(link)}:", *map(format_row, rows))
        ),
    ]


def _format_name(link: str) -> str:
    """Format a name for YAML: quoted if it would be read as a number, a truth or an error."""
    plain = _PLAIN.fullmatch(link) and isinstance(yaml.safe_load(link), str)
    return link if plain else json.dumps(link, ensure_ascii=False)
