"""Files of capsules, configs/collision/NAME.yaml: one for each arm, and one for each gripper."""

from collections.abc import Sequence

import numpy as np

from envs.values import CONFIGS, check_keys, numbers, read_values
from td3_robot.errors import ConfigError

CAPSULES = CONFIGS / "collision"


def read_capsules(name: str) -> tuple[dict[str, list[np.ndarray]], list[tuple[str, str]]]:
    """The capsules of an arm or a gripper, from configs/collision/NAME.yaml.

    Returns:
        For every link the (7,) capsules on it in its frame, a gripper's in that of its base: both ends of the segment
        and the radius [m]. And the pairs of links that need no check, since their meshes never come close.

    Raises:
        ConfigError: there is no such file, or it is not as it should be.
    """
    path, file = CAPSULES / f"{name}.yaml", f"configs/collision/{name}.yaml"
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
    name: str, source: str, capsules: dict[str, list[np.ndarray]], apart: Sequence[tuple[str, str]] = ()
) -> None:
    """Write configs/collision/NAME.yaml, whole or not at all.

    Args:
        source: the robot it was made from.
        capsules: (7,) rows by link.
        apart: pairs of links that need no check.
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
    CAPSULES.mkdir(exist_ok=True)
    draft = CAPSULES / f"{name}.part"
    draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
    draft.replace(CAPSULES / f"{name}.yaml")
