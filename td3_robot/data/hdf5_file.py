"""Datasets in HDF5 files with D4RL's names, as D4RL distributes them."""

from collections.abc import Collection
from pathlib import Path

import numpy as np

from td3_robot.errors import ConfigError, get_first_line, require_packages

ENDINGS = (".hdf5", ".h5")


def read_arrays(path: Path, names: Collection[str]) -> dict[str, np.ndarray]:
    """Return the arrays at the top of an HDF5 file that have one of these names.

    Raises:
        ConfigError: h5py is not installed, or the file cannot be read.
    """
    require_packages("reading HDF5", "h5py")
    import h5py

    try:
        with h5py.File(path, "r") as file:
            found = {name: file[name] for name in names if name in file}
            return {  # a text, or what is declared empty, is no array by itself
                name: np.asarray(value[()])
                for name, value in found.items()
                if isinstance(value, h5py.Dataset)
            }
    except Exception as error:  # h5py raises what its C library reports
        raise ConfigError(f"cannot be read as HDF5: {get_first_line(error)}") from error
