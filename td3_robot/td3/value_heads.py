"""The meaning of a critic's output (B, out_dim): a value, or a distribution of returns.

Both classes have the same methods, so that the agent has one update for both: `mean` of an output,
`target` from the target critics' outputs in the next state, `loss` of an output and its gradient
`grad`, and `error`, the priority of each sample.
"""

import torch
from torch import Tensor

from td3_robot.config.field import FINITE, require
from td3_robot.config.td3 import ATOMS, TD3Config
from td3_robot.td3.losses import (
    categorical_loss,
    clipped_double_q_target,
    critic_loss,
    project_categorical,
    return_bounds,
)


def make_value_head(config: TD3Config, device: torch.device) -> "ScalarValue | CategoricalValue":
    """Make the value head that the options ask for."""
    if not config.atoms:
        return ScalarValue(*return_bounds(config.r_min, config.r_max, config.gamma))
    assert config.v_min is not None and config.v_max is not None  # TD3Config asks for both
    return CategoricalValue(config.v_min, config.v_max, config.atoms, device)


class ScalarValue:
    """A value head whose output is the value itself, as in TD3.

    Args:
        least, most: bounds that targets are clipped to, None for no bound, so that target critics
            never exceed the possible returns (Andrychowicz et al., "Hindsight Experience Replay",
            2017, appendix A).
    """

    out_dim = 1

    def __init__(self, least: float | None = None, most: float | None = None):
        self.least = least
        self.most = most

    def mean(self, output: Tensor) -> Tensor:
        """Return the expected return (B, 1)."""
        return output

    def target(
        self,
        reward: Tensor,
        discount: Tensor | float,
        done: Tensor,
        output1: Tensor,
        output2: Tensor | None = None,
    ) -> Tensor:
        """Compute (B, 1) r + discount * (1 - done) * the lower of both values, within the bounds.

        Args:
            reward, done: (B, 1).
            discount: gamma, or (B, 1) gamma^k after k steps.
            output1, output2: (B, out_dim); without the second it is DDPG's target.
        """
        y = clipped_double_q_target(reward, discount, done, output1, output2)
        return y if self.least is None and self.most is None else y.clamp(self.least, self.most)

    def loss(self, output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Compute the mean squared TD error; `weight` (B, 1) are importance weights."""
        return critic_loss(output, target, weight)

    def grad(self, output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Compute the gradient (B, 1) of `loss` with respect to the output."""
        return _average(output - target, 2.0, weight)

    def error(self, output: Tensor, target: Tensor) -> Tensor:
        """Compute |q - y| (B,) without gradient, the priority in Schaul et al., ICLR 2016."""
        return (output.detach() - target)[:, 0].abs()


class CategoricalValue:
    """A value head whose outputs are logits of `atoms` returns from v_min to v_max.

    C51 (Bellemare, Dabney & Munos, ICML 2017) with clipped double Q as in FastTD3 (Seo et al.,
    https://arxiv.org/abs/2505.22642): each sample takes the whole distribution of that target
    critic whose mean is lower. FastTD3's code compares the means after the projection; here it is
    before, as TD3 does with values, and one projection is enough. Returns outside [v_min, v_max]
    count as the nearer end.

    Raises:
        ConfigError: fewer than two atoms, or v_min is not below v_max, or one of them is not
            finite.
    """

    def __init__(self, v_min: float, v_max: float, atoms: int, device: torch.device | str = "cpu"):
        require("atoms", atoms, ATOMS._replace(least=2))
        require("v_min", v_min, FINITE)
        require("v_max", v_max, FINITE._replace(least=v_min, above=True))
        self.out_dim = atoms
        # (atoms,)
        self.support = torch.linspace(v_min, v_max, atoms, device=device, dtype=torch.float32)

    def mean(self, output: Tensor) -> Tensor:
        """Return the expected return (B, 1)."""
        return self._mean(output.softmax(1))

    def _mean(self, probability: Tensor) -> Tensor:
        return (probability * self.support).sum(1, keepdim=True)

    def target(
        self,
        reward: Tensor,
        discount: Tensor | float,
        done: Tensor,
        output1: Tensor,
        output2: Tensor | None = None,
    ) -> Tensor:
        """Compute probabilities (B, atoms) of r + discount * (1 - done) * the return.

        The return's distribution is that of the critic with the lower mean. Arguments are those of
        `ScalarValue.target`.
        """
        probability = output1.softmax(1)
        if output2 is not None:
            other = output2.softmax(1)
            probability = torch.where(
                self._mean(other) < self._mean(probability), other, probability
            )
        return project_categorical(probability, reward, discount, done, self.support)

    def loss(self, output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Compute the mean cross-entropy; `weight` (B, 1) are importance weights."""
        return categorical_loss(output, target, weight)

    def grad(self, output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Compute the gradient (B, atoms) of `loss` with respect to the output."""
        return _average(output.softmax(1) * target.sum(1, keepdim=True) - target, 1.0, weight)

    def error(self, output: Tensor, target: Tensor) -> Tensor:
        """Compute the Kullback-Leibler divergence (B,) without gradient, as in Rainbow (AAAI 2018).

        It is the cross-entropy less the target's own entropy, which no training can reduce and
        which therefore adds no priority.
        """
        divergence = torch.xlogy(target, target) - target * output.detach().log_softmax(1)
        return divergence.sum(1).clamp(min=0.0)


def _average(grad: Tensor, factor: float, weight: Tensor | None) -> Tensor:
    """Return the gradient of a weighted batch mean, given each sample's `grad` * `factor`."""
    grad *= factor / len(grad)
    return grad if weight is None else grad * weight
