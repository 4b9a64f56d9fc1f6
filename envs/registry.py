"""Robots and tasks by name."""

import yaml

from envs.arm_env import ArmEnv
from envs.robots import CONFIGS, make_robot
from envs.tasks.reach import Reach
from td3_robot.errors import unknown

TASKS = {"reach": Reach}


def make(robot: str, task: str, num_envs: int = 1, device: str = "cpu", seed: int = 0) -> ArmEnv:
    """Build B environments of a registered robot and task.

    Raises:
        ConfigError: no such robot or task, or num_envs below 1.
    """
    if task not in TASKS:
        raise unknown("task", task, TASKS)
    constants = yaml.safe_load((CONFIGS / "tasks" / f"{task}.yaml").read_text())
    return ArmEnv(make_robot(robot), TASKS[task](**constants), num_envs, device, seed)
