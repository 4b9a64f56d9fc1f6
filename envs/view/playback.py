"""Playback of controllers' episodes in the browser view and in recordings."""

from collections.abc import Callable, Iterator
from itertools import chain, count, islice
from pathlib import Path

import torch
from torch import Tensor, nn

from envs.arm_env.arm_env import ArmEnv
from envs.collision import find_contact_points
from envs.tasks.registry import find_task_name
from envs.tasks.task import Task
from envs.view.camera import CORNER, Camera
from envs.view.live import SharedWeights
from envs.view.recording import record
from envs.view.replay import replay
from envs.view.scene import Arm, Frame, find_differing_shapes
from envs.world import GROUND, Moment, World
from td3_robot.evaluation.rollout import Policy
from td3_robot.utils.progress import stage
from td3_robot.utils.seeding import fork_global_generators

# by name: a policy, and its environment: of one arm, or of the round with a chosen episode
Controllers = dict[str, tuple[Policy, ArmEnv]]

RECORDED_EPISODES = 3  # of a video


def show_episode(controllers: Controllers, seed: int, number: int, row: int, **opened) -> None:
    """Play one episode in the browser, see `replay`. Arguments as of `play_together`, then of
    `open_viewer`.

    Raises:
        ViewerError: the page cannot be shown on this machine.
    """
    replay(_get_robot(controllers), next(play_together(controllers, seed, number, row)), **opened)


def record_episodes(
    controllers: Controllers,
    seed: int,
    path: Path,
    number: int | None = None,
    row: int = 0,
    camera: Camera = CORNER,
) -> None:
    """Record a video of the first episodes, or the end of the first one to a .png.

    With a `number`, see `play_together`, record this one alone.

    Raises:
        ConfigError, ViewerError: as `recording.record`.
    """
    played = play_together(controllers, seed, number, row)
    is_picture = path.suffix.lower() == ".png"
    recorded = RECORDED_EPISODES if number is None else 1
    frames = next(played)[-1:] if is_picture else chain.from_iterable(islice(played, recorded))
    horizon = next(iter(controllers.values()))[1].horizon
    count = 1 if is_picture else recorded * (horizon + 1)
    record(_get_robot(controllers), frames, path, camera=camera, count=count)


def _get_robot(controllers: Controllers):
    return next(iter(controllers.values()))[1].robot


def play_live(
    make_env: Callable[[], ArmEnv], seed: int, policy: nn.Module, weights: SharedWeights
) -> Iterator[Frame]:
    """Play episodes of one arm for a `LiveView`, each with the newest weights."""
    played = play_episodes(policy, make_env(), seed)
    while True:
        policy.load_state_dict(weights.copy_state())
        yield from next(played)


def play_together(
    controllers: Controllers, seed: int, number: int | None = None, row: int = 0
) -> Iterator[list[Frame]]:
    """Play episodes with all controllers: the first one's arm is solid, the others are ghosts.

    Args:
        seed: of the starts and goals.
        number, row: of the only episode, see `play_chosen`; None plays one after another.
    """
    first, *others = controllers
    names = [first, *(f"{name} (see-through)" for name in others)]
    each = [
        play_episodes(policy, env, seed, name)
        if number is None
        else iter([play_chosen(policy, env, seed, number, row, name)])
        for name, (policy, env) in zip(names, controllers.values())
    ]
    for played in zip(*each):
        longest = max(map(len, played))
        still = [frames + frames[-1:] * (longest - len(frames)) for frames in played]
        yield [_merge_frames(frames) for frames in zip(*still)]


def _merge_frames(frames: tuple[Frame, ...]) -> Frame:
    """Merge the frames of several controllers at the same time into one."""
    first, *others = frames
    # the others' without the title, which they share
    lines = [first.text, *(frame.text.split("\n", 1)[1] for frame in others)]
    shapes = (
        shape for frame in others for shape in find_differing_shapes(frame.shapes, first.shapes)
    )
    arms = tuple(Arm(frame.q, frame.gripper) for frame in others)
    contacts = tuple(contact for frame in frames for contact in frame.contacts)
    return first._replace(
        text="\n".join(lines), shapes=(*first.shapes, *shapes), ghosts=arms, contacts=contacts
    )


def play_episodes(
    policy: Policy, env: ArmEnv, seed: int, name: str = "policy"
) -> Iterator[list[Frame]]:
    """Play one episode after another, without end.

    Args:
        env: of one arm.
        seed: of the starts and goals.
        name: of the policy, for the label.

    Yields:
        The frames of an episode: its start, then one a control step.
    """
    observation = env.reset(seed)
    for number in count(1):
        frames, observation = _play_episode(policy, env, observation, number, 0, name)
        yield frames


def play_chosen(
    policy: Policy, env: ArmEnv, seed: int, number: int, row: int, name: str
) -> list[Frame]:
    """Play one episode among the others of its round, as an evaluation does; return its frames.

    Args:
        env: of all arms of the round.
        seed: of the round.
        number: of the episode, for the label.
        row: of the arm that plays it.
        name: of the policy, for the label.
    """
    with stage(f"episode {number}, {name}"), fork_global_generators(seed, "episodes"):
        frames, _ = _play_episode(policy, env, env.reset(seed), number, row, name)
    return frames


@torch.no_grad()
def _play_episode(
    policy: Policy, env: ArmEnv, observation: Tensor, number: int, row: int, name: str
) -> tuple[list[Frame], Tensor]:
    """Play an episode of the arm `row`; return its frames and the first observation of the next."""

    def take(values: Tensor) -> Tensor:
        return values[row : row + 1]

    title = f"{env.robot.name}, {find_task_name(env.task)}, episode {number}"
    now = env.now.each(take)
    start = env.task.compute_outcome(
        env.world, now, torch.zeros(1, env.a_dim, device=env.device, dtype=torch.float32)
    )
    errors = describe_errors(env.task, start.position_error, start.measures)
    frames = [make_frame(env, now, title, f"{name}: {errors}, on the way")]
    path = [get_tcp_position(now)]
    ended = False
    while not ended:
        step = env.step(policy(observation))
        observation = step.observation
        info = {key: take(values) for key, values in step.info.items()}
        ended = bool(take(step.terminated | step.truncated))
        now = env.arrived.each(take)
        state = describe_state(bool(info["success"]), now, "missed" if ended else "on the way")
        path.append(get_tcp_position(now))
        errors = describe_errors(env.task, info["position_error"], info)
        frame = make_frame(env, now, title, f"{name}: {errors}, {state}")
        frames.append(frame._replace(paths=(tuple(path),)))
    return frames, observation


def get_tcp_position(moment: Moment) -> tuple[float, ...]:
    """Return the position of the first arm's TCP in the base frame [m]."""
    return tuple(moment.tcp[0].tolist())


def describe_errors(task: Task, error: Tensor, measures: dict[str, Tensor]) -> str:
    """Describe the errors (1,) of one arm that its task drives to zero."""
    also = [one for one in task.measures if one.reduction == "last" and one.of in measures]
    ands = "".join(
        f" and {one.to_table_unit(measures[one.of].item()):.1f} {one.unit}" for one in also
    )
    return f"error {1000 * error.item():.1f} mm{ands}"


def describe_state(success: bool, moment: Moment, otherwise: str) -> str:
    """Describe the state of one arm; after contact it cannot succeed any more."""
    if moment.scene.get("touched", False):
        return "contact"
    return "success" if success else otherwise


def find_contacts(world: World, moment: Moment) -> tuple[tuple[float, ...], ...]:
    """Find the positions where one arm touches something, base frame [m]."""
    if world.collision is None or moment.scene["clearance"].item() >= 0:
        return ()
    points = find_contact_points(
        world.collision, moment.state.q, moment.obstacles, GROUND, moment.state.gripper
    )
    return tuple(map(tuple, points.tolist()))


def make_frame(env: ArmEnv, moment: Moment, title: str, text: str = "") -> Frame:
    """Make the frame of a moment of one arm, with a text below a title and the time."""
    state = moment.state
    dt = env.task.dt
    label = f"{title}, {moment.steps.item() * dt:.2f} s{text and chr(10)}{text}"
    shapes = tuple(env.task.make_shapes(env.world, moment))
    return Frame(
        state.q[0].cpu().numpy(),
        state.gripper.item(),
        label,
        dt,
        shapes,
        contacts=find_contacts(env.world, moment),
    )
