"""Schedules of a quantity over a training: factors of its initial value."""

import math

from td3_robot.config.field import require


def _constant(progress: float) -> float:
    return 1.0


def _linear(progress: float) -> float:
    return 1.0 - progress


def _cosine(progress: float) -> float:
    """Loshchilov & Hutter, "SGDR", ICLR 2017, eq. 5 without restarts."""
    return 0.5 * (1.0 + math.cos(math.pi * progress))


SCHEDULES = {"constant": _constant, "linear": _linear, "cosine": _cosine}


def compute_schedule_factor(name: str, progress: float, floor: float = 0.0) -> float:
    """Compute the factor at `progress` in [0, 1], from 1 at the start to at least `floor`.

    Raises:
        ConfigError: no such schedule.
    """
    require("schedule", name, tuple(SCHEDULES))
    return max(floor, SCHEDULES[name](min(1.0, max(0.0, progress))))
