"""Our robots and tasks as Gymnasium ids, `td3_robot/<Robot><Task><Kind>-v0`: one at a time, or many in a vector.

Importing this module registers them, as packages of Gymnasium environments do:

>>> import gymnasium, envs.gymnasium_ids
>>> one = gymnasium.make("td3_robot/PandaReach-v0")
>>> many = gymnasium.make_vec("td3_robot/PandaReach-v0", num_envs=64)

Of every robot and task there are three kinds:

- `PandaReach-v0`: observations are vectors, and the reward is the task's dense one;
- `PandaReachSparse-v0`: the same with a reward of 0 for a step that is a success and -1 for any other;
- `PandaReachGoal-v0`: observations are dictionaries with a goal that can be replaced in hindsight, by the interface of
  gymnasium_robotics.core.GoalEnv. Its reward is sparse and depends on the goals alone, see `Task.goal_met`: contacts or
  the error in the past do not count, though `is_success` in the info stays the task's own. There is no dense kind of
  it, since our dense rewards depend on actions and joints as well, which `compute_reward` is not told.
"""

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from envs.arm_env import ArmEnv
from envs.registry import TASKS, make
from envs.robots import robot_names
from envs.values import CONFIGS, read_values
from td3_robot.errors import ConfigError
from td3_robot.vec_env import Step

NAMESPACE = "td3_robot"
KINDS = ("", "sparse", "goal")  # the endings of ids
# Parts of our tasks' observations that are other ones under another goal.
_OF_THE_GOAL = {"goal", "goal_axes", "error", "rotation_error", "joint_error", "beyond", "way", "joint_way", "reactive"}

Shown = np.ndarray | dict[str, np.ndarray]  # an observation, or a batch of them


def register() -> None:
    """Make every robot with every task it can do known to Gymnasium: panda and reach are "td3_robot/PandaReach-v0"."""
    for robot in robot_names():
        for task in TASKS:
            for kind in KINDS if _can_do(robot, task) else ():
                if (env_id := id_of(robot, task, kind)) not in gym.registry:
                    goal = "Goal" if kind == "goal" else ""
                    gym.register(
                        env_id,
                        entry_point=f"{__name__}:Arm{goal}GymnasiumEnv",
                        vector_entry_point=f"{__name__}:Arm{goal}VectorEnv",
                        kwargs={"robot": robot, "task": task} | ({"sparse": True} if kind == "sparse" else {}),
                    )


def id_of(robot: str, task: str, kind: str = "") -> str:
    """The Gymnasium id of a robot, a task and one of `KINDS`: their names with every word capitalised."""
    words = f"{robot}_{task}_{kind}".strip("_").split("_")
    return f"{NAMESPACE}/{''.join(word[0].upper() + word[1:] for word in words)}-v0"


def _can_do(robot: str, task: str) -> bool:
    """Whether a robot has what a task needs, by files of values alone: loading all models would take seconds."""
    if not TASKS[task].moves_gripper:
        return True
    gripper = read_values(CONFIGS / "robots" / f"{robot}.yaml").get("gripper", "none")
    return gripper != "none" and "pads" in read_values(CONFIGS / "grippers" / f"{gripper}.yaml")


def _box(size: int, bound: float = np.inf) -> spaces.Box:
    """Observations have no bounds, since speeds and errors have none that is tight; actions are in [-1, 1]."""
    return spaces.Box(-bound, bound, (size,), np.float32)


class _Vectors:
    """Observations as they are."""

    def __init__(self, arms: ArmEnv):
        self.space = _box(arms.o_dim)

    def show(self, observation: Tensor) -> np.ndarray:
        """(B, o_dim) -> the same as an array."""
        return _array(observation)

    def reward(self, step: Step, shown: Shown) -> np.ndarray:
        """(B,)."""
        return _array(step.reward)


class _Goals:
    """Observations as dictionaries of the goal, what was achieved of it, and the rest.

    The rest is what stays the same under another goal, or else it would tell the old one after hindsight.
    """

    def __init__(self, arms: ArmEnv):
        self._arms, self._goal = arms, arms.layout["goal"]
        names = [name for name in arms.layout if name not in _OF_THE_GOAL]
        self._rest = [i for name in names for i in range(arms.o_dim)[arms.layout[name]]]
        goal = _box(arms.goal.shape[1])
        self.space = spaces.Dict({"observation": _box(len(self._rest)), "achieved_goal": goal, "desired_goal": goal})

    def show(self, observation: Tensor) -> dict[str, np.ndarray]:
        """(B, o_dim) -> arrays with the names of the interface, (B, ...) each."""
        return {
            "observation": _array(observation[:, self._rest]),
            "achieved_goal": _array(self._arms.achieved_goal(observation)),
            "desired_goal": _array(observation[:, self._goal]),
        }

    def reward(self, step: Step, shown: Shown) -> np.ndarray:
        """(B,), of the goals in the true successors."""
        return self.reward_of(shown["achieved_goal"], shown["desired_goal"])

    def reward_of(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """Goals (..., g) -> (...) 0 where the desired one is met and -1 elsewhere."""
        rows = [
            torch.as_tensor(np.asarray(goal, np.float32)).reshape(-1, goal.shape[-1]) for goal in (achieved, desired)
        ]
        met = self._arms.task.goal_met(*rows)
        return (met.numpy().astype(np.float32) - 1.0).reshape(np.shape(achieved)[:-1])


def _row(shown: Shown, row: int) -> Shown:
    """One observation of a batch."""
    return {name: value[row] for name, value in shown.items()} if isinstance(shown, dict) else shown[row]


def _measurements(step: Step) -> dict[str, np.ndarray]:
    """The info of a step under Gymnasium's names, each (B, ...)."""
    return {"is_success" if name == "success" else name: _array(value) for name, value in step.info.items()}


def _array(values: Tensor) -> np.ndarray:
    return values.cpu().numpy().copy()  # a copy: the tensors may be the simulator's own


def _check_render_mode(render_mode: str | None) -> None:
    if render_mode is not None:
        raise ConfigError(f"render_mode must be None, got {render_mode!r}; evaluate.py --swift shows the robot")


class ArmGymnasiumEnv(gym.Env):
    """One simulated arm doing one task, as a Gymnasium environment.

    Seeds and episodes are those of `envs.make(robot, task)`: the same seed and actions give the same observations
    and rewards, from one episode to the next. Without a seed the first one is drawn from `np_random`.

    Args:
        robot, task: names, as for `envs.make`.
        device: where it is simulated.
        render_mode: None; there are no pictures.
        sparse: pay -1 for every step that is no success and 0 for one that is.
        guard: as for `envs.make`.

    Raises:
        ConfigError: no such robot, task or render mode.
    """

    metadata = {"render_modes": []}
    _view = _Vectors

    def __init__(
        self,
        robot: str,
        task: str,
        device: str = "cpu",
        render_mode: str | None = None,
        sparse: bool = False,
        guard: bool = False,
    ):
        _check_render_mode(render_mode)
        self.render_mode = None
        self._arm = make(robot, task, 1, device, sparse=sparse, guard=guard)
        self._shown = self._view(self._arm)
        self.observation_space, self.action_space = self._shown.space, _box(self._arm.a_dim, 1.0)
        self._seeded = False
        self._begun: Tensor | None = None  # first observation of an episode that the arm has begun by itself

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Shown, dict]:
        """Start an episode. Returns the observation (o_dim,) and an empty info."""
        super().reset(seed=seed)
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**31))
        self._seeded = True
        observation = self._begun if seed is None and self._begun is not None else self._arm.reset(seed)
        self._begun = None
        return _row(self._shown.show(observation), 0), {}

    def step(self, action: np.ndarray) -> tuple[Shown, float, bool, bool, dict]:
        """One control period with an action (a_dim,) in [-1, 1].

        Raises:
            NotFiniteError: the action is NaN or infinite.
        """
        step = self._arm.step(torch.as_tensor(action, dtype=torch.float32, device=self._arm.device)[None])
        terminated, truncated = bool(step.terminated), bool(step.truncated)
        self._begun = step.observation if terminated or truncated else None
        info = {name: value[0] if value.ndim > 1 else value[0].item() for name, value in _measurements(step).items()}
        shown = self._shown.show(step.next_observation)
        return _row(shown, 0), float(self._shown.reward(step, shown)[0]), terminated, truncated, info


class ArmGoalGymnasiumEnv(ArmGymnasiumEnv):
    """One simulated arm whose observations are goal dictionaries: `observation`, `achieved_goal`, `desired_goal`.

    Args:
        robot, task, device, render_mode, guard: as for ArmGymnasiumEnv.
    """

    _view = _Goals

    def __init__(self, robot: str, task: str, device: str = "cpu", render_mode: str | None = None, guard: bool = False):
        super().__init__(robot, task, device, render_mode, guard=guard)

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: object) -> np.ndarray | float:
        """What `step` pays for goals (..., g), (...): 0 where the desired one is met, -1 elsewhere.

        Args:
            info: not used.
        """
        return self._shown.reward_of(achieved_goal, desired_goal)[()]


class ArmVectorEnv(VectorEnv):
    """B simulated arms doing one task, as a Gymnasium vector environment that resets in the same step.

    It is `envs.make(robot, task, num_envs)` under other names. Where an episode ended, its last observation is in
    `infos["final_obs"]` and its measurements in `infos["final_info"]`, as in Gymnasium's own vector environments.

    Args:
        num_envs: arms.
        robot, task, device, render_mode, sparse, guard: as for ArmGymnasiumEnv.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}
    _view = _Vectors

    def __init__(
        self,
        num_envs: int,
        robot: str,
        task: str,
        device: str = "cpu",
        render_mode: str | None = None,
        sparse: bool = False,
        guard: bool = False,
    ):
        _check_render_mode(render_mode)
        self.num_envs, self.render_mode = num_envs, None
        self._arms = make(robot, task, num_envs, device, sparse=sparse, guard=guard)
        self._shown = self._view(self._arms)
        self.single_observation_space, self.single_action_space = self._shown.space, _box(self._arms.a_dim, 1.0)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._seeded = False

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Shown, dict]:
        """Start B episodes. Returns observations (B, o_dim) and an empty info."""
        super().reset(seed=seed)
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**31))
        self._seeded = True
        return self._shown.show(self._arms.reset(seed)), {}

    def step(self, actions: np.ndarray) -> tuple[Shown, np.ndarray, np.ndarray, np.ndarray, dict]:
        """One control period with actions (B, a_dim) in [-1, 1].

        Raises:
            NotFiniteError: an action is NaN or infinite.
        """
        step = self._arms.step(torch.as_tensor(actions, dtype=torch.float32, device=self._arms.device))
        terminated, truncated = _array(step.terminated), _array(step.truncated)
        done = terminated | truncated
        measured = _measurements(step)
        successor = self._shown.show(step.next_observation)
        infos = measured | {f"_{name}": ~done for name in measured}
        if done.any():
            finals = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(done):
                finals[i] = _row(successor, i)
            final_info = measured | {f"_{name}": done for name in measured}
            infos |= {"final_obs": finals, "_final_obs": done, "final_info": final_info, "_final_info": done}
        reward = self._shown.reward(step, successor)
        return self._shown.show(step.observation), reward, terminated, truncated, infos


class ArmGoalVectorEnv(ArmVectorEnv):
    """B simulated arms whose observations are goal dictionaries, see ArmGoalGymnasiumEnv.

    Args:
        num_envs, robot, task, device, render_mode, guard: as for ArmVectorEnv.
    """

    _view = _Goals

    def __init__(
        self,
        num_envs: int,
        robot: str,
        task: str,
        device: str = "cpu",
        render_mode: str | None = None,
        guard: bool = False,
    ):
        super().__init__(num_envs, robot, task, device, render_mode, guard=guard)


register()
