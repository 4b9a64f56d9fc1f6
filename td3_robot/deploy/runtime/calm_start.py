"""The start of a run: the arm has to be plausible, at rest and near the policy's start."""

import time

import numpy as np

from td3_robot.deploy.arm import Arm, Reading, read_state
from td3_robot.deploy.errors import DeployError
from td3_robot.deploy.safety.watchdog import FASTER, RESOLUTION, Watchdog

CALM = 1.0  # [s] for which the arm has to be plausible and at rest before anything moves
AT_REST = 0.02  # [rad/s] below which a measured velocity is none
PATIENCE = 5.0  # [s] without a single state


def wait_for_calm_start(
    arm: Arm,
    watch: Watchdog,
    home: np.ndarray,
    region: float,
    patience: float = PATIENCE,
    calm: float = CALM,
) -> Reading:
    """Wait until the arm has been plausible, at rest and near the policy's start for a while.

    Args:
        watch: the watchdog, whose limits tell what is plausible.
        home: (n,) joint positions in which the policy starts [rad or m].
        region: how far from home each joint may be [rad or m].
        patience: how long the arm may be silent [s].
        calm: how long the arm has to be at rest [s].

    Raises:
        DeployError: the arm is silent, moves, is somewhere else or reports what cannot be.
    """
    started = heard_at = time.monotonic()
    first = newest = None  # readings of the present calm, which has no gaps
    while newest is None or first is None or newest.stamp - first.stamp < calm:
        reading = read_state(arm)
        now = time.monotonic()
        if reading is not None and now - reading.stamp <= watch.state_age:
            reading = _count_turns(reading, watch, home if newest is None else newest.q)
            _require_rest(reading, newest, watch)
            if newest is None or reading.stamp - newest.stamp > watch.state_age:
                first = reading  # after a gap, in which nobody knows what the arm did, begin anew
            newest = reading
            heard_at = now
        elif now - heard_at > watch.state_age:
            first = newest = None  # a gap that lasts
        if now - heard_at > patience or now - started > 10 * patience:
            raise DeployError(
                f"the arm has sent no state for {now - heard_at:.2f} s, "
                "or states with gaps all the time"
            )
        if reading is None:
            time.sleep(0.001)
    _require_near(newest.q, home, region)
    return newest


def _require_near(q: np.ndarray, home: np.ndarray, region: float) -> None:
    """Refuse to start from joint positions (n,) farther than `region` from home [rad or m]."""
    excess = np.abs(q - home) - region
    if (excess > 0).any():
        joint = int(excess.argmax())
        raise DeployError(
            f"joint {joint + 1} is at {q[joint]:.3f} and the policy starts within {region:g} of "
            f"{home[joint]:.3f}: move the arm there by hand or with its own tools"
        )


def _count_turns(reading: Reading, watch: Watchdog, near: np.ndarray) -> Reading:
    """Return a state with its endless joints in the turn nearest to positions `near` (n,)."""
    limits = watch.safe.robot.limits  # without the filter's margin, which takes range from all
    if np.shape(reading.q) != np.shape(near) or not np.isfinite(reading.q).all():
        return reading  # refused later
    return reading._replace(q=limits.count_turns(reading.q, near))


def _require_rest(reading: Reading, before: Reading | None, watch: Watchdog) -> None:
    """Refuse a state of an arm that is not at rest, or cannot be."""
    limits = watch.safe.limits
    for name, value in (("position", reading.q), ("velocity", reading.qd)):
        if value.shape != limits.lower.shape or not np.isfinite(value).all():
            raise DeployError(
                f"the arm reports a {name} that is no number for each of {limits.n} joints"
            )
    if (np.abs(reading.qd) > AT_REST).any():
        raise DeployError(
            f"joint {int(np.abs(reading.qd).argmax()) + 1} moves already; "
            "start with the arm at rest"
        )
    if before is not None:
        possible = FASTER * limits.velocity * (reading.stamp - before.stamp)
        excess = np.abs(reading.q - before.q) - possible - RESOLUTION
        if (excess > 0).any():
            raise DeployError(f"joint {int(excess.argmax()) + 1} jumps between states")
