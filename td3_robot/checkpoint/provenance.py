"""The provenance of a run: its code, machine, commands and constants of the environment."""

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
    """Return the git commit of this package's files; None where no repository tracks them."""
    # a repository may be around an installed package and know nothing of it
    tracked = _run_git("ls-files", Path(__file__).name)
    return (tracked and _run_git("rev-parse", "HEAD")) or None


def _run_git(*words: str) -> str | None:
    git = ["git", "-C", str(Path(__file__).parent), *words]
    try:
        return subprocess.run(git, capture_output=True, text=True).stdout.strip()
    except OSError:  # no git
        return None


def describe_code() -> str:
    """Describe the version and commit, as far as they are known."""
    try:
        named = f"td3_robot {version('td3-robot')}"
    except PackageNotFoundError:  # run from its files alone
        named = "td3_robot"
    edited = " with uncommitted changes" if _has_edits() else ""
    return f"{named}, commit {found[:12]}{edited}" if (found := find_commit()) else named


def _has_edits() -> bool:
    """Return whether files of that commit were changed."""
    return find_commit() is not None and bool(
        _run_git("status", "--porcelain", "--untracked-files=no")
    )


def write_provenance(
    folder: Path, script: str, argv: Sequence[str], constants: dict[str, object]
) -> list[str]:
    """Add a session to a run's record: date, command, code, packages and machine.

    Args:
        folder: the run folder.
        script, argv: the command line.
        constants: those of the environment; the record keeps those of the first session.

    Returns:
        Their differences from those, see `find_differences`.

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
        "versions": {"python": platform.python_version()} | dict(iter_versions()),
        "hardware": _describe_hardware(),
        "other_constants": changed,
    }
    write_json(folder / PROVENANCE, {**record, "sittings": [*record["sittings"], sitting]})
    return changed


def iter_versions(names: Sequence[str] = _PACKAGES) -> Iterator[tuple[str, str]]:
    """Yield the versions of those packages that are installed; ours may run from its files."""
    for name in names:
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
    """Read the record of a run folder, `constants` and `sittings`; empty for an older run.

    Raises:
        ConfigError: it is damaged.
    """
    path = folder / PROVENANCE
    record = read_json(path, ConfigError) if path.is_file() else {}
    if record and not (
        _is_nested(record, ("constants", "sittings")) and isinstance(record["sittings"], list)
    ):
        raise ConfigError(f"{str(path)!r} is damaged: it does not give constants and sessions")
    return record


def _is_nested(record: Any, keys: tuple[str, ...]) -> bool:
    """Return whether it has the keys, and under `constants` groups of plain values."""
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
    """Find differences of constants: phrases such as "task.tolerance was 0.02 and is 0.01".

    A missing constant counts as 0, since new terms of a reward begin with no weight. Groups that
    only one side has, such as a randomisation that an evaluation adds, are not compared.
    """
    groups = trained.keys() & here.keys()
    # tuples are lists
    before, now = (
        dict(_flatten(json.loads(json.dumps({group: side[group] for group in groups}))))
        for side in (trained, here)
    )
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
    """Describe how a checkpoint's constants differ from `here`; None if they do not.

    Args:
        folder: of a run, or one inside it; without a record there is nothing to describe.

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
    """Describe differences of constants in a sentence; None without any."""
    if not changed:
        return None
    more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    return f"it was trained with other constants: {', '.join(changed[:_SHOWN])}{more}"
