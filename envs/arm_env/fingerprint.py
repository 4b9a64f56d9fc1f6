"""Fingerprint of an environment: constants of its task and robot, which options do not name."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

from envs.collision.files import find_capsule_file, find_gripper_file
from envs.config.env_options import NOTHING
from envs.robots import Robot
from envs.simulation.randomization import read_randomization

_OF_ROBOT = ("home", "qlim", "qdlim", "qddlim", "qdddlim", "workspace")


def env_fingerprint(env: Any, randomize: str = NOTHING) -> dict[str, object]:
    """Return everything that an environment takes from configs/tasks, robots, collision and
    randomization.

    Args:
        env: an `ArmEnv`; the fingerprint of any other environment is empty.
        randomize: its randomisation, as `EnvOptions` names it.

    Returns:
        Values that JSON can hold, files as their SHA-256.
    """
    robot = getattr(env, "robot", None)
    task = getattr(env, "task", None)
    if not isinstance(robot, Robot) or not dataclasses.is_dataclass(task):
        return {}
    values = {name: getattr(robot, name) for name in _OF_ROBOT}
    limits = {name: None if value is None else value.tolist() for name, value in values.items()}
    found: dict[str, object] = {
        "task": dataclasses.asdict(task),  # type: ignore[arg-type]
        "robot": limits,
        "files": _hash_files(robot),
    }
    return (
        found
        if randomize == NOTHING
        else {**found, f"randomization {randomize}": _read_ranges(randomize)}
    )


def _read_ranges(randomize: str) -> dict[str, object]:
    """Read the values of a randomisation, with defaults for those missing in its file."""
    values = dataclasses.asdict(read_randomization(randomize))
    # unknown to older fingerprints
    newer = ("force_noise", "force_bias", "torque_noise", "torque_bias")
    for name in [name for name in newer if not values[name]]:
        del values[name]
    if values["estimate_latency"] is None:
        del values["estimate_latency"]
    return {**values.pop("physics"), **values}


def _hash_files(robot: Robot) -> dict[str, str]:
    """Return the SHA-256 of existing capsule files, and of the robot's own file if any."""
    hand = robot.gripper
    paths = [
        find_capsule_file(robot),
        *([find_gripper_file(hand)] if hand else []),
        *filter(None, (robot.file,)),
    ]
    return {path.name: _hash_file(path) for path in paths if path.is_file()}


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
