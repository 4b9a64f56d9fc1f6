"""Rollouts and scores. This file exports the rollout alone, so that importing it loads no agent."""

from td3_robot.evaluation.rollout import (
    Rollout,
    compute_episode_statistics,
    evaluate,
    iter_rollouts,
    make_random_policy,
    rollout,
    summarise,
)
from td3_robot.utils.legacy import find_old_names

__all__ = [
    "Rollout",
    "compute_episode_statistics",
    "evaluate",
    "iter_rollouts",
    "make_random_policy",
    "rollout",
    "summarise",
]

__getattr__ = find_old_names(__name__)
