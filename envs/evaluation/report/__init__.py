"""An evaluation as one HTML page that needs nothing beside itself. docs/evaluation.md describes it."""

from envs.evaluation.report.page import Report, page
from envs.evaluation.report.trajectories import Trajectories, Watched, join

__all__ = ["Report", "Trajectories", "Watched", "join", "page"]
