"""Constants of contacts, from configs/physics/contacts.yaml."""

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from envs.config.yaml_values import CONFIGS, check_keys, parse_numbers, read_values
from td3_robot.errors import ConfigError, unknown

FILE = "configs/physics/contacts.yaml"
CAPSULES = "capsules"
MESHES = "meshes"
ARM_SHAPES = (CAPSULES, MESHES)
_SHAPES = {"solref": (2,), "solimp": (5,)}


@dataclass(frozen=True)
class Contacts:
    """Constants of contacts, named as in MuJoCo's XML reference.

    https://mujoco.readthedocs.io/en/stable/XMLreference.html

    Attributes:
        timestep: the longest step of the physics [s].
        impratio: how much stiffer friction is than pressure, under elliptic cones.
        solref, solimp: of every contact.
        pad_friction, cube_friction, table_friction, arm_friction: sliding; of two that touch the
            greater counts.
        cube_mass: [kg].
        arm_shapes: the shapes of the arm that touch: its capsules, or its drawn meshes (`hulls`).

    Raises:
        ConfigError: a value that cannot be right.
    """

    timestep: float
    impratio: float
    solref: tuple[float, ...]
    solimp: tuple[float, ...]
    pad_friction: float
    cube_friction: float
    table_friction: float
    arm_friction: float
    cube_mass: float
    arm_shapes: str

    def __post_init__(self):
        if self.arm_shapes not in ARM_SHAPES:
            raise unknown("arm_shapes", self.arm_shapes, ARM_SHAPES)
        for name in NUMBERS:
            if name not in _SHAPES and not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be positive, got {getattr(self, name)!r}")


NUMBERS = tuple(item.name for item in fields(Contacts) if item.name != "arm_shapes")


@functools.cache
def read_contacts() -> Contacts:
    """Read the constants from their file.

    Raises:
        ConfigError: it is not as it should be.
    """
    values = read_values(CONFIGS.parent / FILE)
    owner = "contacts"
    check_keys(owner, values, FILE, needed=(*NUMBERS, "arm_shapes"), optional=())
    read: dict[str, Any] = {
        name: parse_numbers(owner, name, values[name], _SHAPES.get(name, ())).tolist()
        for name in NUMBERS
    }
    read |= {name: tuple(read[name]) for name in _SHAPES}
    return Contacts(**read, arm_shapes=values["arm_shapes"])


def replace_constants(contacts: Contacts, constants: Mapping[str, Any]) -> Contacts:
    """Return contacts with some constants replaced.

    Raises:
        ConfigError: a name that is none of theirs, or a value that cannot be right.
    """
    for name in constants:
        if name not in NUMBERS:
            raise unknown("constant of contacts", name, NUMBERS)
    read: dict[str, Any] = {
        name: parse_numbers("contacts", name, value, _SHAPES.get(name, ())).tolist()
        for name, value in constants.items()
    }
    read |= {name: tuple(read[name]) for name in _SHAPES if name in read}
    return dataclasses.replace(contacts, **read)
