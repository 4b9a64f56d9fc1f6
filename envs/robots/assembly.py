"""An arm and the gripper that it wears as one roboticstoolbox model.

Models come as lists of roboticstoolbox links, from a class of roboticstoolbox.models or from a
URDF; here they are cut off at the flange and put together.
"""

import importlib.util
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import roboticstoolbox as rtb
from roboticstoolbox import Link
from spatialmath import SE3

from envs.robots.followers import get_follower
from envs.robots.gripper import Gripper
from td3_robot.errors import ConfigError, get_first_line, not_none

_PROBE_TIMEOUT = 5.0  # [s] for a git server to answer; git's own limit is minutes


def load_model(owner: str, source: Any) -> rtb.Robot:
    """Build the roboticstoolbox model that a robot's or gripper's file names.

    Args:
        owner: what the model is for, for example "robot 'lbr'"; errors begin with it.
        source: the file's `model`: the name of a class of roboticstoolbox.models; a mapping {rtb:
            class name, repository: git URL} for a class that fetches its files with git on first
            use; {package: name, urdf: path} for a URDF in an installed package; or {urdf: path} for
            any other, with {xacro: {argument: value}} where it is a xacro file that needs some.

    Raises:
        ConfigError: there is no such model, or it is not to be had on this machine.
    """
    if isinstance(source, str):
        source = {"rtb": source}
    keys = set(source) if isinstance(source, dict) else set()
    if keys in ({"rtb"}, {"rtb", "repository"}):
        return _load_rtb_model(owner, source["rtb"], source.get("repository"))
    if keys - {"xacro"} in ({"urdf"}, {"package", "urdf"}):
        return _load_urdf_model(owner, source)
    raise ConfigError(
        f"{owner}: model must be the name of a class of roboticstoolbox.models, or a mapping "
        "with rtb, with rtb and "
        f"repository, with urdf, or with package and urdf, perhaps with xacro, got {source!r}"
    )


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


def _load_urdf_model(owner: str, source: dict[str, Any]) -> rtb.Robot:
    # here: most robots are read by roboticstoolbox
    from envs.robots.urdf import build_model, read_urdf

    path = source["urdf"]
    package = source.get("package")
    xacro = source.get("xacro", {})
    if not isinstance(xacro, dict):
        raise ConfigError(f"{owner}: xacro must map arguments to values, got {xacro!r}")
    if package is None:
        return build_model(read_urdf(path, arguments=xacro))
    try:
        found = importlib.util.find_spec(str(package))
    except (ImportError, ValueError):  # its parent is missing, or it is no name
        found = None
    if found is None or not found.submodule_search_locations:
        wheel = str(package).replace("_", "-")
        raise ConfigError(
            f"{owner}: its model is in the Python package {wheel}; install it with: pip install "
            f"{wheel}"
        )
    file = Path(found.submodule_search_locations[0], path)
    return build_model(read_urdf(file, arguments=xacro))


def assemble(
    name: str, arm: rtb.Robot, flange: str, hand: Gripper | None, mount: np.ndarray
) -> rtb.Robot:
    """Assemble an arm up to its flange, and a gripper on it.

    Of the arm's model everything beyond the flange, everything moved by a joint that does not move
    the flange, and dead ends without a shape are left out; a gripper that is part of the arm's own
    model stays.

    Args:
        arm: the arm's model; used up.
        flange: the link that carries the gripper, and the TCP of an arm without one.
        hand: the gripper, or None.
        mount: (4, 4) pose of the gripper's base in the flange, for a gripper with a model of its
            own.

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
    _check_link(owner, "flange", flange, links)
    kept = _select_arm_links(links, flange)
    held = []
    root = None
    if hand is None:
        pass
    elif hand.source is None:
        _check_link(
            owner, f"gripper {hand.name!r}, a part of another arm's model,", hand.root, links
        )
        root = links[hand.root]
        if arm.grippers and arm.grippers[0].links[0] is root:  # as it should be
            arm.grippers[0].tool = SE3(hand.tcp)
            return arm
        held = [link for link in links.values() if root in _walk_to_base(link)]
    else:
        tool = load_model(f"gripper {hand.name!r}", hand.source)
        parts = {link.name: link for link in tool.links}
        _check_link(f"gripper {hand.name!r}", "root", hand.root, parts)
        for link in parts.values():
            link.name = (
                f"{hand.name}/{link.name}"  # other than the arm's, which may have a base_link too
            )
        root = parts[hand.root]
        root._parent = links[flange]
        root.ets = rtb.ETS(rtb.ET.SE3(mount))
        held = list(parts.values())
    for body in (kept, held):
        for index, link in enumerate(link for link in body if link.isjoint):
            link.jindex = index
    for link in kept + held:
        link._children = []  # pyright: ignore[reportAttributeAccessIssue]  roboticstoolbox fills them anew
    model = rtb.Robot(kept + held, name=name, gripper_links=root)
    if root is not None:
        model.grippers[0].tool = SE3(not_none(hand).tcp)
    return model


def _check_link(owner: str, what: str, name: str, links: dict[str, Link]) -> None:
    if name not in links:
        raise ConfigError(
            f"{owner}: {what} needs link {name!r}, which its model lacks; it has {', '.join(links)}"
        )


def _walk_to_base(link: Link | None) -> list[Link]:
    """Return a link, its parent, and so on to the base."""
    path = []
    while link is not None:
        path.append(link)
        link = link.parent
    return path


def _select_arm_links(links: dict[str, Link], flange: str) -> list[Link]:
    """Select the links of the arm alone, in their order."""
    chain = _walk_to_base(links[flange])
    kept = []
    for link in links.values():
        path = _walk_to_base(link)
        beyond = links[flange] in path[1:]
        movers = [part for part in path if part.isjoint]
        movers += [follower.leader for part in path if (follower := get_follower(part))]
        if not beyond and all(part in chain for part in movers):
            kept.append(link)
    shown = [link for link in kept if link.geometry or link.collision]
    needed = {part for link in [*shown, links[flange]] for part in _walk_to_base(link)}
    return [link for link in kept if link in needed]
