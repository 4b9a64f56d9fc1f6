"""Checkpoints: what is saved of an agent and a run, and how it is found, written and read."""

from td3_robot.checkpoint.manifest import MANIFEST
from td3_robot.checkpoint.replay_chunks import ROWS, keep_rows, names_of_rows, put_rows, take_rows
from td3_robot.checkpoint.run_folders import (
    RUNS,
    claim_run,
    find,
    held,
    lock_new_run,
    next_run,
    run_name,
    trained_by,
)
from td3_robot.checkpoint.state_file import check_plain, write_state
from td3_robot.checkpoint.store import NAMES, OPTIONAL, REQUIRED, Checkpoint, load, read, write

__all__ = [
    "MANIFEST",
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
    "lock_new_run",
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
