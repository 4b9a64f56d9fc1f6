"""Rollouts and scores. This file hands on the rollout alone: it may be imported without the
agent.
"""

from td3_robot.evaluation.rollout import (
    Rollout,
    episode_statistics,
    evaluate,
    random_policy,
    rollout,
    rollouts,
    summarise,
)

__all__ = [
    "Rollout",
    "episode_statistics",
    "evaluate",
    "random_policy",
    "rollout",
    "rollouts",
    "summarise",
]
