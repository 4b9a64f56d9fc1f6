"""What of a scene can be put elsewhere by hand: the goal, obstacles, a cube."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from envs.collision.obstacles import FAR
from envs.kinematics.rotations import to_quaternion
from envs.tasks.shapes import pose
from envs.tasks.task import Task
from envs.world import Moment, World
from td3_robot.errors import not_none

GOAL, CUBE = "goal", "cube"
_GOAL_SIZE = 0.02  # [m]
_OBSTACLES = {"sphere": "spheres", "box": "boxes"}  # what their names begin with -> of the scene


class Handle(NamedTuple):
    """Where something can be taken hold of."""

    name: str
    T_bh: np.ndarray  # (4, 4) in the base frame
    size: float  # radius of a ball about it [m]
    turns: bool = False  # whether it has an orientation to change


def handles(task: Task, moment: Moment) -> tuple[Handle, ...]:
    """What can be moved around the first arm; a cube that is held cannot."""
    scene = moment.scene
    goal = scene["goal"][0]
    found = [Handle(GOAL, pose(goal[:3], goal[3:]), _GOAL_SIZE, turns=len(goal) == 7)]
    for kind, name in _OBSTACLES.items():
        rows = scene[name][0] if name in scene else ()
        there = ((number, row) for number, row in enumerate(rows) if row[:3].abs().max() < FAR / 2)
        found += [
            Handle(f"{kind} {number}", pose(row[:3]), row[3:6].min().item())
            for number, row in there
        ]
    if task.cube_side and not scene["held"][0]:
        found.append(Handle(CUBE, pose(scene["object"][0]), task.cube_side / 2.0))
    return tuple(found)


def room(task: Task, world: World) -> torch.Tensor:
    """(2, 3) corners of where things can be put: the workspace, with a cube down to the table
    [m].
    """
    low, high = world.workspace.clone()
    low[2] = min(low[2].item(), (task.cube_side or torch.inf) / 2.0)
    return torch.stack((low, high))


def put(task: Task, world: World, moment: Moment, name: str, T_bh: np.ndarray) -> Moment:
    """The moment with one of `handles` elsewhere in its `room`; a cube stays on the table, what is
    none stays too.

    Args:
        moment: of one arm.
        T_bh: (4, 4) pose in the base frame, finite.
    """
    if all(one.name != name for one in handles(task, moment)):
        return moment
    T = torch.as_tensor(T_bh, dtype=torch.float32, device=world.device)
    place, scene = torch.clamp(T[:3, 3], *room(task, world)), moment.scene
    if name == GOAL:
        turned = to_quaternion(T[None, :3, :3])[0] if scene["goal"].shape[1] == 7 else place[:0]
        moment = task.put_goal(world, moment, torch.cat((place, turned))[None])
        changed = moment.scene
    elif name == CUBE:
        place[2] = not_none(task.cube_side) / 2.0
        changed = {"object": place[None]}
    else:
        kind, number = name.split(" ")
        rows = scene[_OBSTACLES[kind]].clone()
        rows[0, int(number), :3] = place
        changed = {_OBSTACLES[kind]: rows}
    scene = {**scene, **changed}
    return task.sense(
        world, replace(moment, scene={**scene, **task.begun(world, moment.state, scene)})
    )
