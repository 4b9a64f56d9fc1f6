"""Exploration noise on actions: three processes of unit variance, times a standard deviation.

The deviation is constant, differs by environment, or (`UncertaintyScale`) is larger where the
critics disagree.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from td3_robot.config.field import PART, require
from td3_robot.config.run import NOISES, PINK_STEPS
from td3_robot.errors import CheckpointError
from td3_robot.utils.memory import require_memory
from td3_robot.vec_env import draw_normal, draw_uniform


class Noise:
    """Independent noise for every environment and joint; a subclass defines the process.

    Every process has standard deviation 1 at every step, so that `sigma` means the same for all.

    Args:
        shape: (B, a_dim).
        sigma: standard deviation, in units of a_max.
        per_env: draw every environment's own sigma uniformly from [0, 2 sigma], again for each
            episode, so that the replay always holds both wide and precise behaviour.
        generator: draws the noise, on its device.

    Attributes:
        shares: (B, 1) the standard deviation of each environment, in units of sigma. A resume
            restores these, as its sigma may differ.
    """

    _state = ("shares",)  # names of the tensors that a resume needs; a subclass adds its own

    def __init__(
        self, shape: tuple[int, int], sigma: float, per_env: bool, generator: torch.Generator
    ):
        self._shape = shape
        self._sigma = sigma
        self._per_env = per_env
        self.generator = generator
        self.shares = self._draw_shares()

    @property
    def sigmas(self) -> Tensor:
        """Standard deviation (B, 1) of each environment."""
        return self._sigma * self.shares

    def _draw_shares(self) -> Tensor:
        shape = (self._shape[0], 1)
        device = self.generator.device
        if not self._per_env:
            return torch.ones(shape, device=device, dtype=torch.float32)
        return 2.0 * draw_uniform(self.generator, *shape)

    def _draw_white(self, *shape: int) -> Tensor:
        return draw_normal(self.generator, *shape)

    def _step(self) -> Tensor:
        """Return the next value (B, a_dim) of the process, with standard deviation 1."""
        raise NotImplementedError

    def _restart(self, done: Tensor) -> None:
        """Start the process again in the environments where `done` (B,) is true."""

    def sample(self) -> Tensor:
        """Return the noise (B, a_dim) of the next step."""
        return self.sigmas * self._step()

    def end_episodes(self, done: Tensor) -> None:
        """Draw a new sigma and start again in the environments where `done` (B,) is true."""
        if self._per_env:
            self.shares = torch.where(done[:, None], self._draw_shares(), self.shares)
        self._restart(done)

    def state_dict(self) -> dict[str, Tensor]:
        """Return copies of all that the next samples depend on, except the generator."""
        return {name: getattr(self, name).clone() for name in self._state}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore a `state_dict`, from any device.

        Raises:
            CheckpointError: the state is of another kind of noise, or of other numbers of
                environments, joints or steps.
        """
        shapes = {name: tuple(value.shape) for name, value in state.items()}
        expected = {name: tuple(getattr(self, name).shape) for name in self._state}
        if shapes != expected:
            raise CheckpointError(
                f"the state of the exploration noise has {shapes}, this run's noise has {expected}"
            )
        for name, value in state.items():
            setattr(self, name, value.to(getattr(self, name).device, copy=True))
        if not self._per_env:  # the state may be of a run with per_env
            self.shares = self._draw_shares()


class GaussianNoise(Noise):
    """White noise: independent steps (TD3, Fujimoto et al., ICML 2018)."""

    def _step(self) -> Tensor:
        return self._draw_white(*self._shape)


class OrnsteinUhlenbeckNoise(Noise):
    """Ornstein-Uhlenbeck noise: correlation (1 - theta)^k over k steps.

    x <- (1 - theta) x + sqrt(1 - (1 - theta)^2) w with white w. DDPG (Lillicrap et al., ICLR 2016,
    section 7) has theta 0.15 and x <- (1 - theta) x + 0.2 w, whose standard deviation, its sigma
    here, is 0.2 / sqrt(1 - 0.85^2) = 0.38. There an episode begins at x = 0; here it begins with a
    draw from the stationary distribution, so that its first steps explore as widely as the rest.

    Args:
        theta: share of the value that decays each step, in (0, 1]; 1 is white noise.

    Raises:
        ConfigError: theta is outside (0, 1].
    """

    _state = ("shares", "value", "decay")

    def __init__(
        self,
        shape: tuple[int, int],
        sigma: float,
        per_env: bool,
        generator: torch.Generator,
        theta: float = 0.15,
    ):
        require("theta", theta, PART)
        super().__init__(shape, sigma, per_env, generator)
        self._correlation = 1.0 - theta
        self.value = torch.zeros(shape, device=generator.device, dtype=torch.float32)
        # (B, 1) correlation with the last value: 0 where the next one is an episode's first
        self.decay = torch.zeros(shape[0], 1, device=generator.device, dtype=torch.float32)

    def _step(self) -> Tensor:
        white = (1.0 - self.decay.square()).sqrt() * self._draw_white(*self._shape)
        self.value = self.decay * self.value + white
        self.decay = torch.full_like(self.decay, self._correlation)
        return self.value

    def _restart(self, done: Tensor) -> None:
        self.decay = self.decay.masked_fill(done[:, None], 0.0)


class PinkNoise(Noise):
    """Pink noise: its power falls as 1 / frequency.

    Eberhard et al., "Pink Noise Is All You Need", ICLR 2023. Whole sequences are drawn by shaping
    the spectrum of white noise (Timmer & Koenig, Astronomy and Astrophysics 300, 1995). Below
    frequency 1 / horizon the power is constant. A sequence is stationary and periodic, so it may be
    entered at any step and wraps around at its end: all environments read at the same position, and
    each one's sequence is replaced when its episode ends or after `horizon` steps.

    `end_episodes` reads `done` on the host, once; a step does not wait for the device. Memory:
    horizon * B * a_dim floats, several times that while all are drawn.

    Args:
        horizon: steps of a sequence, best the length of an episode.

    Raises:
        ConfigError: horizon is not positive, or the sequences need more memory than there is.
    """

    _state = ("shares", "sequences", "steps_left", "position")

    def __init__(
        self,
        shape: tuple[int, int],
        sigma: float,
        per_env: bool,
        generator: torch.Generator,
        horizon: int = 1000,
    ):
        require("horizon", horizon, PINK_STEPS)
        require_memory(
            f"pink noise of {horizon} steps", 4.0 * horizon * math.prod(shape), generator.device
        )
        super().__init__(shape, sigma, per_env, generator)
        self._horizon = horizon
        self._gain = compute_pink_gain(horizon).to(generator.device)
        self.sequences = self._draw_sequences(shape[0])  # (horizon, B, a_dim)
        # on the host: steps left of each environment's sequence, and the next position in all
        self.steps_left = torch.full((shape[0],), horizon)
        self.position = torch.zeros((), dtype=torch.int64)

    def _draw_sequences(self, count: int) -> Tensor:
        spectrum = torch.fft.rfft(self._draw_white(self._horizon, count, self._shape[1]), dim=0)
        return torch.fft.irfft(spectrum * self._gain[:, None, None], n=self._horizon, dim=0)

    def _step(self) -> Tensor:
        self._restart(self.steps_left == 0)
        value = self.sequences[int(self.position)]
        self.position = (self.position + 1) % self._horizon
        self.steps_left -= 1
        return value

    def _restart(self, done: Tensor) -> None:
        done = done.cpu()
        if done.any():
            index = done.nonzero()[:, 0]
            self.sequences[:, index.to(self.sequences.device)] = self._draw_sequences(len(index))
            self.steps_left[index] = self._horizon


def compute_pink_gain(horizon: int) -> Tensor:
    """Return factors (horizon // 2 + 1,) that make white noise of variance 1 pink.

    They multiply its real Fourier coefficients.
    """

    def compute_power(frequency: Tensor) -> Tensor:
        return 1.0 / frequency.abs().clamp(min=1.0 / horizon)

    # the variance of a real sequence is the mean power over both signs of the frequency
    variance = compute_power(torch.fft.fftfreq(horizon, dtype=torch.float32)).mean()
    power = compute_power(torch.fft.rfftfreq(horizon, dtype=torch.float32))
    return (power / variance).sqrt()


class UncertaintyScale:
    """Factor of the noise for every environment: larger where the two critics disagree.

    Both learn the same values from the same batches, so they differ where data is scarce. The
    factor is their distance over its running mean, clamped so that noise neither dies out nor takes
    over.

    Attributes:
        mean: () running mean of the distance; NaN before the first.
        rate: share of the newest step in the mean.
        least, most: bounds of the factor.
    """

    rate = 0.01
    least = 0.5
    most = 2.0

    def __init__(self, device: torch.device | str):
        self.mean = torch.full((), torch.nan, device=device, dtype=torch.float32)

    def __call__(self, disagreement: Tensor) -> Tensor:
        """Return factors (B, 1) from the distances (B,) of the two values of each action."""
        newest = disagreement.mean()
        self.mean = torch.where(self.mean.isnan(), newest, torch.lerp(self.mean, newest, self.rate))
        ratio = disagreement / self.mean.clamp_min(torch.finfo(self.mean.dtype).tiny)
        return ratio.clamp(self.least, self.most)[:, None]

    def state_dict(self) -> dict[str, Tensor]:
        """Return all that the next factors depend on."""
        return {"mean": self.mean}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore a `state_dict`."""
        self.mean = state["mean"].to(self.mean.device)


_CLASSES: dict[str, Callable[..., Noise]] = dict(
    zip(NOISES, (GaussianNoise, OrnsteinUhlenbeckNoise, PinkNoise))
)


def make_noise(
    kind: str,
    shape: tuple[int, int],
    sigma: float,
    per_env: bool,
    generator: torch.Generator,
    *,
    theta: float = 0.15,
    horizon: int = 1000,
) -> Noise:
    """Return noise of a kind; only "ou" uses `theta` and only "pink" uses `horizon`.

    Raises:
        ConfigError: there is no such kind, or its option is out of range.
    """
    require("kind", kind, NOISES)
    options: dict[str, Any] = {"ou": {"theta": theta}, "pink": {"horizon": horizon}}.get(kind, {})
    return _CLASSES[kind](shape, sigma, per_env, generator, **options)
