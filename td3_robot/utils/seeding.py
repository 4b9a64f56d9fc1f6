"""Independent streams of random numbers from one seed, and the generators that all code shares."""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from td3_robot.errors import require_integer

_LARGEST_SEED = 2**63 - 1  # torch's generators take no more bits


def require_seed(seed: object) -> int:
    """Return a seed, an integer of numpy's as Python's.

    Raises:
        ConfigError: it is no integer, negative or too large.
    """
    return require_integer("seed", seed, 0, _LARGEST_SEED)


def derive_seed(seed: int, use: str) -> int:
    """Derive a seed in [0, 2**32) for one use of a run's seed, for example "exploration".

    Generators that are given the same seed draw the same numbers, so that exploration would begin
    with the very numbers that the environment's starts were made of. `numpy.random.SeedSequence`
    mixes seed and use so that neighbours have nothing in common.

    Raises:
        ConfigError: it is no seed.
    """
    return int(np.random.SeedSequence((require_seed(seed), *use.encode())).generate_state(1)[0])


def derive_process_seed(seed: int, rank: int) -> int:
    """Return the seed of one of several processes that train together; process 0 has the run's."""
    return derive_seed(seed, f"process {rank}") if rank else seed


def seed_global_generators(seed: int, use: str) -> None:
    """Seed the global generators of Python, numpy and torch for one use of a run's seed.

    Nothing here draws from them, but many published environments do.
    """
    import torch  # here: it takes a second, and a mistyped flag is answered before

    random.seed(derive_seed(seed, f"{use}, random"))
    np.random.seed(derive_seed(seed, f"{use}, numpy"))
    torch.manual_seed(derive_seed(seed, f"{use}, torch"))


def get_global_generators() -> dict[str, Any]:
    """Return the states of the global generators, as tensors and plain values."""
    import torch

    version, numbers, gauss = random.getstate()
    arrays = np.random.get_state(legacy=False)
    key = arrays["state"].get("key")  # other bit generators than numpy's default have none
    state: dict[str, Any] = {
        "random": {"version": version, "numbers": torch.tensor(numbers), "gauss": gauss},
        "torch": torch.get_rng_state(),
    }
    if key is not None:
        state["numpy"] = {
            "key": torch.from_numpy(key.astype(np.int64)),
            "pos": int(arrays["state"]["pos"]),
            "has_gauss": int(arrays["has_gauss"]),
            "gauss": float(arrays["gauss"]),
        }
    return state


def set_global_generators(state: dict[str, Any]) -> None:
    """Set the global generators to states that `get_global_generators` returned."""
    import torch

    python = state["random"]
    random.setstate((python["version"], tuple(python["numbers"].tolist()), python["gauss"]))
    torch.set_rng_state(state["torch"])
    if arrays := state.get("numpy"):
        key = arrays["key"].numpy().astype(np.uint32)
        gauss = (arrays["has_gauss"], arrays["gauss"])
        np.random.set_state(("MT19937", key, arrays["pos"], *gauss))


@contextlib.contextmanager
def fork_global_generators(seed: int, use: str) -> Iterator[None]:
    """Seed the global generators in the block, and give them back as they were."""
    before = get_global_generators()
    seed_global_generators(seed, use)
    try:
        yield
    finally:
        set_global_generators(before)
