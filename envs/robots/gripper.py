"""Grippers: their joints, which of them are drivers, and how the others follow."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from envs.config.yaml_values import CONFIGS, check_keys, make_pose, parse_numbers, read_values
from envs.robots.physics import Physics, read_physics
from td3_robot.errors import ConfigError, unknown

GRIPPERS = CONFIGS / "grippers"
_NEEDED = ("root", "joints", "drivers", "closed", "opened", "speed", "tcp")


_PADS = ("links", "closing", "approach", "gap", "size", "tip", "finger", "palm")


@dataclass(frozen=True)
class Pads:
    """The touching parts of a two-finger gripper; directions are in the TCP frame.

    Attributes:
        links: the links of the model that carry them: the one on the side that `closing` points to,
            and the other.
        closing: (3,) unit vector along which the pads meet.
        approach: (3,) unit vector from the palm to the finger tips, at a right angle to it.
        gap: (3,) distance between the pads when shut, half way, and when open, in terms of the
            driver coordinate [m].
        size: (2,) of a pad: across, at a right angle to both directions, and along the approach,
            ending at the tip [m].
        tip: how far the finger tips are beyond the TCP [m].
        finger: thickness of a finger along the closing direction [m].
        palm: (3,) how far the palm is behind the TCP, and half of its width across and along the
            closing direction [m].
    """

    links: tuple[str, str]
    closing: np.ndarray
    approach: np.ndarray
    gap: np.ndarray
    size: np.ndarray
    tip: float
    finger: float
    palm: np.ndarray

    @property
    def axes(self) -> np.ndarray:
        """(3, 3) directions of the hand in the TCP frame: columns across, closing, approach."""
        return np.stack((np.cross(self.closing, self.approach), self.closing, self.approach), 1)


@dataclass
class Gripper:
    """A gripper whose joints all follow one driver coordinate.

    Attributes:
        name: the registry name.
        joints: joint names, in the order of `q`.
        drivers: indices into `q` of the right and the left driver joint.
        mimic: (m,) every joint's position as a multiple of the driver coordinate.
        closed, opened: driver coordinate when shut and when fully open [rad or m].
        speed: largest rate of the driver coordinate [rad/s or m/s].
        links: the link of the model that each joint moves, in the order of `q`.
        root: the link of the model that is the gripper's base.
        source: where its model comes from, see `assembly.load_model`; None where it is part of the
            arm's own.
        tcp: (4, 4) pose of the TCP in the gripper's base.
        pads: what it grasps with; None where its file does not say.
        physics: servo of either driver, and inertias.
        file: the robot's file that it is a part of; None for a registered gripper.
        q: (m,) current joint positions [rad or m]; starts fully open.
    """

    name: str
    joints: tuple[str, ...]
    drivers: tuple[int, int]
    mimic: np.ndarray
    closed: float
    opened: float
    speed: float
    links: tuple[str, ...] = ()
    root: str = ""
    source: object = None
    tcp: np.ndarray = field(default_factory=lambda: np.eye(4))
    pads: Pads | None = None
    physics: Physics = field(default_factory=Physics)
    file: Path | None = None
    q: np.ndarray = field(init=False)

    def __post_init__(self):
        self.q = self.mimic * self.opened

    def compute_model_q(self, links: Sequence[Any], driver: float) -> np.ndarray:
        """Compute the joint positions of the gripper's model, for drawing.

        Args:
            links: of the model; their joints' numbers are those of the result.
            driver: the driver coordinate [rad or m].

        Returns:
            (n,) [rad or m], for n joints. Joints of the model that the gripper does not know stay
            at zero, and joints of the gripper that the model holds rigid are not among them.
        """
        position = dict(zip(self.links, self.mimic * driver))
        joint_links = [link for link in links if link.isjoint]
        q = np.zeros(len(joint_links))
        for link in joint_links:
            q[link.jindex] = position.get(self.strip_name(link), 0.0)
        return q

    @property
    def owner(self) -> str:
        """The name of the gripper in messages."""
        return f"gripper {self.name!r}"

    @property
    def part(self) -> str:
        """The name of a gripper in messages that is a part of another arm's model."""
        return f"{self.owner}, a part of another arm's model,"

    def format_link(self, name: str) -> str:
        """Return the name on an arm of a link of the gripper's own model.

        It is other than the arm's, which may have a base_link too.
        """
        return f"{self.name}/{name}"

    def strip_name(self, link: Any) -> str:
        """Return the name of a link on an arm as in the gripper's own model; see `format_link`."""
        return link.name.removeprefix(f"{self.name}/")


def gripper_names() -> list[str]:
    """List the registered grippers."""
    return sorted(path.stem for path in GRIPPERS.glob("*.yaml"))


def make_gripper(name: str) -> Gripper:
    """Build a gripper from its file, configs/grippers/NAME.yaml.

    Raises:
        ConfigError: no such gripper, or values in its file that cannot be right.
    """
    if name not in gripper_names():
        raise unknown("gripper", name, gripper_names())
    values = read_values(GRIPPERS / f"{name}.yaml")
    owner = f"gripper {name!r}"
    file = f"configs/grippers/{name}.yaml"
    check_keys(owner, values, file, needed=_NEEDED, optional=("model", "pads", "physics"))
    joints = values["joints"]
    drivers = values["drivers"]
    if not isinstance(joints, dict) or not all(
        isinstance(row, list) and len(row) == 2 for row in joints.values()
    ):
        raise ConfigError(
            f"{owner}: joints must map every joint to [link, multiple of the driver], got "
            f"{joints!r}"
        )
    if not isinstance(drivers, list) or len(drivers) != 2 or not set(drivers) <= set(joints):
        raise ConfigError(
            f"{owner}: drivers must be two of the joints {', '.join(joints)}, got {drivers!r}"
        )

    def read_number(key):
        return float(parse_numbers(owner, key, values[key], ()))

    gripper = Gripper(
        name=name,
        joints=tuple(joints),
        drivers=(list(joints).index(drivers[0]), list(joints).index(drivers[1])),
        mimic=parse_numbers(
            owner, "joints", [multiple for _, multiple in joints.values()], (len(joints),)
        ),
        closed=read_number("closed"),
        opened=read_number("opened"),
        speed=read_number("speed"),
        links=tuple(str(link) for link, _ in joints.values()),
        root=str(values["root"]),
        source=values.get("model"),
        tcp=make_pose(parse_numbers(owner, "tcp", values["tcp"], (6,))),
        pads=_read_pads(owner, name, values["pads"]) if "pads" in values else None,
        physics=read_physics(owner, values.get("physics", {}), 1, file),
    )
    if gripper.closed == gripper.opened or gripper.speed <= 0:
        raise ConfigError(f"{owner}: closed and opened must differ and speed must be positive")
    return gripper


def _read_pads(owner: str, name: str, values: object) -> Pads:
    if not isinstance(values, dict):
        raise ConfigError(
            f"{owner}: pads must be a mapping with {', '.join(_PADS)}, got {values!r}"
        )
    check_keys(
        f"pads of {owner}", values, f"configs/grippers/{name}.yaml", needed=_PADS, optional=()
    )
    shapes = {
        "closing": (3,),
        "approach": (3,),
        "gap": (3,),
        "size": (2,),
        "tip": (),
        "finger": (),
        "palm": (3,),
    }
    read: dict[str, Any] = {
        key: parse_numbers(f"{owner}, pads", key, values[key], shape)
        for key, shape in shapes.items()
    }
    frame = np.stack((read["closing"], read["approach"]))
    if not np.allclose(frame @ frame.T, np.eye(2), atol=1e-6):
        raise ConfigError(
            f"{owner}, pads: closing and approach must be unit vectors at a right angle"
        )
    if not (np.diff(read["gap"]) > 0).all() or read["gap"][0] < 0:
        raise ConfigError(
            f"{owner}, pads: gap must rise from shut to open, got {read['gap'].tolist()}"
        )
    read |= {key: float(read[key]) for key in ("tip", "finger")}
    return Pads(links=_read_two_links(owner, values["links"]), **read)


def _read_two_links(owner: str, values: object) -> tuple[str, str]:
    if not isinstance(values, list) or len(values) != 2:
        raise ConfigError(f"{owner}, pads: links must be two links, got {values!r}")
    first, second = map(str, values)
    return first, second
