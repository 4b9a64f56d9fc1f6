"""A robot in one JSON object, for `td3_robot.deploy`, which imports none of this half."""

import dataclasses
from collections.abc import Iterable

import numpy as np
import torch

from envs.arm_env.arm_env import ArmEnv
from envs.collision import CollisionModel, compile_collision
from envs.export.controller import ARM, SCENE, Controller, list_inputs
from envs.robots import Robot
from envs.robots.links import get_joint_name
from td3_robot.errors import ConfigError
from td3_robot.vec_env import draw_uniform

OUTPUTS = {
    "command": "joint velocities to command, rad/s (m/s of joints that slide)",
    "opening": "opening of the gripper to command, 0 is shut, 1 is open",
    "observation": "the policy's observation, columns as `observation` lists them",
}
STEPS = 20  # random ones before a test vector, so that it is no start
DIGITS = 9  # significant ones: all that the simulator's 32-bit numbers have


def describe(robot: Robot, acceleration: float | None = None) -> dict:
    """Return the description of a robot that `td3_robot.deploy` reads.

    Args:
        acceleration: the limit of every joint of a robot whose file has none [rad/s2 or m/s2].

    Raises:
        ConfigError: no acceleration limits are known, without which nothing can brake; or one is
            given to a robot that has its own.
    """
    if robot.qddlim is not None and acceleration is not None:
        raise ConfigError(
            f"robot {robot.name!r} has acceleration limits of its own; "
            "--acceleration is for one without"
        )
    if robot.qddlim is None and acceleration is None:
        wanted = "say one that its joints can hold with --acceleration, in rad/s2"
        raise ConfigError(
            f"robot {robot.name!r} has no acceleration limits, "
            f"and a real arm has to brake: {wanted}"
        )
    hand = robot.gripper
    try:
        capsules = _describe_capsules(compile_collision(robot))
    except ConfigError:  # no file of capsules yet
        capsules = None
    return {
        "name": robot.name,
        "joints": [get_joint_name(link) for link in robot.body.arm if link.isjoint][: robot.n],
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
            "constants": _round_to_list(robot.chain.constants),
            "prismatic": list(robot.chain.prismatic),
        },
        "gripper": {
            "drivers": hand.mimic[list(hand.drivers)].tolist() if hand else [],
            "stroke": [hand.closed, hand.opened] if hand else [0.0, 0.0],
            "speed": hand.speed if hand else 0.0,
        },
        "capsules": capsules,
    }


def _describe_capsules(model: CollisionModel) -> dict:
    bodies = [body for body, local in model.points for _ in range(len(local) // 2)]
    ends = torch.cat([local[:, :3] for _, local in model.points]).view(-1, 2, 3)
    whole = {key: getattr(model, key).tolist() for key in ("first", "second", "over_ground")}
    followers = _list_followers(model)
    return {
        "bodies": bodies,
        "ends": _round_to_list(ends),
        "radius": _round_to_list(model.radius[:, 0]),
        **whole,
    } | ({"followers": followers} if followers else {})


def _list_followers(model: CollisionModel) -> list[dict]:
    """List the links that follow joints, each as one mapping."""
    followers = model.followers
    if followers is None:
        return []
    keys = ("parent", "joint", "multiplier", "offset", "prismatic")
    values = (
        followers.parents,
        followers.joints,
        followers.multipliers,
        followers.offsets,
        followers.prismatic,
    )
    return [
        dict(zip(keys, row)) | {"constant": _round_to_list(constant)}
        for *row, constant in zip(*values, followers.constants)
    ]


def _round_to_list(value: torch.Tensor) -> list:
    """Round to the digits that float32 has, and return nested lists."""
    array = value.double().numpy()
    rounded = [float(f"{x:.{DIGITS}g}") + 0.0 for x in array.ravel()]
    return np.array(rounded).reshape(array.shape).tolist()


def describe_task(name: str, env: ArmEnv) -> dict:
    """Return what a policy of a task is for, observes and commands, and how often it acts.

    Args:
        name: of the task.
        env: an environment of the task.
    """
    return {
        "task": {
            "name": name,
            "constants": dataclasses.asdict(env.task),
            "goal_is_place": env.task.goal_is_place,
        },
        "rate": 1.0 / env.task.dt,
        "observation": {
            "columns": [[column.name, column.width] for column in env.layout.columns],
            "size": env.o_dim,
        },
        "moves_gripper": env.task.moves_gripper,
    }


def describe_graph(inputs: Iterable[str], outputs: Iterable[str]) -> dict:
    """Return the meaning, unit and frame of the inputs and outputs of a controller's graph."""
    known = ARM | SCENE
    return {
        "inputs": {name: known.get(name, "as in the scene of the task") for name in inputs},
        "outputs": {name: OUTPUTS[name] for name in outputs},
    }


def sample_vectors(env: ArmEnv, controller: Controller, inputs: Iterable[str]) -> list[dict]:
    """Return moments of random episodes, one an arm, with what the policy observes and commands.

    Args:
        env: its arms are moved.
        inputs: of the controller's graph.
    """
    generator = torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        action = draw_uniform(generator, env.num_envs, env.a_dim) * 2.0 - 1.0
        observation = env.step(action).observation
    action = controller.policy(observation).clamp(-1.0, 1.0)
    command = env.task.make_command(env.world, env.moment, action)
    qd_commanded = command.joints.clamp(-1.0, 1.0) * env.model.qdlim
    vectors = []
    for row in range(env.num_envs):
        given = {name: value.tolist() for name, value in list_inputs(env, row).items()}
        scene = {name: given[name] for name in inputs if name not in ARM}
        vectors.append({name: given[name] for name in ("q", "qd")} | {"scene": scene})
        vectors[-1] |= {"gripper": given["gripper"][0], "observation": observation[row].tolist()}
        vectors[-1] |= {"qd_commanded": qd_commanded[row].tolist()}
        if command.grip is not None:
            vectors[-1] |= {"opening": command.grip[row].item()}
    return vectors
