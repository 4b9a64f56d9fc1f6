"""Making of the replay that a configuration describes."""

from typing import Protocol

import torch
from torch import Tensor

from td3_robot.config.run import Config, RewardConfig
from td3_robot.errors import ConfigError
from td3_robot.replay.buffer import ReplayBuffer
from td3_robot.replay.hindsight import Hindsight
from td3_robot.replay.n_step import NStep
from td3_robot.replay.prioritized import Prioritized
from td3_robot.vec_env import GoalVecEnv, HasRewardsObserved, VecEnv


class MakeReplay(Protocol):
    """A function that makes a replay for a collector or a dataset, like `make_replay`."""

    def __call__(
        self,
        shape: tuple[int, int, int],
        config: Config,
        generator: torch.Generator,
        env: VecEnv | None,
    ) -> ReplayBuffer:
        """Make the replay."""
        ...


def scale_and_clip(reward: Tensor, config: RewardConfig) -> Tensor:
    """Scale and clip rewards."""
    reward = reward * config.scale
    return reward if config.clip is None else reward.clamp(-config.clip, config.clip)


def make_replay(
    shape: tuple[int, int, int], config: Config, generator: torch.Generator, env: VecEnv | None
) -> ReplayBuffer:
    """Make the replay buffer that a configuration describes, on the generator's device.

    Args:
        shape: num_envs, o_dim, a_dim.
        generator: draws the samples; its state is saved with the source.
        env: environment whose goals hindsight relabels; None for a dataset.

    Raises:
        ConfigError: hindsight without goals, or not enough memory.
    """
    options = config.replay
    sampler = (
        Prioritized(options.priority_alpha, options.priority_beta) if options.prioritized else None
    )
    reader = NStep(options.n_step, config.td3.gamma) if options.n_step > 1 else None
    if options.hindsight != "none":
        if not isinstance(env, GoalVecEnv):
            reason = getattr(env, "no_goals", "")
            raise ConfigError(
                f"replay.hindsight {options.hindsight} needs an environment with goals; "
                f"this has none{reason and f': {reason}'}"
            )
        reader = _make_hindsight(config, env)
        shape = (shape[0], env.memory_dim, shape[2])
    return ReplayBuffer(
        options.capacity, *shape, generator.device, generator, sampler=sampler, reader=reader
    )


def _make_hindsight(config: Config, env: GoalVecEnv) -> Hindsight:
    def relabel(memory: Tensor, action: Tensor, next_memory: Tensor, goal: Tensor):
        state, next_state, reward, terminated = env.relabel(memory, action, next_memory, goal)
        return state, next_state, scale_and_clip(reward, config.reward), terminated

    if isinstance(env, HasRewardsObserved):
        env.rewards_observed = True  # else a batch would mix two reward functions
    options = config.replay
    chosen = (options.hindsight, options.hindsight_ratio, options.hindsight_still)
    return Hindsight(relabel, env.achieved_goal, env.observe, *chosen)


def require_gamma(replay: ReplayBuffer, gamma: float) -> None:
    """Check the discount of n-step returns against the agent's.

    Raises:
        ConfigError: they differ.
    """
    if isinstance(replay.reader, NStep) and replay.reader.gamma != gamma:
        raise ConfigError(
            f"the replay sums rewards with gamma {replay.reader.gamma}, but the agent has {gamma}"
        )
