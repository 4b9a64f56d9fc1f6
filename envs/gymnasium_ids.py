"""Our robots and tasks as Gymnasium ids, `td3_robot/<Robot><Task>-v0`: one at a time, or many in a vector.

Importing this module registers them, as packages of Gymnasium environments do:

>>> import gymnasium, envs.gymnasium_ids
>>> one = gymnasium.make("td3_robot/PandaReach-v0")
>>> many = gymnasium.make_vec("td3_robot/PandaReach-v0", num_envs=64)
"""

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from envs.registry import TASKS, make
from envs.robots import robot_names
from td3_robot.errors import ConfigError
from td3_robot.vec_env import Step

NAMESPACE = "td3_robot"


def register() -> None:
    """Make every robot with every task known to Gymnasium: panda and reach are "td3_robot/PandaReach-v0"."""
    for robot in robot_names():
        for task in TASKS:
            if (env_id := id_of(robot, task)) not in gym.registry:
                gym.register(
                    env_id,
                    entry_point=f"{__name__}:ArmGymnasiumEnv",
                    vector_entry_point=f"{__name__}:ArmVectorEnv",
                    kwargs={"robot": robot, "task": task},
                )


def id_of(robot: str, task: str) -> str:
    """The Gymnasium id of a robot and a task: their names with every word capitalised."""
    words = f"{robot}_{task}".split("_")
    return f"{NAMESPACE}/{''.join(word[0].upper() + word[1:] for word in words)}-v0"


def _spaces(o_dim: int, a_dim: int) -> tuple[spaces.Box, spaces.Box]:
    """Observations without bounds, since speeds and errors have none that is tight; actions in [-1, 1]."""
    return spaces.Box(-np.inf, np.inf, (o_dim,), np.float32), spaces.Box(-1.0, 1.0, (a_dim,), np.float32)


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

    Raises:
        ConfigError: no such robot, task or render mode.
    """

    metadata = {"render_modes": []}

    def __init__(self, robot: str, task: str, device: str = "cpu", render_mode: str | None = None):
        _check_render_mode(render_mode)
        self.render_mode = None
        self._arm = make(robot, task, 1, device)
        self.observation_space, self.action_space = _spaces(self._arm.o_dim, self._arm.a_dim)
        self._seeded = False
        self._begun: Tensor | None = None  # first observation of an episode that the arm has begun by itself

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """Start an episode. Returns the observation (o_dim,) and an empty info."""
        super().reset(seed=seed)
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**31))
        self._seeded = True
        observation = self._begun if seed is None and self._begun is not None else self._arm.reset(seed)
        self._begun = None
        return _array(observation)[0], {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """One control period with an action (a_dim,) in [-1, 1].

        Raises:
            NotFiniteError: the action is NaN or infinite.
        """
        step = self._arm.step(torch.as_tensor(action, dtype=torch.float32, device=self._arm.device)[None])
        terminated, truncated = bool(step.terminated), bool(step.truncated)
        self._begun = step.observation if terminated or truncated else None
        info = {name: value[0] if value.ndim > 1 else value[0].item() for name, value in _measurements(step).items()}
        return _array(step.next_observation)[0], float(step.reward), terminated, truncated, info


class ArmVectorEnv(VectorEnv):
    """B simulated arms doing one task, as a Gymnasium vector environment that resets in the same step.

    It is `envs.make(robot, task, num_envs)` under other names. Where an episode ended, its last observation is in
    `infos["final_obs"]` and its measurements in `infos["final_info"]`, as in Gymnasium's own vector environments.

    Args:
        num_envs: arms.
        robot, task, device, render_mode: as for ArmGymnasiumEnv.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs: int, robot: str, task: str, device: str = "cpu", render_mode: str | None = None):
        _check_render_mode(render_mode)
        self.num_envs, self.render_mode = num_envs, None
        self._arms = make(robot, task, num_envs, device)
        self.single_observation_space, self.single_action_space = _spaces(self._arms.o_dim, self._arms.a_dim)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._seeded = False

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """Start B episodes. Returns observations (B, o_dim) and an empty info."""
        super().reset(seed=seed)
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**31))
        self._seeded = True
        return _array(self._arms.reset(seed)), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        """One control period with actions (B, a_dim) in [-1, 1].

        Raises:
            NotFiniteError: an action is NaN or infinite.
        """
        step = self._arms.step(torch.as_tensor(actions, dtype=torch.float32, device=self._arms.device))
        terminated, truncated = _array(step.terminated), _array(step.truncated)
        done = terminated | truncated
        measured = _measurements(step)
        infos = measured | {f"_{name}": ~done for name in measured}
        if done.any():
            finals = np.full(self.num_envs, None, object)
            successor = _array(step.next_observation)
            for i in np.flatnonzero(done):
                finals[i] = successor[i]
            final_info = measured | {f"_{name}": done for name in measured}
            infos |= {"final_obs": finals, "_final_obs": done, "final_info": final_info, "_final_info": done}
        return _array(step.observation), _array(step.reward), terminated, truncated, infos


register()
