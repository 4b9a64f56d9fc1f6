"""Torch modules, their gradients and optimizer steps."""

from td3_robot.networks.mlp import MLP
from td3_robot.utils.legacy import find_old_names

__all__ = ["MLP"]

__getattr__ = find_old_names(__name__)
