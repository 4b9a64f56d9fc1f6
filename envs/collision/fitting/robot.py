"""The capsules of a whole robot from its model, into its files."""

import sys
from dataclasses import replace
from pathlib import Path

from envs.collision import files
from envs.collision.compiler import place_capsules
from envs.collision.files import Shapes
from envs.collision.fitting.apart import never_close
from envs.collision.fitting.gripper import gripper_shapes
from envs.collision.fitting.shapes import drawn, link_capsules
from envs.collision.links import joints_to
from envs.collision.pairs import TOUCH, choose_pairs
from envs.robots import Robot
from td3_robot.errors import ConfigError


def fit(robot: Robot, most: int) -> None:
    """Write the files of a robot, and of its gripper if that has none yet.

    A link whose capsules touch at home what its meshes can touch elsewhere gets up to twice as many, as close as they
    come: home is clear, and a pair that seems to touch there cannot be checked.
    """
    for name in bare_links(robot):
        _warn(f"nothing is drawn of link {name!r} nor fixed to it, and it has no collision shape: it is not checked")
    gripper = robot._gripper
    if gripper is not None and not (theirs := files.CAPSULES / f"{gripper.name}.yaml").exists():
        _write(theirs, robot, gripper_shapes(robot, most))
    links, shapes = {link.name: link for link in robot.rtb.links}, Shapes(arm_capsules(robot, most))
    checked, touching = _pairs(robot, shapes)
    shapes = replace(shapes, apart=never_close(robot, checked | touching))
    for name in {name for pair in touching - set(shapes.apart) for name in pair if name in links}:
        shapes.links[name] = link_capsules(drawn(links[name]), 2 * most, worth=1.0)
    for first, second in _pairs(robot, shapes)[1]:
        _warn(
            f"the capsules of {first!r} and {second!r} touch at home, so that the two are not checked; try --capsules"
        )
    _write(files.capsule_file(robot), robot, shapes)


def bare_links(robot: Robot) -> list[str]:
    """The links that joints move, and the base, that have no shape, nor has anything that is fixed to them.

    A gripper counts as a shape of the link that carries it.
    """
    hand = [] if robot._gripper is None else [robot.rtb.grippers[0].links[0]]
    shown = {joints_to(link) for link in robot.rtb.links if drawn(link)} | {joints_to(link) for link in hand}
    bodies = {}
    for link in robot.rtb.links:
        bodies.setdefault(joints_to(link), link.name)
    return [name for body, name in bodies.items() if body not in shown]


def _pairs(robot: Robot, shapes: Shapes) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """The pairs of links that would be checked, and those left out because their capsules touch at home."""
    model = choose_pairs(place_capsules(robot, shapes), robot.qlim, robot.home)
    return set(model.pairs), {(first, second) for first, second, why in model.allowed if why == TOUCH}


def _warn(message: str) -> None:
    print(f"fit_collision: warning: {message}", file=sys.stderr)


def _write(path: Path, robot: Robot, shapes: Shapes) -> None:
    files.write_capsules(path, robot.name if robot.file is None else robot.file.name, shapes)
    print(f"{files.shown(path)}: {sum(map(len, shapes.links.values()))} capsules on {len(shapes.links)} links")


def arm_capsules(robot: Robot, most: int) -> dict[str, list]:
    """(7,) capsules of every link of the arm that has a shape, at most `most` around a link's meshes."""
    found = {link.name: link_capsules(drawn(link), most) for link in robot.rtb.links if drawn(link)}
    if not found:
        raise ConfigError(f"the model of robot {robot.name!r} has no shapes to put capsules around")
    return found
