"""Exploration noise on actions."""

import torch
from torch import Tensor


class GaussianNoise:
    """Independent Gaussian noise for every environment, joint and step.

    Args:
        shape: (B, a_dim).
        sigma: standard deviation, in units of a_max.
        per_env: draw every environment's own sigma uniformly from [0, 2 sigma], anew for each episode, so
            that the replay always holds both wide and precise behaviour.
        generator: draws the noise; its device is the noise's.
    """

    def __init__(self, shape: tuple[int, int], sigma: float, per_env: bool, generator: torch.Generator):
        self._shape, self._sigma, self._per_env, self.generator = shape, sigma, per_env, generator
        self.sigmas = self._draw_sigmas()  # (B, 1)

    def _draw_sigmas(self) -> Tensor:
        B, device = self._shape[0], self.generator.device
        if not self._per_env:
            return torch.full((B, 1), self._sigma, device=device)
        return 2.0 * self._sigma * torch.rand(B, 1, generator=self.generator, device=device)

    def sample(self) -> Tensor:
        """(B, a_dim) noise."""
        return self.sigmas * torch.randn(self._shape, generator=self.generator, device=self.generator.device)

    def end_episodes(self, done: Tensor) -> None:
        """Draw a new sigma for every environment whose episode ended; `done` is (B,) bool."""
        if self._per_env:
            self.sigmas = torch.where(done[:, None], self._draw_sigmas(), self.sigmas)
