"""A policy on a real arm: numbers in, velocities out, limited, interpolated and watched.

numpy alone, and onnxruntime to load a policy; nothing else of this project is imported, so that
`td3_robot/__init__.py` and this folder can be copied onto a robot's computer;
docs/how-to/deploy-real-arm.md has the steps.
"""

from td3_robot.deploy.arm import Arm, Reading
from td3_robot.deploy.errors import DeployError
from td3_robot.deploy.legacy import NAMES, warn_renamed
from td3_robot.deploy.policy import Policy
from td3_robot.deploy.robot.description import Robot
from td3_robot.deploy.robot.limits import Limits
from td3_robot.deploy.robot.obstacles import Obstacles
from td3_robot.deploy.runtime.latency import measure_latency
from td3_robot.deploy.runtime.latency_compensation import LatencyCompensator
from td3_robot.deploy.safety.safety_filter import SafetyFilter
from td3_robot.deploy.safety.watchdog import Watchdog

__all__ = [
    "Arm",
    "DeployError",
    "LatencyCompensator",
    "Limits",
    "Obstacles",
    "Policy",
    "Reading",
    "Robot",
    "SafetyFilter",
    "Watchdog",
    "measure_latency",
]


def __getattr__(name: str) -> object:
    """Return what an old name means now."""
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn_renamed(f"{__name__}.{name}", NAMES[name])
    return globals()[NAMES[name]]
