"""Torch modules, their gradients and optimizer steps."""

from td3_robot.networks.mlp import MLP

__all__ = ["MLP"]
