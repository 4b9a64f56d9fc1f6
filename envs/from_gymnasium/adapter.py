"""Adapter of a Gymnasium vector environment to a VecEnv.

Autoreset modes: https://farama.org/Vector-Autoreset-Mode
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from envs.config.devices import find_device
from envs.config.notices import warn_once
from envs.from_gymnasium.interface_checker import format_error
from envs.from_gymnasium.own_arrays import SUCCESS_KEYS, wrap_copies
from envs.from_gymnasium.processes import Processes, describe_dead_processes
from td3_robot.errors import ConfigError, EnvError, NotFiniteError, Td3RobotError
from td3_robot.utils.legacy import keep_old_names
from td3_robot.utils.seeding import require_seed
from td3_robot.vec_env import Step

GOAL_KEYS = ("observation", "achieved_goal", "desired_goal")  # in this order


def is_goal_space(space: spaces.Space) -> bool:
    """Return whether observations are dictionaries of exactly the three goal keys, each a Box."""
    if not isinstance(space, spaces.Dict) or set(space.keys()) != set(GOAL_KEYS):
        return False
    return all(isinstance(part, spaces.Box) for part in space.values())


@keep_old_names(picture="render")
class GymnasiumEnv:
    """Gymnasium environments that step together, as a `td3_robot.vec_env.VecEnv`.

    Observations are flattened to float32; those of a goal environment are `observation`,
    `achieved_goal` and `desired_goal`, one after the other. Actions in [-1, 1] are clipped and
    scaled to the bounds of each dimension of the Box; for integers [-1, 1] is divided evenly.

    `next_observation` is the true successor under every autoreset mode. SAME_STEP: it is in
    `infos["final_obs"]`. NEXT_STEP: the step after an end ignores its action and only starts an
    episode, so its row is marked in `Step.valid`. DISABLED: ended environments are reset here, with
    `reset_mask`. Environments may use their arrays again; an AsyncVectorEnv with SAME_STEP that
    `make_gymnasium` has not made needs copies that do not, or that `OwnArrays` wraps.

    `info` holds `success` (B,) bool from the first `is_success` or `success` on in the infos of a
    reset or a step, and nothing else. Many environments report it at an episode's end alone.

    Where all copies can save their state, see `SaveStateWrapper`, `load_state_dict` continues the
    episodes. Elsewhere new ones start, seeded from the seed and the steps made since, so that a
    resume is reproducible but plays no episode twice.

    Args:
        vector_env: the environments; `close` closes them.
        device: where observations, rewards and flags go.
        seed: of the first episodes.
        name: its name in errors; by default its id.
        restorable: its copies are `SaveStateWrapper`s.

    Attributes:
        no_goals: why its goals cannot be replaced in hindsight; "" if it has no goals.
        notes: sentences that whoever trains in it should read.
        horizon: steps of the longest episode; None if it is not known.
        restored: the last `load_state_dict` continued the episodes, and began no new ones.

    Raises:
        ConfigError: spaces or an autoreset mode that are not supported.
        NotFiniteError: the first observations or rewards are NaN or infinite.
    """

    no_goals = ""
    notes: Sequence[str] = ()
    horizon: int | None = None
    restored = False

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
        self.num_envs = vector_env.num_envs
        self.device = find_device(device)
        self._gym = vector_env
        if not restorable:  # else they are `OwnArrays` as they are made
            wrap_copies(vector_env)
        self._seed = seed
        self._steps = 0
        self._restorable = restorable
        self._autoreset = vector_env.metadata.get("autoreset_mode")
        if not isinstance(self._autoreset, AutoresetMode):
            raise ConfigError(
                f"env {self.name!r}: metadata['autoreset_mode'] must be an AutoresetMode"
            )
        self._is_goal = is_goal_space(vector_env.single_observation_space)
        self.o_dim = self._compute_observation_size(vector_env.single_observation_space)
        self._read_bounds(vector_env.single_action_space)
        self._reports_success = False
        self._detect_success()
        self.reset(seed)

    def _compute_observation_size(self, space: Any) -> int:
        if not self._is_goal and not isinstance(space, spaces.Box):
            raise ConfigError(
                f"env {self.name!r}: observation space {space} is not supported; it must be a Box, "
                "a goal dictionary of Boxes, or the result of "
                "gymnasium.wrappers.FlattenObservation"
            )
        boxes = [space] if isinstance(space, spaces.Box) else space.values()
        return sum(int(np.prod(box.shape)) for box in boxes)

    def _read_bounds(self, space: spaces.Space) -> None:
        """Read the middle and half width of every action dimension."""
        if not isinstance(space, spaces.Box):
            raise ConfigError(
                f"env {self.name!r}: action space {space} is not supported; it must be a Box with "
                "finite bounds, or Discrete (envs.from_gymnasium.make.DiscreteAsBox)"
            )
        self._action_space = space
        self.a_dim = int(np.prod(space.shape))
        low = space.low.astype(float).ravel()
        high = space.high.astype(float).ravel()
        largest = np.finfo(np.float32).max  # what some environments write for "no bound"
        for i in range(self.a_dim):
            if not (-largest < low[i] < high[i] < largest):
                what = "zero width" if low[i] == high[i] else "no finite bounds"
                raise ConfigError(
                    f"env {self.name!r}: action dimension {i} has {what}: [{low[i]:g}, {high[i]:g}]"
                )
        self._low = low
        self._high = high
        self._middle = (low + high) / 2
        self._half = (high - low) / 2

    def _detect_success(self) -> None:
        """Make one step before all others, to detect whether success is reported in each."""
        _, infos = self._call(self._gym.reset, seed=0)
        middle = torch.zeros(self.num_envs, self.a_dim, dtype=torch.float32)
        *_, stepped = self._call(self._gym.step, self._scale_action(middle))
        self._look_for_success(infos)
        self._look_for_success(stepped)

    def _look_for_success(self, infos: dict) -> None:
        """Remember that success is reported, once it is."""
        sources = (infos, infos.get("final_info", {}))
        self._reports_success |= any(key in source for source in sources for key in SUCCESS_KEYS)

    def reset(self, seed: int | None = None) -> Tensor:
        """Start B new episodes; without a seed the random streams continue. Return (B, o_dim)."""
        if seed is not None:
            self._seed = require_seed(seed)
            self._steps = 0
        return self._start(None if seed is None else self._derive_seed())

    def _derive_seed(self) -> int:
        """Derive a seed from ours and the steps since; far from its neighbours, since copy i gets
        it plus i.
        """
        return int(np.random.SeedSequence([self._seed, self._steps]).generate_state(1)[0])

    def _start(self, seed: int | None) -> Tensor:
        observed, _ = self._call(self._gym.reset, seed=seed)
        self._ended = np.zeros(self.num_envs, bool)
        observation = self._flatten(observed)
        self._require_finite("observation", observation, "after reset")
        self._observation = self._convert(observation)
        return self._observation

    def step(self, action: Tensor) -> Step:
        """Step every environment, see `VecEnv.step`.

        Raises:
            ConfigError: action is not (B, a_dim).
            EnvError: an environment raised, broke the rules of Gymnasium, or its process ended.
            NotFiniteError: an action, observation or reward is NaN or infinite.
        """
        observed, reward, terminated, truncated, infos = self._call(
            self._gym.step, self._scale_action(action)
        )
        self._steps += 1
        # copies: a vector environment may reuse its arrays at its next step or reset
        reward = np.array(reward, np.float32)
        terminated = np.array(terminated)
        truncated = np.array(truncated)
        done = terminated | truncated
        observation = next_observation = self._flatten(observed)
        info = self._make_info(infos, done)
        valid = None
        if self._autoreset == AutoresetMode.NEXT_STEP:
            valid = self._convert(~self._ended)
            self._ended = done.copy()
        elif done.any() and self._autoreset == AutoresetMode.SAME_STEP:
            next_observation = self._insert_finals(observation, infos, done)
        elif done.any():
            observation = self._flatten(
                self._call(self._gym.reset, options={"reset_mask": done})[0]
            )
        transitions = {
            "observation": self._observation,
            "action": action,
            "reward": reward,
            "next_observation": next_observation,
        }
        for what, values in (
            ("observation", next_observation),
            ("observation", observation),
            ("reward", reward),
        ):
            self._require_finite(what, values, f"at step {self._steps}", transitions)
        self._observation = self._convert(observation)
        return Step(
            observation=self._observation,
            reward=self._convert(reward),
            terminated=self._convert(terminated),
            truncated=self._convert(truncated),
            next_observation=self._convert(next_observation),
            info=info,
            valid=valid,
        )

    def _call(self, method: Callable, *args, **kwargs) -> tuple:
        """Call the vector environment.

        Raises:
            EnvError: it raised, or one of its processes has ended.
        """
        try:
            return method(*args, **kwargs)
        except Td3RobotError:
            raise
        except Exception as error:  # code of others may fail in any way
            what = describe_dead_processes(self._gym) or f"raised {format_error(error)}"
            where = f"step {self._steps + 1} after reset(seed={self._seed})"
            raise EnvError(f"env {self.name!r}, {where}: {what}") from error

    def _scale_action(self, action: Tensor) -> np.ndarray:
        """Scale actions (B, a_dim) in [-1, 1] to the action space, (B, ...)."""
        action = torch.as_tensor(action)
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

    def _flatten(self, observed: Any, count: int | None = None) -> np.ndarray:
        """Flatten observations of `count` environments, by default all, to a new float32 array
        (count, o_dim).
        """
        count = self.num_envs if count is None else count
        parts = [observed[key] for key in GOAL_KEYS] if self._is_goal else [observed]
        return np.concatenate(
            [np.reshape(part, (count, -1)) for part in parts], 1, dtype=np.float32, casting="unsafe"
        )

    def _insert_finals(self, observation: np.ndarray, infos: dict, done: np.ndarray) -> np.ndarray:
        """Replace the rows of ended episodes by their last observations."""
        if "final_obs" not in infos:
            raise ConfigError(
                f"env {self.name!r}: resets in the same step, but infos has no 'final_obs'"
            )
        successor = observation.copy()
        for i in np.flatnonzero(done):
            successor[i] = self._flatten(infos["final_obs"][i], 1)
        if not self._restorable and np.array_equal(successor[done], observation[done]):
            warn_once(
                f"env {self.name!r}: the last observation of an episode equals the first of the "
                "next; if the copies use their arrays again, put envs.from_gymnasium.own_arrays."
                "OwnArrays around each, or use AutoresetMode.NEXT_STEP"
            )
        return successor

    def _make_info(self, infos: dict, done: np.ndarray) -> dict[str, Tensor]:
        """Return `success`, if reported; under SAME_STEP ended rows have it in `final_info`."""
        self._look_for_success(infos)
        if not self._reports_success:
            return {}
        sources = [(infos, np.ones_like(done))]
        if self._autoreset == AutoresetMode.SAME_STEP:
            sources = [(infos, ~done), (infos.get("final_info", {}), done)]
        success = np.zeros(self.num_envs, bool)
        for source, rows in sources:
            for key in source.keys() & set(SUCCESS_KEYS):
                reported = np.asarray(source[key]).astype(bool).reshape(self.num_envs, -1).any(1)
                success |= reported & rows & source.get(f"_{key}", rows)  # others are 0 or None
        return {"success": self._convert(success)}

    def _require_finite(
        self, what: str, values: np.ndarray, when: str, transitions: dict[str, Any] | None = None
    ) -> None:
        """Raise unless all values are finite; the error holds the transition of the copy."""
        if np.isfinite(values).all():
            return
        copy, *place = np.argwhere(~np.isfinite(values))[0].tolist()
        value = values[(copy, *place)]
        message = f"env {self.name!r}: {what}{place or ''} of copy {copy} is {value} {when}"
        if transitions is not None:
            message += " and was not stored; the last good checkpoint is intact; check the "
            message += "environment, in the transition that is kept"
        evidence = {
            name: torch.as_tensor(part)[copy].clone() for name, part in (transitions or {}).items()
        }
        raise NotFiniteError(message, evidence)

    def _convert(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(self.device)

    def state_dict(self) -> dict[str, Any]:
        """Return what seeds the next episodes and, where the copies support it and none waits for
        its next episode, their states.
        """
        seeds: dict[str, Any] = {"seed": self._seed, "steps": self._steps}
        if self._ended.any():  # that a copy waits, its vector environment tells nobody
            return seeds
        copies: Any = self._gym
        states = list(self._call(copies.get_attr, "saved_state")) if self._restorable else [None]
        if None in states:
            return seeds
        if isinstance(self._gym, Processes):
            seeds["generators"] = list(self._call(copies.get_attr, "global_generators"))
        return {**seeds, "standings": states, "observation": self._observation}

    def load_state_dict(self, state: dict[str, Any]) -> Tensor:
        """Restore the state of `state_dict`, with new episodes if it has no states of the copies.

        Returns:
            (B, o_dim) the observation to act on.
        """
        self._seed = state["seed"]
        self._steps = state["steps"]
        first = self._start(self._derive_seed())
        self.restored = self._restorable and "standings" in state
        if not self.restored:
            return first
        copies: Any = self._gym
        self._call(copies.set_attr, "saved_state", state["standings"])
        if isinstance(self._gym, Processes) and "generators" in state:
            self._call(copies.set_attr, "global_generators", state["generators"])
        self._observation = state["observation"].to(self.device)
        return self._observation

    def render(self) -> np.ndarray:
        """Render the first environment, (height, width, 3) uint8, if made with "rgb_array".

        Raises:
            EnvError: the environment raised or returned something else.
        """
        drawn, *_ = self._call(self._gym.render)
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
        """Frame rate of its pictures in real time, by default 30 [1/s]."""
        return float(self._gym.metadata.get("render_fps") or 30.0)

    def close(self) -> None:
        """Close the environments and their processes."""
        self._gym.close()
