"""A robot in one JSON object, for `td3_robot.deploy`, which imports none of this half."""

import dataclasses

import numpy as np
import torch

from envs.collision import CollisionModel, compile_collision
from envs.robots import Robot
from td3_robot.errors import ConfigError

DIGITS = 9  # significant ones: all that the simulator's 32-bit numbers have


def describe(robot: Robot) -> dict:
    """What `td3_robot.deploy.description.Robot.of` reads; the capsules are null where the robot has none.

    Raises:
        ConfigError: the robot has no acceleration limits, without which nothing can brake.
    """
    if robot.qddlim is None:
        raise ConfigError(f"robot {robot.name!r} has no acceleration limits (qddlim), which a real arm needs")
    hand = robot._gripper
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
            "acceleration": robot.qddlim.tolist(),
            "jerk": None if robot.qdddlim is None else robot.qdddlim.tolist(),
        },
        "chain": {"constants": _numbers(robot.chain.constants), "prismatic": list(robot.chain.prismatic)},
        "gripper": {
            "drivers": hand.mimic[list(hand.drivers)].tolist() if hand else [],
            "stroke": [hand.closed, hand.opened] if hand else [0.0, 0.0],
        },
        "capsules": capsules,
    }


def _capsules(model: CollisionModel) -> dict:
    bodies = [body for body, local in model.points for _ in range(len(local) // 2)]
    ends = torch.cat([local[:, :3] for _, local in model.points]).view(-1, 2, 3)
    whole = {key: getattr(model, key).tolist() for key in ("first", "second", "over_ground")}
    return {"bodies": bodies, "ends": _numbers(ends), "radius": _numbers(model.radius[:, 0]), **whole}


def _numbers(value: torch.Tensor) -> list:
    """As nested lists, rounded to the digits that there are."""
    array = value.double().numpy()
    rounded = [float(f"{x:.{DIGITS}g}") + 0.0 for x in array.ravel()]
    return np.array(rounded).reshape(array.shape).tolist()


def _joint_name(link) -> str:
    """As in the URDF, where the model comes from one; roboticstoolbox keeps it in a private attribute."""
    return getattr(link, "_joint_name", None) or link.name


def describe_task(name: str, env) -> dict:
    """What a policy of this task sees, and how often it acts.

    Args:
        name: of the task.
        env: one that does it, an `ArmEnv`.
    """
    layout, constants = env.layout, dataclasses.asdict(env.task)
    return {
        "task": {"name": name, "constants": constants},
        "rate": 1.0 / env.task.dt,
        "observation": {
            "columns": [[part, layout[part].stop - layout[part].start] for part in layout],
            "size": env.o_dim,
        },
        "units": "m, rad, s; poses and goals in the base frame of the robot, quaternions wxyz",
        "action": {
            "joints": "velocities in rad/s (m/s of joints that slide), in the robot's order of joints",
            "gripper": "then its opening, 0 shut to 1 open" if env.a_dim > env.robot.n else None,
        },
    }
