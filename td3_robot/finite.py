"""Numbers that are none, caught before they are reported or saved."""

import math
from pathlib import Path

import torch
from torch import Tensor

from td3_robot.agent import TD3
from td3_robot.errors import NotFiniteError
from td3_robot.states import LARGEST


def require_finite(agent: TD3, folder: Path, others: dict[str, Tensor]) -> None:
    """Hold an agent's weights, and what else is about to be reported or saved, to finite numbers.

    Args:
        agent: weights beyond what a checkpoint may hold count as infinite.
        folder: of the last good checkpoint.
        others: by the names to tell.

    Raises:
        NotFiniteError: names what is NaN or infinite.
    """
    values = dict(others)
    for name in ("actor", "Q1", "Q2"):
        weights = torch.cat([weight.detach().flatten() for weight in getattr(agent, name).parameters()])
        values[f"a weight of {name}"] = weights.where(weights.abs() <= LARGEST, math.inf)
    for name, value in values.items():
        if not torch.isfinite(value).all():
            raise NotFiniteError(
                f"{name} became NaN or infinite by update {agent.gradient_steps}; the last good checkpoint "
                f"is intact in {folder}; lower td3.critic_lr or check the reward"
            )
