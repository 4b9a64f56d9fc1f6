"""Servos, torques and inertias of an arm or a gripper, for contact dynamics."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from envs.config.yaml_values import check_keys, parse_numbers
from td3_robot.errors import ConfigError

_SERVO = ("stiffness", "damping", "torque", "armature", "friction", "dry_friction")
INERTIA = 10  # numbers: mass, centre of mass, ixx iyy izz ixy ixz iyz


@dataclass(frozen=True)
class Physics:
    """Values of n joints, of a gripper those of either driver; None where no source is known of.

    Attributes:
        stiffness: (n,) of the servo, torque for a position error [Nm/rad or N/m].
        damping: (n,) of the servo, torque for a velocity error [Nms/rad or Ns/m].
        torque: (n,) the most that the motor gives [Nm or N].
        armature: (n,) inertia of the motor behind its gear [kg m2 or kg].
        friction: (n,) torque that the joint loses for its speed [Nms/rad or Ns/m].
        dry_friction: (n,) torque against motion at any speed [Nm or N].
        inertias: (10,) by link, in its frame: mass [kg], centre of mass [m], and ixx, iyy, izz,
            ixy, ixz, iyz about it [kg m2]. A link that is not among them has what its model says.
    """

    stiffness: np.ndarray | None = None
    damping: np.ndarray | None = None
    torque: np.ndarray | None = None
    armature: np.ndarray | None = None
    friction: np.ndarray | None = None
    dry_friction: np.ndarray | None = None
    inertias: dict[str, np.ndarray] = field(default_factory=dict)


def read_physics(owner: str, values: object, n: int, file: str) -> Physics:
    """Read the `physics` of a robot's or gripper's file.

    Args:
        owner: whose they are, as messages call it.
        n: joints.

    Raises:
        ConfigError: something in it cannot be right.
    """
    owner = f"physics of {owner}"
    if not isinstance(values, dict):
        raise ConfigError(
            f"{owner} must be a mapping with {', '.join(_SERVO)} or inertias, got {values!r}"
        )
    check_keys(owner, values, file, needed=(), optional=(*_SERVO, "inertias"))
    servo: dict[str, Any] = {
        key: parse_numbers(owner, key, values[key], (n,)) for key in _SERVO if key in values
    }
    for key, array in servo.items():
        if (array < 0).any() or (key in ("stiffness", "torque") and not array.all()):
            raise ConfigError(f"{owner}: {key} must be positive, got {array.tolist()}")
    return Physics(**servo, inertias=_read_inertias(owner, values.get("inertias", {})))


def _read_inertias(owner: str, values: object) -> dict[str, np.ndarray]:
    if not isinstance(values, dict):
        raise ConfigError(f"{owner}: inertias must map links to {INERTIA} numbers, got {values!r}")
    found = {
        str(link): parse_numbers(owner, str(link), row, (INERTIA,)) for link, row in values.items()
    }
    if light := [link for link, row in found.items() if row[0] <= 0]:
        raise ConfigError(f"{owner}: {light[0]} has a mass that is not positive")
    return found
