"""Gymnasium environments as a VecEnv; the other direction is envs/gymnasium_ids."""

from envs.from_gymnasium.adapter import GymnasiumEnv
from envs.from_gymnasium.goals import GoalGymnasiumEnv
from envs.from_gymnasium.make import DiscreteAsBox, make_gymnasium

__all__ = ["DiscreteAsBox", "GoalGymnasiumEnv", "GymnasiumEnv", "make_gymnasium"]
