"""The memory that there is, and one setting of the C library that small-tensor work depends on."""

import contextlib
import ctypes
import os
import sys
from pathlib import Path

import torch

from td3_robot.errors import ConfigError

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # glibc's malloc.h; see mallopt(3)


def keep_freed_memory() -> None:
    """Let the process keep freed memory for its next tensors. Does nothing where the C library is
    not glibc.

    By default glibc hands every freed block above 128 KiB back to the kernel, and layers of 256 x
    128 floats are just that large: each tensor is then paid for with page faults. Keeping up to 256
    MiB halves the time of a step of 64 simulated arms.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # musl, for one
        return
    mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the greatest value glibc takes
    mallopt(_M_TRIM_THRESHOLD, 256 << 20)
    mallopt(_M_TOP_PAD, 16 << 20)


def get_memory(device: torch.device | str) -> float:
    """Bytes that a device has in all; a CPU as many as its machine, or the container that this
    process is in.
    """
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    sizes = [float("inf")]
    with contextlib.suppress(ValueError, OSError, AttributeError):  # not every system tells
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with contextlib.suppress(ValueError, OSError):
        sizes.append(float(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(sizes)


def measure_peak_memory(device: torch.device | str) -> float | None:
    """The most bytes that tensors had at once on a GPU, or this process in the memory of its
    machine; None if not told.

    Bytes of a GPU are PyTorch's own count (torch.cuda.max_memory_allocated), of a process
    getrusage(2)'s.
    """
    if torch.device(device).type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    try:
        import resource  # no module of Windows
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return float(unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def require_memory(what: str, size: float, device: torch.device | str) -> None:
    """Refuse what cannot fit before any of it is asked for: a system may promise more than it has.

    Raises:
        ConfigError: `what` needs more bytes than the device has in all.
    """
    if size > (there := get_memory(device)):
        raise ConfigError(
            f"{what} needs {1e-9 * size:,.1f} GB, more than the {1e-9 * there:,.1f} GB there are"
        )
