"""What a training measures from one evaluation to the next: losses and speeds."""

import math
import time
from typing import Any

import torch
from torch import Tensor

LOSSES = ("Q1_loss", "Q2_loss", "Q1", "actor_loss")


class Interval:
    """Sums and clocks that start when it is made.

    Args:
        steps, env_steps, gradient_steps: where the run is.

    Attributes:
        steps: where the run was, in what its length is counted in.
        totals: the sum of each loss, on the agent's device.
    """

    def __init__(self, steps: int, env_steps: int, gradient_steps: int):
        self.steps, self._env_steps, self._gradient_steps = steps, env_steps, gradient_steps
        self._began = time.perf_counter()
        self.totals: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, losses: dict[str, Tensor]) -> None:
        """Count the losses of a gradient step in."""
        for name, value in losses.items():
            self.totals[name] = self.totals.get(name, 0.0) + value
            self._counts[name] = self._counts.get(name, 0) + 1

    def state_dict(self) -> dict[str, Any]:
        """What the next figures depend on, as tensors and plain values."""
        counters = [self.steps, self._env_steps, self._gradient_steps]
        seconds = time.perf_counter() - self._began
        return {
            "from": counters,
            "seconds": seconds,
            "totals": dict(self.totals),
            "counts": dict(self._counts),
        }

    @classmethod
    def of(cls, state: dict[str, Any], device: torch.device) -> "Interval":
        """The interval that `state_dict` was of, going on now."""
        interval = cls(*state["from"])
        interval._began -= state["seconds"]
        interval.totals = {name: total.to(device) for name, total in state["totals"].items()}
        interval._counts = dict(state["counts"])
        return interval

    def losses(self) -> dict[str, float]:
        """Their means, NaN for one that was not computed; reading them waits for the device."""
        means = {name: float(total / self._counts[name]) for name, total in self.totals.items()}
        return {name: means.get(name, math.nan) for name in LOSSES}

    def speeds(
        self, steps: int, env_steps: int, gradient_steps: int, total: int
    ) -> dict[str, float]:
        """Steps a second up to now, and the seconds that are left of `total` steps at this
        speed.
        """
        seconds = time.perf_counter() - self._began
        return {
            "env_steps_per_s": (env_steps - self._env_steps) / seconds,
            "updates_per_s": (gradient_steps - self._gradient_steps) / seconds,
            "left_s": max(0, total - steps) * seconds / (steps - self.steps),
        }
