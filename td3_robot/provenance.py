"""Which code it was."""

import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def commit() -> str | None:
    """The git commit that this package's files are of; None where they are in no repository."""
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(git, capture_output=True, text=True).stdout.strip() or None
    except OSError:  # no git
        return None


def code() -> str:
    """Version and commit, as far as they are known."""
    try:
        named = f"td3_robot {version('td3-robot')}"
    except PackageNotFoundError:  # run from its files alone
        named = "td3_robot"
    return f"{named}, commit {found[:12]}" if (found := commit()) else named
