"""An arm and the gripper that it wears as one roboticstoolbox model.

Models come as lists of roboticstoolbox links, from a class of roboticstoolbox.models or from a
URDF; here they are cut off at the flange and put together. `envs.robots.body` does the same without
roboticstoolbox.
"""

import os
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import roboticstoolbox as rtb
from spatialmath import SE3

from envs.robots.gripper import Gripper
from envs.robots.links import find_link, number_joints, select_arm_links, walk_to_base
from envs.robots.sources import read_source
from envs.robots.urdf.rtb_model import build_model
from td3_robot.errors import ConfigError, get_first_line, not_none

_PROBE_TIMEOUT = 5.0  # [s] for a git server to answer; git's own limit is minutes


def load_model(owner: str, source: Any, moving: Collection[str] | None = None) -> rtb.Robot:
    """Build the roboticstoolbox model that a robot's or gripper's file names.

    Args:
        owner, source: as of `read_source`.
        moving: names of the joints that move in a URDF; see `list_links`.

    Raises:
        ConfigError: there is no such model, or it is not to be had on this machine.
    """
    if isinstance(source, str):
        return _load_rtb_model(owner, source, None)
    if isinstance(source, dict) and "rtb" in source and set(source) <= {"rtb", "repository"}:
        return _load_rtb_model(owner, source["rtb"], source.get("repository"))
    return build_model(not_none(read_source(owner, source)), moving)


def _load_rtb_model(owner: str, name: str, repository: str | None) -> rtb.Robot:
    if not isinstance(getattr(rtb.models, str(name), None), type):
        raise ConfigError(f"{owner}: roboticstoolbox.models has no {name!r}")
    if repository is None:
        return getattr(rtb.models, name)()
    _check_repository(owner, repository)
    try:
        return getattr(rtb.models, name)()
    except Exception as error:  # git's, xacro's and the parser's errors share no class
        raise ConfigError(
            f"{owner}: roboticstoolbox could not load it from {repository}: {get_first_line(error)}"
        ) from None


def _check_repository(owner: str, repository: str) -> None:
    """Refuse in seconds what git would try for minutes: fetching from where nothing answers.

    robot_descriptions, by which roboticstoolbox fetches, keeps each repository in a folder of its
    name.
    """
    cache = Path(
        os.environ.get("ROBOT_DESCRIPTIONS_CACHE", "~/.cache/robot_descriptions")
    ).expanduser()
    if (cache / Path(repository).stem / ".git").is_dir():
        return
    needs = f"{owner}: its model is fetched with git on first use from {repository}, and"
    try:
        subprocess.run(
            ["git", "ls-remote", "--quiet", repository, "HEAD"],
            check=True,
            timeout=_PROBE_TIMEOUT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},  # no question about a password
        )
    except FileNotFoundError:
        raise ConfigError(f"{needs} git is not installed") from None
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"{needs} nothing answered within {_PROBE_TIMEOUT:.0f} s; check the network"
        ) from None
    except subprocess.CalledProcessError:
        raise ConfigError(f"{needs} it cannot be reached; check the network") from None


def assemble(
    name: str,
    arm: rtb.Robot,
    flange: str,
    hand: Gripper | None,
    mount: np.ndarray,
    whole: bool = False,
) -> rtb.Robot:
    """Assemble an arm up to its flange, and a gripper on it.

    Of the arm's model only `select_arm_links` is taken; a gripper that is part of the arm's own
    model stays.

    Args:
        arm: the arm's model; used up.
        flange: the link that carries the gripper, and the TCP of an arm without one.
        hand: the gripper, or None.
        mount: (4, 4) pose of the gripper's base in the flange, for a gripper with a model of its
            own.
        whole: as of `select_arm_links`.

    Returns:
        A model whose n, q and fkine are those of the arm, from base to TCP, and whose `grippers`
        holds the gripper's joints and shapes.

    Raises:
        ConfigError: the model has no such flange, or not the gripper's links.
    """
    owner = f"robot {name!r}"
    links = {
        link.name: link
        for link in [*arm.links, *(link for tool in arm.grippers for link in tool.links)]
    }
    end = find_link(owner, "flange", flange, links)
    kept = select_arm_links(links.values(), end, whole)
    held = []
    root = None
    if hand is None:
        pass
    elif hand.source is None:
        root = find_link(owner, hand.part, hand.root, links)
        if arm.grippers and arm.grippers[0].links[0] is root:  # as it should be
            arm.grippers[0].tool = SE3(hand.tcp)
            return arm
        held = [link for link in links.values() if root in walk_to_base(link)]
    else:
        tool = load_model(hand.owner, hand.source)
        parts = {link.name: link for link in tool.links}
        root = find_link(hand.owner, "root", hand.root, parts)
        for link in parts.values():
            link.name = hand.format_link(link.name)
        root._parent = end
        root.ets = rtb.ETS(rtb.ET.SE3(mount))
        held = list(parts.values())
    for body in (kept, held):
        number_joints(body)
    for link in kept + held:
        link._children = []  # pyright: ignore[reportAttributeAccessIssue]  roboticstoolbox fills them anew
    model = rtb.Robot(kept + held, name=name, gripper_links=root)
    if root is not None:
        model.grippers[0].tool = SE3(not_none(hand).tcp)
    return model
