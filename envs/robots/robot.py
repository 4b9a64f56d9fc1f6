"""The robot registry: a YAML file of values and a roboticstoolbox model make a Robot."""

import atexit
import functools
import os
from dataclasses import dataclass

import numpy as np

from envs.kinematics import Chain, compile_ets
from envs.robots.gripper import Gripper, make_gripper
from envs.values import CONFIGS, check_keys, numbers, pose, read_values
from td3_robot.errors import ConfigError, unknown

_NEEDED = ("model", "flange", "home", "qlim", "qdlim", "workspace")
_OPTIONAL = ("gripper", "mount", "qddlim", "qdddlim")
_LIMITS = ("qdlim", "qddlim", "qdddlim")


@dataclass
class Robot:
    """An arm, perhaps with a gripper.

    Attributes:
        name: the registry name.
        rtb: the roboticstoolbox model of arm and gripper, for drawing and reference.
        chain: its kinematics from base to TCP, compiled for batches.
        q: (n,) current joint positions [rad or m]; starts at home.
        home: (n,) the pose that episodes start around.
        qlim: (2, n) lower and upper position limits [rad or m].
        qdlim: (n,) velocity limits [rad/s or m/s].
        qddlim: (n,) acceleration limits [rad/s2 or m/s2], or None where none is known.
        workspace: (2, 3) lower and upper corner of the box goals are drawn in, base frame [m].
        qdddlim: (n,) jerk limits [rad/s3 or m/s3], or None where none is known.
    """

    name: str
    rtb: object
    chain: Chain
    home: np.ndarray
    qlim: np.ndarray
    qdlim: np.ndarray
    qddlim: np.ndarray | None
    workspace: np.ndarray
    _gripper: Gripper | None
    qdddlim: np.ndarray | None = None

    def __post_init__(self):
        self.q = self.home.copy()

    @property
    def n(self) -> int:
        """Number of arm joints; the gripper's are not counted."""
        return self.chain.n


def robot_names() -> list[str]:
    """Every registered robot."""
    return sorted(path.stem for path in (CONFIGS / "robots").glob("*.yaml"))


def shipped_robots() -> list[str]:
    """The registered robots whose models come with installed packages; the others are fetched on first use."""
    models = {name: read_values(CONFIGS / "robots" / f"{name}.yaml")["model"] for name in robot_names()}
    return [name for name, model in models.items() if "repository" not in model]


def is_file(name: str) -> bool:
    """Whether a robot's name is a path to a URDF or xacro file rather than a registry name."""
    return name.endswith((".urdf", ".xacro")) or any(mark in name for mark in (os.sep, os.altsep) if mark)


def make_robot(name: str, gripper: str | None = None, tcp: str | None = None) -> Robot:
    """Build a robot.

    Args:
        name: a registered robot, or the path of a URDF or xacro file.
        gripper: the gripper it wears, a registered one or "none"; None leaves the choice to its file.
        tcp: for a URDF or xacro file, the link that is the TCP.

    Raises:
        ConfigError: no such robot or gripper, or values in its file that cannot be right.
    """
    if is_file(name):
        from envs.robots.from_file import robot_values

        _release_models_at_exit()
        return Robot(**robot_values(name, gripper, tcp))
    if name not in robot_names():
        if os.path.isfile(name):
            raise ConfigError(f"robot file {name!r} must end in .urdf or .xacro")
        raise unknown("robot", name, robot_names())
    if tcp is not None:
        raise ConfigError(f"robot {name!r} has its TCP in configs/robots/{name}.yaml; tcp is for URDF and xacro files")
    values, owner = read_values(CONFIGS / "robots" / f"{name}.yaml"), f"robot {name!r}"
    check_keys(owner, values, f"configs/robots/{name}.yaml", _NEEDED, _OPTIONAL)
    wanted = values.get("gripper", "none") if gripper is None else gripper
    hand = None if wanted == "none" else make_gripper(wanted)
    mount = pose(numbers(owner, "mount", values.get("mount", [0] * 6), (6,)))

    from envs.robots.assembly import assemble, load_model  # here: they take over a second, and a wrong name should not

    _release_models_at_exit()
    model = assemble(name, load_model(owner, values["model"]), str(values["flange"]), hand, mount)
    chain = compile_ets(model.ets(end=None if hand else values["flange"]))
    shapes = dict.fromkeys(("home", *_LIMITS), (chain.n,)) | {"qlim": (2, chain.n), "workspace": (2, 3)}
    arrays = {key: numbers(owner, key, values[key], shape) for key, shape in shapes.items() if key in values}
    robot = Robot(name=name, rtb=model, chain=chain, _gripper=hand, **{"qddlim": None, **arrays})
    _check(robot)
    return robot


@functools.cache
def _release_models_at_exit() -> None:
    """Keep roboticstoolbox 1.5 from printing a page of "leaked" lines when Python ends.

    Its class-wide caches hold every robot until after nanobind has counted what is left.
    """
    from roboticstoolbox.robot.BaseRobot import BaseRobot

    for name in ("get_path", "_getlink", "_get_limit_links", "ets"):
        if clear := getattr(getattr(BaseRobot, name, None), "cache_clear", None):
            atexit.register(clear)


def _check(robot: Robot) -> None:
    """Hold a robot's values to the ranges that all else relies on."""
    owner = f"robot {robot.name!r}"
    if not (robot.qlim[0] < robot.qlim[1]).all():
        raise ConfigError(f"{owner}: qlim has a lower limit that is not below the upper")
    if not ((robot.qlim[0] <= robot.home) & (robot.home <= robot.qlim[1])).all():
        raise ConfigError(f"{owner}: home {robot.home.tolist()} is outside qlim")
    for key in _LIMITS:
        limit = getattr(robot, key)
        if limit is not None and not (limit > 0).all():
            raise ConfigError(f"{owner}: {key} must be positive, got {limit.tolist()}")
    if robot.qdddlim is not None and robot.qddlim is None:
        raise ConfigError(f"{owner}: qdddlim needs qddlim, since jerk is limited through acceleration")
    if not (robot.workspace[0] < robot.workspace[1]).all():
        raise ConfigError(f"{owner}: workspace has a lower corner that is not below the upper")
