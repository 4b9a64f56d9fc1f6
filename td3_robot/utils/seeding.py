"""Independent streams of random numbers from one seed."""

import numpy as np


def derive_seed(seed: int, use: str) -> int:
    """Derive a seed in [0, 2**32) for one use of a run's seed, for example "exploration".

    Generators that are given the same seed draw the same numbers, so that exploration would begin
    with the very numbers that the environment's starts were made of. `numpy.random.SeedSequence`
    mixes seed and use so that neighbours have nothing in common.
    """
    return int(np.random.SeedSequence((seed, *use.encode())).generate_state(1)[0])


def derive_process_seed(seed: int, rank: int) -> int:
    """Return the seed of one of several processes that train together; process 0 has the run's."""
    return derive_seed(seed, f"process {rank}") if rank else seed
