"""An arm, its task and an engine as one batched environment."""

from envs.arm_env.arm_env import ArmEnv

__all__ = ["ArmEnv"]
