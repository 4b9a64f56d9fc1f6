"""Robots and tasks by name."""

import dataclasses
import math

from envs.arm_env import ArmEnv
from envs.robots import CONFIGS, make_robot, read_values
from envs.tasks.reach import Reach
from td3_robot.errors import ConfigError, unknown

TASKS = {"reach": Reach}


def make(robot: str, task: str, num_envs: int = 1, device: str = "cpu", seed: int = 0) -> ArmEnv:
    """Build B environments of a registered robot and task.

    Raises:
        ConfigError: no such robot or task, values in their files that cannot be right, or num_envs below 1.
    """
    if task not in TASKS:
        raise unknown("task", task, TASKS)
    return ArmEnv(make_robot(robot), _task(task), num_envs, device, seed)


def _task(name: str) -> Reach:
    """A task with the constants of its file: exactly its fields, all of them numbers and none negative."""
    values = read_values(CONFIGS / "tasks" / f"{name}.yaml")
    fields = {field.name: field.type for field in dataclasses.fields(TASKS[name])}
    for key in values:
        if key not in fields:
            raise unknown(f"constant of task {name!r}", key, fields)
    constants = {}
    for key, kind in fields.items():
        value = values.get(key)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value < math.inf or (kind is int and value != int(value)):
            raise ConfigError(f"task {name!r}: {key} must be a number and not negative, got {value!r}")
        constants[key] = kind(value)
    for key in ("dt", "horizon", "tolerance"):
        if constants[key] == 0:
            raise ConfigError(f"task {name!r}: {key} must be positive, got 0")
    return TASKS[name](**constants)
