"""Grid of arms, each with its own goal."""

import math
from collections.abc import Iterator
from itertools import count

import numpy as np
import torch

from envs.arm_env.arm_env import ArmEnv
from envs.tasks.registry import find_task_name
from envs.tasks.shapes import Shape
from envs.view.playback import Policy
from envs.view.scene import Arm, Frame
from envs.view.swift import open_viewer

_SPACING = 1.5  # of two bases, over the workspace's longest side


def show_grid(policy: Policy, env: ArmEnv, seed: int, name: str, **opened) -> None:
    """Show all arms of an environment in the browser, episode after episode, until the page is
    closed.

    Args:
        policy, env, seed, name: as of `play_grid`.
        opened: see `open_viewer`.

    Raises:
        ViewerError: the page cannot be shown.
    """
    with open_viewer(env.robot, wide=compute_width(env), **opened) as viewer:
        for frame in play_grid(policy, env, seed, name):
            if not viewer.show(*frame):
                return


def compute_width(env: ArmEnv) -> float:
    """Compute the greatest distance of a base from the middle one along a row [m]."""
    return float(np.abs(_compute_base_positions(env)).max())


@torch.no_grad()
def play_grid(policy: Policy, env: ArmEnv, seed: int, name: str = "policy") -> Iterator[Frame]:
    """Play all arms of an environment without end.

    Args:
        policy: (B, o_dim) -> (B, a_dim).
        env: of B arms.
        seed: of starts and goals.
        name: of the policy, for the label.
    """
    observation = env.reset(seed)
    places = _compute_base_positions(env)
    done = met = succeeding = 0
    title = f"{env.robot.name}, {find_task_name(env.task)}, {env.num_envs} arms"
    for steps in count():
        ends = f"; {met} of {done} episodes did" if done else ""
        state = f"{name}: {succeeding} of {env.num_envs} succeed now{ends}"
        yield _make_frame(env, places, f"{title}, {steps * env.task.dt:.2f} s\n{state}")
        step = env.step(policy(observation))
        observation = step.observation
        ended = step.terminated | step.truncated
        succeeding = int(step.info["success"].sum())
        done += int(ended.sum())
        met += int((ended & step.info["success"]).sum())


def _compute_base_positions(env: ArmEnv) -> np.ndarray:
    """Compute the positions (B, 3) of the bases, the first one's in the middle [m]."""
    side = math.ceil(math.sqrt(env.num_envs))
    spacing = _SPACING * float(np.ptp(env.robot.workspace, axis=0)[:2].max())
    rows, columns = np.divmod(np.arange(side * side), side)
    places = spacing * np.stack((rows - side // 2, columns - side // 2, np.zeros(side * side)), 1)
    return places[np.argsort(np.abs(places).sum(1), kind="stable")][: env.num_envs]


def _make_frame(env: ArmEnv, places: np.ndarray, text: str) -> Frame:
    """Make the frame of all arms in their current state."""
    q = env.state.q.cpu().numpy()
    gripper = env.state.gripper.tolist()
    shapes = []
    arms = []
    for row, place in enumerate(places):
        one = env.now.each(lambda x, row=row: x[row : row + 1])
        shapes += [_move_shape(shape, place) for shape in env.task.make_shapes(env.world, one)]
        arms.append(Arm(q[row], gripper[row], tuple(place.tolist()), solid=True))
    return Frame(q[0], gripper[0], text, env.task.dt, tuple(shapes), tuple(arms[1:]))


def _move_shape(shape: Shape, place: np.ndarray) -> Shape:
    T = shape.T_bs.copy()
    T[:3, 3] += place
    return shape._replace(T_bs=T)
