"""Gymnasium ids of our robots and tasks, `td3_robot/<Robot><Task><Kind>-v0`.

Importing this module registers them:

>>> import gymnasium, envs.gymnasium_ids
>>> one = gymnasium.make("td3_robot/PandaReach-v0")
>>> many = gymnasium.make_vec("td3_robot/PandaReach-v0", num_envs=64)

They take the keywords of `envs.make`. `td3_robot/<Task><Kind>-v0` is for any robot:

>>> own = gymnasium.make("td3_robot/Reach-v0", robot="arm.urdf", tcp="tool0", latency=0.05)

There are three kinds of each:

- `PandaReach-v0`: vector observations and the task's dense reward;
- `PandaReachSparse-v0`: the same with a reward of 0 for a step that is a success, else -1;
- `PandaReachGoal-v0`: goal dictionaries for hindsight, by the interface of
    gymnasium_robotics.core.GoalEnv. Its sparse reward depends on the goals alone, see
    `Task.is_goal_met`: contacts do not count, though `is_success` in the info is the task's own.
    Dense rewards depend on actions and joints too, which `compute_reward` does not get.
"""

import copy

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from envs.config.assignments import parse_assignments
from envs.config.env_options import KINEMATIC, EnvOptions
from envs.config.yaml_values import CONFIGS, read_values
from envs.gymnasium_ids.single import ArmGoalGymnasiumEnv, ArmGymnasiumEnv
from envs.gymnasium_ids.vector import ArmGoalVectorEnv, ArmVectorEnv
from envs.robots import robot_names
from envs.tasks.registry import find_task_class, list_tasks
from td3_robot.utils.legacy import find_old_names

__all__ = [
    "ArmGoalGymnasiumEnv",
    "ArmGoalVectorEnv",
    "ArmGymnasiumEnv",
    "ArmVectorEnv",
    "make_env_id",
    "make_env_spec",
    "register",
]

NAMESPACE = "td3_robot"
KINDS = ("", "sparse", "goal")  # suffixes of ids
_NAMED = ("gripper", "tcp", "base", "velocity", "acceleration")
_NAMED += ("sparse", "guard", "guard_stops", "engine", "randomize")


def register() -> None:
    """Register every task, and every robot with every task that it can do."""
    for task in list_tasks():
        engine = _get_engine(task)
        for kind in KINDS:
            _register_id(make_env_id("", task, kind), kind, {"task": task} | engine)
            for robot in robot_names():
                if _is_feasible(robot, task):
                    env_id = make_env_id(robot, task, kind)
                    _register_id(env_id, kind, {"robot": robot, "task": task} | engine)


def _register_id(env_id: str, kind: str, named: dict[str, object]) -> None:
    if env_id not in gym.registry:
        goal = "Goal" if kind == "goal" else ""
        gym.register(
            env_id,
            entry_point=f"{__name__}:Arm{goal}GymnasiumEnv",
            vector_entry_point=f"{__name__}:Arm{goal}VectorEnv",
            kwargs=named | ({"sparse": True} if kind == "sparse" else {}),
        )


def make_env_id(robot: str, task: str, kind: str = "") -> str:
    """Make the Gymnasium id of a robot or "", a task and one of `KINDS`, with capitalised words."""
    words = f"{robot}_{task}_{kind}".strip("_").split("_")
    return f"{NAMESPACE}/{''.join(word[0].upper() + word[1:] for word in words)}-v0"


def make_env_spec(options: EnvOptions) -> EnvSpec:
    """Make the Gymnasium specification of what options describe, of plain values for a file.

    Whoever makes the environment has to import this module first.
    """
    if options.env is not None:
        spec = copy.deepcopy(gym.spec(options.env.rpartition(":")[2]))  # its module is imported
        spec.max_episode_steps = options.time_limit or spec.max_episode_steps
        if isinstance(made_by := spec.entry_point, type):  # which no file could hold
            spec.entry_point = f"{made_by.__module__}:{made_by.__qualname__}"
        return spec
    spec = copy.deepcopy(gym.spec(make_env_id("", options.task)))
    plain = {name: getattr(EnvOptions, name) for name in _NAMED}
    values = {name: getattr(options, name) for name in _NAMED} | options.disturbances
    values["guard_stops"] = options.guard and options.guard_stops
    spec.kwargs = {"robot": options.robot, "task": options.task} | {
        name: value for name, value in values.items() if value != plain.get(name)
    }
    if options.xacro:
        spec.kwargs["xacro"] = parse_assignments("xacro", options.xacro)
    return spec


def _get_engine(task: str) -> dict[str, object]:
    """Return the engine of a task that cannot be done on the one that is the default."""
    able = find_task_class(task).engines
    return {} if KINEMATIC in able else {"engine": able[0]}


def _is_feasible(robot: str, task: str) -> bool:
    """Return whether a robot has the gripper that a task needs, by its YAML files alone."""
    if not find_task_class(task).needs_hand:
        return True
    gripper = read_values(CONFIGS / "robots" / f"{robot}.yaml").get("gripper", "none")
    return gripper != "none" and "pads" in read_values(CONFIGS / "grippers" / f"{gripper}.yaml")


register()

__getattr__ = find_old_names(__name__)
