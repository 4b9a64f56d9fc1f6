"""Episodes of a policy in the browser view and in recordings."""

from collections.abc import Callable, Iterator
from itertools import chain, count, islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from envs.arm_env import ArmEnv
from envs.live_view import SharedWeights
from envs.recording import record
from envs.swift_viewer import Frame, SwiftViewer

Policy = Callable[[Tensor], Tensor]  # observation (1, o_dim) -> action (1, a_dim)

RECORDED_EPISODES = 3  # of a video


def show_episodes(policy: Policy, env: ArmEnv, seed: int) -> None:
    """Play in the browser, in real time, until its tab is closed.

    Raises:
        ViewerError: the page cannot be shown on this machine.
    """
    with SwiftViewer(env.robot) as viewer:
        for frame in chain.from_iterable(episodes(policy, env, seed)):
            if not viewer.show(*frame):
                return


def record_episodes(policy: Policy, env: ArmEnv, seed: int, path: Path) -> None:
    """Write a video of the first episodes to a .gif or .mp4, or the end of the first one to a .png.

    Raises:
        ConfigError, ViewerError: as `recording.record`.
    """
    played = episodes(policy, env, seed)
    still = path.suffix.lower() == ".png"
    frames = next(played)[-1:] if still else chain.from_iterable(islice(played, RECORDED_EPISODES))
    record(env.robot, frames, path)


def live_episodes(
    make_env: Callable[[], ArmEnv], seed: int, policy: nn.Module, weights: SharedWeights
) -> Iterator[Frame]:
    """What a `LiveView` shows: episodes of one arm without end, each with the newest weights."""
    played = episodes(policy, make_env(), seed)
    while True:
        policy.load_state_dict(weights.snapshot())
        yield from next(played)


def episodes(policy: Policy, env: ArmEnv, seed: int) -> Iterator[list[Frame]]:
    """Play one episode after another, without end.

    Args:
        env: of one arm.
        seed: of the starts and goals.

    Yields:
        The frames of an episode: its start, then one a control step.
    """
    observation = env.reset(seed)
    for number in count(1):
        frames, observation = _episode(policy, env, observation, number)
        yield frames


@torch.no_grad()
def _episode(policy: Policy, env: ArmEnv, observation: Tensor, number: int) -> tuple[list[Frame], Tensor]:
    """The frames of one episode and the first observation of the next."""
    T_bt = np.eye(4)
    T_bt[:3, 3] = env.goal[0].cpu()

    def frame(q: Tensor, gripper: Tensor, error: Tensor) -> Frame:
        text = f"episode {number}, error {1000 * error.item():.1f} mm"
        return Frame(q[0].cpu().numpy(), gripper.item(), T_bt, text, env.task.dt)

    frames = [frame(env.state.q, env.state.gripper, torch.linalg.vector_norm(env.goal - env.tcp))]
    ended = False
    while not ended:
        step = env.step(policy(observation))
        observation = step.observation
        frames.append(frame(step.info["q"], step.info["gripper"], step.info["position_error"]))
        ended = bool(step.terminated | step.truncated)
    return frames, observation
