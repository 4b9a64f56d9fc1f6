"""Offline data: transitions in an .npz file under D4RL's names (Fu et al. 2020,
https://arxiv.org/abs/2004.07219).

Rows are steps in the order in which they were made, one episode after the other. `docs/td3.md` has
the format.
"""

import os
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from td3_robot.errors import ConfigError
from td3_robot.utils.atomic_files import replace_file
from td3_robot.utils.seeding import derive_seed
from td3_robot.vec_env import VecEnv

_REQUIRED = ("observations", "actions", "rewards", "terminals")
_WIDTHS = {
    "observations": "o_dim",
    "actions": "a_dim",
    "next_observations": "o_dim",
}  # all other arrays are (N,)
_FLAGS = ("terminals", "timeouts")
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, TypeError, ValueError, RuntimeError)
_DAMAGE += (SyntaxError, tokenize.TokenError)  # numpy reads an array's header as it would Python


class Transitions(NamedTuple):
    """N steps in order. A row that neither ends its episode nor is the last is continued by the
    next one.
    """

    state: Tensor  # (N, o_dim) float32
    action: Tensor  # (N, a_dim) float32 in [-1, 1]
    reward: Tensor  # (N,) float32
    next_state: Tensor  # (N, o_dim) float32, the true successor
    terminated: Tensor  # (N,) bool: there is no future value
    truncated: (
        Tensor  # (N,) bool: the recording of the episode ends here; the future still has value
    )


_NAMES = dict(
    zip(Transitions._fields, ("observations", "actions", "rewards", "next_observations", *_FLAGS))
)


def load_dataset(path: str | Path, device: torch.device | str = "cpu") -> Transitions:
    """Read a dataset and hold it to all that training on it needs.

    `next_observations` may be missing where `timeouts` is there: the successor is then the next
    row, and rows without one (a timeout, the last row) are left out, as in D4RL's
    `qlearning_dataset`. A row is also truncated where the next row does not continue it, which
    makes `timeouts` optional and keeps shuffled rows apart.

    Raises:
        ConfigError: no such file, no .npz, Python objects in it, an array is missing, has another
            shape or length, holds NaN or infinity, or an action is outside [-1, 1]; one line that
            names the array and the first row.
    """
    path = Path(path)
    try:
        arrays = _checked(_read(path))
        return Transitions(*(torch.from_numpy(array).to(device) for array in _completed(arrays)))
    except ConfigError as error:
        raise ConfigError(f"dataset {str(path)!r}: {error}") from error


def save_dataset(path: str | Path, transitions: Transitions) -> None:
    """Write a dataset, complete or not at all; `load_dataset` gives back equal what `collect` made.

    Raises:
        ConfigError: the file cannot be written, or `load_dataset` would refuse it.
    """
    path = Path(path)
    try:
        given = transitions._asdict().items()
        arrays: dict[str, Any] = _checked(
            {_NAMES[name]: value.detach().cpu().numpy() for name, value in given}
        )
    except ConfigError as error:
        raise ConfigError(f"dataset {str(path)!r}: {error}") from error
    with replace_file(path) as new, new.open("wb") as file:
        np.savez(file, **arrays)
        file.flush()
        os.fsync(file.fileno())


@torch.no_grad()
def collect(
    policy: Callable[[Tensor], Tensor], env: VecEnv, steps: int, seed: int, noise: float = 0.0
) -> Transitions:
    """Play a policy and keep what happened.

    Args:
        policy: observation (B, o_dim) -> action (B, a_dim) in [-1, 1].
        steps: transitions wanted, of all environments together.
        seed: fixes the episodes and the noise.
        noise: standard deviation of Gaussian noise on the actions, which stay in [-1, 1].

    Returns:
        `steps` transitions, one environment after the other, truncated where the next row does not
        go on.

    Raises:
        ConfigError: fewer than one step.
    """
    if steps < 1:
        raise ConfigError(f"steps must be at least 1, got {steps}")
    generator = torch.Generator(env.device).manual_seed(derive_seed(seed, "noise of a dataset"))
    shape = (env.num_envs, env.a_dim)
    observation, rows, wanted = env.reset(seed), [], steps
    while wanted > 0:
        action = policy(observation)
        if noise:
            action = action + noise * torch.randn(shape, generator=generator, device=env.device)
        action = action.clamp(-1.0, 1.0)
        step = env.step(action)
        valid = torch.ones_like(step.terminated) if step.valid is None else step.valid
        rows.append(
            (
                observation,
                action,
                step.reward,
                step.next_observation,
                step.terminated,
                step.truncated,
                valid,
            )
        )
        observation, wanted = step.observation, wanted - int(valid.sum())
    columns = [
        torch.stack(column, 1).flatten(0, 1) for column in zip(*rows)
    ]  # (B, T, ...): environment by environment
    played = Transitions(*(column[columns[-1]][:steps] for column in columns[:-1]))
    return played._replace(
        truncated=played.truncated | _breaks(played.state, played.next_state, played.terminated)
    )


def _breaks(state, next_state, terminated):
    """(N,) bool: a row that does not terminate and that the next row does not continue; Tensors or
    arrays.
    """
    broken = ~terminated
    broken[:-1] &= (next_state[:-1] != state[1:]).any(1)
    return broken


# Reading


def _read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of the file that have one of our names.

    Raises:
        ConfigError: there is no such file, or it is no .npz of plain arrays.
    """
    try:
        if not zipfile.is_zipfile(path):
            path.open("rb").close()  # says why where it cannot be read at all
            raise ConfigError("is no .npz file")
        with np.load(path, allow_pickle=False) as file:
            names = [name for name in _NAMES.values() if name in file]
            if missing := [name for name in _REQUIRED if name not in names]:
                raise ConfigError(f"lacks {', '.join(missing)}; it holds {list(file)[:20]}")
            return {name: _array(file, name) for name in names}
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}") from error
    except MemoryError as error:
        raise ConfigError("does not fit in memory") from error
    except _DAMAGE as error:
        raise ConfigError("is damaged") from error


def _array(file: np.lib.npyio.NpzFile, name: str) -> np.ndarray:
    """One array.

    Raises:
        ConfigError: it holds Python objects, or is no array at all.
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


def _checked(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays as float32 and bool in the shapes of `Transitions`.

    Raises:
        ConfigError: what is wrong, in words that follow the file's name.
    """
    checked = {
        name: _flags(name, array) if name in _FLAGS else _numbers(name, array)
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
            f"next_observations has shape {after.shape}, observations {checked['observations'].shape}"
        )
    outside = (np.abs(checked["actions"]) > 1).any(1)
    if outside.any():
        row = int(outside.argmax())
        raise ConfigError(
            f"actions must be in [-1, 1], got {_shown(checked['actions'][row])} in row {row}"
        )
    return checked


def _numbers(name: str, array: np.ndarray) -> np.ndarray:
    """(N, width) or (N,) float32, finite."""
    if array.dtype.kind not in "fiub":
        raise ConfigError(f"{name} must be numbers, got {array.dtype}")
    array = _shaped(name, array)
    with np.errstate(over="ignore"):  # beyond float32 is infinite, and refused as such
        array = np.ascontiguousarray(array, dtype=np.float32)
    bad = ~np.isfinite(array if array.ndim == 2 else array[:, None]).all(1)
    if bad.any():
        row = int(bad.argmax())
        raise ConfigError(f"{name} has NaN or infinity, first in row {row}")
    return array


def _flags(name: str, array: np.ndarray) -> np.ndarray:
    """(N,) bool."""
    array = _shaped(name, array)
    if array.dtype.kind not in "fiub" or not ((array == 0) | (array == 1)).all():
        raise ConfigError(f"{name} must be true or false, 1 or 0")
    return array.astype(bool)


def _shaped(name: str, array: np.ndarray) -> np.ndarray:
    """As it is where there should be columns; else (N,), of (N,) or (N, 1)."""
    if name in _WIDTHS:
        if array.ndim != 2 or not array.shape[1]:
            raise ConfigError(f"{name} must have shape (N, {_WIDTHS[name]}), got {array.shape}")
        return array
    if array.ndim == 2 and array.shape[1] == 1:
        return array[:, 0]
    if array.ndim != 1:
        raise ConfigError(f"{name} must have shape (N,), got {array.shape}")
    return array


def _shown(row: np.ndarray) -> str:
    """The entry that is the farthest out."""
    return f"{row[np.abs(row).argmax()]:.9g}"  # all digits that float32 has


def _completed(arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """The columns of `Transitions`, with what the file leaves out.

    Raises:
        ConfigError: successors are missing, and nothing tells where episodes were cut.
    """
    state, terminated = arrays["observations"], arrays["terminals"]
    truncated = arrays.get("timeouts", np.zeros_like(terminated))
    next_state = arrays.get("next_observations")
    kept = slice(None)
    if next_state is None:
        if "timeouts" not in arrays:
            raise ConfigError(
                "lacks next_observations, and also timeouts, without which the next row may be another episode's start"
            )
        next_state = np.concatenate((state[1:], state[-1:]))
        next_state[terminated] = state[terminated]  # never looked at: there is no future value
        kept = terminated | ~truncated
        kept[-1] = terminated[-1]
        if not kept.any():
            raise ConfigError("has no transition whose successor is known")
    columns = [column[kept] for column in (state, arrays["actions"], arrays["rewards"], next_state)]
    terminated, truncated = terminated[kept], truncated[kept]
    return *columns, terminated, truncated | _breaks(columns[0], columns[3], terminated)
