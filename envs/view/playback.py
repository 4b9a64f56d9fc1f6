"""Episodes of controllers in the browser view and in recordings."""

from collections.abc import Callable, Iterator
from itertools import chain, count, islice, repeat
from pathlib import Path

import torch
from torch import Tensor, nn

from envs.arm_env.arm_env import ArmEnv
from envs.collision import find_contact_points
from envs.tasks.registry import name_of
from envs.tasks.task import Task
from envs.view.camera import CORNER, Camera
from envs.view.live import SharedWeights
from envs.view.recording import record
from envs.view.replay import replay
from envs.view.scene import Arm, Frame, elsewhere
from envs.world import GROUND, Moment, World
from td3_robot.evaluation.rollout import Policy

Played = dict[
    str, tuple[Policy, ArmEnv]
]  # controllers by name, each with an environment of one arm

RECORDED_EPISODES = 3  # of a video


def show_episode(controllers: Played, seed: int, number: int, **opened) -> None:
    """Play one episode in the browser, see `replay`. Arguments as of `together`, then of
    `shown_by`.

    Raises:
        ViewerError: the page cannot be shown on this machine.
    """
    replay(_robot(controllers), next(together(controllers, seed, number)), **opened)


def record_episodes(
    controllers: Played, seed: int, path: Path, number: int | None = None, camera: Camera = CORNER
) -> None:
    """Write a film of the first episodes, or the end of the first one to a .png.

    With a `number`, see `episodes`, it is of this one alone.

    Raises:
        ConfigError, ViewerError: as `recording.record`.
    """
    played = together(controllers, seed, number)
    still = path.suffix.lower() == ".png"
    recorded = RECORDED_EPISODES if number is None else 1
    frames = next(played)[-1:] if still else chain.from_iterable(islice(played, recorded))
    record(_robot(controllers), frames, path, camera=camera)


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
    """Episodes as of `episodes`, each played by all controllers: the first as it is, the others as
    ghosts of it.
    """
    first, *others = controllers
    names = [first, *(f"{name} (see-through)" for name in others)]
    each = [
        episodes(policy, env, seed, number, name)
        for name, (policy, env) in zip(names, controllers.values())
    ]
    for played in zip(*each):
        longest = max(map(len, played))
        still = [frames + frames[-1:] * (longest - len(frames)) for frames in played]
        yield [_joined(frames) for frames in zip(*still)]


def _joined(frames: tuple[Frame, ...]) -> Frame:
    """One picture of what several controllers do at the same time."""
    first, *others = frames
    lines = [
        first.text,
        *(frame.text.split("\n", 1)[1] for frame in others),
    ]  # without the title, which they share
    shapes = (shape for frame in others for shape in elsewhere(frame.shapes, first.shapes))
    arms = tuple(Arm(frame.q, frame.gripper) for frame in others)
    touches = tuple(touch for frame in frames for touch in frame.touches)
    return first._replace(
        text="\n".join(lines), shapes=(*first.shapes, *shapes), ghosts=arms, touches=touches
    )


def episodes(
    policy: Policy, env: ArmEnv, seed: int, number: int | None = None, name: str = "policy"
) -> Iterator[list[Frame]]:
    """Play one episode after another, without end.

    Args:
        env: of one arm.
        seed: of the starts and goals.
        number: what to call every one of them, where `env` plays the same one again and again; None
            counts from 1.
        name: of the policy, to tell.

    Yields:
        The frames of an episode: its start, then one a control step.
    """
    observation = env.reset(seed)
    title = f"{env.robot.name}, {name_of(env.task)}"
    for shown in count(1) if number is None else repeat(number):
        frames, observation = _episode(policy, env, observation, f"{title}, episode {shown}", name)
        yield frames


@torch.no_grad()
def _episode(
    policy: Policy, env: ArmEnv, observation: Tensor, title: str, name: str
) -> tuple[list[Frame], Tensor]:
    """The frames of one episode and the first observation of the next."""
    start = env.task.outcome(env.world, env.now, torch.zeros(1, env.a_dim, device=env.device))
    told = f"{name}: {errors_told(env.task, start.position_error, start.measures)}, on the way"
    frames = [frame(env, env.now, title, told)]
    way = [position(env.now)]
    ended = False
    while not ended:
        step = env.step(policy(observation))
        observation, info = step.observation, step.info
        ended = bool(step.terminated | step.truncated)
        state = state_told(bool(info["success"]), env.arrived, "missed" if ended else "on the way")
        way.append(position(env.arrived))
        told = f"{name}: {errors_told(env.task, info['position_error'], info)}, {state}"
        frames.append(frame(env, env.arrived, title, told)._replace(ways=(tuple(way),)))
    return frames, observation


def position(moment: Moment) -> tuple[float, ...]:
    """Of the first arm's TCP, in the base frame [m]."""
    return tuple(moment.tcp[0].tolist())


def errors_told(task: Task, error: Tensor, measures: dict[str, Tensor]) -> str:
    """The errors (1,) of one arm that its task wants to be zero, in words."""
    also = [one for one in task.measures if one.reduction == "last" and one.of in measures]
    ands = "".join(f" and {one.shown(measures[one.of].item()):.1f} {one.unit}" for one in also)
    return f"error {1000 * error.item():.1f} mm{ands}"


def state_told(success: bool, moment: Moment, otherwise: str) -> str:
    """How one arm stands, in a word or two; one that has touched something can succeed no more."""
    return "contact" if moment.scene.get("touched", False) else "success" if success else otherwise


def touches(world: World, moment: Moment) -> tuple[tuple[float, ...], ...]:
    """Where one arm touches something, in the base frame [m]."""
    if world.collision is None or moment.scene["clearance"].item() >= 0:
        return ()
    points = find_contact_points(
        world.collision, moment.state.q, moment.obstacles, GROUND, moment.state.gripper
    )
    return tuple(map(tuple, points.tolist()))


def frame(env: ArmEnv, moment: Moment, title: str, told: str = "") -> Frame:
    """What a moment of one arm looks like, with what is told of it below a title and the time."""
    state, dt = moment.state, env.task.dt
    text = f"{title}, {moment.steps.item() * dt:.2f} s{told and chr(10)}{told}"
    shapes = tuple(env.task.shapes(env.world, moment))
    return Frame(
        state.q[0].cpu().numpy(),
        state.gripper.item(),
        text,
        dt,
        shapes,
        touches=touches(env.world, moment),
    )
