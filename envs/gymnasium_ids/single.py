"""One arm as a Gymnasium environment."""

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from envs.config.env_options import KINEMATIC
from envs.gymnasium_ids.pictures import MODES, pictures
from envs.gymnasium_ids.shown import Goals, Shown, Vectors, box, measurements, row_of
from envs.registry import make


class ArmGymnasiumEnv(gym.Env):
    """One simulated arm doing one task, as a Gymnasium environment.

    Seeds and episodes are those of `envs.make(robot, task)`: the same seed and actions give the
    same observations and rewards, from one episode to the next. Without a seed the first one is
    drawn from `np_random`.

    Args:
        robot, task: names, as for `envs.make`.
        device: where it is simulated.
        render_mode: "rgb_array", for pictures by `render` (they need what recordings need, see
            docs/library.md); "human", for the browser view, which follows `reset` and `step`; None
            shows nothing.
        sparse: pay -1 for every step that is no success and 0 for one that is.
        guard, engine: as for `envs.make`.

    Raises:
        ConfigError: no such robot, task or render mode.
    """

    metadata = {"render_modes": list(MODES), "render_fps": 20}
    _view = Vectors

    def __init__(
        self,
        robot: str,
        task: str,
        device: str = "cpu",
        render_mode: str | None = None,
        sparse: bool = False,
        guard: bool = False,
        engine: str = KINEMATIC,
    ):
        self.render_mode, self._pictures = render_mode, pictures(render_mode)
        self._arm = make(robot, task, 1, device, sparse=sparse, guard=guard, engine=engine)
        self._shown = self._view(self._arm)
        self.observation_space, self.action_space = self._shown.space, box(self._arm.a_dim, 1.0)
        self.metadata = self.metadata | {"render_fps": round(1.0 / self._arm.task.dt)}
        self._seeded = False
        self._begun: Tensor | None = (
            None  # first observation of an episode that the arm has begun by itself
        )

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Shown, dict]:
        """Start an episode. Returns the observation (o_dim,) and an empty info."""
        super().reset(seed=seed)
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**31))
        self._seeded = True
        observation = (
            self._begun if seed is None and self._begun is not None else self._arm.reset(seed)
        )
        self._begun, self._now = None, self._arm.now
        self._follow()
        return row_of(self._shown.show(observation, self._arm.moment), 0), {}

    def step(self, action: np.ndarray) -> tuple[Shown, float, bool, bool, dict]:
        """One control period with an action (a_dim,) in [-1, 1].

        Raises:
            NotFiniteError: the action is NaN or infinite.
        """
        step = self._arm.step(
            torch.as_tensor(action, dtype=torch.float32, device=self._arm.device)[None]
        )
        terminated, truncated = bool(step.terminated), bool(step.truncated)
        self._now = self._arm.arrived
        self._follow()
        self._begun = step.observation if terminated or truncated else None
        info = {
            name: value[0] if value.ndim > 1 else value[0].item()
            for name, value in measurements(step).items()
        }
        shown = self._shown.show(step.next_observation, self._arm.seen)
        return (
            row_of(shown, 0),
            float(self._shown.reward(step, shown)[0]),
            terminated,
            truncated,
            info,
        )

    def _follow(self) -> None:
        if self.render_mode == "human":
            self.render()

    def render(self) -> np.ndarray | None:
        """The arm after the last `reset` or `step`: a picture (360, 480, 3) uint8, or None where a
        page shows it.

        Raises:
            ViewerError: what draws is missing, or there is no way to show the page.
        """
        return self._pictures.show(self._arm, self._now) if self._pictures else None

    def state_dict(self) -> dict[str, Any]:
        """Everything the next step depends on, but for `np_random`."""
        return {"arm": self._arm.state_dict(), "begun": self._begun, "seeded": self._seeded}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self._arm.load_state_dict(state["arm"])
        self._begun, self._seeded, self._now = state["begun"], state["seeded"], self._arm.now

    def close(self) -> None:
        """End what shows it."""
        if self._pictures:
            self._pictures.close()


class ArmGoalGymnasiumEnv(ArmGymnasiumEnv):
    """One simulated arm whose observations are goal dictionaries: `observation`, `achieved_goal`,
    `desired_goal`.

    Args:
        robot, task, device, render_mode, guard, engine: as for ArmGymnasiumEnv.
    """

    _view = Goals

    def __init__(
        self,
        robot: str,
        task: str,
        device: str = "cpu",
        render_mode: str | None = None,
        guard: bool = False,
        engine: str = KINEMATIC,
    ):
        super().__init__(robot, task, device, render_mode, guard=guard, engine=engine)

    def compute_reward(
        self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: object
    ) -> np.ndarray | float:
        """What `step` pays for goals (..., g), (...): 0 where the desired one is met, -1 elsewhere.

        Args:
            info: not used.
        """
        shown: Any = self._shown  # Goals
        return shown.reward_of(achieved_goal, desired_goal)[()]
