"""Losses and speeds of a training, from one evaluation to the next."""

import math
import time
from typing import Any

import torch
from torch import Tensor

LOSSES = ("Q1_loss", "Q2_loss", "Q1", "actor_loss")


class TrainingMeters:
    """Sums of losses and clocks, which start when the object is made.

    Args:
        steps, env_steps, gradient_steps: where the run is.

    Attributes:
        steps: where the run was at the start, in what its length is counted in.
        totals: the sum of each loss, on the agent's device.
    """

    def __init__(self, steps: int, env_steps: int, gradient_steps: int):
        self.steps = steps
        self._env_steps = env_steps
        self._gradient_steps = gradient_steps
        self._began = time.perf_counter()
        self.totals: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, losses: dict[str, Tensor]) -> None:
        """Add the losses of a gradient step."""
        for name, value in losses.items():
            self.totals[name] = self.totals.get(name, 0.0) + value
            self._counts[name] = self._counts.get(name, 0) + 1

    def state_dict(self) -> dict[str, Any]:
        """Return what the next figures depend on, as tensors and plain values."""
        counters = [self.steps, self._env_steps, self._gradient_steps]
        seconds = time.perf_counter() - self._began
        return {
            "from": counters,
            "seconds": seconds,
            "totals": dict(self.totals),
            "counts": dict(self._counts),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], device: torch.device) -> "TrainingMeters":
        """Return meters that continue from what `state_dict` returned."""
        meters = cls(*state["from"])
        meters._began -= state["seconds"]
        meters.totals = {name: total.to(device) for name, total in state["totals"].items()}
        meters._counts = dict(state["counts"])
        return meters

    def compute_losses(self) -> dict[str, float]:
        """Return the mean losses, NaN for one that was not computed; waits for the device."""
        means = {name: float(total / self._counts[name]) for name, total in self.totals.items()}
        return {name: means.get(name, math.nan) for name in LOSSES}

    def compute_speeds(
        self, steps: int, env_steps: int, gradient_steps: int, total: int
    ) -> dict[str, float]:
        """Return steps per second since the start, and the seconds left to `total` at this rate.

        Before a step the latter are NaN.
        """
        seconds = time.perf_counter() - self._began
        made = steps - self.steps
        return {
            "env_steps_per_s": (env_steps - self._env_steps) / seconds,
            "updates_per_s": (gradient_steps - self._gradient_steps) / seconds,
            "left_s": max(0, total - steps) * seconds / made if made else math.nan,
        }
