"""Numbers that a user's program gives to this folder: read as such, or refused in one line."""

import numpy as np

from td3_robot.deploy.errors import DeployError

_LARGEST = 3e38  # of the numbers that a graph of float32 takes
# What numpy raises of what holds no numbers, of tensors that need gradients, and of huge integers.
UNREADABLE = (TypeError, ValueError, RuntimeError, OverflowError)


def read_number(name: str, value: object) -> float:
    """Return a value as one number, which may be NaN or infinite.

    Raises:
        DeployError: it is none, or several.
    """
    try:
        number = np.asarray(None if isinstance(value, list | tuple) else value)
    except UNREADABLE:
        number = np.empty(0)
    if number.size != 1 or number.dtype.kind not in "iuf":
        raise DeployError(f"{name} must be a number, got {value!r}")
    return float(number.item())


def read_numbers(name: str, value: object, shape: tuple[int, ...]) -> np.ndarray:
    """Return a value as numbers of a shape, a single one as (1,), for a graph of float32.

    Raises:
        DeployError: it is no such numbers.
    """
    try:
        numbers = np.atleast_1d(np.asarray(value, float))
    except UNREADABLE:
        numbers = None
    if numbers is None or numbers.shape != shape or not (np.abs(numbers) < _LARGEST).all():
        size = " x ".join(map(str, shape))
        what = "a finite number" if shape == (1,) else f"{size} finite numbers"
        got = value if numbers is None else numbers.tolist()
        raise DeployError(f"{name} must be {what} below {_LARGEST:g}, got {got}")
    return numbers
