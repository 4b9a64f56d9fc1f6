"""Which code it was, on what machine, with which constants: what a run folder says of where it
comes from.
"""

import datetime
import json
import os
import platform
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from td3_robot.errors import ConfigError
from td3_robot.utils.json_file import read_json, write_json

PROVENANCE = "provenance.json"
_PACKAGES = ("td3-robot", "torch", "numpy", "gymnasium", "mujoco")
_SHOWN = 4  # differences in a line


def find_commit() -> str | None:
    """The git commit that this package's files are of; None where they are in no repository."""
    return _run_git("rev-parse", "HEAD") or None


def _run_git(*words: str) -> str | None:
    git = ["git", "-C", str(Path(__file__).parent), *words]
    try:
        return subprocess.run(git, capture_output=True, text=True).stdout.strip()
    except OSError:  # no git
        return None


def describe_code() -> str:
    """Version and commit, as far as they are known."""
    try:
        named = f"td3_robot {version('td3-robot')}"
    except PackageNotFoundError:  # run from its files alone
        named = "td3_robot"
    edited = " with uncommitted changes" if _has_edits() else ""
    return f"{named}, commit {found[:12]}{edited}" if (found := find_commit()) else named


def _has_edits() -> bool:
    """Whether files of that commit are no longer as they were."""
    return bool(_run_git("status", "--porcelain", "--untracked-files=no"))


def write_provenance(
    folder: Path, script: str, argv: Sequence[str], constants: dict[str, object]
) -> list[str]:
    """Add a sitting to a run's record: when, with what command, code and packages, and on what
    machine.

    Args:
        folder: the run folder.
        script, argv: the command line.
        constants: those of the environment, which the record keeps as they were in the first
            sitting.

    Returns:
        How they differ from those, see `find_differences`.

    Raises:
        ConfigError: the record cannot be written, or the one that is there cannot be read.
    """
    record = read_provenance(folder) or {
        "constants": json.loads(json.dumps(constants)),
        "sittings": [],
    }
    changed = find_differences(record["constants"], constants)
    sitting = {
        "date": datetime.datetime.now().astimezone().isoformat("T", "seconds"),
        "command": shlex.join(["python", script, *argv]),
        "commit": find_commit(),
        "uncommitted_changes": _has_edits(),
        "versions": {"python": platform.python_version()} | dict(_iter_versions()),
        "hardware": _describe_hardware(),
        "other_constants": changed,
    }
    write_json(folder / PROVENANCE, {**record, "sittings": [*record["sittings"], sitting]})
    return changed


def _iter_versions() -> Iterator[tuple[str, str]]:
    for name in _PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            pass


def _describe_hardware() -> dict[str, object]:
    import torch  # here: it takes over a second

    return {
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def read_provenance(folder: Path) -> dict[str, Any]:
    """The record of a run folder, `constants` and `sittings`; an older run has none, and gives an
    empty dict.

    Raises:
        ConfigError: it is damaged.
    """
    path = folder / PROVENANCE
    record = read_json(path, ConfigError) if path.is_file() else {}
    if record and not (
        _is_nested(record, ("constants", "sittings")) and isinstance(record["sittings"], list)
    ):
        raise ConfigError(f"{str(path)!r} is damaged: it does not give constants and sittings")
    return record


def _is_nested(record: Any, keys: tuple[str, ...]) -> bool:
    """Whether it has the keys, and under `constants` groups of plain values."""
    if not isinstance(record, dict) or any(key not in record for key in keys):
        return False
    groups = record["constants"]
    return isinstance(groups, dict) and all(
        isinstance(group, dict) and all(map(_is_plain, group.values())) for group in groups.values()
    )


def _is_plain(value: object, deep: int = 3) -> bool:
    if isinstance(value, list):
        return deep > 0 and all(_is_plain(item, deep - 1) for item in value)
    return value is None or isinstance(value, str | int | float)


def find_differences(trained: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """Where two sets of constants differ: a phrase for each, such as "task.tolerance was 0.02 and
    is 0.01".

    One that is missing is as one that is 0: terms of a reward are added with a weight of nothing. A
    group that one of the two lacks is not compared: who evaluates under a randomisation, or under
    none, has asked for it.
    """
    groups = trained.keys() & here.keys()
    before, now = (
        dict(_flatten(json.loads(json.dumps({group: side[group] for group in groups}))))
        for side in (trained, here)
    )  # tuples are lists
    found = []
    for name in sorted(before.keys() | now.keys()):
        old, new = (repr(side[name]) if name in side else "missing" for side in (before, now))
        short = len(old) + len(new) < 40
        if old != new and not {old, new} <= {"missing", "0", "0.0"}:
            found.append(f"{name} was {old} and is {new}" if short else f"{name} is another")
    return found


def _flatten(groups: dict[str, Any]) -> Iterator[tuple[str, object]]:
    for group, values in groups.items():
        yield from ((f"{group}.{name}", value) for name, value in values.items())


def describe_other_constants(folder: Path, here: dict[str, object]) -> str | None:
    """A sentence on a checkpoint that was trained with other constants than `here`; None where it
    was not.

    Args:
        folder: of a run, or one inside it. A run that has no record is taken to have been trained
            with these.

    Raises:
        ConfigError: the record is damaged.
    """
    record = read_provenance(folder) or read_provenance(folder.parent)
    return (
        describe_differences(find_differences(record["constants"], here))
        if record and here
        else None
    )


def describe_differences(changed: list[str]) -> str | None:
    """A sentence on how constants differ; None where they do not."""
    if not changed:
        return None
    more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    return f"it was trained with other constants: {', '.join(changed[:_SHOWN])}{more}"
