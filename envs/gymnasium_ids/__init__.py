"""Our robots and tasks as Gymnasium ids, `td3_robot/<Robot><Task><Kind>-v0`: one at a time, or many
in a vector.

Importing this module registers them, as packages of Gymnasium environments do:

>>> import gymnasium, envs.gymnasium_ids
>>> one = gymnasium.make("td3_robot/PandaReach-v0")
>>> many = gymnasium.make_vec("td3_robot/PandaReach-v0", num_envs=64)

Of every robot and task there are three kinds:

- `PandaReach-v0`: observations are vectors, and the reward is the task's dense one;
- `PandaReachSparse-v0`: the same with a reward of 0 for a step that is a success and -1 for any
    other;
- `PandaReachGoal-v0`: observations are dictionaries with a goal that can be replaced in hindsight,
  by the interface of gymnasium_robotics.core.GoalEnv. Its reward is sparse and depends on the goals
  alone, see `Task.goal_met`: contacts or the error in the past do not count, though `is_success` in
  the info stays the task's own. There is no dense kind of it, since our dense rewards depend on
  actions and joints as well, which `compute_reward` is not told.
"""

import gymnasium as gym

from envs.config.yaml_values import CONFIGS, read_values
from envs.gymnasium_ids.single import ArmGoalGymnasiumEnv, ArmGymnasiumEnv
from envs.gymnasium_ids.vector import ArmGoalVectorEnv, ArmVectorEnv
from envs.robots import robot_names
from envs.tasks.registry import task_class, task_names

__all__ = [
    "ArmGoalGymnasiumEnv",
    "ArmGoalVectorEnv",
    "ArmGymnasiumEnv",
    "ArmVectorEnv",
    "id_of",
    "register",
]

NAMESPACE = "td3_robot"
KINDS = ("", "sparse", "goal")  # the endings of ids


def register() -> None:
    """Make every robot with every task it can do known to Gymnasium: panda and reach are
    "td3_robot/PandaReach-v0".
    """
    for robot in robot_names():
        for task in task_names():
            for kind in KINDS if _can_do(robot, task) else ():
                if (env_id := id_of(robot, task, kind)) not in gym.registry:
                    goal = "Goal" if kind == "goal" else ""
                    gym.register(
                        env_id,
                        entry_point=f"{__name__}:Arm{goal}GymnasiumEnv",
                        vector_entry_point=f"{__name__}:Arm{goal}VectorEnv",
                        kwargs={"robot": robot, "task": task}
                        | ({"sparse": True} if kind == "sparse" else {}),
                    )


def id_of(robot: str, task: str, kind: str = "") -> str:
    """The Gymnasium id of a robot, a task and one of `KINDS`: their names with every word
    capitalised.
    """
    words = f"{robot}_{task}_{kind}".strip("_").split("_")
    return f"{NAMESPACE}/{''.join(word[0].upper() + word[1:] for word in words)}-v0"


def _can_do(robot: str, task: str) -> bool:
    """Whether a robot has what a task needs, by files of values alone: loading all models would
    take seconds.
    """
    if not task_class(task).needs_hand:
        return True
    gripper = read_values(CONFIGS / "robots" / f"{robot}.yaml").get("gripper", "none")
    return gripper != "none" and "pads" in read_values(CONFIGS / "grippers" / f"{gripper}.yaml")


register()
