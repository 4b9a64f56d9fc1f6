"""Limits of joints: positions, velocities, accelerations and jerks."""

from dataclasses import dataclass, replace

import numpy as np

from td3_robot.deploy.errors import DeployError
from td3_robot.deploy.numbers import UNREADABLE, read_number

RAMP = 0.02  # [s] in which an arm without a published jerk limit may build up its acceleration
TURN = 2.0 * np.pi  # [rad]
ENDLESS = 2.0 * TURN - 1e-3  # [rad] range from which on a joint may have no ends, see `count_turns`
ROUNDING = 1e-9  # part of every limit that is kept back, so that rounding does not exceed it


@dataclass(frozen=True)
class Limits:
    """One value a joint; SI units.

    Attributes:
        lower, upper: (n,) positions [rad or m].
        velocity, acceleration, jerk: (n,) largest magnitudes [rad/s, rad/s2, rad/s3, or in metres].
        curve: (2, 3, n) or None. Velocities that depend on the position: a joint at q may move up
            at no more than max(0, sqrt(max(0, c (limit - q))) - offset), where the rows of the
            second entry are limit [rad], c [rad/s2] and offset [rad/s]; the first entry is for
            moving down, with q - limit. An end within which a joint may not move at all follows
            from it.
    """

    lower: np.ndarray
    upper: np.ndarray
    velocity: np.ndarray
    acceleration: np.ndarray
    jerk: np.ndarray
    curve: np.ndarray | None = None

    def __post_init__(self):
        for name, value in list(vars(self).items()):
            if value is not None:
                object.__setattr__(self, name, _read_limit(name, value))
        shapes = {
            name: np.shape(getattr(self, name))
            for name in ("lower", "upper", "velocity", "acceleration", "jerk")
        }
        if len(set(shapes.values())) != 1 or len(shapes["lower"]) != 1:
            raise DeployError(f"limits must all have shape (n,), got {shapes}")
        if self.curve is not None and self.curve.shape != (2, 3, self.n):
            raise DeployError(f"curve must have shape (2, 3, {self.n}), got {self.curve.shape}")
        if not (self.lower < self.upper).all():
            raise DeployError(
                f"lower limits must be below upper ones, got {self.lower} and {self.upper}"
            )
        for name in ("velocity", "acceleration", "jerk"):
            value = getattr(self, name)
            if not ((value > 0) & np.isfinite(value)).all():
                raise DeployError(
                    f"{name} limits must be positive and finite, got {value.tolist()}"
                )

    def count_turns(self, q: np.ndarray, near: np.ndarray) -> np.ndarray:
        """Return reported positions (n,) [rad or m] in the turns that are nearest to others (n,).

        A driver may report an endless joint in (-pi, pi], as Kinova's for ROS 2 does. A joint
        counts as endless if its limits are two turns apart, as those of a continuous joint of a
        description are; the others stay as they are.
        """
        turns = np.round((near - q) / TURN)
        return q + TURN * np.where(self.upper - self.lower >= ENDLESS, turns, 0.0)

    @classmethod
    def from_dict(cls, values: dict) -> "Limits":
        """Build limits from a robot's description: position (2, n), velocity, acceleration, and
        jerk where one is known.
        """
        number = {key: np.array(value, float) for key, value in values.items() if value is not None}
        acceleration = number["acceleration"]
        jerk = number.get("jerk", acceleration / RAMP)
        lower, upper = number["position"]
        return cls(lower, upper, number["velocity"], acceleration, jerk, number.get("curve"))

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.lower)

    def find_velocity_range(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest and the highest velocity at positions (..., n)."""
        if self.curve is None:
            return -self.velocity, self.velocity
        (low, c_low, offset_low), (high, c_high, offset_high) = self.curve
        down = np.sqrt(np.maximum(c_low * (q - low), 0.0)) - offset_low
        up = np.sqrt(np.maximum(c_high * (high - q), 0.0)) - offset_high
        return -clamp(down, 0.0, self.velocity), clamp(up, 0.0, self.velocity)

    def narrow(self, speed: float = 1.0, margin: float = 0.0) -> "Limits":
        """Return limits with a share of the velocities, a margin inside the positions [rad or m],
        and less by what rounding may do.

        Raises:
            DeployError: speed is not in (0, 1], or the margin leaves no room.
        """
        speed = read_number("speed", speed)
        if not 0.0 < speed <= 1.0:
            raise DeployError(f"speed must be above 0 and at most 1, got {speed:g}")
        part = 1.0 - ROUNDING
        curve = None if self.curve is None else self.curve * np.array([1.0, part, 1.0])[:, None]
        return replace(
            self,
            lower=self.lower + margin + ROUNDING,
            upper=self.upper - margin - ROUNDING,
            velocity=self.velocity * speed * part,
            acceleration=self.acceleration * part,
            jerk=self.jerk * part,
            curve=curve,
        )


def _read_limit(name: str, value: object) -> np.ndarray:
    try:
        return np.asarray(value, float)
    except UNREADABLE:
        raise DeployError(f"{name} limits must be numbers, got {value!r}") from None


def clamp(x: np.ndarray, low: np.ndarray | float, high: np.ndarray) -> np.ndarray:
    """Clamp x to [low, high]; np.clip takes ten times as long on a few numbers."""
    return np.minimum(np.maximum(x, low), high)


def _make_fr3() -> Limits:
    """Make the limits of the Franka Research 3:
    https://frankarobotics.github.io/docs/control_parameters.html#limits-for-franka-research-3, with
    the velocities of libfranka's include/franka/rate_limiting.h (computeUpperLimitsJointVelocity
    and computeLowerLimitsJointVelocity, less its tolerance of 0.001 rad/s), 10 rad/s2 and 5,000
    rad/s3.
    """
    lower = np.array([-2.7501, -1.7918, -2.9065, -3.0481, -2.8101, 0.54092, -3.0196])
    upper = np.array([2.7501, 1.7918, 2.9065, -0.1458, 2.8101, 4.5205, 3.0196])
    c = np.array([12.0, 5.17, 7.0, 8.0, 34.0, 11.0, 34.0])
    offset = np.array([0.30, 0.20, 0.20, 0.30, 0.35, 0.35, 0.35]) + 0.001
    velocity = np.array([2.62, 2.62, 2.62, 2.62, 5.26, 4.18, 5.26]) - 0.001
    curve = np.array([[lower, c, offset], [upper, c, offset]])
    return Limits(lower, upper, velocity, np.full(7, 10.0), np.full(7, 5000.0), curve)


FR3 = _make_fr3()
