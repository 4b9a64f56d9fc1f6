"""Simulated arms and grippers, their tasks, viewers and classical controllers."""

from typing import TYPE_CHECKING

import envs.legacy  # noqa: F401  # old import paths
from td3_robot.utils.legacy import find_renamed

if TYPE_CHECKING:
    from envs.registry import make, make_from_config
    from envs.robots import make_robot
    from envs.robots.observation import o

__all__ = ["make", "make_robot", "o", "make_from_config"]
_HOMES = {
    "o": "robots.observation",
    "make": "registry",
    "make_robot": "robots",
    "make_from_config": "registry",
}


def __getattr__(name: str) -> object:
    """Import names on first use, so that a missing browser is reported before torch is loaded."""
    if name not in _HOMES:
        return find_renamed(__name__, name)
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """List public names that are not imported yet, too: a notebook completes what is listed."""
    return sorted({*globals(), *__all__})
