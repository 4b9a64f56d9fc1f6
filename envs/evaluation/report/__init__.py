"""Report of an evaluation as one self-contained HTML page.

docs/how-to/evaluate-and-report.md describes it.
"""

from envs.evaluation.report.arm_run import ArmRun, read_log
from envs.evaluation.report.page import Report, render_page
from envs.evaluation.report.trajectories import RecordingPolicy, Trajectories

__all__ = ["ArmRun", "RecordingPolicy", "Report", "Trajectories", "read_log", "render_page"]
