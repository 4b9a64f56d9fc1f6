"""Evaluation of controllers: episodes, figures, table, report."""

from envs.evaluation.evaluation import Evaluation

__all__ = ["Evaluation"]
