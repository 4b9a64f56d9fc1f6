"""What a critic's output (B, out_dim) means: a value, or a distribution of returns.

Both classes have the same methods, so that the agent's update is one text: `mean` of an output,
`target` from the target critics' outputs in the next state, `loss` and, as priority of each sample,
`error` of an output.
"""

import torch
from torch import Tensor

from td3_robot.config.field import FINITE, require
from td3_robot.config.td3 import ATOMS, TD3Config
from td3_robot.td3.losses import (
    categorical_loss,
    categorical_projection,
    clipped_double_q_target,
    critic_loss,
    return_bounds,
)


def value_head(config: TD3Config, device: torch.device) -> "ScalarValue | CategoricalValue":
    """What the options make of a critic's output."""
    if not config.atoms:
        return ScalarValue(*return_bounds(config.r_min, config.r_max, config.gamma))
    assert config.v_min is not None and config.v_max is not None  # TD3Config asks for both
    return CategoricalValue(config.v_min, config.v_max, config.atoms, device)


class ScalarValue:
    """The output is the value itself: TD3 as published.

    Args:
        least, most: what targets are clipped to, None for no bound: a target critic that errs
            beyond what any return can be teaches no more than that (Andrychowicz et al., "Hindsight
            Experience Replay", 2017, appendix A).
    """

    out_dim = 1

    def __init__(self, least: float | None = None, most: float | None = None):
        self.least, self.most = least, most

    def mean(self, output: Tensor) -> Tensor:
        """(B, 1) the expected return."""
        return output

    def target(
        self,
        reward: Tensor,
        discount: Tensor | float,
        done: Tensor,
        output1: Tensor,
        output2: Tensor | None = None,
    ) -> Tensor:
        """(B, 1) r + discount * (1 - done) * the lower of both values, within the bounds.

        Args:
            reward, done: (B, 1).
            discount: gamma, or (B, 1) gamma^k after k steps.
            output1, output2: (B, out_dim); without the second it is DDPG's target.
        """
        y = clipped_double_q_target(reward, discount, done, output1, output2)
        return y if self.least is None and self.most is None else y.clamp(self.least, self.most)

    def loss(self, output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Mean squared TD error; `weight` (B, 1) are importance weights of the samples."""
        return critic_loss(output, target, weight)

    def slope(self, output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """(B, 1) the gradient of `loss` with respect to the output."""
        return _per_sample(output - target, 2.0, weight)

    def error(self, output: Tensor, target: Tensor) -> Tensor:
        """(B,) |q - y| without gradient, the priority in Schaul et al., "Prioritized Experience
        Replay", ICLR 2016.
        """
        return (output.detach() - target)[:, 0].abs()


class CategoricalValue:
    """The outputs are logits of the return being each of `atoms` values from v_min to v_max.

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
        self.support = torch.linspace(v_min, v_max, atoms, device=device)  # (atoms,)

    def mean(self, output: Tensor) -> Tensor:
        """(B, 1) the expected return."""
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
        """(B, atoms) probabilities of r + discount * (1 - done) * the return, by the critic with
        the lower mean.

        Arguments as in `ScalarValue.target`.
        """
        probability = output1.softmax(1)
        if output2 is not None:
            other = output2.softmax(1)
            probability = torch.where(
                self._mean(other) < self._mean(probability), other, probability
            )
        return categorical_projection(probability, reward, discount, done, self.support)

    def loss(self, output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Mean cross-entropy; `weight` (B, 1) are importance weights of the samples."""
        return categorical_loss(output, target, weight)

    def slope(self, output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """(B, atoms) the gradient of `loss` with respect to the output."""
        return _per_sample(output.softmax(1) * target.sum(1, keepdim=True) - target, 1.0, weight)

    def error(self, output: Tensor, target: Tensor) -> Tensor:
        """(B,) divergence (Kullback-Leibler) of target from output without gradient, as in Rainbow
        (AAAI 2018).

        It is the cross-entropy less the target's own entropy: what no training can take away draws
        no samples.
        """
        divergence = torch.xlogy(target, target) - target * output.detach().log_softmax(1)
        return divergence.sum(1).clamp(min=0.0)


def _per_sample(slope: Tensor, factor: float, weight: Tensor | None) -> Tensor:
    """Of the mean over a batch, each sample weighted by `weight` (B, 1), where `slope` times
    `factor` is each one's.
    """
    slope *= factor / len(slope)
    return slope if weight is None else slope * weight
