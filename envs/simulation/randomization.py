"""Domain randomisation by name: ranges from a file of configs/randomization, or from a path."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from envs.config.disturbance_options import DISTURBANCES
from envs.config.env_options import KINEMATIC, MUJOCO, NOTHING, EnvOptions
from envs.config.yaml_values import CONFIGS, check_keys, parse_numbers, read_values
from envs.simulation.disturbances import Disturbances
from envs.simulation.variation import Variation
from td3_robot.errors import ConfigError, unknown

FOLDER = CONFIGS / "randomization"
_PHYSICS = tuple(item.name for item in dataclasses.fields(Variation))


def list_randomizations() -> list[str]:
    """List the names of those that ship."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read_randomization(name: str | os.PathLike[str]) -> Disturbances:
    """Read the disturbances of a randomisation file.

    Args:
        name: one of `list_randomizations`, or the path of a file that ends in .yaml.

    Raises:
        ConfigError: there is none of that name, or it is not as it should be.
    """
    name = os.fspath(name)
    path = Path(name) if name.endswith(".yaml") else FOLDER / f"{name}.yaml"
    if not os.path.isfile(path):  # False also of a name that is too long
        choices = (NOTHING, *list_randomizations())
        if name.endswith(".yaml"):
            raise ConfigError(
                f"{name}: the randomization's file is missing; put it there, or choose one of "
                f"{', '.join(choices)}"
            )
        raise unknown("randomization", name, (*choices, "a path of a .yaml file"))
    values = read_values(path)
    owner = f"randomization {name!r}"
    check_keys(owner, values, path.name, needed=(), optional=(*DISTURBANCES, *_PHYSICS))
    read: dict[str, Any] = {key: _read_value(owner, key, value) for key, value in values.items()}
    ranges = {key: tuple(read.pop(key)) for key in _PHYSICS if key in read}
    try:
        return Disturbances(**read, physics=Variation(**ranges))
    except ConfigError as error:
        raise ConfigError(f"{owner}: {error}") from None


def _read_value(owner: str, key: str, value: object) -> object:
    """Read a range of the physics, a number, or true or false."""
    if key in _PHYSICS:
        return parse_numbers(owner, key, value, (2,)).tolist()
    if DISTURBANCES[key].most is not None:
        return parse_numbers(owner, key, value, ()).item()
    if not isinstance(value, bool):
        raise ConfigError(f"{owner}: {key} must be true or false, got {value!r}")
    return value


def combine_disturbances(options: EnvOptions) -> Disturbances:
    """Combine the disturbances of the file that `randomize` names with those given as options.

    Options take precedence over the file.

    Raises:
        ConfigError: see `read_randomization`, and a file whose values make no sense with those of
            the options, or are all of contact physics, which the engine lacks.
    """
    if options.randomize == NOTHING:
        return Disturbances(**options.disturbances)
    named = read_randomization(options.randomize)
    both = dataclasses.replace(named, **options.disturbances)
    if both.servo_lag and options.engine != KINEMATIC:
        raise ConfigError(
            f"randomization {options.randomize!r}: servo_lag is for the kinematic engine alone"
        )
    only_physics = bool(named.physics) and named == Disturbances(physics=named.physics)
    if only_physics and options.engine == KINEMATIC:
        raise ConfigError(
            f"randomization {options.randomize!r} has no effect on the kinematic engine, since all "
            f"in it is of contact dynamics; it needs --engine {MUJOCO}"
        )
    return both
