"""An evaluation as one HTML page that needs nothing beside itself. docs/evaluation.md describes it."""

from envs.reporting.page import Evaluation, page
from envs.reporting.trajectories import Trajectories, Watched, join

__all__ = ["Evaluation", "Trajectories", "Watched", "join", "page"]
