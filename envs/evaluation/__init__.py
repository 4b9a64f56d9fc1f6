"""What an evaluation measures, and how it is shown."""

from envs.evaluation.evaluation import Evaluation

__all__ = ["Evaluation"]
