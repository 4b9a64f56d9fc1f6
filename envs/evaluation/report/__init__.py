"""An evaluation as one HTML page that needs nothing beside itself. docs/evaluation.md describes
it.
"""

from envs.evaluation.report.arm_run import ArmRun, read_log
from envs.evaluation.report.page import Report, page
from envs.evaluation.report.trajectories import Trajectories, Watched, join

__all__ = ["ArmRun", "Report", "Trajectories", "Watched", "join", "page", "read_log"]
