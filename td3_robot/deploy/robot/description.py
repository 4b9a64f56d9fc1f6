"""The description of a robot: a JSON object, in robots/NAME.json or inside an exported policy.

The simulator's half writes it (`envs/export/robot_description.py`); nothing here depends on that
half. SI units; joints in the order of the arm, base to flange.
"""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from td3_robot.deploy.errors import DeployError
from td3_robot.deploy.robot.capsules import Capsules, Follower
from td3_robot.deploy.robot.json_file import read_json
from td3_robot.deploy.robot.kinematics import Chain
from td3_robot.deploy.robot.limits import FR3, Limits

ROBOTS = Path(__file__).parent / "robots"


@dataclass(frozen=True)
class Robot:
    """An arm, and the gripper it wears.

    Attributes:
        name: what it is called.
        joints: names, in order.
        home: (n,) the pose that episodes start around [rad or m].
        limits: what each joint may do.
        chain: kinematics from base to TCP.
        drivers: position of the gripper's right and left driver joint as multiples of its driver
            coordinate; empty without a gripper.
        stroke: driver coordinate when closed and when open [rad or m].
        gripper_speed: how fast it changes [rad/s or m/s]; 0 without a gripper.
        capsules: its shape; None where none is known.
    """

    name: str
    joints: tuple[str, ...]
    home: np.ndarray
    limits: Limits
    chain: Chain
    drivers: np.ndarray
    stroke: tuple[float, float]
    gripper_speed: float
    capsules: Capsules | None

    def __post_init__(self):
        sizes = {
            "joints": len(self.joints),
            "home": len(self.home),
            "limits": self.limits.n,
            "chain": self.chain.n,
        }
        if len(set(sizes.values())) != 1:
            raise DeployError(f"a robot has one of each for a joint, got {sizes}")

    @classmethod
    def from_dict(cls, values: dict) -> "Robot":
        """Build a robot from the JSON object.

        Raises:
            DeployError: it is not one of a robot, or a number in it is not finite.
        """
        if place := _find_not_finite(values):
            raise DeployError(f"not the description of a robot: {place} is not finite")
        try:
            chain = Chain(
                _round_to_float32(values["chain"]["constants"]),
                np.array(values["chain"]["prismatic"], bool),
            )
            return cls(
                name=values["name"],
                joints=tuple(values["joints"]),
                home=np.array(values["home"]),
                limits=Limits.from_dict(values["limits"]),
                chain=chain,
                drivers=np.array(values["gripper"]["drivers"]),
                stroke=tuple(values["gripper"]["stroke"]),
                gripper_speed=values["gripper"]["speed"],
                capsules=_parse_capsules(values["capsules"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DeployError(
                f"not the description of a robot: {type(error).__name__} {error}"
            ) from None

    @classmethod
    def load(cls, name: str | Path) -> "Robot":
        """Load a robot by name, from the folder robots/ or the path of a JSON file; "fr3" is the
        Panda's shape with FR3's limits and names.

        Raises:
            DeployError: there is no such robot, or its file is not one.
        """
        if name == "fr3":
            return replace(
                cls.load("panda"),
                name="fr3",
                limits=FR3,
                joints=tuple(f"fr3_joint{i + 1}" for i in range(FR3.n)),
            )
        path = Path(name) if str(name).endswith(".json") else ROBOTS / f"{name}.json"
        if not path.is_file():
            known = sorted([*(file.stem for file in ROBOTS.glob("*.json")), "fr3"])
            raise DeployError(
                f"no robot {str(name)!r}; give a .json file or one of {', '.join(known)}"
            )
        try:
            return cls.from_dict(read_json(path))
        except DeployError as error:
            raise DeployError(f"{path}: {error}") from None
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise DeployError(f"{path} is no JSON: {error}") from None


def _find_not_finite(value: object, place: str = "") -> str:
    """Return the place of the first number that is not finite, such as home[2], or nothing."""
    if isinstance(value, float) and not math.isfinite(value):
        return place
    if isinstance(value, dict):
        parts = ((f"{place}.{key}".lstrip("."), part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        parts = ((f"{place}[{row}]", part) for row, part in enumerate(value))
    else:
        return ""
    return next(filter(None, (_find_not_finite(part, at) for at, part in parts)), "")


def _parse_capsules(values: dict | None) -> Capsules | None:
    if values is None:
        return None
    whole = {
        key: np.array(values[key], int) for key in ("bodies", "first", "second", "over_ground")
    }
    followers = tuple(
        Follower(**one | {"constant": _round_to_float32(one["constant"])})
        for one in values.get("followers", ())
    )
    return Capsules(
        ends=_round_to_float32(values["ends"]),
        radius=_round_to_float32(values["radius"]),
        followers=followers,
        **whole,
    )


def _round_to_float32(values: list) -> np.ndarray:
    """Round to the simulator's 32-bit numbers: nine digits name one, and are not it."""
    return np.array(values, np.float32).astype(float)
