"""Checkpoints: find, write and read the saved state of an agent and its run."""

from td3_robot.checkpoint.manifest import MANIFEST
from td3_robot.checkpoint.replay_chunks import (
    CHUNKS,
    list_chunks,
    load_chunks,
    prune_chunks,
    save_chunks,
)
from td3_robot.checkpoint.run_folders import (
    RUNS,
    claim_run,
    find,
    find_owner,
    lock_new_run,
    lock_run,
    make_next_run,
    run_name,
)
from td3_robot.checkpoint.state_file import check_plain, write_state
from td3_robot.checkpoint.store import NAMES, OPTIONAL, REQUIRED, Checkpoint, load, read, write

__all__ = [
    "MANIFEST",
    "NAMES",
    "OPTIONAL",
    "REQUIRED",
    "CHUNKS",
    "RUNS",
    "Checkpoint",
    "check_plain",
    "claim_run",
    "find",
    "lock_run",
    "lock_new_run",
    "prune_chunks",
    "load",
    "list_chunks",
    "make_next_run",
    "save_chunks",
    "read",
    "run_name",
    "load_chunks",
    "find_owner",
    "write",
    "write_state",
]
