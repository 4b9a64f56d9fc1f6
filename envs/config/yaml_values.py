"""Read and check YAML files of values, which people write."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from td3_robot.errors import ConfigError, unknown

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


if TYPE_CHECKING:
    _Safe = yaml.SafeLoader
else:
    # libyaml's takes a tenth of the time, where it is there
    _Safe = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Safe):
    """A loader that refuses duplicate keys, of which PyYAML would take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise yaml.constructor.ConstructorError(
                None, None, f"key {twice!r} is there twice", node.start_mark
            )
        return super().construct_mapping(node, deep)


def read_values(path: Path) -> dict[str, Any]:
    """Read the mapping in a robot's, gripper's or task's YAML file.

    Raises:
        ConfigError: the file is no YAML in UTF-8, has a key twice, or is no mapping.
    """
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except UnicodeDecodeError:
        raise ConfigError(f"{path.name} is not in UTF-8: save it in that encoding") from None
    except yaml.YAMLError as error:
        raise ConfigError(
            f"{path.name} is not valid YAML: {' '.join(str(error).split())}"
        ) from None
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path.name} must be a mapping of names to values, got {type(values).__name__}"
        )
    return values


def check_keys(
    owner: str,
    values: dict[str, object],
    file: str,
    needed: tuple[str, ...],
    optional: tuple[str, ...],
):
    """Refuse a file that lacks a key or has an unknown one.

    Args:
        owner: what the file describes, for example "robot 'panda'".
        file: its path, for the message.

    Raises:
        ConfigError: naming the keys.
    """
    if missing := [key for key in needed if key not in values]:
        raise ConfigError(f"{owner}: {', '.join(missing)} missing in {file}")
    for key in values:
        if key not in needed + optional:
            raise unknown(f"key of {owner}", key, needed + optional)


def parse_numbers(owner: str, key: str, value: object, shape: tuple[int, ...]) -> np.ndarray:
    """Convert a value to a finite array of the given shape.

    Raises:
        ConfigError: it is anything else.
    """
    try:
        if _has_switch(value):  # which numpy would take for 1 or 0
            raise TypeError
        array = np.array(value, float)
    except (TypeError, ValueError):
        raise ConfigError(f"{owner}: {key} must be numbers, got {value!r}") from None
    if array.shape != shape or not np.isfinite(array).all():
        raise ConfigError(f"{owner}: {key} must be finite with shape {shape}, got {array.tolist()}")
    return array


def _has_switch(value: object) -> bool:
    """Tell if a value, or one in a list, is true or false."""
    if isinstance(value, list | tuple):
        return any(map(_has_switch, value))
    return isinstance(value, bool)


def make_pose(values: np.ndarray) -> np.ndarray:
    """Make a pose (4, 4) from (x, y, z, roll, pitch, yaw) [m, rad], rotated as in URDF.

    R = Rz(yaw) Ry(pitch) Rx(roll).
    """
    (sr, sp, sy) = map(math.sin, values[3:])
    (cr, cp, cy) = map(math.cos, values[3:])
    roll = np.array([[1.0, 0.0, 0.0], [0.0, cr, -sr], [0.0, sr, cr]])
    pitch = np.array([[cp, 0.0, sp], [0.0, 1.0, 0.0], [-sp, 0.0, cp]])
    yaw = np.array([[cy, -sy, 0.0], [sy, cy, 0.0], [0.0, 0.0, 1.0]])
    T = np.eye(4)
    T[:3, :3] = yaw @ pitch @ roll
    T[:3, 3] = values[:3]
    return T
