"""Velocity and acceleration limits of arms, which MJCF has no place for."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from envs.config.yaml_values import CONFIGS, check_keys, parse_numbers, read_values
from envs.robots.urdf.tree import join_names
from td3_robot.errors import ConfigError

_FILE = "configs/limits/arms.yaml"
_KEYS = ("qdlim", "qddlim", "qdddlim")


def find_limits(source: str, model: str, joint_names: Sequence[str]) -> dict[str, np.ndarray]:
    """Find the limits of a known arm by the name of its model.

    Args:
        source: the file, as messages name it.
        model: the name of the model in it.

    Returns:
        `qdlim` (n,) [rad/s], and where they are known `qddlim` [rad/s2] and `qdddlim` [rad/s3].

    Raises:
        ConfigError: the arm is not in configs/limits/arms.yaml.
    """
    table = read_values(CONFIGS / "limits" / "arms.yaml")
    plain = re.sub("[^a-z0-9]", "", model.lower())
    for key in sorted(table, key=len, reverse=True):
        if plain.startswith(key):
            limits = _read_limits(key, table[key])
            if len(limits["qdlim"]) == len(joint_names):
                return limits
    raise ConfigError(
        f"{source}: MJCF has no velocity limits; give them with --velocity, one for all joints or "
        f"{len(joint_names)} for {join_names(joint_names)} [rad/s or m/s]"
    )


def _read_limits(name: str, values: dict[str, Any]) -> dict[str, np.ndarray]:
    owner = f"arm {name!r}"
    if set(values) == {"like"}:
        robot = read_values(CONFIGS / "robots" / f"{values['like']}.yaml")
        values = {key: robot[key] for key in _KEYS if key in robot}
    check_keys(owner, values, _FILE, needed=("qdlim",), optional=_KEYS[1:])
    n = len(values["qdlim"])
    return {key: parse_numbers(owner, key, row, (n,)) for key, row in values.items()}
