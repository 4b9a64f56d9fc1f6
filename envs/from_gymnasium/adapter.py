"""A Gymnasium vector environment as a VecEnv: actions in [-1, 1], flat observations, true
successors.

Autoreset modes: https://farama.org/Vector-Autoreset-Mode
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from envs.from_gymnasium.checked import one_line
from envs.from_gymnasium.processes import dead
from td3_robot.errors import ConfigError, EnvError, NotFiniteError, Td3RobotError
from td3_robot.vec_env import Step

GOAL_KEYS = ("observation", "achieved_goal", "desired_goal")  # their order in our flat observation
_SUCCESS_KEYS = ("is_success", "success")


def is_goal_space(space: spaces.Space) -> bool:
    """Whether observations are dictionaries of exactly the three goal keys, each of them a Box."""
    if not isinstance(space, spaces.Dict) or set(space.keys()) != set(GOAL_KEYS):
        return False
    return all(isinstance(part, spaces.Box) for part in space.values())


class GymnasiumEnv:
    """B Gymnasium environments that step together; a `td3_robot.vec_env.VecEnv`.

    Observations are flattened to float32; those of a goal environment are `observation`,
    `achieved_goal` and `desired_goal`, one after the other. Actions in [-1, 1] are clipped and
    scaled to the bounds of the Box, each dimension by its own; for a Box of integers [-1, 1] is
    divided evenly among them.

    The successor is the true one under every autoreset mode. SAME_STEP: it is in
    `infos["final_obs"]`. NEXT_STEP: the step after an end ignores its action and only starts an
    episode, so its row is marked in `Step.valid`. DISABLED: ended environments are reset here, with
    `reset_mask`.

    `info` holds `success` (B,) bool where the environment reports `is_success` or `success` in the
    infos of a reset or of a first step, and nothing else.

    Gymnasium has no way to save the state of an environment. Where all copies have one of their
    own, see `Restorable`, `load_state_dict` takes the episodes up where they stood; elsewhere new
    ones begin, seeded from the seed and the steps made since, so that a resume repeats itself but
    plays no episode twice.

    Args:
        vector_env: what to step; `close` closes it.
        device: where observations, rewards and flags go.
        seed: of the first episodes.
        name: how errors call it; by default its id.
        restorable: its copies are `Restorable`.

    Attributes:
        no_goals: why what it observes as goals are none that could have been others; "" where it
            observes none.

    Raises:
        ConfigError: spaces or an autoreset mode that cannot be learned with.
        NotFiniteError: the first observations or rewards are NaN or infinite.
    """

    no_goals = ""

    def __init__(
        self,
        vector_env: VectorEnv,
        device: torch.device | str = "cpu",
        seed: int = 0,
        name: str = "",
        *,
        restorable: bool = False,
    ):
        self.name = name or (
            vector_env.spec.id if vector_env.spec else type(vector_env.unwrapped).__name__
        )
        self.num_envs, self.device = vector_env.num_envs, torch.device(device)
        self._gym, self._seed, self._steps, self._restorable = vector_env, seed, 0, restorable
        self._autoreset = vector_env.metadata.get("autoreset_mode")
        if not isinstance(self._autoreset, AutoresetMode):
            raise ConfigError(
                f"env {self.name!r}: metadata['autoreset_mode'] must be an AutoresetMode"
            )
        self._is_goal = is_goal_space(vector_env.single_observation_space)
        self.o_dim = self._observation_size(vector_env.single_observation_space)
        self._read_bounds(vector_env.single_action_space)
        self._probe()
        self.reset(seed)

    def _observation_size(self, space: Any) -> int:
        if not self._is_goal and not isinstance(space, spaces.Box):
            raise ConfigError(
                f"env {self.name!r}: observation space {space} is not supported; it must be a Box, a goal dictionary "
                "of Boxes, or what gymnasium.wrappers.FlattenObservation makes of it"
            )
        boxes = [space] if isinstance(space, spaces.Box) else space.values()
        return sum(int(np.prod(box.shape)) for box in boxes)

    def _read_bounds(self, space: spaces.Space) -> None:
        """Take the middle and half width of every action dimension."""
        if not isinstance(space, spaces.Box):
            raise ConfigError(
                f"env {self.name!r}: action space {space} is not supported; it must be a Box with finite bounds, or "
                "Discrete (envs.from_gymnasium.make.DiscreteAsBox)"
            )
        self._action_space, self.a_dim = space, int(np.prod(space.shape))
        low, high = space.low.astype(float).ravel(), space.high.astype(float).ravel()
        largest = np.finfo(np.float32).max  # what some environments write for "no bound"
        for i in range(self.a_dim):
            if not (-largest < low[i] < high[i] < largest):
                what = "zero width" if low[i] == high[i] else "no finite bounds"
                raise ConfigError(
                    f"env {self.name!r}: action dimension {i} has {what}: [{low[i]:g}, {high[i]:g}]"
                )
        self._low, self._high = low, high
        self._middle, self._half = (low + high) / 2, (high - low) / 2

    def _probe(self) -> None:
        """One step ahead of all others, to learn whether success is reported."""
        _, infos = self._ask(self._gym.reset, seed=0)
        *_, stepped = self._ask(
            self._gym.step, self._to_bounds(torch.zeros(self.num_envs, self.a_dim))
        )
        sources = (infos, stepped, stepped.get("final_info", {}))
        self._reports_success = any(key in source for source in sources for key in _SUCCESS_KEYS)

    def reset(self, seed: int | None = None) -> Tensor:
        """Start B new episodes; without a seed the random streams go on. Returns (B, o_dim)."""
        if seed is not None:
            self._seed, self._steps = seed, 0
        return self._start(None if seed is None else self._stream())

    def _stream(self) -> int:
        """A seed made of ours and of the steps since. Neighbours are far apart: copy i gets this
        one plus i.
        """
        return int(np.random.SeedSequence([self._seed, self._steps]).generate_state(1)[0])

    def _start(self, stream: int | None) -> Tensor:
        observed, _ = self._ask(self._gym.reset, seed=stream)
        self._ended = np.zeros(self.num_envs, bool)
        observation = self._flat(observed)
        self._require_finite("observation", observation, "after reset")
        self._seen = self._tensor(observation)
        return self._seen

    def step(self, action: Tensor) -> Step:
        """One step of every environment; see `VecEnv.step`.

        Raises:
            ConfigError: action is not (B, a_dim).
            EnvError: an environment raised, broke the rules of Gymnasium, or its process ended.
            NotFiniteError: an action, observation or reward is NaN or infinite.
        """
        observed, reward, terminated, truncated, infos = self._ask(
            self._gym.step, self._to_bounds(action)
        )
        self._steps += 1
        # copies: a vector environment may use its arrays again, at its next step or at the reset
        # below
        reward, terminated, truncated = (
            np.array(reward, np.float32),
            np.array(terminated),
            np.array(truncated),
        )
        done = terminated | truncated
        observation = next_observation = self._flat(observed)
        valid = None
        if self._autoreset == AutoresetMode.NEXT_STEP:
            valid, self._ended = self._tensor(~self._ended), done.copy()
        elif done.any() and self._autoreset == AutoresetMode.SAME_STEP:
            next_observation = self._with_finals(observation, infos, done)
        elif done.any():
            observation = self._flat(self._ask(self._gym.reset, options={"reset_mask": done})[0])
        made = {
            "observation": self._seen,
            "action": action,
            "reward": reward,
            "next_observation": next_observation,
        }
        for what, values in (
            ("observation", next_observation),
            ("observation", observation),
            ("reward", reward),
        ):
            self._require_finite(what, values, f"at step {self._steps}", made)
        self._seen = self._tensor(observation)
        return Step(
            observation=self._seen,
            reward=self._tensor(reward),
            terminated=self._tensor(terminated),
            truncated=self._tensor(truncated),
            next_observation=self._tensor(next_observation),
            info=self._info(infos, done),
            valid=valid,
        )

    def _ask(self, method: Callable, *args, **kwargs) -> tuple:
        """What the vector environment answers.

        Raises:
            EnvError: it raised, or one of its processes is gone.
        """
        try:
            return method(*args, **kwargs)
        except Td3RobotError:
            raise
        except Exception as error:  # somebody else's code, which may fail in any way
            what = dead(self._gym) or f"raised {one_line(error)}"
            where = f"step {self._steps + 1} after reset(seed={self._seed})"
            raise EnvError(f"env {self.name!r}, {where}: {what}") from error

    def _to_bounds(self, action: Tensor) -> np.ndarray:
        """Actions (B, a_dim) in [-1, 1] as the environment takes them, (B, ...)."""
        if action.shape != (self.num_envs, self.a_dim):
            raise ConfigError(
                f"action must have shape {(self.num_envs, self.a_dim)}, got {tuple(action.shape)}"
            )
        unit = action.detach().cpu().numpy().astype(float)
        if not np.isfinite(unit).all():
            raise NotFiniteError("action has a value that is NaN or infinite")
        if np.issubdtype(self._action_space.dtype, np.integer):
            scaled = self._low + np.floor((unit + 1.0) / 2.0 * (self._high - self._low + 1.0))
        else:
            scaled = self._middle + self._half * unit
        scaled = np.clip(scaled, self._low, self._high)
        return scaled.astype(self._action_space.dtype).reshape(
            self.num_envs, *self._action_space.shape
        )

    def _flat(self, observed: Any, count: int | None = None) -> np.ndarray:
        """Observations of `count` (by default all) environments as a new float32 array (count,
        o_dim).
        """
        count = self.num_envs if count is None else count
        parts = [observed[key] for key in GOAL_KEYS] if self._is_goal else [observed]
        return np.concatenate(
            [np.reshape(part, (count, -1)) for part in parts], 1, dtype=np.float32, casting="unsafe"
        )

    def _with_finals(self, observation: np.ndarray, infos: dict, done: np.ndarray) -> np.ndarray:
        """The observations with every ended row replaced by the last one of its episode."""
        if "final_obs" not in infos:
            raise ConfigError(
                f"env {self.name!r}: resets in the same step, but infos has no 'final_obs'"
            )
        successor = observation.copy()
        for i in np.flatnonzero(done):
            successor[i] = self._flat(infos["final_obs"][i], 1)
        return successor

    def _info(self, infos: dict, done: np.ndarray) -> dict[str, Tensor]:
        """`success`, where it is reported; under SAME_STEP that of ended rows is in
        `final_info`.
        """
        if not self._reports_success:
            return {}
        sources = [(infos, np.ones_like(done))]
        if self._autoreset == AutoresetMode.SAME_STEP:
            sources = [(infos, ~done), (infos.get("final_info", {}), done)]
        success = np.zeros(self.num_envs, bool)
        for source, rows in sources:
            for key in source.keys() & set(_SUCCESS_KEYS):
                reported = np.asarray(source[key]).astype(bool).reshape(self.num_envs, -1).any(1)
                success |= (
                    reported & rows & source.get(f"_{key}", rows)
                )  # other rows hold 0 or None
        return {"success": self._tensor(success)}

    def _require_finite(
        self, what: str, values: np.ndarray, when: str, made: dict[str, Any] | None = None
    ) -> None:
        """Hold what the copies gave to finite numbers; `made` are the transitions that it came
        with.
        """
        if np.isfinite(values).all():
            return
        copy, *place = np.argwhere(~np.isfinite(values))[0].tolist()
        message = f"env {self.name!r}: {what}{place or ''} of copy {copy} is {values[(copy, *place)]} {when}"
        if made is not None:
            message += " and was not stored; the last good checkpoint is intact; check the environment, in the transition "
            message += "that is kept"
        evidence = {
            name: torch.as_tensor(part)[copy].clone() for name, part in (made or {}).items()
        }
        raise NotFiniteError(message, evidence)

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(self.device)

    def state_dict(self) -> dict[str, Any]:
        """What the next new episodes are seeded from and, where the copies can tell it, where they
        stand.
        """
        episodes = {"seed": self._seed, "steps": self._steps}
        copies: Any = self._gym
        standings = list(self._ask(copies.get_attr, "standing")) if self._restorable else [None]
        return (
            episodes
            if None in standings
            else {**episodes, "standings": standings, "observation": self._seen}
        )

    def load_state_dict(self, state: dict[str, Any]) -> Tensor:
        """Go on from what `state_dict` gave, with new episodes where it does not say how they
        stood.

        Returns:
            (B, o_dim) the observation to act on.
        """
        self._seed, self._steps = state["seed"], state["steps"]
        begun = self._start(self._stream())
        if "standings" not in state or not self._restorable:
            return begun
        copies: Any = self._gym
        self._ask(copies.set_attr, "standing", state["standings"])
        self._seen = state["observation"].to(self.device)
        return self._seen

    def render(self) -> np.ndarray:
        """The first environment as it is, (height, width, 3) uint8, where they were made to give
        pictures.

        Raises:
            EnvError: it raised, or gave something else.
        """
        drawn, *_ = self._ask(self._gym.render)
        if (
            not isinstance(drawn, np.ndarray)
            or drawn.ndim != 3
            or drawn.shape[2] != 3
            or drawn.dtype != np.uint8
        ):
            raise EnvError(
                f"env {self.name!r}: render returned no picture (height, width, 3) of uint8"
            )
        return drawn

    @property
    def frame_rate(self) -> float:
        """Of its pictures in true time, as it says, else 30 [1/s]."""
        return float(self._gym.metadata.get("render_fps") or 30.0)

    def close(self) -> None:
        """End the environments, their processes too, and free what they hold."""
        self._gym.close()
