"""Rollouts of a policy without noise, and the figures that every task has."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from td3_robot.errors import EnvError
from td3_robot.utils.progress import Stage, stage
from td3_robot.utils.seeding import derive_seed, fork_global_generators
from td3_robot.vec_env import Policy, VecEnv, draw_uniform

# steps of an episode that is evaluated; the longest limit in use is that of Atari games, 27,000
LONGEST = 50_000


@dataclass(frozen=True)
class Rollout:
    """One episode of each of B environments, T steps of the longest.

    Rows after the end of an environment's episode mean nothing: mask them with `alive`.
    """

    reward: Tensor  # (T, B)
    alive: Tensor  # (T, B) bool: the step belongs to the episode; the last one included
    action: Tensor  # (T, B, a_dim) in [-1, 1]
    info: dict[str, Tensor]  # per step measurements of the environment, (T, B, ...)

    def get_last(self, name: str) -> Tensor:
        """Return a measurement at the last step of each episode, (B, ...)."""
        series = self.info[name]
        number = torch.arange(len(self.alive), device=self.alive.device)[:, None]
        last = (number * self.alive).amax(0)
        return series[last, torch.arange(series.shape[1], device=series.device)]

    def select(self, row: int) -> "Rollout":
        """Select the episode of one environment."""
        only = slice(row, row + 1)
        info = {name: series[:, only] for name, series in self.info.items()}
        return Rollout(self.reward[:, only], self.alive[:, only], self.action[:, only], info)


@torch.no_grad()
def rollout(
    policy: Policy,
    env: VecEnv,
    observation: Tensor,
    keep: tuple[str, ...] | None = None,
    limit: int = LONGEST,
    progress: Stage | None = None,
) -> Rollout:
    """Play from a fresh reset until every environment has ended its first episode.

    Rows of a step that are no transition (`Step.valid`) belong to no episode: they neither count
    nor end one.

    Args:
        observation: (B, o_dim), as `env.reset` returned it.
        keep: names of `Step.info` to collect, if the environment reports them; None collects all.
        limit: steps of the longest episode.
        progress: advanced by one at each step.

    Raises:
        EnvError: an episode is still running after `limit` steps.
    """
    running = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    rewards = []
    alives = []
    actions = []
    infos = []
    while running.any():
        if len(rewards) == limit:
            name = getattr(env, "name", type(env).__name__)
            raise EnvError(
                f"env {name!r}: an episode is still running after {limit:,} steps; give it a "
                "limit: train.py --time_limit, or max_episode_steps in its registration"
            )
        action = torch.as_tensor(policy(observation), device=env.device)
        step = env.step(action)
        alive = running if step.valid is None else running & step.valid
        rewards.append(step.reward)
        alives.append(alive)
        actions.append(action)
        infos.append(
            {name: value for name, value in step.info.items() if keep is None or name in keep}
        )
        observation = step.observation
        running = running & ~(alive & (step.terminated | step.truncated))
        if progress is not None:
            progress.advance()
    # what an environment reports from some step on was zero before
    zeros = {name: torch.zeros_like(value) for name, value in infos[-1].items()}
    info = {
        name: torch.stack([step_info.get(name, zero) for step_info in infos])
        for name, zero in zeros.items()
    }
    return Rollout(torch.stack(rewards), torch.stack(alives), torch.stack(actions), info)


def iter_rollouts(
    policy: Policy,
    env: VecEnv,
    episodes: int,
    seed: int,
    name: str = "evaluation",
    only: int | None = None,
) -> Iterator[Rollout]:
    """Yield rounds of B episodes until there are `episodes`; the seed fixes starts and goals.

    Args:
        name: of the stage that reports their progress.
        only: number, from 0, of the only round to play.
    """
    seeds = draw_round_seeds(env, episodes, seed)
    seeds = seeds if only is None else seeds[only : only + 1]
    with stage(name, _count_steps(env, len(seeds)), "steps") as progress:
        for round_seed in seeds:
            yield play_seeded(policy, env, round_seed, progress=progress)


def play_seeded(
    policy: Policy,
    env: VecEnv,
    seed: int,
    keep: tuple[str, ...] | None = None,
    progress: Stage | None = None,
) -> Rollout:
    """Reset the environments with a seed and play, see `rollout`.

    What they draw from global generators is fixed by the seed, too; these stay as they were.
    """
    with fork_global_generators(seed, "episodes"):
        return rollout(policy, env, env.reset(seed), keep, progress=progress)


def _count_steps(env: VecEnv, rounds: int) -> int | None:
    """Return the steps of some rounds of whole episodes; None if an episode's length is unknown."""
    horizon = getattr(env, "horizon", None)
    return None if horizon is None else rounds * horizon


def draw_round_seeds(env: VecEnv, episodes: int, seed: int) -> list[int]:
    """Return the seed of each round's reset: episode N is row N % B of round N // B."""
    rounds = math.ceil(episodes / env.num_envs)
    # neighbouring seeds share no round
    return np.random.SeedSequence(seed).generate_state(rounds).tolist()


def make_random_policy(env: VecEnv, seed: int = 0) -> Policy:
    """Make a policy of uniformly random actions in [-1, 1], the baseline without any control."""
    generator = torch.Generator(env.device).manual_seed(derive_seed(seed, "random actions"))
    shape = (env.num_envs, env.a_dim)
    return lambda observation: 2.0 * draw_uniform(generator, *shape) - 1.0


def evaluate(policy: Policy, env: VecEnv, seed: int) -> dict[str, float]:
    """Return the mean return over B episodes fixed by the seed, and the success rate if known."""
    with stage("evaluation", _count_steps(env, 1), "steps") as progress:
        played = play_seeded(policy, env, seed, keep=("success",), progress=progress)
    episodes = compute_episode_statistics(played)
    scores = {}
    if "success" in episodes:
        scores["success_rate"] = episodes["success"].cpu().double().mean().item()
    return scores | {"episode_return": episodes["return"].cpu().double().mean().item()}


def compute_episode_statistics(played: Rollout) -> dict[str, Tensor]:
    """Compute figures of each of B episodes.

    Returns:
        Tensors (B,): `return`, the sum of rewards, undiscounted; `length` in steps; and, if the
        environment reports it, `success` (bool) at the last step.
    """
    statistics = {
        "return": torch.where(played.alive, played.reward, 0.0).sum(0),
        "length": played.alive.sum(0),
    }
    if "success" in played.info:
        statistics["success"] = played.get_last("success").bool()
    return statistics


def summarise(rounds: Iterable[dict[str, Tensor]], episodes: int | None = None) -> dict[str, Any]:
    """Summarise the episode statistics of one or several rounds as plain numbers for JSON.

    Args:
        rounds: what `compute_episode_statistics` returned; what only later ones know was zero.
        episodes: how many of them count, the first ones; None: all.

    Returns:
        `episodes`, their number; `episode_return` {mean, std, min, max}, where std is that of these
        episodes (divided by their number, not one less); `episode_length` {mean}; `success_rate` in
        [0, 1] if known.
    """
    rounds = list(rounds)
    joined = {
        name: torch.cat([part.get(name, 0 * part["length"]) for part in rounds])[:episodes]
        .cpu()
        .double()
        for name in rounds[-1]
    }
    returns = joined["return"]
    summary = {
        "episodes": len(returns),
        "episode_return": {
            "mean": returns.mean().item(),
            "std": returns.std(correction=0).item(),
            "min": returns.min().item(),
            "max": returns.max().item(),
        },
        "episode_length": {"mean": joined["length"].mean().item()},
    }
    if "success" in joined:
        summary["success_rate"] = joined["success"].mean().item()
    return summary
