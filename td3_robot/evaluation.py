"""Rolling a policy out, without noise, and what every task has in common to measure."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from td3_robot.vec_env import VecEnv

Policy = Callable[[Tensor], Tensor]  # observation (B, o_dim) -> action (B, a_dim)


@dataclass(frozen=True)
class Rollout:
    """One episode of each of B environments, T steps of the longest.

    After the end of its episode an environment's rows repeat nothing of use: mask with `alive`.
    """

    reward: Tensor  # (T, B)
    alive: Tensor  # (T, B) bool: the step belongs to the episode; the last one included
    info: dict[str, Tensor]  # per step measurements of the environment, (T, B, ...)

    def last(self, name: str) -> Tensor:
        """A measurement at the last step of each episode, (B, ...)."""
        series = self.info[name]
        return series[self.alive.sum(0) - 1, torch.arange(series.shape[1], device=series.device)]


@torch.no_grad()
def rollout(policy: Policy, env: VecEnv, observation: Tensor, keep: tuple[str, ...] | None = None) -> Rollout:
    """Play from a fresh reset until every environment has ended its first episode.

    Args:
        observation: (B, o_dim), as `env.reset` returned it.
        keep: names of `Step.info` to collect; None collects all.
    """
    alive = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    rewards, alives, infos = [], [], []
    while alive.any():
        step = env.step(policy(observation))
        rewards.append(step.reward)
        alives.append(alive)
        infos.append(step.info if keep is None else {name: step.info[name] for name in keep})
        observation = step.observation
        alive = alive & ~(step.terminated | step.truncated)
    info = {name: torch.stack([i[name] for i in infos]) for name in infos[0]}
    return Rollout(torch.stack(rewards), torch.stack(alives), info)


def rollouts(policy: Policy, env: VecEnv, episodes: int, seed: int) -> Iterator[Rollout]:
    """As many rounds of B episodes as `episodes` needs; the seed fixes the starts and goals of each."""
    rounds = math.ceil(episodes / env.num_envs)
    for round_seed in np.random.SeedSequence(seed).generate_state(rounds):  # neighbouring seeds share no round
        yield rollout(policy, env, env.reset(int(round_seed)))


def evaluate(policy: Policy, env: VecEnv, seed: int) -> dict[str, float]:
    """Mean success at the end and mean return over B episodes that the seed fixes."""
    played = rollout(policy, env, env.reset(seed), keep=("success",))
    return {
        "success_rate": played.last("success").float().mean().item(),
        "episode_return": (played.reward * played.alive).sum(0).mean().item(),
    }
