"""The robot registry: a YAML file of values and a roboticstoolbox model make a Robot."""

import atexit
import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from envs.grippers import Gripper, make_gripper
from envs.kinematics import Chain, compile_ets
from td3_robot.errors import ConfigError, unknown

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
_ARRAYS = ("home", "qlim", "qdlim", "workspace")  # what every robot file gives; qddlim and gripper where known


@dataclass
class Robot:
    """An arm, perhaps with a gripper.

    Attributes:
        name: the registry name.
        rtb: the roboticstoolbox model, for drawing and reference.
        chain: its kinematics from base to TCP, compiled for batches.
        q: (n,) current joint positions [rad or m]; starts at home.
        home: (n,) the pose that episodes start around.
        qlim: (2, n) lower and upper position limits [rad or m].
        qdlim: (n,) velocity limits [rad/s or m/s].
        qddlim: (n,) acceleration limits [rad/s2 or m/s2], or None where none is known.
        workspace: (2, 3) lower and upper corner of the box goals are drawn in, base frame [m].
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

    def __post_init__(self):
        self.q = self.home.copy()

    @property
    def n(self) -> int:
        """Number of arm joints; the gripper's are not counted."""
        return self.chain.n


def read_values(path: Path) -> dict[str, object]:
    """The mapping in a robot's or task's YAML file.

    Raises:
        ConfigError: the file is no YAML, or no mapping.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path.name} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path.name} must be a mapping of names to values, got {type(values).__name__}")
    return values


def robot_names() -> list[str]:
    """Every registered robot."""
    return sorted(path.stem for path in (CONFIGS / "robots").glob("*.yaml"))


def make_robot(name: str) -> Robot:
    """Build a registered robot.

    Raises:
        ConfigError: no such robot, or values in its file that cannot be right.
    """
    if name not in robot_names():
        raise unknown("robot", name, robot_names())
    values = read_values(CONFIGS / "robots" / f"{name}.yaml")

    import roboticstoolbox as rtb  # here: it takes over a second, and a wrong name should not

    _release_models_at_exit()
    if missing := [key for key in ("model", *_ARRAYS) if key not in values]:
        raise ConfigError(f"robot {name!r}: {', '.join(missing)} missing in configs/robots/{name}.yaml")
    if not hasattr(rtb.models, str(values["model"])):
        raise ConfigError(f"robot {name!r}: roboticstoolbox.models has no {values['model']!r}")
    model = getattr(rtb.models, values["model"])()
    robot = Robot(
        name=name,
        rtb=model,
        chain=compile_ets(model.ets()),
        qddlim=_array(name, "qddlim", values["qddlim"]) if "qddlim" in values else None,
        _gripper=make_gripper(values["gripper"]) if "gripper" in values else None,
        **{key: _array(name, key, values[key]) for key in _ARRAYS},
    )
    _check(robot)
    return robot


def _array(robot: str, key: str, value: object) -> np.ndarray:
    try:
        return np.array(value, float)
    except (TypeError, ValueError):
        raise ConfigError(f"robot {robot!r}: {key} must be numbers, got {value!r}") from None


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
    """Hold a robot's values to the shapes and ranges that all else relies on."""
    n = robot.n
    shapes = {"home": (n,), "qlim": (2, n), "qdlim": (n,), "workspace": (2, 3)}
    if robot.qddlim is not None:
        shapes["qddlim"] = (n,)
    for key, shape in shapes.items():
        value = getattr(robot, key)
        if value.shape != shape or not np.isfinite(value).all():
            raise ConfigError(f"robot {robot.name!r}: {key} must be finite with shape {shape}, got {value.tolist()}")
    if not (robot.qlim[0] < robot.qlim[1]).all():
        raise ConfigError(f"robot {robot.name!r}: qlim has a lower limit that is not below the upper")
    if not ((robot.qlim[0] <= robot.home) & (robot.home <= robot.qlim[1])).all():
        raise ConfigError(f"robot {robot.name!r}: home {robot.home.tolist()} is outside qlim")
    for key in ("qdlim", "qddlim"):
        if getattr(robot, key) is not None and not (getattr(robot, key) > 0).all():
            raise ConfigError(f"robot {robot.name!r}: {key} must be positive, got {getattr(robot, key).tolist()}")
