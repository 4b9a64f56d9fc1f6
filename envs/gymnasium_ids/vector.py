"""Many arms as a Gymnasium vector environment."""

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from envs.config.env_options import KINEMATIC
from envs.gymnasium_ids.shown import Goals, Shown, Vectors, array, box, measurements, row_of
from envs.registry import make
from td3_robot.errors import ConfigError


class ArmVectorEnv(VectorEnv):
    """B simulated arms doing one task, as a Gymnasium vector environment that resets in the same
    step.

    It is `envs.make(robot, task, num_envs)` under other names. Where an episode ended, its last
    observation is in `infos["final_obs"]` and its measurements in `infos["final_info"]`, as in
    Gymnasium's own vector environments.

    Args:
        num_envs: arms.
        robot, task, device, sparse, guard, engine: as for ArmGymnasiumEnv.
        render_mode: None; one arm alone can be shown.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}
    _view = Vectors

    def __init__(
        self,
        num_envs: int,
        robot: str,
        task: str,
        device: str = "cpu",
        render_mode: str | None = None,
        sparse: bool = False,
        guard: bool = False,
        engine: str = KINEMATIC,
    ):
        if render_mode is not None:
            raise ConfigError(
                f"render_mode must be None for many arms, got {render_mode!r}; one alone can be shown"
            )
        self.num_envs, self.render_mode = num_envs, None
        self._arms = make(robot, task, num_envs, device, sparse=sparse, guard=guard, engine=engine)
        self._shown = self._view(self._arms)
        self.single_observation_space, self.single_action_space = (
            self._shown.space,
            box(self._arms.a_dim, 1.0),
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._seeded = False

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Shown, dict]:
        """Start B episodes. Returns observations (B, o_dim) and an empty info."""
        super().reset(seed=seed)
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**31))
        self._seeded = True
        return self._shown.show(self._arms.reset(seed), self._arms.moment), {}

    def step(self, actions: np.ndarray) -> tuple[Shown, np.ndarray, np.ndarray, np.ndarray, dict]:
        """One control period with actions (B, a_dim) in [-1, 1].

        Raises:
            NotFiniteError: an action is NaN or infinite.
        """
        step = self._arms.step(
            torch.as_tensor(actions, dtype=torch.float32, device=self._arms.device)
        )
        terminated, truncated = array(step.terminated), array(step.truncated)
        done = terminated | truncated
        measured = measurements(step)
        successor = self._shown.show(step.next_observation, self._arms.seen)
        infos = measured | {f"_{name}": ~done for name in measured}
        if done.any():
            finals = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(done):
                finals[i] = row_of(successor, int(i))
            final_info = measured | {f"_{name}": done for name in measured}
            infos |= {
                "final_obs": finals,
                "_final_obs": done,
                "final_info": final_info,
                "_final_info": done,
            }
        reward = self._shown.reward(step, successor)
        return (
            self._shown.show(step.observation, self._arms.moment),
            reward,
            terminated,
            truncated,
            infos,
        )


class ArmGoalVectorEnv(ArmVectorEnv):
    """B simulated arms whose observations are goal dictionaries, see ArmGoalGymnasiumEnv.

    Args:
        num_envs, robot, task, device, render_mode, guard, engine: as for ArmVectorEnv.
    """

    _view = Goals

    def __init__(
        self,
        num_envs: int,
        robot: str,
        task: str,
        device: str = "cpu",
        render_mode: str | None = None,
        guard: bool = False,
        engine: str = KINEMATIC,
    ):
        super().__init__(num_envs, robot, task, device, render_mode, guard=guard, engine=engine)
