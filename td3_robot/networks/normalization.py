"""Normalisation of observations and scaling of rewards by running statistics.

Only `update` changes them, so a policy in evaluation keeps the statistics it was trained with.
"""

import math

import torch
from torch import Tensor, nn

from td3_robot.config.td3 import TD3Config
from td3_robot.errors import CheckpointError
from td3_robot.utils.communicator import SINGLE_PROCESS, Communicator

_EPSILON = 1e-8  # added to the variance of returns


def choose_precision(device: torch.device | str) -> torch.dtype:
    """Return the precision of running statistics: float64, or float32 on mps."""
    return torch.float32 if torch.device(device).type == "mps" else torch.float64


class RunningMoments(nn.Module):
    """Running mean and variance of all rows seen, as if computed in one pass.

    Batches are joined by the parallel formula of Chan, Golub & LeVeque,
    https://en.wikipedia.org/wiki/Algorithms_for_calculating_variance#Parallel_algorithm, in float64
    except on mps.

    Attributes:
        count: () rows so far.
        mean, variance: (dim,) of all rows, the variance divided by `count`; 0 and 1 before the
            first.
        communicator: of the processes that train together, whose rows all count in each.
    """

    communicator: Communicator = SINGLE_PROCESS
    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, dim: int, device: torch.device | str = "cpu"):
        super().__init__()
        self.register_buffer(
            "count", torch.zeros((), dtype=choose_precision(device), device=device)
        )
        self.register_buffer(
            "mean", torch.zeros(dim, dtype=choose_precision(device), device=device)
        )
        self.register_buffer(
            "variance", torch.ones(dim, dtype=choose_precision(device), device=device)
        )

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Add the rows of `x` (B, dim) to the statistics."""
        alone = self.communicator.size == 1
        if alone and not len(x):
            return
        x = x.to(self.mean.dtype)
        moments = torch.var_mean(x, 0, correction=0) if len(x) else (self.variance, self.mean)
        variance, mean = moments
        if alone:
            return self._join(len(x), mean, variance)
        own = torch.cat((mean.new_tensor([len(x)]), mean, variance))
        for row in self.communicator.all_gather(own):
            if row[0] > 0:
                self._join(row[0], *row[1:].chunk(2))

    def _join(self, count: float | Tensor, mean: Tensor, variance: Tensor) -> None:
        """Add `count` rows by their mean and variance (dim,)."""
        self.count += count
        share = count / self.count  # (), 1 the first time, when nothing older remains
        between = (mean - self.mean).square() * share * (1.0 - share)
        self.mean.lerp_(mean, share)
        self.variance.lerp_(variance, share).add_(between)


def share_moments(module: nn.Module, communicator: Communicator) -> None:
    """Make the running statistics of a module count the rows of all processes."""
    for part in module.modules():
        if isinstance(part, RunningMoments):
            part.communicator = communicator


class RunningNormalizer(nn.Module):
    """The clipped (x - mean) / sqrt(variance + epsilon); the identity before the first update.

    Args:
        dim: width of the rows.
        clip: largest magnitude of the output.
        epsilon: added to the variance, as in Gymnasium's NormalizeObservation.
    """

    unbounded = ("limit",)  # infinite before the first update
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
        self._clip = clip
        self._epsilon = epsilon
        self.moments = RunningMoments(dim, device)
        self.register_buffer(
            "scale", torch.ones(dim, dtype=choose_precision(device), device=device)
        )
        self.register_buffer(
            "limit", torch.full((), math.inf, dtype=choose_precision(device), device=device)
        )

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Add the rows of `x` (B, dim) to the statistics; B is one or more."""
        self.moments.update(x)
        self.scale.copy_((self.moments.variance + self._epsilon).rsqrt())
        self.limit.fill_(self._clip)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (..., dim) in float64: float32 loses small differences from a large mean."""
        return ((x - self.moments.mean) * self.scale).clamp(-self.limit, self.limit).to(x.dtype)


def make_normalizer(
    config: TD3Config, dim: int, device: torch.device, communicator: Communicator
) -> nn.Module:
    """Make the normaliser of observations (B, dim) that the options ask for, or the identity."""
    if not config.normalize_observations:
        return nn.Identity()
    normalizer = RunningNormalizer(dim, device, config.normalize_clip, config.normalize_epsilon)
    share_moments(normalizer, communicator)
    return normalizer


class RewardScaler(nn.Module):
    """Rewards divided by the running standard deviation of the discounted return.

    Like Gymnasium's NormalizeReward it does not shift rewards: a constant added to each would
    change the best policy wherever actions decide how long the episode lasts. An episode's return
    includes its last step and then restarts at zero, as in Stable-Baselines3's VecNormalize. Before
    the first update it is the identity.

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
            "returns", torch.zeros(num_envs, dtype=choose_precision(device), device=device)
        )
        self.register_buffer(
            "factor", torch.ones((), dtype=choose_precision(device), device=device)
        )

    @torch.no_grad()
    def update(self, reward: Tensor, done: Tensor, valid: Tensor | None = None) -> None:
        """Add one step of all environments to the statistics.

        Args:
            reward: (B,).
            done: (B,) bool, terminated or truncated.
            valid: (B,) bool, the rows that are a transition (`Step.valid`); None: all. Selecting
                rows waits for the device.
        """
        returns = self._gamma * self.returns + reward
        if valid is not None:
            returns = torch.where(valid, returns, self.returns)
        self.moments.update(returns[:, None] if valid is None else returns[valid, None])
        self.factor.copy_((self.moments.variance[0] + _EPSILON).rsqrt())
        self.returns.copy_(returns.masked_fill(done, 0.0))

    def begin(self) -> None:
        """Begin new episodes in all environments: returns restart at zero."""
        self.returns.zero_()

    def get_statistics(self) -> dict[str, float]:
        """Return count, mean and variance of the returns, for a fine-tuning of the same critics."""
        return {name: value.item() for name, value in self.moments.state_dict().items()}

    def load_statistics(self, statistics: dict[str, float]) -> None:
        """Start with the result of `get_statistics`.

        Raises:
            CheckpointError: it does not hold such numbers.
        """
        own = self.moments.state_dict()
        if (
            not isinstance(statistics, dict)
            or not all(type(x) in (int, float) for x in statistics.values())
            or statistics.keys() != own.keys()
            or not all(0 <= statistics[x] for x in ("count", "variance"))
        ):
            raise CheckpointError(f"statistics of rewards must be the numbers {', '.join(own)}")
        self.moments.load_state_dict(
            {name: torch.full_like(own[name], x) for name, x in statistics.items()}
        )
        self.factor.copy_((self.moments.variance[0] + _EPSILON).rsqrt())

    def scale(self, reward: Tensor) -> Tensor:
        """Scale rewards of any shape."""
        return reward * self.factor
