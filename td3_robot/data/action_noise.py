"""Exploration noise on actions: three processes of unit variance, each times a standard deviation.

The deviation is constant, one an environment, or (`UncertaintyScale`) larger where the critics are
unsure.
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


class Noise:
    """Noise of its own for every environment and joint; a subclass says how it goes on from step to
    step.

    Every process has standard deviation 1 at every step, so that `sigma` means the same for all.

    Args:
        shape: (B, a_dim).
        sigma: standard deviation, in units of a_max.
        per_env: draw every environment's own sigma uniformly from [0, 2 sigma], anew for each
            episode, so that the replay always holds both wide and precise behaviour.
        generator: draws the noise; its device is the noise's.

    Attributes:
        shares: (B, 1) the standard deviation of each environment, in units of sigma: what a resume
            takes over, whose sigma may be another one.
    """

    _state = ("shares",)  # names of the tensors that a resume needs; a subclass adds its own

    def __init__(
        self, shape: tuple[int, int], sigma: float, per_env: bool, generator: torch.Generator
    ):
        self._shape, self._sigma, self._per_env, self.generator = shape, sigma, per_env, generator
        self.shares = self._draw_shares()

    @property
    def sigmas(self) -> Tensor:
        """(B, 1) the standard deviation of each environment."""
        return self._sigma * self.shares

    def _draw_shares(self) -> Tensor:
        B, device = self._shape[0], self.generator.device
        if not self._per_env:
            return torch.ones(B, 1, device=device)
        return 2.0 * torch.rand(B, 1, generator=self.generator, device=device)

    def _white(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.generator.device)

    def _step(self) -> Tensor:
        """(B, a_dim) the next value of the process, with standard deviation 1."""
        raise NotImplementedError

    def _restart(self, done: Tensor) -> None:
        """Begin the process anew in the environments where `done` (B,) is true."""

    def sample(self) -> Tensor:
        """(B, a_dim) noise of the next step."""
        return self.sigmas * self._step()

    def end_episodes(self, done: Tensor) -> None:
        """Draw a new sigma and begin anew for every environment whose episode ended; `done` is (B,)
        bool.
        """
        if self._per_env:
            self.shares = torch.where(done[:, None], self._draw_shares(), self.shares)
        self._restart(done)

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of all that the next samples depend on, but for the generator, which belongs to
        the caller.
        """
        return {name: getattr(self, name).clone() for name in self._state}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what `state_dict` gave, from whatever device.

        Raises:
            CheckpointError: it is of noise of another kind, or of other numbers of environments,
                joints or steps.
        """
        shapes = {name: tuple(value.shape) for name, value in state.items()}
        expected = {name: tuple(getattr(self, name).shape) for name in self._state}
        if shapes != expected:
            raise CheckpointError(
                f"the state of the exploration noise has {shapes}, this run's noise has {expected}"
            )
        for name, value in state.items():
            setattr(self, name, value.to(getattr(self, name).device, copy=True))
        if not self._per_env:  # it may have been otherwise
            self.shares = self._draw_shares()


class GaussianNoise(Noise):
    """White noise: every step is independent of all others (TD3, Fujimoto et al., ICML 2018)."""

    def _step(self) -> Tensor:
        return self._white(*self._shape)


class OrnsteinUhlenbeckNoise(Noise):
    """x <- (1 - theta) x + sqrt(1 - (1 - theta)^2) w with white w: correlation (1 - theta)^k over k
    steps.

    DDPG (Lillicrap et al., ICLR 2016, section 7) has theta 0.15 and writes x <- (1 - theta) x + 0.2
    w, whose standard deviation comes to 0.2 / sqrt(1 - 0.85^2) = 0.38: that is its sigma here.
    There an episode begins at x = 0; here it begins with a draw from the stationary distribution,
    so that its first steps explore as widely as the rest.

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
        self._decay = 1.0 - theta
        self.value = torch.zeros(shape, device=generator.device)
        self.decay = torch.zeros(
            shape[0], 1, device=generator.device
        )  # 0 where the next value is an episode's first

    def _step(self) -> Tensor:
        self.value = self.decay * self.value + (1.0 - self.decay.square()).sqrt() * self._white(
            *self._shape
        )
        self.decay = torch.full_like(self.decay, self._decay)
        return self.value

    def _restart(self, done: Tensor) -> None:
        self.decay = self.decay.masked_fill(done[:, None], 0.0)


class PinkNoise(Noise):
    """Noise whose power falls as 1 / frequency (Eberhard et al., "Pink Noise Is All You Need", ICLR
    2023).

    Whole sequences are drawn at once by shaping the spectrum of white noise (Timmer & Koenig,
    Astronomy and Astrophysics 300, 1995). Below frequency 1 / horizon the power stays what it is
    there. A sequence is stationary and periodic, so it may be entered at any step and goes on from
    its end to its beginning: all environments read at the same position, and each one's sequence is
    replaced when its episode ends or after `horizon` steps.

    `end_episodes` reads `done` on the host, once; a step waits for nothing. Memory: horizon * B *
    a_dim floats, several times that while all are drawn.

    Args:
        horizon: steps of a sequence; best the length of an episode, over which the noise then is
            pink.

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
        self._horizon, self._gain = horizon, pink_gain(horizon).to(generator.device)
        self.sequences = self._draw_sequences(shape[0])  # (horizon, B, a_dim)
        self.steps_left = torch.full(
            (shape[0],), horizon
        )  # of each environment's sequence; on the host
        self.position = torch.zeros((), dtype=torch.int64)  # where all are read next; on the host

    def _draw_sequences(self, count: int) -> Tensor:
        spectrum = torch.fft.rfft(self._white(self._horizon, count, self._shape[1]), dim=0)
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


def pink_gain(horizon: int) -> Tensor:
    """(horizon // 2 + 1,) factors on the real Fourier coefficients of white noise of variance 1
    that make it pink.
    """

    def power(frequency: Tensor) -> Tensor:
        return 1.0 / frequency.abs().clamp(min=1.0 / horizon)

    # the variance of a real sequence is the mean power over both signs of the frequency
    variance = power(torch.fft.fftfreq(horizon)).mean()
    return (power(torch.fft.rfftfreq(horizon)) / variance).sqrt()


class UncertaintyScale:
    """A factor of the noise for every environment: more where two critics disagree, less where they
    agree.

    Both learn the same values from the same batches, so they differ where there were few. The
    factor is their distance over its running mean, from half to twice, so that noise neither dies
    out nor takes over.

    Attributes:
        mean: () running mean of the distance; NaN before the first.
    """

    rate, least, most = 0.01, 0.5, 2.0  # rate: share of the newest step in the mean

    def __init__(self, device: torch.device | str):
        self.mean = torch.full((), torch.nan, device=device)

    def __call__(self, disagreement: Tensor) -> Tensor:
        """(B,) distances of the two values of each environment's action -> (B, 1) factors."""
        newest = disagreement.mean()
        self.mean = torch.where(self.mean.isnan(), newest, torch.lerp(self.mean, newest, self.rate))
        ratio = disagreement / self.mean.clamp_min(torch.finfo(self.mean.dtype).tiny)
        return ratio.clamp(self.least, self.most)[:, None]

    def state_dict(self) -> dict[str, Tensor]:
        """What the next factors depend on."""
        return {"mean": self.mean}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what `state_dict` gave."""
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
    """The noise of that kind; `theta` is for "ou" alone and `horizon` for "pink" alone.

    Raises:
        ConfigError: there is no such kind, or its own option is out of range.
    """
    require("kind", kind, NOISES)
    options: dict[str, Any] = {"ou": {"theta": theta}, "pink": {"horizon": horizon}}.get(kind, {})
    return _CLASSES[kind](shape, sigma, per_env, generator, **options)
