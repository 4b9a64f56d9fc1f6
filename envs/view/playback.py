"""Episodes of controllers in the browser view and in recordings."""

from collections.abc import Callable, Iterator
from itertools import chain, count, islice, repeat
from pathlib import Path

import torch
from torch import Tensor, nn

from envs.arm_env import ArmEnv
from envs.tasks.task import Task
from envs.view.live import SharedWeights
from envs.view.recording import record
from envs.view.replay import replay
from envs.view.scene import GHOST, Arm, Frame
from envs.world import Moment

Policy = Callable[[Tensor], Tensor]  # observation (1, o_dim) -> action (1, a_dim)
Played = dict[str, tuple[Policy, ArmEnv]]  # controllers by name, each with an environment of one arm

RECORDED_EPISODES = 3  # of a video


def show_episode(controllers: Played, seed: int, number: int, **opened) -> None:
    """Play one episode in the browser, see `replay`. Arguments as of `together`, then of `shown_by`.

    Raises:
        ViewerError: the page cannot be shown on this machine.
    """
    replay(_robot(controllers), next(together(controllers, seed, number)), **opened)


def record_episodes(controllers: Played, seed: int, path: Path, number: int | None = None) -> None:
    """Write a video of the first episodes to a .gif or .mp4, or the end of the first one to a .png.

    With a `number`, see `episodes`, a video is of this one alone.

    Raises:
        ConfigError, ViewerError: as `recording.record`.
    """
    played = together(controllers, seed, number)
    still = path.suffix.lower() == ".png"
    recorded = RECORDED_EPISODES if number is None else 1
    frames = next(played)[-1:] if still else chain.from_iterable(islice(played, recorded))
    record(_robot(controllers), frames, path)


def _robot(controllers: Played):
    return next(iter(controllers.values()))[1].robot


def live_episodes(
    make_env: Callable[[], ArmEnv], seed: int, policy: nn.Module, weights: SharedWeights
) -> Iterator[Frame]:
    """What a `LiveView` shows: episodes of one arm without end, each with the newest weights."""
    played = episodes(policy, make_env(), seed)
    while True:
        policy.load_state_dict(weights.snapshot())
        yield from next(played)


def together(controllers: Played, seed: int, number: int | None = None) -> Iterator[list[Frame]]:
    """Episodes as of `episodes`, each played by all controllers: the first as it is, the others as ghosts of it."""
    each = [episodes(policy, env, seed, number) for policy, env in controllers.values()]
    for played in zip(*each):
        longest = max(map(len, played))
        still = [frames + frames[-1:] * (longest - len(frames)) for frames in played]
        yield [_joined(list(controllers), frames) for frames in zip(*still)]


def _joined(names: list[str], frames: tuple[Frame, ...]) -> Frame:
    """One picture of what several controllers do at the same time."""
    first, *others = frames
    if not others:
        return first
    episodes, errors = zip(*(frame.text.split(", ", 1) for frame in frames))
    shown = [names[0], *(f"{name} (see-through)" for name in names[1:])]
    lines = [episodes[0], *(f"{name}: {error}" for name, error in zip(shown, errors))]
    moved = [(shape, own) for frame in others for shape, own in zip(frame.shapes, first.shapes)]
    shapes = [shape.see_through(GHOST) for shape, own in moved if not shape.same(own)]
    arms = tuple(Arm(frame.q, frame.gripper) for frame in others)
    return first._replace(text="\n".join(lines), shapes=(*first.shapes, *shapes), ghosts=arms)


def episodes(policy: Policy, env: ArmEnv, seed: int, number: int | None = None) -> Iterator[list[Frame]]:
    """Play one episode after another, without end.

    Args:
        env: of one arm.
        seed: of the starts and goals.
        number: what to call every one of them, where `env` plays the same one again and again; None counts from 1.

    Yields:
        The frames of an episode: its start, then one a control step.
    """
    observation = env.reset(seed)
    for shown in count(1) if number is None else repeat(number):
        frames, observation = _episode(policy, env, observation, shown)
        yield frames


@torch.no_grad()
def _episode(policy: Policy, env: ArmEnv, observation: Tensor, number: int) -> tuple[list[Frame], Tensor]:
    """The frames of one episode and the first observation of the next."""
    start = env.task.outcome(env.world, env.now, torch.zeros(1, env.a_dim, device=env.device))
    frames = [_frame(env, env.now, number, start.position_error, start.measures)]
    way = [position(env.now)]
    ended = False
    while not ended:
        step = env.step(policy(observation))
        observation = step.observation
        way.append(position(env.arrived))
        frame = _frame(env, env.arrived, number, step.info["position_error"], step.info)
        frames.append(frame._replace(ways=(tuple(way),)))
        ended = bool(step.terminated | step.truncated)
    return frames, observation


def position(moment: Moment) -> tuple[float, ...]:
    """Of the first arm's TCP, in the base frame [m]."""
    return tuple(moment.tcp[0].tolist())


def errors_told(task: Task, error: Tensor, measures: dict[str, Tensor]) -> str:
    """The errors (1,) of one arm that its task wants to be zero, in words."""
    also = [one for one in task.measures if one.reduction == "last" and one.of in measures]
    ands = "".join(f" and {one.shown(measures[one.of].item()):.1f} {one.unit}" for one in also)
    return f"error {1000 * error.item():.1f} mm{ands}"


def _frame(env: ArmEnv, moment: Moment, number: int, error: Tensor, measures: dict[str, Tensor]) -> Frame:
    """What a moment looks like, with the errors that its task wants to be zero."""
    text = f"episode {number}, {errors_told(env.task, error, measures)}"
    state, shapes = moment.state, tuple(env.task.shapes(env.world, moment))
    return Frame(state.q[0].cpu().numpy(), state.gripper.item(), text=text, dt=env.task.dt, shapes=shapes)
