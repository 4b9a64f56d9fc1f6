"""Fitting of the capsules of a whole robot, from its model into its files."""

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from envs.collision import files
from envs.collision.compiler import place_capsules
from envs.collision.files import Shapes
from envs.collision.fitting.apart import find_separated_pairs
from envs.collision.fitting.gripper import fit_gripper
from envs.collision.fitting.meshes import Meshes, touch
from envs.collision.fitting.shapes import fit_link, make_mesh, select_shapes
from envs.collision.links import count_joints
from envs.collision.pairs import MARGIN, TOUCH, choose_pairs
from envs.collision.queries import pair_distances
from envs.config.notices import warn_once
from envs.robots import Robot
from td3_robot.errors import ConfigError
from td3_robot.utils.progress import iter_with_progress, stage

MOTIONS = 1000
STEPS = 32  # of each motion
SHARE = 0.05  # of the motions


def fit(robot: Robot, most: int) -> None:
    """Write the files of a robot, and of its gripper if that has none yet.

    A link gets up to twice as many capsules, as close as they come, where its own touch others at
    home, which is clear, so that the pair could not be checked; and where they bar motions that are
    free, see `find_barred_pairs`.

    Raises:
        ConfigError: a mesh to enclose is missing or no whole mesh, the model has no shapes, or the
            file cannot be written.
    """
    check_shapes(robot)
    target = files.find_capsule_file(robot)
    if target.is_dir() or not os.access(target.parent, os.W_OK):  # before minutes of fitting
        raise ConfigError(
            f"cannot write {str(target)!r}: it must be a file in a folder that may be written"
        )
    for name in find_bare_links(robot):
        warn_once(
            f"nothing is drawn of link {name!r} nor fixed to it, and it has no collision shape: "
            "it is not checked"
        )
    gripper = robot.gripper
    if gripper is not None and not (theirs := files.find_gripper_file(gripper)).exists():
        with stage(f"capsules of gripper {gripper.name}"):
            shapes = fit_gripper(robot, most)
        _write(theirs, robot, shapes)
    links = {link.name: link for link in robot.rtb.links}
    shapes = _leave_out_separated(robot, Shapes(fit_arm(robot, most)))
    close = _find_pairs(robot, shapes)[1] | find_barred_pairs(robot, shapes)
    tight = {name for pair in close for name in pair if name in links}
    for name in iter_with_progress(tight, "closer capsules", len(tight), "links"):
        shapes.links[name] = fit_link(select_shapes(links[name]), most, closer=True)
    if tight:  # which capsules are near changes with them
        shapes = _leave_out_separated(robot, shapes)
    for first, second in _find_pairs(robot, shapes)[1]:
        warn_once(
            f"the capsules of {first!r} and {second!r} touch at home, so that the two are not "
            f"checked; try --capsules {most + 1}"
        )
    for first, second in sorted(find_barred_pairs(robot, shapes) if tight else ()):
        warn_once(
            f"the capsules of {first!r} and {second!r} bar motions to the guard that their meshes "
            f"do not; try --capsules {most + 1}"
        )
    _write(target, robot, shapes)


def check_shapes(robot: Robot) -> None:
    """Check that every mesh to enclose can be read, before anything is written.

    Raises:
        ConfigError: one is missing or no whole mesh.
    """
    for link in (*robot.rtb.links, *(link for tool in robot.rtb.grippers for link in tool.links)):
        if faults := getattr(link, "faults", ()):
            raise ConfigError(f"capsules need the meshes of link {link.name!r}: {faults[0]}")
        for shape in select_shapes(link):
            make_mesh(shape)


def find_bare_links(robot: Robot) -> list[str]:
    """Find the moved links, and the base, without any shape on them or on what is fixed to them.

    A gripper counts as a shape of the link that carries it.
    """
    hand = [] if robot.gripper is None else [robot.rtb.grippers[0].links[0]]
    shown = {count_joints(link) for link in robot.rtb.links if select_shapes(link)} | {
        count_joints(link) for link in hand
    }
    bodies = {}
    for link in robot.rtb.links:
        bodies.setdefault(count_joints(link), link.name)
    return [name for body, name in bodies.items() if body not in shown]


def find_barred_pairs(robot: Robot, shapes: Shapes) -> set[tuple[str, str]]:
    """Find the pairs whose capsules, but not meshes, bar over `SHARE` of motions from home.

    A pair bars a motion where it comes within `MARGIN`, at which the guard stops an arm. Capsules
    that come that near and no nearer raise few false alarms in random configurations, and yet may
    wall off a turn of a joint: those of a UR5e's forearm and flange barred a third of all motions
    at 8 mm from each other, where the meshes were 25 mm apart. Motions are straight in joint space.
    """
    model = choose_pairs(place_capsules(robot, shapes), robot.qlim, robot.home)
    ends = np.random.default_rng(0).uniform(robot.qlim[0], robot.qlim[1], (MOTIONS, robot.n))
    parts = np.linspace(1 / STEPS, 1, STEPS)[:, None]
    q = robot.home + parts * (ends - robot.home)[:, None]  # (MOTIONS, STEPS, n)
    distances = pair_distances(model, torch.tensor(q.reshape(-1, robot.n), dtype=torch.float32))
    near = (distances <= MARGIN).numpy().reshape(MOTIONS, STEPS, -1)
    meshes = Meshes(robot)
    opened = robot.gripper.opened if robot.gripper else 0.0
    count = Counter()
    rows = np.flatnonzero(near.any((1, 2)))
    for row in iter_with_progress(rows, "barred motions", len(rows), "motions"):
        pairs = {model.pairs[pair] for pair in near[row].any(0).nonzero()[0]}
        for step in np.flatnonzero(near[row].any(1)):
            placed = meshes.place(q[row, step], opened)
            here = {model.pairs[pair] for pair in near[row, step].nonzero()[0]}
            pairs -= {(a, b) for a, b in here & pairs if touch(placed[a], placed[b], MARGIN)}
        count.update(pairs)
    return {pair for pair, barred in count.items() if barred > SHARE * MOTIONS}


def _find_pairs(robot: Robot, shapes: Shapes) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Find the pairs of links to check, and those left out since their capsules touch at home."""
    model = choose_pairs(place_capsules(robot, shapes), robot.qlim, robot.home)
    return set(model.pairs), {
        (first, second) for first, second, why in model.allowed if why == TOUCH
    }


def _leave_out_separated(robot: Robot, shapes: Shapes) -> Shapes:
    """Add the pairs to `apart` that would be checked though their meshes never touch."""
    checked, touching = _find_pairs(robot, shapes)
    return replace(shapes, apart=[*shapes.apart, *find_separated_pairs(robot, checked | touching)])


def _write(path: Path, robot: Robot, shapes: Shapes) -> None:
    files.write_capsules(path, robot.name if robot.file is None else robot.file.name, shapes)
    print(
        f"{files.format_path(path)}: {sum(map(len, shapes.links.values()))} capsules on "
        f"{len(shapes.links)} links"
    )


def fit_arm(robot: Robot, most: int) -> dict[str, list]:
    """Fit (7,) capsules of every link of the arm with a shape, at most `most` around its meshes."""
    drawn = [link for link in robot.rtb.links if select_shapes(link)]
    found = {
        link.name: fit_link(select_shapes(link), most)
        for link in iter_with_progress(drawn, "capsules", len(drawn), "links")
    }
    if not found:
        raise ConfigError(f"the model of robot {robot.name!r} has no shapes to put capsules around")
    return found
