"""The capsules of a whole robot from its model, into its files."""

from pathlib import Path

import numpy as np
import trimesh

from envs.collision import files
from envs.collision.compiler import place_capsules
from envs.collision.fitting.apart import never_close
from envs.collision.fitting.capsule import fit_mesh
from envs.collision.fitting.shapes import finger_meshes, link_capsules, moves
from envs.collision.links import link_pose
from envs.collision.pairs import TOUCH, choose_pairs
from envs.robots import Robot
from td3_robot.errors import ConfigError


def fit(robot: Robot, most: int) -> None:
    """Write the files of a robot, and of its gripper if that has none yet.

    A link whose capsules touch another's at home gets up to twice as many, as close as they come: home is clear, and
    a pair that seems to touch there cannot be checked.
    """
    gripper = robot._gripper
    if gripper is not None and not (theirs := files.CAPSULES / f"{gripper.name}.yaml").exists():
        _write(theirs, robot, gripper_capsules(robot, most), [])
    capsules = arm_capsules(robot, most)
    links = {link.name: link for link in robot.rtb.links}
    model = choose_pairs(place_capsules(robot, capsules, []), robot.qlim, robot.home)
    for name in {name for *pair, why in model.allowed if why == TOUCH for name in pair if name in links}:
        capsules[name] = link_capsules(links[name].collision, 2 * most, worth=1.0)
    model = choose_pairs(place_capsules(robot, capsules, []), robot.qlim, robot.home)
    _write(files.capsule_file(robot), robot, capsules, never_close(robot, model))


def _write(path: Path, robot: Robot, capsules: dict[str, list[np.ndarray]], apart: list[tuple[str, str]]) -> None:
    files.write_capsules(path, robot.name if robot.file is None else robot.file.name, capsules, apart)
    print(f"{files.shown(path)}: {sum(map(len, capsules.values()))} capsules on {len(capsules)} links")


def arm_capsules(robot: Robot, most: int) -> dict[str, list[np.ndarray]]:
    """Capsules of every link of the arm that has a collision shape, at most `most` around a link's meshes."""
    found = {link.name: link_capsules(link.collision, most) for link in robot.rtb.links if len(link.collision)}
    if not found:
        raise ConfigError(f"the model of robot {robot.name!r} has no collision shapes to put capsules around")
    return found


def gripper_capsules(robot: Robot, most: int) -> dict[str, list[np.ndarray]]:
    """Capsules of a gripper in the frame of its base: of each rigid link, and around all that the fingers sweep."""
    model = robot.rtb.grippers[0]
    root, found = model.links[0], {}
    for link in model.links:
        if len(link.collision) and not moves(link, root):
            T, name = link_pose(link, np.zeros(model.n), root), link.name.removeprefix(f"{robot._gripper.name}/")
            found[name] = [_moved(capsule, T) for capsule in link_capsules(link.collision, most)]
    if swept := finger_meshes(model, robot._gripper):
        found["fingers"] = fit_mesh(trimesh.util.concatenate(swept), most)
    return found


def _moved(capsule: np.ndarray, T: np.ndarray) -> np.ndarray:
    return np.append(capsule[:6].reshape(2, 3) @ T[:3, :3].T + T[:3, 3], capsule[6])
