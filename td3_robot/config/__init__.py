"""Options of a run and of the agent. Nothing here imports torch."""

from td3_robot.config.run import (
    Config,
    EvaluationConfig,
    ExplorationConfig,
    ReplayConfig,
    RewardConfig,
    ScheduleConfig,
)
from td3_robot.config.td3 import TD3Config

__all__ = [
    "Config",
    "EvaluationConfig",
    "ExplorationConfig",
    "ReplayConfig",
    "RewardConfig",
    "ScheduleConfig",
    "TD3Config",
]
