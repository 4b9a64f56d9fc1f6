"""An exported policy without training: along the simulator's joint_error, by one matrix."""

from pathlib import Path

import torch
from torch import Tensor, nn

import envs
from envs.robots import Robot
from td3_robot.commands import export

GAIN = 2.0  # [rad/s] for each unit of joint_error


class Straight(nn.Module):
    """Actions along some columns of the observation."""

    def __init__(self, columns: slice, scale: Tensor):
        super().__init__()
        self.columns = columns
        self.register_buffer("scale", scale)

    def forward(self, observation: Tensor) -> Tensor:
        motion = observation[:, self.columns]
        return torch.nn.functional.pad(motion, (0, len(self.scale) - motion.shape[1])) * self.scale


def write(path: Path, robot: str | Robot = "panda") -> Path:
    """A file as export.py writes it, for `reach`."""
    env = envs.make(robot, "reach", 2)
    network = Straight(env.layout["joint_error"], GAIN / env.model.qdlim)
    export.write_policy(path, env, "reach", network)
    return path
