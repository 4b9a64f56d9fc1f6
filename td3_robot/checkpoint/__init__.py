"""Checkpoints: what is saved of an agent and a run, and how it is found, written and read."""

from td3_robot.checkpoint.about import ABOUT
from td3_robot.checkpoint.files import check_plain, write_state
from td3_robot.checkpoint.folder import NAMES, OPTIONAL, REQUIRED, Checkpoint, load, read, write
from td3_robot.checkpoint.runs import RUNS, claim_run, find, held, held_anew, next_run, run_name

__all__ = [
    "ABOUT",
    "NAMES",
    "OPTIONAL",
    "REQUIRED",
    "RUNS",
    "Checkpoint",
    "check_plain",
    "claim_run",
    "find",
    "held",
    "held_anew",
    "load",
    "next_run",
    "read",
    "run_name",
    "write",
    "write_state",
]
