"""A robot from any URDF, xacro or MJCF file: what the file lacks is computed from the model."""

import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from envs.config.notices import warn_once
from envs.kinematics import Chain, compile_ets, fkine, fkine_jacob0
from envs.robots.body import Body, find_flange, join_links, list_moving, list_transforms, take_links
from envs.robots.gripper import Gripper, make_gripper
from envs.robots.mjcf import MjcfArm, load_mjcf
from envs.robots.mjcf.gripper import BASE
from envs.robots.robot import Robot
from envs.robots.urdf import UrdfArm, load_urdf
from envs.robots.urdf.links import list_links
from envs.robots.urdf.rtb_model import build_model
from envs.robots.urdf.tree import Tree, join_names
from td3_robot.errors import ConfigError

_SAMPLES = 8192
_HOME_RANGE = 0.6  # of each joint's range, around its middle, that home is looked for in
_HOME_TURN = 0.5 * np.pi  # [rad or m] and no farther than this from the middle
_TRIM = 5.0  # percent of the samples that the workspace box leaves out at either end of each axis
# of the reach: the box keeps off the base's column and off the table
_IN_FRONT = 0.2
_ABOVE = 0.05
_FEW = 80  # samples that are too few to make a box of
_THIN = 0.01  # [m] by which the box is wider than the samples, for arms that move in a plane
_LEAST_REACH = 0.001  # [m] that the TCP of an arm can be moved by at least


def make_robot_from_file(
    path: str,
    gripper: str | None = None,
    tcp: str | None = None,
    xacro: Mapping[str, object] | None = None,
    *,
    base: str | None = None,
    velocity: Sequence[float] = (),
) -> Robot:
    """Make the robot that a file describes; it has the name of the file.

    Args:
        path: a .urdf, .xacro or .xml file; the last in MJCF.
        gripper: a registered gripper, put on with its base at the TCP link in place of what is
            there, or where the file has it; the TCP becomes its own. "none" for none. None takes
            that of an MJCF file, if its fingers move as one. Other fingers stand still.
        tcp: the link, or in MJCF the site or body, that is the TCP, or that carries the gripper;
            None where there is only one it can be.
        xacro: values of the arguments of a .xacro file.
        base: of an MJCF file, the body at the base of the arm; None for the only part that moves.
        velocity: limit of every joint, or one for each, where the file has none [rad/s or m/s].

    Raises:
        ConfigError: the file is wrong, a choice is missing, or there is no such gripper or link.
    """
    hand = None if gripper in (None, "none") else make_gripper(gripper)
    arm = _load_arm(path, tcp, xacro or {}, base, velocity, grip=gripper is None)
    name = Path(path).name.split(".")[0]
    chain = arm.chain
    flange = carrier = find_flange(name, arm.tree, arm.tcp_link, hand)
    moving = arm.moving if hand is None else list_moving(arm.tree, flange, hand)
    if hand is None and arm.gripper is not None:
        hand = arm.gripper
        flange = hand.root.removesuffix(f":{BASE}")
    make_rtb = functools.partial(_make_rtb, name, arm.tree, moving, flange, hand)
    links = list_links(arm.tree, moving)
    body = Body(links) if hand is None else join_links(name, links, flange, hand, np.eye(4))
    if body is None:
        make_rtb = functools.cache(make_rtb)
        body = take_links(make_rtb())
    held = {link.name for link in (*body.arm, *body.hand)}
    if gone := [link.name for link in links if link.is_drawn and link.name not in held]:
        warn_once(f"{path}: the gripper takes the place of {join_names(gone)}")
    if hand is not None and hand is not arm.gripper:
        chain = compile_ets(list_transforms(body, flange))
    box = find_workspace(chain, arm.qlim, arm.home)
    if (np.ptp(box, axis=0) < 2.0 * _THIN + _LEAST_REACH).all():
        raise ConfigError(
            f"{path}: the joints move the TCP {arm.tcp_link!r} by less than {_LEAST_REACH:g} m"
        )
    return Robot(
        name=name,
        make_rtb=make_rtb,
        body=body,
        chain=chain,
        home=find_home(chain, arm.qlim, box) if arm.home is None else arm.home,
        qlim=arm.qlim,
        qdlim=arm.qdlim,
        qddlim=arm.qddlim,
        qdddlim=arm.qdddlim,
        workspace=box,
        gripper=hand,
        physics=arm.physics,
        file=Path(path),
        tcp_link=carrier,
        chosen=_format_choices(base, velocity, xacro or {}),
    )


def _format_choices(
    base: str | None, velocity: Sequence[float], xacro: Mapping[str, object]
) -> dict[str, list[str]]:
    """Format what was chosen of a file as options of a command line, each with its words."""
    words = {
        "base": [] if base is None else [base],
        "velocity": [str(limit) for limit in velocity],
        "xacro": [f"{key}={value}" for key, value in xacro.items()],
    }
    return {option: values for option, values in words.items() if values}


def _make_rtb(
    name: str, tree: Tree, moving: Collection[str], flange: str, hand: Gripper | None
) -> Any:
    """Make the roboticstoolbox model of an arm and the gripper that it wears."""
    from envs.robots.assembly import assemble  # here: it takes seconds

    model = build_model(tree, moving)
    return model if hand is None else assemble(name, model, flange, hand, np.eye(4))


def _load_arm(
    path: str,
    tcp: str | None,
    xacro: Mapping[str, object],
    base: str | None,
    velocity: Sequence[float],
    grip: bool,
) -> UrdfArm | MjcfArm:
    if path.endswith(".xml"):
        if xacro:
            raise ConfigError(f"{path}: takes no xacro arguments; they are for a .xacro file")
        return load_mjcf(path, tcp, base, velocity, grip)
    if base is not None:
        raise ConfigError(f"{path}: base is for MJCF files; a URDF's arm begins at its root")
    return load_urdf(path, tcp, velocity or None, arguments=xacro)


def find_home(chain: Chain, qlim: np.ndarray, box: np.ndarray) -> np.ndarray:
    """Find joint positions to start from: away from limits and singularities, in the workspace.

    Of 8,192 poses around the middle of the limits whose TCP is in the middle half of the box (or in
    the box, or anywhere, where none is), the one from which the TCP moves best in its worst
    direction: the greatest of the smallest singular values of the linear Jacobian, less a tenth for
    joints at the end of the range searched.

    Args:
        qlim: (2, n) [rad or m].
        box: (2, 3) see `find_workspace` [m].

    Returns:
        (n,) [rad or m], the same for the same arm.
    """
    middle = qlim.mean(0)
    half = np.minimum(_HOME_RANGE * np.ptp(qlim, axis=0) / 2, _HOME_TURN)
    unit = 2.0 * _sample_uniform(len(middle)) - 1.0  # (_SAMPLES, n) in [-1, 1]
    q = torch.as_tensor(middle) + unit * torch.as_tensor(half)
    T_be, J = fkine_jacob0(chain.to(dtype=torch.float64), q)
    speeds = torch.linalg.svdvals(J[:, :3])
    rank = int((speeds.amax(0) > 1e-6).sum())  # 2 for an arm that moves in a plane
    score = speeds[:, max(rank - 1, 0)] * (1.0 - 0.1 * unit.square().mean(1))
    center = box.mean(0)
    extent = np.ptp(box, axis=0)
    off_center = ((T_be[:, :3, 3] - torch.as_tensor(center)).abs() / torch.as_tensor(extent)).amax(
        1
    )
    near = next(near for margin in (0.25, 0.5, torch.inf) if (near := off_center <= margin).any())
    return q[torch.where(near, score, -1.0).argmax()].numpy()


def find_workspace(chain: Chain, qlim: np.ndarray, home: np.ndarray | None = None) -> np.ndarray:
    """Find the box (2, 3) of most TCP positions in front of the base and above its plane [m].

    In front is along x, or along x or y, either way, whichever is nearest to the TCP at `home`.

    Of 8,192 uniformly random poses inside the limits, those with the TCP in front by a fifth of the
    arm's reach and above by a twentieth; between the 5th and the 95th percentile along each axis of
    the base frame.

    Args:
        qlim: (2, n) [rad or m].
        home: (n,) of the file [rad or m]; None for a file without one.
    """
    lower, upper = torch.as_tensor(qlim)
    q = lower + _sample_uniform(len(lower)) * (upper - lower)
    tcp = fkine(chain.to(dtype=torch.float64), q)[:, :3, 3].numpy()
    reach = np.percentile(np.linalg.norm(tcp, axis=1), 100.0 - _TRIM)
    front = np.array([1.0, 0.0, 0.0])
    if home is not None:
        x, y, _ = fkine(chain.to(dtype=torch.float64), torch.as_tensor(home)[None])[0, :3, 3]
        ahead = [x, 0.0, 0.0] if abs(x) >= abs(y) else [0.0, y, 0.0]
        front = np.sign(np.array(ahead)) if max(abs(x), abs(y)) > _IN_FRONT * reach else front
    for way, fraction in ((np.array([0.0, 0.0, 1.0]), _ABOVE), (front, _IN_FRONT)):
        inside = tcp @ way > fraction * reach
        if inside.sum() > _FEW:  # else the arm hangs, or works behind its base
            tcp = tcp[inside]
    return np.percentile(tcp, (_TRIM, 100.0 - _TRIM), axis=0) + [[-_THIN], [_THIN]]


def _sample_uniform(n: int) -> torch.Tensor:
    """Sample (_SAMPLES, n) values in [0, 1], the same every time."""
    return torch.rand(_SAMPLES, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
