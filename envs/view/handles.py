"""Handles: the goal, obstacles and cubes that can be dragged in the view."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from envs.collision.obstacles import FAR
from envs.kinematics import fkine
from envs.kinematics.inverse import solve_pose, spread_joints
from envs.kinematics.pointing_down import solve_pointing_down
from envs.kinematics.rotations import to_matrix, to_quaternion
from envs.tasks.shapes import PLACES, make_pose
from envs.tasks.task import Task
from envs.world import Moment, World
from td3_robot.errors import not_none

GOAL = "goal"
CUBE = "cube"
_GOAL_SIZE = 0.02  # [m]
# Of inverse kinematics besides home; of 1,000 poses of random joint positions of each shipped
# arm none was missed.
_STARTS = 63
# prefix of the handle's name -> name in the scene
_OBSTACLES = {"sphere": "spheres", "box": "boxes"}


class Handle(NamedTuple):
    """A point by which something in the scene can be dragged."""

    name: str
    T_bh: np.ndarray  # (4, 4) in the base frame
    size: float  # radius of the handle's ball [m]
    turns: bool = False  # whether its orientation can be changed


def list_handles(task: Task, moment: Moment) -> tuple[Handle, ...]:
    """List what can be moved around the first arm; a grasped cube cannot."""
    scene = moment.scene
    goal = scene["goal"][0]
    found = []
    if task.goal_is_place and len(goal) in PLACES:
        turns = len(goal) == 7
        found = [Handle(GOAL, make_pose(goal[:3], goal[3:]), _GOAL_SIZE, turns)]
    for kind, name in _OBSTACLES.items():
        rows = scene[name][0] if name in scene else ()
        present = [
            (number, row) for number, row in enumerate(rows) if row[:3].abs().max() < FAR / 2
        ]
        found += [
            Handle(f"{kind} {number}", make_pose(row[:3]), row[3:6].min().item())
            for number, row in present
        ]
    if task.cube_side and not scene["held"][0]:
        found.append(Handle(CUBE, make_pose(scene["object"][0]), task.cube_side / 2.0))
    return tuple(found)


def get_placement_bounds(task: Task, world: World) -> torch.Tensor:
    """Return the corners (2, 3) of where things can be put: the workspace, down to the table for
    cubes [m].
    """
    low, high = world.workspace.clone()
    low[2] = min(low[2].item(), (task.cube_side or torch.inf) / 2.0)
    return torch.stack((low, high))


def is_in_reach(task: Task, world: World, goal: Tensor) -> bool:
    """Tell if inverse kinematics finds joint positions that meet a goal (g,), whatever they touch.

    A cube is fetched and brought there by a hand that points down, as by the scripted experts.
    """
    model = world.model
    begin = torch.cat((world.home[None], spread_joints(model.qlim, _STARTS)))
    each = goal.expand(len(begin), -1)
    arm = (model.chain, model.qlim)
    if task.cube_side:
        found = solve_pointing_down(*arm, not_none(model.hand).axes[:, 2], begin, each[:, :3])[1]
    else:
        R = to_matrix(each[:, 3:]) if len(goal) == 7 else None
        q, found, _ = solve_pose(*arm, begin, each[:, :3], R)
        T_be = fkine(model.chain, q)
        pose = torch.cat((T_be[:, :3, 3], to_quaternion(T_be[:, :3, :3])), 1)
        found |= task.is_goal_met(pose[:, : len(goal)], each)  # tolerances may be wider
    return bool(found.any())


def put(task: Task, world: World, moment: Moment, name: str, T_bh: np.ndarray) -> Moment:
    """Return the moment with the handle `name` moved, within the placement bounds.

    A cube stays on the table. A name without a handle changes nothing.

    Args:
        moment: of one arm.
        T_bh: (4, 4) pose in the base frame, finite.
    """
    if all(handle.name != name for handle in list_handles(task, moment)):
        return moment
    T = torch.as_tensor(T_bh, dtype=torch.float32, device=world.device)
    place = torch.clamp(T[:3, 3], *get_placement_bounds(task, world))
    scene = moment.scene
    if name == GOAL:
        turned = to_quaternion(T[None, :3, :3])[0] if scene["goal"].shape[1] == 7 else place[:0]
        moment = task.move_goal(world, moment, torch.cat((place, turned))[None])
        changed = moment.scene
    elif name == CUBE:
        place[2] = not_none(task.cube_side) / 2.0
        changed = {"object": place[None]}
    else:
        kind, number = name.split(" ")
        rows = scene[_OBSTACLES[kind]].clone()
        displacement = place - rows[0, int(number), :3]
        rows[0, int(number), :3] = place
        changed = {_OBSTACLES[kind]: rows}
        if "strokes" in scene:  # of spheres, then boxes: it goes on along a line beside its own
            strokes = scene["strokes"].clone()
            first = scene["spheres"].shape[1] if kind == "box" else 0
            strokes[0, first + int(number)] += displacement
            changed["strokes"] = strokes
    scene = {**scene, **changed}
    return task.sense(
        world, replace(moment, scene={**scene, **task.plan_episode(world, moment.state, scene)})
    )
