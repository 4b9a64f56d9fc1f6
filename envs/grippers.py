"""Grippers: their joints, which of them are drivers, and how the others follow."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from envs.values import check_keys, numbers, pose, read_values
from td3_robot.errors import ConfigError, unknown

GRIPPERS = Path(__file__).resolve().parent.parent / "configs" / "grippers"
_NEEDED = ("root", "joints", "drivers", "closed", "opened", "speed", "tcp")


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
        source: where its model comes from, see `models.load_model`; None where it is part of the arm's own.
        tcp: (4, 4) pose of the TCP in the gripper's base.
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
    q: np.ndarray = field(init=False)

    def __post_init__(self):
        self.q = self.mimic * self.opened

    def model_q(self, model, driver: float) -> np.ndarray:
        """Joint positions of the gripper's model, for drawing.

        Args:
            model: roboticstoolbox's gripper, which numbers its joints in its own way.
            driver: the driver coordinate [rad or m].

        Returns:
            (model.n,) [rad or m]. Joints of the model that the gripper does not know stay at zero, and joints of the
            gripper that the model holds rigid are not among them.
        """
        position = dict(zip(self.links, self.mimic * driver))
        q = np.zeros(model.n)
        for link in model.links:
            if link.isjoint:
                q[link.jindex] = position.get(link.name.removeprefix(f"{self.name}/"), 0.0)
        return q


def gripper_names() -> list[str]:
    """Every registered gripper."""
    return sorted(path.stem for path in GRIPPERS.glob("*.yaml"))


def make_gripper(name: str) -> Gripper:
    """Build a gripper from its file, configs/grippers/NAME.yaml.

    Raises:
        ConfigError: no such gripper, or values in its file that cannot be right.
    """
    if name not in gripper_names():
        raise unknown("gripper", name, gripper_names())
    values, owner = read_values(GRIPPERS / f"{name}.yaml"), f"gripper {name!r}"
    check_keys(owner, values, f"configs/grippers/{name}.yaml", needed=_NEEDED, optional=("model",))
    joints, drivers = values["joints"], values["drivers"]
    if not isinstance(joints, dict) or not all(isinstance(row, list) and len(row) == 2 for row in joints.values()):
        raise ConfigError(f"{owner}: joints must map every joint to [link, multiple of the driver], got {joints!r}")
    if not isinstance(drivers, list) or len(drivers) != 2 or not set(drivers) <= set(joints):
        raise ConfigError(f"{owner}: drivers must be two of the joints {', '.join(joints)}, got {drivers!r}")
    number = lambda key: float(numbers(owner, key, values[key], ()))  # noqa: E731
    gripper = Gripper(
        name=name,
        joints=tuple(joints),
        drivers=tuple(list(joints).index(driver) for driver in drivers),
        mimic=numbers(owner, "joints", [multiple for _, multiple in joints.values()], (len(joints),)),
        closed=number("closed"),
        opened=number("opened"),
        speed=number("speed"),
        links=tuple(str(link) for link, _ in joints.values()),
        root=str(values["root"]),
        source=values.get("model"),
        tcp=pose(numbers(owner, "tcp", values["tcp"], (6,))),
    )
    if gripper.closed == gripper.opened or gripper.speed <= 0:
        raise ConfigError(f"{owner}: closed and opened must differ and speed must be positive")
    return gripper
