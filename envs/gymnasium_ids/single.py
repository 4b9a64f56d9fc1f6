"""Gymnasium environment of one arm."""

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from envs.config.env_options import KINEMATIC, EnvOptions
from envs.gymnasium_ids.observations import (
    GoalObservations,
    Observation,
    VectorObservations,
    convert_info,
    make_box,
    require_sparse,
    select_row,
)
from envs.gymnasium_ids.rendering import MODES, make_renderer
from envs.registry import make
from envs.robots import Robot
from envs.world import Moment
from td3_robot.errors import ConfigError


class ArmGymnasiumEnv(gym.Env):
    """One simulated arm doing one task, as a Gymnasium environment.

    Seeds and episodes are those of `envs.make(robot, task)`: the same seed and actions give the
    same observations and rewards, over several episodes. Without a seed, here and in `reset`, the
    first one is drawn from `np_random`.

    Args:
        robot, task: as for `envs.make`.
        device: where it is simulated.
        render_mode: "rgb_array", for pictures by `render` (with the packages of recordings, see
            docs/how-to/watch-and-record.md); "human", for the browser view, which follows `reset`
            and `step`; or None.
        sparse: rewards are 0 for a step that is a success, else -1.
        guard, engine: as for `envs.make`.
        options: further keywords of `envs.make`, such as gripper, tcp, seed and latency.

    Raises:
        ConfigError: unknown robot, task, keyword or render mode, and as by `envs.make`.
    """

    metadata = {"render_modes": list(MODES), "render_fps": 20}
    _observations_class = VectorObservations

    def __init__(
        self,
        robot: str | Robot = EnvOptions.robot,
        task: str = EnvOptions.task,
        device: str = "cpu",
        render_mode: str | None = None,
        sparse: bool = False,
        guard: bool = False,
        engine: str = KINEMATIC,
        **options: Any,
    ):
        self.render_mode = render_mode
        self._renderer = make_renderer(render_mode)
        if "num_envs" in options:
            raise ConfigError("num_envs is for gymnasium.make_vec; gymnasium.make makes one arm")
        options |= {"sparse": sparse, "guard": guard, "engine": engine}
        self._seed: int | None = options.get("seed")
        self._arm = make(robot, task, 1, device, **options)
        self._observations = self._observations_class(self._arm)
        self.observation_space = self._observations.space
        self.action_space = make_box(self._arm.a_dim, 1.0)
        self.metadata = self.metadata | {"render_fps": round(1.0 / self._arm.task.dt)}
        self._seeded = False
        self._first: Tensor | None = None  # observation after an automatic reset
        self._now: Moment | None = None

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[Observation, dict]:
        """Start an episode. Return the observation (o_dim,) and an empty info."""
        super().reset(seed=seed)
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**31)) if self._seed is None else self._seed
        self._seeded = True
        first = self._first if seed is None else None
        observation = self._arm.reset(seed) if first is None else first
        self._first = None
        self._now = self._arm.now
        self._render_human()
        return select_row(self._observations.make(observation, self._arm.moment), 0), {}

    def step(self, action: np.ndarray) -> tuple[Observation, float, bool, bool, dict]:
        """Make one control period with an action (a_dim,) in [-1, 1].

        Raises:
            NotFiniteError: the action is NaN or infinite.
        """
        step = self._arm.step(
            torch.as_tensor(action, dtype=torch.float32, device=self._arm.device)[None]
        )
        terminated = bool(step.terminated)
        truncated = bool(step.truncated)
        self._now = self._arm.arrived
        self._render_human()
        self._first = step.observation if terminated or truncated else None
        info = {
            name: value[0] if value.ndim > 1 else value[0].item()
            for name, value in convert_info(step).items()
        }
        observation = self._observations.make(step.next_observation, self._arm.arrived_moment)
        return (
            select_row(observation, 0),
            float(self._observations.compute_reward(step, observation)[0]),
            terminated,
            truncated,
            info,
        )

    def _render_human(self) -> None:
        if self.render_mode == "human":
            self.render()

    def render(self) -> np.ndarray | None:
        """Render the arm after the last `reset` or `step`.

        Returns:
            A picture (360, 480, 3) uint8, or None in mode "human".

        Raises:
            ResetNeeded: neither was called.
            ViewerError: a package, Chromium or the browser is missing.
        """
        if self._renderer is None:
            return None
        if self._now is None:
            raise gym.error.ResetNeeded("cannot call render before reset")
        return self._renderer.show(self._arm, self._now)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that the next step depends on, `np_random` excepted."""
        return {"arm": self._arm.state_dict(), "begun": self._first, "seeded": self._seeded}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of `state_dict`."""
        self._arm.load_state_dict(state["arm"])
        self._first = state["begun"]
        self._seeded = state["seeded"]
        self._now = self._arm.now

    def close(self) -> None:
        """Close the renderer."""
        if self._renderer:
            self._renderer.close()


class ArmGoalGymnasiumEnv(ArmGymnasiumEnv):
    """One simulated arm with goal dictionaries: `observation`, `achieved_goal`, `desired_goal`.

    Args:
        robot, task, device, render_mode, guard, engine, options: as for ArmGymnasiumEnv.
    """

    _observations_class = GoalObservations

    def __init__(
        self,
        robot: str | Robot = EnvOptions.robot,
        task: str = EnvOptions.task,
        device: str = "cpu",
        render_mode: str | None = None,
        guard: bool = False,
        engine: str = KINEMATIC,
        **options: Any,
    ):
        require_sparse(options)
        super().__init__(robot, task, device, render_mode, False, guard, engine, **options)

    def compute_reward(
        self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: object
    ) -> np.ndarray | float:
        """Compute the rewards (...) of goals (..., g): 0 where the desired one is met, else -1.

        Args:
            info: not used.
        """
        observations: Any = self._observations  # GoalObservations
        return observations.compute_goal_reward(achieved_goal, desired_goal)[()]
