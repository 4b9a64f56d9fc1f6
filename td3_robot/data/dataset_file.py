"""Offline data: transitions in files of several formats, as arrays with D4RL's names.

Fu et al. 2020, https://arxiv.org/abs/2004.07219. Rows are steps in the order in which they were
made, one episode after the other. `docs/reference/files.md` describes the formats: our .npz, D4RL's
HDF5, and folders of Minari and LeRobot.
"""

import os
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from td3_robot.data import hdf5_file, lerobot_folder, minari_folder
from td3_robot.errors import ConfigError
from td3_robot.utils.atomic_files import check_writable, replace_file
from td3_robot.utils.progress import stage
from td3_robot.utils.seeding import derive_seed
from td3_robot.vec_env import VecEnv, draw_normal

if TYPE_CHECKING:  # our own environments do without gymnasium
    from gymnasium.envs.registration import EnvSpec

_REQUIRED = ("observations", "actions", "rewards", "terminals")
# columns of the arrays that have them; all others are (N,)
_WIDTHS = {"observations": "o_dim", "actions": "a_dim", "next_observations": "o_dim"}
_FLAGS = ("terminals", "timeouts")
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, TypeError, ValueError, RuntimeError)
_DAMAGE += (SyntaxError, tokenize.TokenError)  # numpy reads an array's header as it would Python


class Transitions(NamedTuple):
    """N steps in order; a row that does not end its episode is continued by the next row."""

    state: Tensor  # (N, o_dim) float32
    action: Tensor  # (N, a_dim) float32 in [-1, 1]
    reward: Tensor  # (N,) float32
    next_state: Tensor  # (N, o_dim) float32, the true successor
    terminated: Tensor  # (N,) bool: there is no future value
    truncated: Tensor  # (N,) bool: the recording ends here; the future still has value


_NAMES = dict(
    zip(Transitions._fields, ("observations", "actions", "rewards", "next_observations", *_FLAGS))
)


def load_dataset(path: str | Path, device: torch.device | str = "cpu") -> Transitions:
    """Read a dataset and check all that training on it needs.

    `path` is an .npz, an .hdf5 with D4RL's names, the folder of a Minari or LeRobot dataset, or the
    name by which one of their own folders has it, for example mujoco/hopper/expert-v0.

    `next_observations` may be missing if there are `timeouts`: the successor is then the next row,
    and rows without one (a timeout, the last row) are left out, as in D4RL's `qlearning_dataset`. A
    row is also truncated if the next row does not continue it, which makes `timeouts` optional and
    keeps shuffled rows apart.

    Raises:
        ConfigError: the file is missing, is of another format or holds Python objects, or a
            package for it is missing; an array is missing, has another shape or length, or holds
            NaN or infinity; or an action is outside [-1, 1]. The message is one line that names the
            array and the first row.
    """
    path = Path(path)
    try:
        columns = _complete_columns(_check_arrays(_read_arrays(path)))
        return Transitions(*(torch.from_numpy(column).to(device) for column in columns))
    except ConfigError as error:
        raise ConfigError(f"dataset {str(path)!r}: {error}") from error


def check_dataset(path: Path | None) -> None:
    """Check that `save_dataset` can write a path, before anything is computed; None is no file.

    Raises:
        ConfigError: it cannot be written.
    """
    if path is not None and minari_folder.is_name(path):
        minari_folder.check_new(path)
        check_writable(path)
    elif path is not None and not path.name.endswith(".npz"):
        raise ConfigError(
            f"cannot write {str(path)!r}: it must be a file named *.npz, or a Minari dataset named "
            "*-v0"
        )
    else:
        check_writable(path, ".npz")


def save_dataset(path: str | Path, transitions: Transitions, spec: "EnvSpec | None" = None) -> None:
    """Write a dataset, complete or not at all; `load_dataset` reads it back equal.

    Args:
        path: an .npz, or the folder of a new Minari dataset, whose name ends in -v and a number.
        transitions: what it holds.
        spec: the environment that Minari makes from the dataset.

    Raises:
        ConfigError: the file cannot be written, or `load_dataset` would refuse it.
    """
    path = Path(path)
    try:
        columns = transitions._asdict().items()
        arrays: dict[str, Any] = _check_arrays(
            {_NAMES[name]: value.detach().cpu().numpy() for name, value in columns}
        )
    except ConfigError as error:
        raise ConfigError(f"dataset {str(path)!r}: {error}") from error
    if minari_folder.is_name(path):
        breaks = _find_breaks(
            arrays["observations"], arrays["next_observations"], arrays["terminals"]
        )
        whole = arrays | {"timeouts": arrays["timeouts"] | breaks}
        return minari_folder.write_arrays(path, whole, spec)
    with replace_file(path) as new, new.open("wb") as file:
        np.savez(file, **arrays)
        file.flush()
        os.fsync(file.fileno())


@torch.no_grad()
def collect(
    policy: Callable[[Tensor], Tensor], env: VecEnv, steps: int, seed: int, noise: float = 0.0
) -> Transitions:
    """Play a policy and return its transitions.

    Args:
        policy: observation (B, o_dim) -> action (B, a_dim) in [-1, 1].
        steps: number of transitions, of all environments together.
        seed: fixes the episodes and the noise.
        noise: standard deviation of Gaussian noise on the actions, which stay in [-1, 1].

    Returns:
        `steps` transitions, one environment after the other, truncated where the next row does not
        continue them.

    Raises:
        ConfigError: `steps` is less than one.
    """
    if steps < 1:
        raise ConfigError(f"steps must be at least 1, got {steps}")
    generator = torch.Generator(env.device).manual_seed(derive_seed(seed, "noise of a dataset"))
    shape = (env.num_envs, env.a_dim)
    observation = env.reset(seed)
    rows: list[tuple[Tensor, ...]] = []
    left = steps
    with stage("dataset", steps, "transitions") as progress:
        while left > 0:
            action = policy(observation)
            if noise:
                action = action + noise * draw_normal(generator, *shape)
            action = action.clamp(-1.0, 1.0)
            step = env.step(action)
            valid = torch.ones_like(step.terminated) if step.valid is None else step.valid
            row = (observation, action, step.reward, step.next_observation)
            rows.append((*row, step.terminated, step.truncated, valid))
            observation = step.observation
            left -= int(valid.sum())
            progress.done = steps - left
    *row, truncated, valid = rows[-1]
    rows[-1] = (*row, truncated | ~row[-1], valid)  # the recording ends in every environment
    # (B, T, ...): environment by environment
    columns = [torch.stack(column, 1).flatten(0, 1) for column in zip(*rows)]
    played = Transitions(*(column[columns[-1]][:steps] for column in columns[:-1]))
    breaks = _find_breaks(played.state, played.next_state, played.terminated)
    return played._replace(truncated=played.truncated | breaks)


def _find_breaks(state, next_state, terminated):
    """Return (N,) bool, the rows that neither terminate nor are continued by the next row.

    Tensors or arrays.
    """
    broken = ~terminated
    broken[:-1] &= (next_state[:-1] != state[1:]).any(1)
    return broken


# Reading


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a dataset of any format under our names.

    Raises:
        ConfigError: there is no such dataset, or it cannot be read.
    """
    if os.path.isfile(path) and path.suffix in hdf5_file.ENDINGS:
        arrays = hdf5_file.read_arrays(path, _NAMES.values())
        _require_columns(arrays, arrays)
        return arrays
    if not os.path.isfile(path):
        for folder_format in (minari_folder, lerobot_folder):
            if data := folder_format.find_data(path):
                return folder_format.read_arrays(data)
    if os.path.isdir(path):
        raise ConfigError("is a folder of neither Minari, with data/metadata.json, nor LeRobot")
    return _read_npz(path)


def _require_columns(names: Collection[str], holds: Collection[str]) -> None:
    """Check that what every dataset needs is among the names.

    Raises:
        ConfigError: something is missing; the message says what the file holds.
    """
    if missing := [name for name in _REQUIRED if name not in names]:
        raise ConfigError(f"lacks {', '.join(missing)}; it holds {list(holds)[:20]}")


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz that have one of our names.

    Raises:
        ConfigError: there is no such file, or it is no .npz of plain arrays.
    """
    try:
        if not zipfile.is_zipfile(path):
            path.open("rb").close()  # raises if it cannot be read at all
            raise ConfigError("is no .npz file")
        with np.load(path, allow_pickle=False) as file:
            names = [name for name in _NAMES.values() if name in file]
            _require_columns(names, list(file))
            return {name: _load_array(file, name) for name in names}
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}") from error
    except MemoryError as error:
        raise ConfigError("does not fit in memory") from error
    except _DAMAGE as error:
        raise ConfigError("is damaged") from error


def _load_array(file: np.lib.npyio.NpzFile, name: str) -> np.ndarray:
    """Return one array of a file.

    Raises:
        ConfigError: it holds Python objects, or is no array.
    """
    try:
        array = file[name]
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise ConfigError(
                f"{name} holds Python objects, which are never loaded; save plain numbers"
            ) from error
        raise
    if not isinstance(array, np.ndarray):  # numpy gives the bytes of what it does not know
        raise ConfigError(f"{name} is no array")
    return array


# Checking


def _check_arrays(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays as float32 and bool in the shapes of `Transitions`.

    Raises:
        ConfigError: an array is wrong; the message continues after the file's name.
    """
    checked = {
        name: _check_flags(name, array) if name in _FLAGS else _check_numbers(name, array)
        for name, array in arrays.items()
    }
    count = len(checked["observations"])
    if not count:
        raise ConfigError("has no transitions")
    for name, array in checked.items():
        if len(array) != count:
            raise ConfigError(f"{name} has {len(array)} rows, observations {count}")
    after = checked.get("next_observations", checked["observations"])
    if after.shape != checked["observations"].shape:
        raise ConfigError(
            f"next_observations has shape {after.shape}, "
            f"observations {checked['observations'].shape}"
        )
    outside = (np.abs(checked["actions"]) > 1).any(1)
    if outside.any():
        row = int(outside.argmax())
        action = checked["actions"][row]
        extreme = f"{action[np.abs(action).argmax()]:.9g}"  # all digits that float32 has
        raise ConfigError(f"actions must be in [-1, 1], got {extreme} in row {row}")
    return checked


def _check_numbers(name: str, array: np.ndarray) -> np.ndarray:
    """Return an array as finite float32, (N, width) or (N,)."""
    if array.dtype.kind not in "fiub":
        raise ConfigError(f"{name} must be numbers, got {array.dtype}")
    array = _check_shape(name, array)
    with np.errstate(over="ignore"):  # beyond float32 is infinite, and refused below
        array = np.ascontiguousarray(array, dtype=np.float32)
    bad = ~np.isfinite(array if array.ndim == 2 else array[:, None]).all(1)
    if bad.any():
        row = int(bad.argmax())
        raise ConfigError(f"{name} has NaN or infinity, first in row {row}")
    return array


def _check_flags(name: str, array: np.ndarray) -> np.ndarray:
    """Return an array as bool (N,)."""
    array = _check_shape(name, array)
    if array.dtype.kind not in "fiub" or not ((array == 0) | (array == 1)).all():
        raise ConfigError(f"{name} must be true or false, 1 or 0")
    return array.astype(bool)


def _check_shape(name: str, array: np.ndarray) -> np.ndarray:
    """Return an array (N, width) if it should have columns, else (N,) from (N,) or (N, 1)."""
    if name in _WIDTHS:
        if array.ndim != 2 or not array.shape[1]:
            raise ConfigError(f"{name} must have shape (N, {_WIDTHS[name]}), got {array.shape}")
        return array
    if array.ndim == 2 and array.shape[1] == 1:
        return array[:, 0]
    if array.ndim != 1:
        raise ConfigError(f"{name} must have shape (N,), got {array.shape}")
    return array


def _complete_columns(arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """Return the columns of `Transitions`, also those that the file leaves out.

    Raises:
        ConfigError: successors are missing, and the ends of episodes are unknown.
    """
    state = arrays["observations"]
    terminated = arrays["terminals"]
    truncated = arrays.get("timeouts", np.zeros_like(terminated))
    next_state = arrays.get("next_observations")
    kept = slice(None)
    if next_state is None:
        if "timeouts" not in arrays:
            raise ConfigError(
                "lacks next_observations, and also timeouts, without which the next row may be "
                "another episode's start"
            )
        next_state = np.concatenate((state[1:], state[-1:]))
        next_state[terminated] = state[terminated]  # not used: there is no future value
        kept = terminated | ~truncated
        kept[-1] = terminated[-1]
        # also where the next row that is kept, another episode's, has the same observation
        truncated = truncated | np.append(~kept[1:], False) & ~terminated
        if not kept.any():
            raise ConfigError("has no transition whose successor is known")
    columns = [column[kept] for column in (state, arrays["actions"], arrays["rewards"], next_state)]
    terminated = terminated[kept]
    breaks = _find_breaks(columns[0], columns[3], terminated)
    return *columns, terminated, truncated[kept] | breaks
