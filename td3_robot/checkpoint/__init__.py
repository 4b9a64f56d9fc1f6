"""Checkpoints: what is saved of an agent and a run, and how it is found, written and read."""

from td3_robot.checkpoint.about import ABOUT
from td3_robot.checkpoint.folder import NAMES, OPTIONAL, REQUIRED, Checkpoint, load, read, write
from td3_robot.checkpoint.runs import RUNS, claim_run, find, next_run

__all__ = [
    "ABOUT",
    "NAMES",
    "OPTIONAL",
    "REQUIRED",
    "RUNS",
    "Checkpoint",
    "claim_run",
    "find",
    "load",
    "next_run",
    "read",
    "write",
]
