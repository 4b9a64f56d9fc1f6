"""A policy on a real arm: numbers in, velocities out, limited, interpolated and watched.

numpy alone, and onnxruntime to load a policy; nothing else of this project is imported, so that `td3_robot/__init__.py`
and this folder can be copied onto a robot's computer. docs/deploy.md is the way there.
"""

from td3_robot.deploy.description import Robot
from td3_robot.deploy.errors import DeployError
from td3_robot.deploy.foresight import Foresight
from td3_robot.deploy.latency import measured_latency
from td3_robot.deploy.limits import Limits
from td3_robot.deploy.obstacles import Obstacles
from td3_robot.deploy.policy import Policy
from td3_robot.deploy.safety_filter import SafetyFilter
from td3_robot.deploy.watchdog import Watchdog

__all__ = [
    "DeployError",
    "Foresight",
    "Limits",
    "Obstacles",
    "Policy",
    "Robot",
    "SafetyFilter",
    "Watchdog",
    "measured_latency",
]
