"""A robot in one JSON object, for `td3_robot.deploy`, which imports none of this half."""

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from envs.collision import CollisionModel, compile_collision
from envs.robots import Robot
from td3_robot.errors import ConfigError

HAND = (
    "stroke",
    "gap",
    "tip",
    "pad",
    "pad_height",
    "half",
)  # what a policy that grasps is told of its hand
STEPS = 20  # random ones before a test vector, so that it is no start
DIGITS = 9  # significant ones: all that the simulator's 32-bit numbers have


def describe(robot: Robot, acceleration: float | None = None) -> dict:
    """What `td3_robot.deploy.robot.description.Robot.of` reads; the capsules are null where the
    robot has none.

    Args:
        acceleration: the limit of every joint of a robot whose file has none [rad/s2 or m/s2].

    Raises:
        ConfigError: no acceleration limits are known, without which nothing can brake; or one is
            given to a robot that has its own.
    """
    if robot.qddlim is not None and acceleration is not None:
        raise ConfigError(
            f"robot {robot.name!r} has acceleration limits of its own; --acceleration is for one without"
        )
    if robot.qddlim is None and acceleration is None:
        wanted = "say one that its joints can hold with --acceleration, in rad/s2"
        raise ConfigError(
            f"robot {robot.name!r} has no acceleration limits, and a real arm has to brake: {wanted}"
        )
    hand = robot.gripper
    try:
        capsules = _capsules(compile_collision(robot))
    except ConfigError:  # no file of capsules yet
        capsules = None
    return {
        "name": robot.name,
        "joints": [_joint_name(link) for link in robot.rtb.links if link.isjoint][: robot.n],
        "home": robot.home.tolist(),
        "limits": {
            "position": robot.qlim.tolist(),
            "velocity": robot.qdlim.tolist(),
            "acceleration": [acceleration] * robot.n
            if robot.qddlim is None
            else robot.qddlim.tolist(),
            "jerk": None if robot.qdddlim is None else robot.qdddlim.tolist(),
        },
        "chain": {
            "constants": _numbers(robot.chain.constants),
            "prismatic": list(robot.chain.prismatic),
        },
        "gripper": {
            "drivers": hand.mimic[list(hand.drivers)].tolist() if hand else [],
            "stroke": [hand.closed, hand.opened] if hand else [0.0, 0.0],
            "speed": hand.speed if hand else 0.0,
        },
        "capsules": capsules,
    }


def _capsules(model: CollisionModel) -> dict:
    bodies = [body for body, local in model.points for _ in range(len(local) // 2)]
    ends = torch.cat([local[:, :3] for _, local in model.points]).view(-1, 2, 3)
    whole = {key: getattr(model, key).tolist() for key in ("first", "second", "over_ground")}
    return {
        "bodies": bodies,
        "ends": _numbers(ends),
        "radius": _numbers(model.radius[:, 0]),
        **whole,
    }


def _numbers(value: torch.Tensor) -> list:
    """As nested lists, rounded to the digits that there are."""
    array = value.double().numpy()
    rounded = [float(f"{x:.{DIGITS}g}") + 0.0 for x in array.ravel()]
    return np.array(rounded).reshape(array.shape).tolist()


def _joint_name(link) -> str:
    """As in the URDF, where the model comes from one; roboticstoolbox keeps it in a private
    attribute.
    """
    return getattr(link, "_joint_name", None) or link.name


def describe_task(name: str, env) -> dict:
    """What a policy of this task sees, and how often it acts.

    Args:
        name: of the task.
        env: one that does it, an `ArmEnv`.
    """
    constants, hand = dataclasses.asdict(env.task), env.model.hand
    return {
        "task": {"name": name, "constants": constants},
        "hand": hand
        and {"axes": hand.axes.tolist()} | {part: getattr(hand, part) for part in HAND},
        "links": list(env.world.capsules.capsule_links) if env.task.needs_collision else None,
        "rate": 1.0 / env.task.dt,
        "observation": {
            "columns": [[column.name, column.width] for column in env.layout.columns],
            "size": env.o_dim,
        },
        "units": "m, rad, s; poses and goals in the base frame of the robot, quaternions wxyz",
        "action": {
            "joints": "velocities in rad/s (m/s of joints that slide), in the robot's order of joints",
            "gripper": "then its opening, 0 shut to 1 open" if env.a_dim > env.robot.n else None,
        },
    }


def vectors(env, scene: Iterable[str], act: Callable[[Tensor], Tensor]) -> list[dict]:
    """Moments of random episodes, what a policy sees of them and what it commands.

    Args:
        env: an `ArmEnv`; a vector for each of its arms.
        scene: the names of what a policy is told of the scene.
        act: observations (B, o_dim) -> commands, velocities (B, n) first.
    """
    generator = torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        seen = env.step(
            torch.rand(env.num_envs, env.a_dim, generator=generator) * 2.0 - 1.0
        ).observation
    state = env.state
    parts = {"q": state.q, "qd": state.qd, "gripper": state.gripper, "observation": seen}
    parts["qd_commanded"] = act(seen)[:, : env.robot.n]
    rows = [
        {name: value[row].tolist() for name, value in parts.items()} for row in range(env.num_envs)
    ]
    told = [{name: env.scene[name][row].tolist() for name in scene} for row in range(env.num_envs)]
    return [row | {"scene": around} for row, around in zip(rows, told)]
