"""Running statistics of what the environments give: observations to unit variance, rewards to unit
returns.

Nothing here changes but by `update`, so a policy that is only evaluated keeps the statistics it
learned with.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from td3_robot.config.td3 import TD3Config
from td3_robot.errors import CheckpointError

_EPSILON = 1e-8  # added to the variance of returns


def precision(device: torch.device | str) -> torch.dtype:
    """That of running statistics: float64, where the device has it."""
    return torch.float32 if torch.device(device).type == "mps" else torch.float64


class RunningMoments(nn.Module):
    """Mean and variance of all rows ever given, as if computed at once.

    Batches are joined by the parallel formula of Chan, Golub & LeVeque,
    https://en.wikipedia.org/wiki/Algorithms_for_calculating_variance#Parallel_algorithm, in float64
    but on mps.

    Attributes:
        count: () rows so far.
        mean, variance: (dim,) of all rows, the variance divided by `count`; 0 and 1 before the
            first.
        of_all: gives the moments (N, 1 + 2 dim) of the rows of all processes that train together,
            from this one's.
    """

    of_all: Callable[[Tensor], Tensor] | None = None
    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, dim: int, device: torch.device | str = "cpu"):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=precision(device), device=device))
        self.register_buffer("mean", torch.zeros(dim, dtype=precision(device), device=device))
        self.register_buffer("variance", torch.ones(dim, dtype=precision(device), device=device))

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Count the rows of `x` (B, dim) in."""
        if self.of_all is None and not len(x):
            return
        x = x.to(self.mean.dtype)
        variance, mean = (
            torch.var_mean(x, 0, correction=0) if len(x) else (self.variance, self.mean)
        )
        if self.of_all is None:
            return self._join(len(x), mean, variance)
        for row in self.of_all(torch.cat((mean.new_tensor([len(x)]), mean, variance))):
            if row[0] > 0:
                self._join(row[0], *row[1:].chunk(2))

    def _join(self, count: float | Tensor, mean: Tensor, variance: Tensor) -> None:
        """Count in so many rows by their mean and variance (dim,)."""
        self.count += count
        share = (
            count / self.count
        )  # () of these rows among all; 1 the first time, when nothing older remains
        between = (mean - self.mean).square() * share * (1.0 - share)
        self.mean.lerp_(mean, share)
        self.variance.lerp_(variance, share).add_(between)


class RunningNormalizer(nn.Module):
    """(x - mean) / sqrt(variance + epsilon) by running statistics, clipped; the identity before any
    update.

    Args:
        dim: width of the rows.
        clip: largest magnitude that comes out.
        epsilon: added to the variance, as in Gymnasium's NormalizeObservation.
    """

    unbounded = ("limit",)  # is infinite before the first update
    scale: Tensor
    limit: Tensor

    def __init__(
        self,
        dim: int,
        device: torch.device | str = "cpu",
        clip: float = 10.0,
        epsilon: float = 1e-8,
    ):
        super().__init__()
        self._clip, self._epsilon = clip, epsilon
        self.moments = RunningMoments(dim, device)
        self.register_buffer("scale", torch.ones(dim, dtype=precision(device), device=device))
        self.register_buffer(
            "limit", torch.full((), math.inf, dtype=precision(device), device=device)
        )

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Count the rows of `x` (B, dim) in; B is one or more."""
        self.moments.update(x)
        self.scale.copy_((self.moments.variance + self._epsilon).rsqrt())
        self.limit.fill_(self._clip)

    def forward(self, x: Tensor) -> Tensor:
        """(..., dim) -> (..., dim) normalised, in the precision of `x`."""
        # in float64 up to here: in float32 a mean far from zero would leave nothing of small
        # differences
        return ((x - self.moments.mean) * self.scale).clamp(-self.limit, self.limit).to(x.dtype)


def normalizer_of(config: TD3Config, dim: int, device: torch.device) -> nn.Module:
    """What the options make of observations of that width; the identity unless they are
    normalised.
    """
    if not config.normalize_observations:
        return nn.Identity()
    return RunningNormalizer(dim, device, config.normalize_clip, config.normalize_epsilon)


class RewardScaler(nn.Module):
    """Rewards over the running standard deviation of the discounted return; the identity before any
    update.

    As Gymnasium's NormalizeReward it does not shift rewards: a constant added to each would change
    which policy is best wherever an action decides how long the episode lasts. An episode's return
    counts up to and including its last step and then begins at zero, as in Stable-Baselines3's
    VecNormalize.

    Args:
        num_envs: B, environments that step together.
        gamma: discount a step.
    """

    returns: Tensor
    factor: Tensor

    def __init__(self, num_envs: int, gamma: float, device: torch.device | str = "cpu"):
        super().__init__()
        self._gamma = gamma
        self.moments = RunningMoments(1, device)
        self.register_buffer(
            "returns", torch.zeros(num_envs, dtype=precision(device), device=device)
        )
        self.register_buffer("factor", torch.ones((), dtype=precision(device), device=device))

    @torch.no_grad()
    def update(self, reward: Tensor, done: Tensor, valid: Tensor | None = None) -> None:
        """Count one step of all environments in.

        Args:
            reward: (B,).
            done: (B,) bool, terminated or truncated.
            valid: (B,) bool, the rows that are a transition (`Step.valid`); None: all. Selecting
                waits for the device.
        """
        returns = self._gamma * self.returns + reward
        if valid is not None:
            returns = torch.where(valid, returns, self.returns)
        self.moments.update(returns[:, None] if valid is None else returns[valid, None])
        self.factor.copy_((self.moments.variance[0] + _EPSILON).rsqrt())
        self.returns.copy_(returns.masked_fill(done, 0.0))

    def begin(self) -> None:
        """All environments have begun new episodes."""
        self.returns.zero_()

    def statistics(self) -> dict[str, float]:
        """Count, mean and variance of the returns seen, for those who go on with the critics that
        learnt from them.
        """
        return {name: value.item() for name, value in self.moments.state_dict().items()}

    def take(self, statistics: dict[str, float]) -> None:
        """Begin with what `statistics` gave, in place of none.

        Raises:
            CheckpointError: they are not such numbers.
        """
        own = self.moments.state_dict()
        plain = isinstance(statistics, dict) and all(
            type(x) in (int, float) for x in statistics.values()
        )
        if (
            not plain
            or statistics.keys() != own.keys()
            or not all(0 <= statistics[x] for x in ("count", "variance"))
        ):
            raise CheckpointError(f"statistics of rewards must be the numbers {', '.join(own)}")
        self.moments.load_state_dict(
            {name: torch.full_like(own[name], x) for name, x in statistics.items()}
        )
        self.factor.copy_((self.moments.variance[0] + _EPSILON).rsqrt())

    def scale(self, reward: Tensor) -> Tensor:
        """Rewards of any shape, scaled."""
        return reward * self.factor
