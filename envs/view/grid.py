"""Several arms beside each other, each with a goal of its own."""

import math
from collections.abc import Iterator
from itertools import count

import numpy as np
import torch

from envs.arm_env.arm_env import ArmEnv
from envs.tasks.registry import name_of
from envs.tasks.shapes import Shape
from envs.view.playback import Policy
from envs.view.scene import Arm, Frame
from envs.view.swift import shown_by

_APART = 1.5  # of two bases, over the workspace's longest side


def show_grid(policy: Policy, env: ArmEnv, seed: int, name: str, **opened) -> None:
    """Show all arms of an environment in the browser, episode after episode, until the page is
    closed.

    Args:
        policy, env, seed, name: as of `grid_episodes`.
        opened: see `shown_by`.

    Raises:
        ViewerError: the page cannot be shown.
    """
    with shown_by(env.robot, wide=width(env), **opened) as viewer:
        for frame in grid_episodes(policy, env, seed, name):
            if not viewer.show(*frame):
                return


def width(env: ArmEnv) -> float:
    """How far from the middle one the arms of a row stand [m]."""
    return float(np.abs(_places(env)).max())


@torch.no_grad()
def grid_episodes(policy: Policy, env: ArmEnv, seed: int, name: str = "policy") -> Iterator[Frame]:
    """What the arms do, without end.

    Args:
        policy: (B, o_dim) -> (B, a_dim).
        env: of B arms.
        seed: of starts and goals.
        name: of the policy, to tell.
    """
    observation, places = env.reset(seed), _places(env)
    done = met = there = 0
    title = f"{env.robot.name}, {name_of(env.task)}, {env.num_envs} arms"
    for steps in count():
        ends = f"; {met} of {done} episodes" if done else ""
        told = f"{name}: {there} at a success{ends}"
        yield _frame(env, places, f"{title}, {steps * env.task.dt:.2f} s\n{told}")
        step = env.step(policy(observation))
        observation, ended = step.observation, step.terminated | step.truncated
        there = int(step.info["success"].sum())
        done += int(ended.sum())
        met += int((ended & step.info["success"]).sum())


def _places(env: ArmEnv) -> np.ndarray:
    """(B, 3) where the bases stand, the first in the middle [m]."""
    side = math.ceil(math.sqrt(env.num_envs))
    apart = _APART * float(np.ptp(env.robot.workspace, axis=0)[:2].max())
    rows, columns = np.divmod(np.arange(side * side), side)
    places = apart * np.stack((rows - side // 2, columns - side // 2, np.zeros(side * side)), 1)
    return places[np.argsort(np.abs(places).sum(1), kind="stable")][: env.num_envs]


def _frame(env: ArmEnv, places: np.ndarray, text: str) -> Frame:
    """All arms as they are."""
    q, gripper, shapes, arms = env.state.q.cpu().numpy(), env.state.gripper.tolist(), [], []
    for row, place in enumerate(places):
        one = env.now.each(lambda x, row=row: x[row : row + 1])
        shapes += [_moved(shape, place) for shape in env.task.shapes(env.world, one)]
        arms.append(Arm(q[row], gripper[row], tuple(place.tolist()), solid=True))
    return Frame(q[0], gripper[0], text, env.task.dt, tuple(shapes), tuple(arms[1:]))


def _moved(shape: Shape, place: np.ndarray) -> Shape:
    T = shape.T_bs.copy()
    T[:3, 3] += place
    return shape._replace(T_bs=T)
