"""Datasets in the format of LeRobot, v3.0 and v2.1, read with pyarrow alone.

https://huggingface.co/docs/lerobot/lerobot-dataset-v3. Both versions have `meta/info.json`, which
describes the columns, and Parquet files below `data/` whose rows are frames; v2.1 has a file an
episode, v3.0 files of many. Videos are not read.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from td3_robot.errors import ConfigError, get_first_line, require_packages

_INFO = Path("meta", "info.json")
_VERSIONS = ("v2.0", "v2.1", "v3.0")
_SEEN = "observation."  # begins the names of columns that are observed
_PLACE = ("episode_index", "frame_index")
_OPTIONAL = ("next.reward", "next.done", "next.success", "next.truncated")


def find_data(path: Path) -> Path | None:
    """Find a dataset by its folder, or by its repository's name in LeRobot's own folder."""
    home = os.environ.get("HF_LEROBOT_HOME")
    cache = Path(home) if home else Path.home() / ".cache" / "huggingface" / "lerobot"
    for folder in (path, cache / path):
        if os.path.isfile(folder / _INFO):
            return folder
    return None


def read_arrays(folder: Path) -> dict[str, np.ndarray]:
    """Read the frames of a dataset, episode by episode, as arrays with D4RL's names.

    - `observations` are all columns `observation.*` of numbers, in the order of `meta/info.json`;
      pictures are left out.
    - `rewards` are `next.reward`; without it 0 for a frame with `next.success`, else -1.
    - `terminals` are frames with `next.done`, but none that is `next.truncated` and, where the
      dataset has `next.success`, none that is no success. Where it has no `next.done`, a success in
      an episode's last frame is one. All other ends of episodes are `timeouts`: a recording that
      ends is no end of the task. So are frames whose next one, by `frame_index`, was removed.

    LeRobot stores no observation after an episode's last frame, so that there are no
    `next_observations`.

    Raises:
        ConfigError: pyarrow is not installed, the dataset is damaged or of another version, frames
            are missing, or it has neither rewards nor successes.
    """
    require_packages("reading LeRobot", "pyarrow")
    try:
        info = json.loads((folder / _INFO).read_text(encoding="utf-8"))
        version = info.get("codebase_version")
        if version not in _VERSIONS:
            raise ConfigError(
                f"is of LeRobot's version {version!r}; valid choices: {', '.join(_VERSIONS)}"
            )
        return _name_columns(_read_columns(folder, info["features"], info["total_frames"]))
    except ConfigError:
        raise
    except Exception as error:  # the files may be anything, and so is what their readers raise
        raise ConfigError(f"cannot be read as LeRobot's: {get_first_line(error)}") from error


def _is_observed(name: str, feature: dict[str, Any]) -> bool:
    """Return whether a column is part of the observation: a number or a row of them."""
    is_numeric = str(feature["dtype"]).startswith(("float", "int", "bool"))
    return name.startswith(_SEEN) and is_numeric and len(feature["shape"]) == 1


def _read_columns(folder: Path, features: dict[str, Any], frames: int) -> dict[str, np.ndarray]:
    """Return the columns that are needed, in the order of episodes and frames, (N,) or (N, m)."""
    import pyarrow.parquet

    observed = [name for name, feature in features.items() if _is_observed(name, feature)]
    if not observed:
        raise ConfigError(f"has no column {_SEEN}* of numbers; it holds {list(features)[:20]}")
    if "action" not in features:
        raise ConfigError(f"has no column action; it holds {list(features)[:20]}")
    names = [*observed, "action", *_PLACE, *(name for name in _OPTIONAL if name in features)]
    files = sorted((folder / "data").glob("*/*.parquet"))
    tables = [pyarrow.parquet.read_table(file, columns=names) for file in files]
    count = sum(len(table) for table in tables)
    if not count or count != frames:
        raise ConfigError(f"has {count} frames, {_INFO} counts {frames}")
    whole = pyarrow.concat_tables(tables)
    columns = {name: _convert_column(name, whole[name]) for name in names}
    order = np.lexsort((columns["frame_index"], columns["episode_index"]))
    return {name: column[order] for name, column in columns.items()}


def _convert_column(name: str, column: Any) -> np.ndarray:
    """Return numbers (N,), or lists of equal length (N, m)."""
    from pyarrow.compute import list_value_length  # pyright: ignore[reportAttributeAccessIssue]

    values = column.combine_chunks()
    if values.null_count:
        raise ConfigError(f"has frames without a value of {name}")
    if not hasattr(values, "flatten") or not hasattr(values.type, "value_type"):
        return values.to_numpy(zero_copy_only=False)
    widths = list_value_length(values).unique().to_pylist()
    if len(widths) > 1:  # as many numbers in all may divide by the frames
        raise ConfigError(f"{name} must be as wide in every frame, got widths {sorted(widths)}")
    return values.flatten().to_numpy(zero_copy_only=False).reshape(len(values), -1)


def _name_columns(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the columns under D4RL's names."""
    episode = columns["episode_index"]
    is_last = np.append(episode[1:] != episode[:-1], True)
    is_cut = np.append(np.diff(columns["frame_index"]) != 1, True)  # frames after it were removed
    success = columns.get("next.success")
    reward = columns.get("next.reward")
    if reward is None and success is None:
        raise ConfigError("has neither next.reward nor next.success, and so nothing to learn from")
    if reward is None:
        reward = np.asarray(success, np.float32).reshape(len(episode)) - 1.0
    # without it, the last frame of a success would be dropped, and with it what was achieved
    terminated = is_last & (success is not None)
    if "next.done" in columns:
        terminated = columns["next.done"].reshape(len(episode)).astype(bool)
    if "next.truncated" in columns:
        terminated &= ~columns["next.truncated"].reshape(len(episode)).astype(bool)
    if success is not None:
        terminated &= success.reshape(len(episode)).astype(bool)
    seen = [column for name, column in columns.items() if name.startswith(_SEEN)]
    return {
        "observations": np.concatenate([part.reshape(len(part), -1) for part in seen], 1),
        "actions": columns["action"].reshape(len(episode), -1),
        "rewards": reward,
        "terminals": terminated,
        "timeouts": (is_last | is_cut) & ~terminated,
    }
