"""Robots and tasks by name."""

import dataclasses
import math

from envs.arm_env import ArmEnv
from envs.options import EnvOptions
from envs.robots import make_robot
from envs.tasks.pick_place import PickPlace
from envs.tasks.reach import Reach
from envs.tasks.reach_avoid import ReachAvoid
from envs.tasks.reach_pose import ReachPose
from envs.tasks.task import Task
from envs.tasks.track import Track
from envs.values import CONFIGS, read_values
from td3_robot.errors import ConfigError, unknown
from td3_robot.vec_env import VecEnv

TASKS = {
    "reach": Reach,
    "reach_pose": ReachPose,
    "reach_avoid": ReachAvoid,
    "track": Track,
    "pick_place": PickPlace,
}


def make(
    robot: str,
    task: str,
    num_envs: int = 1,
    device: str = "cpu",
    seed: int = 0,
    *,
    gripper: str | None = None,
    tcp: str | None = None,
    sparse: bool = False,
    guard: bool = False,
) -> ArmEnv:
    """Build B environments of a robot and a task.

    Args:
        robot: name of a registered robot, or path of a URDF or xacro file.
        task: name of a registered task.
        num_envs: B.
        device: where they are simulated.
        seed: of starts and goals.
        gripper: a registered gripper in place of the robot's own, or "none"; None keeps its own.
        tcp: link of the robot's file to control; None lets the file decide.
        sparse: pay -1 for every step that is no success and 0 for one that is, in place of the task's dense terms.
        guard: change actions under which the arm would run into something, see `envs.guard`.

    Raises:
        ConfigError: no such robot or task, values in their files that cannot be right, or num_envs below 1.
    """
    chosen = make_task(task)  # first: a mistyped task is answered at once
    return ArmEnv(make_robot(robot, gripper, tcp), chosen, num_envs, device, seed, sparse, guard)


def of_config(options: EnvOptions, num_envs: int = 1, device: str = "cpu", seed: int = 0) -> VecEnv:
    """B environments of what a run is about: a robot and its task, or a Gymnasium environment.

    Args:
        options: what to make.
        num_envs, device, seed: as in `make`.

    Raises:
        ConfigError: what they name cannot be built.
    """
    if options.env is None:
        named = {name: getattr(options, name) for name in ("gripper", "tcp", "sparse", "guard")}
        return make(options.robot, options.task, num_envs, device, seed, **named)
    from envs.from_gymnasium import make_gymnasium  # here: our own robots do without gymnasium

    named = {"vector": options.vector, "time_limit": options.time_limit}
    return make_gymnasium(options.env, num_envs, device, seed, **named)


def make_task(name: str) -> Task:
    """A task with the constants of its file: exactly its fields, all of them numbers and none negative.

    Raises:
        ConfigError: no such task, or a constant that is missing, unknown or not such a number.
    """
    if name not in TASKS:
        raise unknown("task", name, TASKS)
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
