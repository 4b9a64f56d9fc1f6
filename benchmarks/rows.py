"""Files of results: new rows replace those with the same key."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from envs.command_line import EvaluateFlags
from td3_robot.utils.atomic_files import replace_file

Row = dict[str, object]
UNSEEN_SEED = EvaluateFlags.seed  # of scenes that no policy was trained on


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a file, or [] if there is none."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, columns: Sequence[str], key: Sequence[str], rows: Iterable[Row]) -> None:
    """Put rows in place of those of the same key; one of a new key comes last of those with the
    same first part of it.

    Args:
        columns: of the file, in their order; where a row that was there has none of them, it stays
            empty.
        key: names of the columns that tell rows apart.

    Raises:
        ConfigError: the file cannot be written; it stays as it was.
    """

    def get_key(row):
        return tuple(str(row[name]) for name in key)

    merged: dict[tuple[str, ...], Row] = {get_key(row): dict(row) for row in read_rows(path)}
    merged |= {get_key(row): row for row in rows}
    groups = list(dict.fromkeys(first for first, *_ in merged))
    ordered = sorted(merged, key=lambda name: groups.index(name[0]))
    with replace_file(path) as new, new.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(merged[name] for name in ordered)
