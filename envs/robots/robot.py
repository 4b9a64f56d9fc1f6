"""A robot: its values, checked where it is made."""

import atexit
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from envs.config.yaml_values import parse_numbers
from envs.kinematics import Chain
from envs.robots.body import Body
from envs.robots.gripper import Gripper
from envs.robots.physics import Physics
from td3_robot.errors import ConfigError

_LIMITS = ("qdlim", "qddlim", "qdddlim")


@dataclass
class Robot:
    """An arm, perhaps with a gripper. Values that cannot be right end in a ConfigError that names
    them.

    Attributes:
        name: the registry name, or that of its file.
        make_rtb: makes the roboticstoolbox model of arm and gripper, see `rtb`.
        body: the links of arm and gripper.
        chain: its kinematics from base to TCP, compiled for batches.
        q: (n,) current joint positions [rad or m]; starts at home.
        home: (n,) the pose that episodes start around.
        qlim: (2, n) lower and upper position limits [rad or m].
        qdlim: (n,) velocity limits [rad/s or m/s].
        qddlim: (n,) acceleration limits [rad/s2 or m/s2], or None where none is known.
        workspace: (2, 3) lower and upper corner of the box of goals, base frame [m].
        gripper: the gripper it wears, or None.
        qdddlim: (n,) jerk limits [rad/s3 or m/s3], or None where none is known.
        physics: servos and inertias of the arm; the gripper has its own.
        file: the URDF or xacro file that it was made from; None for a registered robot.
        tcp_link: the link of its model that is the TCP, or carries the gripper; None takes the
            last one.
        chosen: what else was chosen of that file, as options of a command line: `base`, `velocity`
            and `xacro`, each with its words.
    """

    name: str
    make_rtb: Callable[[], Any]
    body: Body
    chain: Chain
    home: np.ndarray
    qlim: np.ndarray
    qdlim: np.ndarray
    qddlim: np.ndarray | None
    workspace: np.ndarray
    gripper: Gripper | None
    qdddlim: np.ndarray | None = None
    physics: Physics = field(default_factory=Physics)
    file: Path | None = None
    tcp_link: str | None = None
    chosen: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self):
        shapes = dict.fromkeys(("home", *_LIMITS), (self.n,)) | {
            "qlim": (2, self.n),
            "workspace": (2, 3),
        }
        for key, shape in shapes.items():
            if getattr(self, key) is not None or key not in ("qddlim", "qdddlim"):
                setattr(self, key, parse_numbers(self.owner, key, getattr(self, key), shape))
        self._check_ranges()
        self.q = self.home.copy()

    @functools.cached_property
    def rtb(self) -> Any:
        """The roboticstoolbox model of arm and gripper, for drawing and reference; it ends at the
        TCP.

        It is made on first use, since roboticstoolbox takes seconds to import.
        """
        model = self.make_rtb()
        if self.gripper is None and self.tcp_link is not None:  # else any branch could be the end
            model._ee_links = [model.link_dict[self.tcp_link]]
        _release_models_at_exit()
        return model

    @property
    def n(self) -> int:
        """Number of arm joints; the gripper's are not counted."""
        return self.chain.n

    @property
    def _gripper(self) -> Gripper | None:
        """The gripper, by the name that older callers know."""
        return self.gripper

    @property
    def owner(self) -> str:
        """The name of the robot in messages."""
        return f"robot {self.name!r}"

    def _check_ranges(self) -> None:
        """Check the ranges of the limits, the home and the workspace."""
        if not (self.qlim[0] < self.qlim[1]).all():
            raise ConfigError(f"{self.owner}: qlim has a lower limit that is not below the upper")
        if not ((self.qlim[0] <= self.home) & (self.home <= self.qlim[1])).all():
            raise ConfigError(f"{self.owner}: home {self.home.tolist()} is outside qlim")
        for key in _LIMITS:
            limit = getattr(self, key)
            if limit is not None and not (limit > 0).all():
                raise ConfigError(f"{self.owner}: {key} must be positive, got {limit.tolist()}")
        if self.qdddlim is not None and self.qddlim is None:
            raise ConfigError(
                f"{self.owner}: qdddlim needs qddlim, since jerk is limited through acceleration"
            )
        if not (self.workspace[0] < self.workspace[1]).all():
            raise ConfigError(
                f"{self.owner}: workspace has a lower corner that is not below the upper"
            )


def name_arm(file: Path, base: str | None = None) -> str:
    """Name an arm after its file, and after its base where one was chosen among several."""
    return file.name if base is None else f"{file.name}.{base.replace('/', '.')}"


@functools.cache
def _release_models_at_exit() -> None:
    """Keep roboticstoolbox 1.5 from printing a page of "leaked" lines when Python ends.

    Its class-wide caches hold every robot until after nanobind has counted what is left.
    """
    from roboticstoolbox.robot.BaseRobot import BaseRobot  # here: it takes seconds

    for name in ("get_path", "_getlink", "_get_limit_links", "ets"):
        if clear := getattr(getattr(BaseRobot, name, None), "cache_clear", None):
            atexit.register(clear)
