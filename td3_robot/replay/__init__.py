"""Experience replay: a buffer of transitions, samplers of rows, readers of batches."""

from td3_robot.replay.buffer import Batch, OneStep, Reader, ReplayBuffer
from td3_robot.replay.hindsight import STRATEGIES, Hindsight
from td3_robot.replay.n_step import NStep
from td3_robot.replay.prioritized import Prioritized
from td3_robot.replay.sampler import Sampler, Uniform

__all__ = [
    "STRATEGIES",
    "Batch",
    "Hindsight",
    "NStep",
    "OneStep",
    "Prioritized",
    "Reader",
    "ReplayBuffer",
    "Sampler",
    "Uniform",
]
