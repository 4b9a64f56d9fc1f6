"""From a robot and its files of capsules to a CollisionModel."""

import numpy as np
import torch

from envs.collision.capsules import CollisionModel
from envs.collision.files import capsule_file, has_capsules, read_capsules, shown
from envs.collision.links import attach
from envs.collision.pairs import choose_pairs
from envs.robots import Robot
from td3_robot.errors import ConfigError


def compile_collision(robot: Robot, device: torch.device | str = "cpu") -> CollisionModel:
    """Read a robot's capsules and its gripper's, and find the pairs that need a check; takes about a second.

    A gripper is one link that encloses its fingers at every opening, so that distances depend on the arm alone.

    Raises:
        ConfigError: the robot or its gripper has no capsules yet, or they do not fit its model.
    """
    shapes, apart = read_capsules(robot.name, capsule_file(robot))
    return choose_pairs(place_capsules(robot, shapes, apart), robot.qlim, robot.home).to(device)


def known_collision(robot: Robot, device: torch.device | str = "cpu") -> CollisionModel | None:
    """`compile_collision` of a robot whose capsules are known; None where it or its gripper has no file of them."""
    return compile_collision(robot, device) if has_capsules(robot) else None


def place_capsules(robot: Robot, shapes: dict[str, list[np.ndarray]], apart: list[tuple[str, str]]) -> CollisionModel:
    """The model with its capsules placed and no pair chosen yet.

    Args:
        shapes, apart: the arm's, as from `read_capsules`; a gripper's are read from its file.
    """
    arm, shapes = {link.name: link for link in robot.rtb.links}, dict(shapes)
    if strangers := [name for name in shapes if name not in arm]:
        raise ConfigError(
            f"{shown(capsule_file(robot))} has capsules on {strangers[0]!r}, which robot {robot.name!r} lacks; "
            f"its links are {', '.join(arm)}"
        )
    links = [arm[name] for name in shapes]
    if robot._gripper is not None:
        name = robot._gripper.name
        links.append(robot.rtb.grippers[0].links[0])
        shapes[name] = [capsule for group in read_capsules(name)[0].values() for capsule in group]
    bodies, offsets = attach(links, robot.chain, robot.home)

    order = sorted(range(len(links)), key=lambda link: bodies[link])
    capsules = [(link, capsule) for link in order for capsule in list(shapes.values())[link]]
    ends = np.array([capsule[:6] for _, capsule in capsules]).reshape(-1, 2, 3)
    points = []
    for body in sorted(set(bodies)):
        local = [
            np.append(end, 1.0) @ offsets[link].T
            for (link, _), pair in zip(capsules, ends)
            if bodies[link] == body
            for end in pair
        ]
        points.append((body, torch.tensor(np.array(local), dtype=torch.float32)))
    none = torch.zeros(0, dtype=torch.long)
    return CollisionModel(
        chain=robot.chain,
        links=tuple(shapes),
        link_bodies=tuple(bodies),
        link_offsets=torch.tensor(offsets, dtype=torch.float32),
        capsule_links=tuple(link for link, _ in capsules),
        link_capsules=_table([link for link, _ in capsules], len(links)),
        joints_below=torch.tensor([[float(i < bodies[link]) for i in range(robot.n)] for link, _ in capsules]),
        points=tuple(points),
        length_squared=torch.tensor(((ends[:, 1] - ends[:, 0]) ** 2).sum(1, keepdims=True), dtype=torch.float32),
        radius=torch.tensor([[capsule[6]] for _, capsule in capsules], dtype=torch.float32),
        first=none,
        second=none,
        over_ground=none,
        allowed=tuple((*pair, "meshes never close") for pair in apart),
    )


def _table(capsule_links: list[int], links: int) -> torch.Tensor:
    """(L, C), see `CollisionModel.link_capsules`."""
    of = [[capsule for capsule, on in enumerate(capsule_links) if on == link] for link in range(links)]
    most = max(len(capsules) for capsules in of)
    return torch.tensor([capsules + capsules[:1] * (most - len(capsules)) for capsules in of])
