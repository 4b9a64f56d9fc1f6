"""Compilation of a robot and its files of capsules into a CollisionModel."""

from collections.abc import Iterator
from dataclasses import is_dataclass, replace

import numpy as np
import torch

from envs.collision.capsules import CollisionModel, Followers
from envs.collision.files import (
    FINGERS,
    Shapes,
    find_capsule_file,
    find_gripper_file,
    format_path,
    has_capsules,
    read_capsules,
)
from envs.collision.fingers import compile_fingers
from envs.collision.followers import compile_followers
from envs.collision.links import attach
from envs.collision.pairs import choose_pairs
from envs.robots import Robot
from envs.robots.followers import list_followers
from td3_robot.errors import ConfigError

# what `choose_pairs` found in this process, by all that it depends on
_PAIRS_CACHE: dict[object, CollisionModel] = {}


def compile_collision(robot: Robot, device: torch.device | str = "cpu") -> CollisionModel:
    """Compile the capsules of a robot and its gripper, and find the pairs that need a check.

    It takes about a second, and a tenth of one if this process has done it before.
    A gripper is one link that encloses its fingers at every opening, so that distances depend on
    the arm alone; `at_opening` of the model has the fingers by themselves.

    Raises:
        ConfigError: the robot or its gripper has no capsules yet, or they do not fit its model.
    """
    shapes = read_capsules(robot.name, find_capsule_file(robot), robot)
    model = _find_pairs(robot, place_capsules(robot, shapes))
    jointed = place_capsules(robot, shapes, at_opening=True)
    if jointed.fingers is not None:
        model = replace(model, at_opening=_find_pairs(robot, jointed))
    return model.to(device)


def _find_pairs(robot: Robot, model: CollisionModel) -> CollisionModel:
    key = _freeze((model, robot.qlim, robot.home))
    if key not in _PAIRS_CACHE:
        _PAIRS_CACHE[key] = choose_pairs(model, robot.qlim, robot.home)
    return _PAIRS_CACHE[key]


def _freeze(value: object) -> object:
    """Return the content of a value as something hashable."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return tuple(value.shape), np.asarray(value).tobytes()
    if is_dataclass(value):
        return tuple(_freeze(part) for part in vars(value).values())
    return tuple(map(_freeze, value)) if isinstance(value, tuple | list) else value


def find_collision_model(robot: Robot, device: torch.device | str = "cpu") -> CollisionModel | None:
    """Compile the collision model of a robot; None if it or its gripper has no capsules."""
    return compile_collision(robot, device) if has_capsules(robot) else None


def place_capsules(robot: Robot, shapes: Shapes, at_opening: bool = False) -> CollisionModel:
    """Place the capsules of a model, with no pair chosen yet.

    Args:
        shapes: the arm's; a gripper's are read from its file.
        at_opening: give it `fingers`, if that file has any, in place of what they sweep.
    """
    _check_links(robot, shapes)
    links, rows_by_link, hand_shapes = _collect_rows(robot, shapes, at_opening)
    follower_links = list_followers(robot.body.arm)
    bodies, offsets = attach(links, robot.chain, robot.home, follower_links)
    followers = compile_followers(follower_links, robot.chain)
    first_finger = robot.n + 1 + len(follower_links)

    placed = [
        (bodies[link], link, offsets[link], row)
        for link in sorted(range(len(links)), key=lambda link: bodies[link])
        for row in list(rows_by_link.values())[link]
    ]
    for index, moving in enumerate(hand_shapes.moving.values()):
        placed += [(first_finger + index, len(links) - 1, np.eye(4), row) for row in moving]
    capsule_links = [link for _, link, _, _ in placed]
    rows = np.array([row for *_, row in placed])
    ends = rows[:, :6].reshape(-1, 2, 3)
    fingers = None
    if hand_shapes.moving:
        bearer = capsule_links.index(len(links) - 1)
        fingers = compile_fingers(robot, hand_shapes, offsets[-1], bearer, first_finger)
    no_pairs = torch.zeros(0, dtype=torch.long)
    return CollisionModel(
        chain=robot.chain,
        links=tuple(rows_by_link),
        link_bodies=tuple(bodies),
        link_offsets=torch.tensor(offsets, dtype=torch.float32),
        capsule_links=tuple(capsule_links),
        link_capsules=_list_link_capsules(capsule_links, len(links)),
        joints_below=torch.tensor(
            [_list_movers(bodies[link], followers, robot.n) for link in capsule_links],
            dtype=torch.float32,
        ),
        points=tuple(_list_points(placed, ends)),
        length_squared=torch.tensor(
            ((ends[:, 1] - ends[:, 0]) ** 2).sum(1, keepdims=True), dtype=torch.float32
        ),
        radius=torch.tensor(rows[:, 6:], dtype=torch.float32),
        first=no_pairs,
        second=no_pairs,
        over_ground=no_pairs,
        allowed=tuple((*pair, "meshes never close") for pair in shapes.apart),
        followers=followers,
        fingers=fingers,
    )


def _collect_rows(
    robot: Robot, shapes: Shapes, at_opening: bool
) -> tuple[list, dict[str, list], Shapes]:
    """Collect the links that have capsules: those of the arm, then the gripper's base.

    Returns:
        The links; the rows of a file with the capsules of each, by the name of the link, the base
        under that of the gripper; and the gripper's own shapes, empty without one.
    """
    arm = {link.name: link for link in robot.body.arm}
    rows_by_link = dict(shapes.links)
    links = [arm[name] for name in rows_by_link]
    hand = robot.gripper
    if hand is None:
        return links, rows_by_link, Shapes({})
    links.append(robot.body.hand[0])
    hand_shapes = read_capsules(hand.name, find_gripper_file(hand), robot)
    if not at_opening:
        hand_shapes = replace(hand_shapes, moving={})
    rows_by_link[hand.name] = [
        row
        for name, rows in hand_shapes.links.items()
        for row in rows
        if not (hand_shapes.moving and name == FINGERS)
    ]
    return links, rows_by_link, hand_shapes


def _check_links(robot: Robot, shapes: Shapes) -> None:
    """Refuse capsules on links that the arm's model lacks."""
    arm = [link.name for link in robot.body.arm]
    if strangers := [name for name in shapes.links if name not in arm]:
        raise ConfigError(
            f"{format_path(find_capsule_file(robot))} has capsules on {strangers[0]!r}, which "
            f"robot {robot.name!r} lacks; its links are {', '.join(arm)}"
        )


def _list_movers(body: int, followers: Followers | None, n: int) -> list[float]:
    """List, for each joint and follower, 1 if it moves a body, else 0."""
    if followers is None:
        return [float(i < body) for i in range(n)]
    first, *above = followers.list_above(body, n)
    count = len(followers.parents)
    return [float(i < first) for i in range(n)] + [float(n + 1 + i in above) for i in range(count)]


def _list_points(placed: list, ends: np.ndarray) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield each body with the ends (k, 4) of its capsules in its own frame, homogeneous [m].

    Args:
        placed: (body, link, offset (4, 4), row) of each capsule.
        ends: (capsules, 2, 3) in the frames of the links [m].
    """
    for body in sorted({body for body, *_ in placed}):
        here = [(T, pair) for (on_body, _, T, _), pair in zip(placed, ends) if on_body == body]
        local = [np.append(end, 1.0) @ T.T for T, pair in here for end in pair]
        yield body, torch.tensor(np.array(local), dtype=torch.float32)


def _list_link_capsules(capsule_links: list[int], links: int) -> torch.Tensor:
    """List the capsules on each link (L, C), see `CollisionModel.link_capsules`."""
    by_link = [
        [capsule for capsule, its_link in enumerate(capsule_links) if its_link == link]
        for link in range(links)
    ]
    most = max(len(capsules) for capsules in by_link)
    return torch.tensor([capsules + capsules[:1] * (most - len(capsules)) for capsules in by_link])
