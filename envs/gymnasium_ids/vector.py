"""Gymnasium vector environment of many arms.

Autoreset modes: https://farama.org/Vector-Autoreset-Mode
"""

from typing import Any, cast

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from envs.config.env_options import KINEMATIC, EnvOptions
from envs.gymnasium_ids.observations import (
    GoalObservations,
    Observation,
    VectorObservations,
    convert_info,
    convert_to_array,
    make_box,
    require_sparse,
    select_row,
)
from envs.registry import make
from envs.robots import Robot
from envs.world import Moment
from td3_robot.errors import ConfigError
from td3_robot.vec_env import Step


class ArmVectorEnv(VectorEnv):
    """B simulated arms doing one task, as a Gymnasium vector environment.

    It wraps `envs.make(robot, task, num_envs)`. With SAME_STEP autoreset the last observation of an
    ended episode is in `infos["final_obs"]` and its info in `infos["final_info"]`; with NEXT_STEP
    the step after an end ignores the arm's action and returns the next episode's first observation
    with reward 0. Both are as in Gymnasium's own.

    Args:
        num_envs: arms.
        robot, task, device, sparse, guard, engine, options: as for ArmGymnasiumEnv.
        render_mode: None; only single arms can be rendered.
        autoreset_mode: an `AutoresetMode`, SAME_STEP or NEXT_STEP, or its value, for example
            "NextStep".

    Attributes:
        autoreset_mode: the mode, which is also in `metadata`.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}
    _observations_class = VectorObservations

    def __init__(
        self,
        num_envs: int,
        robot: str | Robot = EnvOptions.robot,
        task: str = EnvOptions.task,
        device: str = "cpu",
        render_mode: str | None = None,
        sparse: bool = False,
        guard: bool = False,
        engine: str = KINEMATIC,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        **options: Any,
    ):
        if render_mode is not None:
            raise ConfigError(
                f"render_mode must be None for many arms, got {render_mode!r}; make a single one"
            )
        self.autoreset_mode = _parse_mode(autoreset_mode)
        self.metadata = self.metadata | {"autoreset_mode": self.autoreset_mode}
        self.num_envs = num_envs
        self.render_mode = None
        options |= {"sparse": sparse, "guard": guard, "engine": engine}
        self._seed: int | None = options.get("seed")
        self._arms = make(robot, task, num_envs, device, **options)
        self._observations = self._observations_class(self._arms)
        self.single_observation_space = self._observations.space
        self.single_action_space = make_box(self._arms.a_dim, 1.0)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._seeded = False
        self._waiting = torch.zeros(num_envs, dtype=torch.bool, device=self._arms.device)

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[Observation, dict]:
        """Start B episodes. Return observations (B, o_dim) and an empty info.

        Raises:
            ConfigError: `options` asks for something else, such as a reset of some arms alone.
        """
        if options:
            raise ConfigError(
                f"reset takes no options, got {', '.join(map(str, options))}: it starts all "
                "episodes, and an arm whose episode ends begins the next one by itself"
            )
        super().reset(seed=seed)
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**31)) if self._seed is None else self._seed
        self._seeded = True
        self._waiting = torch.zeros_like(self._waiting)
        return self._observations.make(self._arms.reset(seed), self._arms.moment), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, dict]:
        """Make one control period with actions (B, a_dim) in [-1, 1].

        Raises:
            NotFiniteError: an action is NaN or infinite, of an arm that does not wait for a reset.
        """
        true = self._arms.now
        known = self._arms.moment
        given = torch.as_tensor(actions, dtype=torch.float32, device=self._arms.device)
        if given.ndim == 2 and len(given) == self.num_envs:  # others are refused
            given = torch.where(self._waiting[:, None], 0.0, given)
        step = self._arms.step(given)
        if self.autoreset_mode == AutoresetMode.NEXT_STEP:
            return self._wait(step, true, known)
        done = convert_to_array(step.terminated | step.truncated)
        info = convert_info(step)
        successor = self._observations.make(step.next_observation, self._arms.arrived_moment)
        infos = info | {f"_{name}": ~done for name in info}
        if done.any():
            finals = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(done):
                finals[i] = select_row(successor, int(i))
            final_info = info | {f"_{name}": done for name in info}
            infos |= {
                "final_obs": finals,
                "_final_obs": done,
                "final_info": final_info,
                "_final_info": done,
            }
        return (
            self._observations.make(step.observation, self._arms.moment),
            self._observations.compute_reward(step, successor),
            convert_to_array(step.terminated),
            convert_to_array(step.truncated),
            infos,
        )

    def _wait(
        self, step: Step, true: Moment, known: Moment
    ) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, dict]:
        """Return a step with NEXT_STEP: arms that waited are where their episodes begin."""
        waited = self._waiting
        reset = self._observations.make(self._arms.task.observe(self._arms.world, known), known)
        observation = self._observations.make(step.next_observation, self._arms.arrived_moment)
        reward = self._observations.compute_reward(step, observation)
        if waited.any():
            self._arms.hold(waited, true, known)
        terminated = step.terminated & ~waited
        truncated = step.truncated & ~waited
        self._waiting = terminated | truncated
        rows = convert_to_array(waited)
        info = convert_info(step)
        return (
            _replace_rows(rows, observation, reset),
            np.where(rows, np.float32(0.0), reward),
            convert_to_array(terminated),
            convert_to_array(truncated),
            info | {f"_{name}": ~rows for name in info},
        )


def _parse_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """Return an autoreset mode that is offered.

    Raises:
        ConfigError: it is none of them.
    """
    for offered in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP):
        if mode in (offered, offered.value):
            return offered
    raise ConfigError(f"autoreset_mode must be SameStep or NextStep, got {mode!r}")


def _replace_rows(rows: np.ndarray, old: Observation, new: Observation) -> Observation:
    """Return a batch of observations with some rows of another."""
    if isinstance(old, dict):
        parts = cast("dict[str, np.ndarray]", new)
        return {name: np.where(rows[:, None], parts[name], old[name]) for name in old}
    return np.where(rows[:, None], cast(np.ndarray, new), old)


class ArmGoalVectorEnv(ArmVectorEnv):
    """B simulated arms with goal dictionaries, see ArmGoalGymnasiumEnv.

    Args:
        num_envs, robot, task, device, render_mode, guard, engine, options: as for ArmVectorEnv.
    """

    _observations_class = GoalObservations

    def __init__(
        self,
        num_envs: int,
        robot: str | Robot = EnvOptions.robot,
        task: str = EnvOptions.task,
        device: str = "cpu",
        render_mode: str | None = None,
        guard: bool = False,
        engine: str = KINEMATIC,
        **options: Any,
    ):
        require_sparse(options)
        plain = (num_envs, robot, task, device, render_mode, False, guard, engine)
        super().__init__(*plain, **options)
