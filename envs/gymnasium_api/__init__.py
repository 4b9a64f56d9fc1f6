"""Any Gymnasium environment as a VecEnv. The other direction, our tasks as Gymnasium ids, is envs/gymnasium_ids.py."""

from envs.gymnasium_api.adapter import GymnasiumEnv
from envs.gymnasium_api.goals import GoalGymnasiumEnv
from envs.gymnasium_api.make import DiscreteAsBox, make_gymnasium

__all__ = ["DiscreteAsBox", "GoalGymnasiumEnv", "GymnasiumEnv", "make_gymnasium"]
