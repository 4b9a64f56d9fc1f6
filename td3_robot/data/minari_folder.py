"""Datasets in the format of Minari, https://minari.farama.org/v0.5.4/content/dataset_standards/.

A dataset is a folder with `data/metadata.json` and the episodes, in HDF5 or Parquet. An episode of
T steps has T + 1 observations, so that the successor of its last step is known.
"""

import json
import math
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from td3_robot.errors import ConfigError, get_first_line, require_packages

if TYPE_CHECKING:  # our own environments do without gymnasium
    from gymnasium import spaces
    from gymnasium.envs.registration import EnvSpec

_NAME = re.compile(r"[-\w]+-v\d+")  # the last part of a dataset's id
_METADATA = "metadata.json"
_GOAL_KEYS = ("observation", "achieved_goal", "desired_goal")  # order of a goal environment's parts
_ROUNDING = 1e-6  # by which an action may leave its bounds in float32


def find_data(path: Path) -> Path | None:
    """Find the data folder of a dataset by its folder, or by its id below Minari's own folder."""
    for folder in (path, _get_root() / path):
        for data in (folder / "data", folder):
            if os.path.isfile(data / _METADATA):
                return data
    return None


def is_name(path: Path) -> bool:
    """Return whether a path ends as the ids of Minari's datasets do, in -v and a number."""
    return _NAME.fullmatch(path.name) is not None


def check_new(path: Path) -> None:
    """Check that a dataset can be written.

    Raises:
        ConfigError: a package is missing, or the folder exists already.
    """
    require_packages(f"dataset {str(path)!r}", "minari", "h5py")
    if os.path.exists(path):
        raise ConfigError(f"cannot write {str(path)!r}: it exists already; remove it first")


def _get_root() -> Path:
    """Return the folder of the datasets that Minari knows by their ids."""
    return Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")


# Reading


def read_arrays(data: Path) -> dict[str, np.ndarray]:
    """Read the episodes of a data folder, one after the other, as arrays with D4RL's names.

    Observations are flattened as `--env` does it: Boxes, dictionaries of Boxes by their keys, those
    of a goal environment in the order of its parts. Actions are scaled from the bounds of the
    action space to [-1, 1]; a discrete one becomes scores, 1 for itself and -1 for all others.

    Raises:
        ConfigError: a package is missing, the dataset is damaged, or its spaces are not supported.
    """
    require_packages("reading Minari", "minari")
    from minari.dataset.minari_storage import MinariStorage

    try:
        raw = json.loads((data / _METADATA).read_text(encoding="utf-8"))
        # Without its spaces Minari would make the environment, which runs what the file names.
        if missing := [name for name in ("observation_space", "action_space") if name not in raw]:
            raise ConfigError(f"{_METADATA} lacks {' and '.join(missing)}")
        if raw.get("data_format", "hdf5") == "hdf5":
            require_packages("reading Minari's HDF5", "h5py")
        storage = MinariStorage.read(data)
        episodes = storage.get_episodes(range(storage.total_episodes))
        return _join_episodes(episodes, storage.observation_space, storage.action_space)
    except ConfigError:
        raise
    except Exception as error:  # the file may be anything, and so is what its readers raise
        raise ConfigError(f"cannot be read as Minari's: {get_first_line(error)}") from error


def _join_episodes(
    episodes: Iterable[dict], observed: "spaces.Space", acted: "spaces.Space"
) -> dict[str, np.ndarray]:
    columns: dict[str, list[np.ndarray]] = {name: [] for name in _COLUMNS}
    for number, episode in enumerate(episodes):
        observations = _flatten_observations(episode["observations"], observed)
        steps = len(episode["rewards"])
        if len(observations) != steps + 1:
            raise ConfigError(
                f"episode {number} has {len(observations)} observations for {steps} steps; it "
                "must have one more"
            )
        terminated = np.array(episode["terminations"], bool)
        truncated = np.array(episode["truncations"], bool)
        truncated[-1:] |= ~terminated[-1:]  # the recording ends, the future still has value
        actions = _scale_actions(np.asarray(episode["actions"]), acted)
        rows = (observations[:-1], actions, episode["rewards"], observations[1:])
        for name, column in zip(_COLUMNS, (*rows, terminated, truncated)):
            columns[name].append(np.asarray(column))
    if not columns["rewards"]:
        raise ConfigError("has no episodes")
    return {name: np.concatenate(parts) for name, parts in columns.items()}


_COLUMNS = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")


def _flatten_observations(values: Any, space: "spaces.Space") -> np.ndarray:
    """Return observations (T, o_dim) of a space."""
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        values = np.asarray(values)
        return values.reshape(len(values), -1)
    if isinstance(space, spaces.Dict):
        keys: Iterable[str] = space.spaces
        if set(keys) == set(_GOAL_KEYS):
            keys = _GOAL_KEYS
        parts = [_flatten_observations(values[key], space.spaces[key]) for key in keys]
        return np.concatenate(parts, 1)
    raise ConfigError(
        f"observation space {space} is not supported; it must be a Box or a dictionary of them"
    )


def _scale_actions(values: np.ndarray, space: "spaces.Space") -> np.ndarray:
    """Scale actions (T, ...) from the bounds of their space to [-1, 1], (T, a_dim).

    It is the inverse of what an environment of `--env` does with a policy's actions.
    """
    from gymnasium import spaces

    values = values.reshape(len(values), -1)
    if isinstance(space, spaces.Discrete):  # scores, of which the greatest is taken
        is_taken = values - space.start == np.arange(space.n)
        if not (is_taken.sum(1) == 1).all():
            raise ConfigError(f"actions must be in their space, {space}")
        return np.where(is_taken, 1.0, -1.0)
    if not isinstance(space, spaces.Box):
        raise ConfigError(
            f"action space {space} is not supported; it must be a Box or a Discrete space"
        )
    if values.shape[1:] != (math.prod(space.shape),):
        raise ConfigError(
            f"actions must be as wide as their space, {math.prod(space.shape)}, "
            f"got {values.shape[1]}"
        )
    low = space.low.astype(float).ravel()
    high = space.high.astype(float).ravel()
    if np.issubdtype(space.dtype, np.integer):
        return 2.0 * (values - low + 0.5) / (high - low + 1.0) - 1.0
    if not (np.isfinite(low) & np.isfinite(high) & (low < high)).all():
        return values  # without bounds they must be in [-1, 1] already
    if (low == -1.0).all() and (high == 1.0).all():
        return values
    scaled = (values - (low + high) / 2) / ((high - low) / 2)
    return np.where(np.abs(scaled) < 1.0 + _ROUNDING, np.clip(scaled, -1.0, 1.0), scaled)


# Writing


def write_arrays(path: Path, arrays: dict[str, np.ndarray], spec: "EnvSpec | None") -> None:
    """Write arrays with D4RL's names as a dataset, complete or not at all.

    An episode ends where a row terminates or is truncated. Every other row must be continued by
    the next one, since Minari stores a successor once.

    Args:
        path: folder of the dataset, which must not exist; its id is its name, or its path below
            Minari's own folder.
        arrays: all of them, `next_observations` and `timeouts` too.
        spec: the environment that `MinariDataset.recover_environment` makes; left out where no
            file can hold it.

    Raises:
        ConfigError: it cannot be written.
    """
    check_new(path)
    from gymnasium import spaces
    from minari import __version__
    from minari.data_collector.episode_buffer import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    # Minari's count of bytes needs an absolute path.
    new = path.absolute().parent / f".{os.getpid()}-{path.name}"
    o_dim = arrays["observations"].shape[1]
    a_dim = arrays["actions"].shape[1]
    try:
        new.mkdir()
        storage = MinariStorage.new(
            new / "data",
            spaces.Box(-np.inf, np.inf, (o_dim,), np.float32),
            spaces.Box(-1.0, 1.0, (a_dim,), np.float32),
            spec if _is_writable(spec) else None,
        )
        storage.update_metadata({"dataset_id": _make_id(path), "minari_version": __version__})
        storage.update_episodes(
            EpisodeBuffer(infos={}, **fields) for fields in _split_episodes(arrays)
        )
        os.rename(new, path)
    except OSError as error:
        raise ConfigError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _is_writable(spec: "EnvSpec | None") -> bool:
    """Return whether a file can hold a specification: one of functions or objects it cannot."""
    try:
        return spec is not None and bool(spec.to_json())
    except (TypeError, ValueError):
        return False


def _make_id(path: Path) -> str:
    """Return the id by which `minari.load_dataset` finds a folder, if it is below Minari's own."""
    whole = path.resolve()
    root = _get_root().resolve()
    return whole.relative_to(root).as_posix() if whole.is_relative_to(root) else path.name


def _split_episodes(arrays: dict[str, np.ndarray]) -> Iterable[dict[str, Any]]:
    """Yield the fields of each episode's buffer."""
    ends = arrays["terminals"] | arrays["timeouts"]
    ends[-1] = True
    start = 0
    for end in np.flatnonzero(ends) + 1:
        rows = slice(start, end)
        last = arrays["next_observations"][end - 1 : end]
        yield {
            "observations": np.concatenate((arrays["observations"][rows], last)),
            "actions": arrays["actions"][rows],
            "rewards": arrays["rewards"][rows],
            "terminations": arrays["terminals"][rows],
            "truncations": arrays["timeouts"][rows],
        }
        start = end
