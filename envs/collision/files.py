"""Files of capsules: one for each arm, and one for each gripper."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from envs.robots import Robot
from envs.values import CONFIGS, check_keys, numbers, read_values
from td3_robot.errors import ConfigError

CAPSULES = CONFIGS / "collision"


def capsule_file(robot: Robot) -> Path:
    """Where an arm's capsules are: configs/collision/NAME.yaml, or beside the URDF or xacro file that it is made from.

    A user's panda.urdf is not the registered Panda, so it has a file of its own, panda.urdf.collision.yaml.
    """
    if robot.file is None:
        return CAPSULES / f"{robot.name}.yaml"
    return robot.file.with_name(f"{robot.file.name}.collision.yaml")


def has_capsules(robot: Robot) -> bool:
    """Whether an arm, and its gripper if it has one, have files of capsules."""
    hand = robot._gripper
    return capsule_file(robot).is_file() and (hand is None or (CAPSULES / f"{hand.name}.yaml").is_file())


def shown(path: Path) -> str:
    """How messages name a file of capsules."""
    return f"configs/collision/{path.name}" if path.parent == CAPSULES else str(path)


def read_capsules(name: str, path: Path | None = None) -> tuple[dict[str, list[np.ndarray]], list[tuple[str, str]]]:
    """The capsules of an arm or a gripper.

    Args:
        path: their file, see `capsule_file`; None for configs/collision/NAME.yaml.

    Returns:
        For every link the (7,) capsules on it in its frame, a gripper's in that of its base: both ends of the segment
        and the radius [m]. And the pairs of links that need no check, since their meshes never come close.

    Raises:
        ConfigError: there is no such file, or it is not as it should be.
    """
    path = path or CAPSULES / f"{name}.yaml"
    file = shown(path)
    if not path.is_file():
        raise ConfigError(
            f"{name!r} has no collision geometry; `python -m envs.fit_collision ROBOT` writes {file}, where ROBOT is a "
            "registered robot that is it or wears it, or the path of a URDF"
        )
    values = read_values(path)
    check_keys(name, values, file, needed=("links",), optional=("never_close",))
    shapes, apart = {}, values.get("never_close", [])
    if not isinstance(values["links"], dict) or not values["links"]:
        raise ConfigError(f"{file}: links must map every link to its capsules, got {values['links']!r}")
    for link, rows in values["links"].items():
        if not isinstance(rows, list) or not rows:
            raise ConfigError(f"{file}: {link} must have a list of capsules [x0 y0 z0 x1 y1 z1 radius], got {rows!r}")
        shapes[str(link)] = [numbers(file, str(link), row, (7,)) for row in rows]
        if any(capsule[6] <= 0 for capsule in shapes[str(link)]):
            raise ConfigError(f"{file}: {link} has a radius that is not positive")
    if not isinstance(apart, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in apart):
        raise ConfigError(f"{file}: never_close must be a list of pairs of links, got {apart!r}")
    if strangers := [link for pair in apart for link in pair if link not in shapes]:
        raise ConfigError(f"{file}: never_close names {strangers[0]!r}, which has no capsules")
    return shapes, [tuple(pair) for pair in apart]


def write_capsules(
    path: Path, source: str, capsules: dict[str, list[np.ndarray]], apart: Sequence[tuple[str, str]] = ()
) -> None:
    """Write a file of capsules, whole or not at all.

    Args:
        path: the file, see `capsule_file`.
        source: the robot it was made from.
        capsules: (7,) rows by link.
        apart: pairs of links that need no check.

    Raises:
        ConfigError: it cannot be written there.
    """
    lines = [
        f"# Written by `python -m envs.fit_collision {source}`, see docs/collision.md.",
        "# In each link's frame, or that of a gripper's base, the capsules on it: x0 y0 z0 x1 y1 z1 radius [m].",
        "links:",
    ]
    for link, rows in capsules.items():
        lines += [f"  {link}:", *("    - [" + ", ".join(f"{round(x, 6) + 0.0:g}" for x in row) + "]" for row in rows)]
    if apart:
        lines += ["# Pairs whose meshes never come within a centimetre, so that an overlap of capsules means nothing."]
        lines += ["never_close:", *(f"  - [{first}, {second}]" for first, second in apart)]
    draft = path.with_suffix(".part")
    try:
        path.parent.mkdir(exist_ok=True)
        draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write {shown(path)}: {error.strerror}") from None
