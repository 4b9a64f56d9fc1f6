"""Checkpoints: what is saved of an agent and a run, and how it is found, written and read."""

from td3_robot.checkpoint.about import ABOUT
from td3_robot.checkpoint.files import check_plain, write_state
from td3_robot.checkpoint.folder import NAMES, OPTIONAL, REQUIRED, Checkpoint, load, read, write
from td3_robot.checkpoint.rows import ROWS, keep_rows, names_of_rows, put_rows, take_rows
from td3_robot.checkpoint.runs import RUNS, claim_run, find, held, held_anew, next_run, run_name, trained_by

__all__ = [
    "ABOUT",
    "NAMES",
    "OPTIONAL",
    "REQUIRED",
    "ROWS",
    "RUNS",
    "Checkpoint",
    "check_plain",
    "claim_run",
    "find",
    "held",
    "held_anew",
    "keep_rows",
    "load",
    "names_of_rows",
    "next_run",
    "put_rows",
    "read",
    "run_name",
    "take_rows",
    "trained_by",
    "write",
    "write_state",
]
