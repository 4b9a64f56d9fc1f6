"""TD3 for continuous control of any vectorised environment."""

import contextlib
from typing import TYPE_CHECKING

with contextlib.suppress(ImportError):  # not there where td3_robot.deploy was copied alone
    from td3_robot.utils.legacy import MODULES, NAMES, register_renames

    register_renames(MODULES, NAMES)

if TYPE_CHECKING:
    from td3_robot.networks.mlp import MLP
    from td3_robot.replay import Batch
    from td3_robot.td3.agent import TD3

__all__ = ["MLP", "TD3", "Batch"]
_HOMES = {"MLP": "networks", "TD3": "td3.agent", "Batch": "replay"}


def __getattr__(name: str) -> object:
    """Import a public name on first use: torch takes a second, and a mistyped flag needs none."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """List public names that are not imported yet, too: a notebook completes what is listed."""
    return sorted({*globals(), *__all__})
