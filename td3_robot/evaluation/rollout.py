"""Rolling a policy out, without noise, and what every task has in common to measure."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from td3_robot.errors import EnvError
from td3_robot.utils.seeding import seed_of
from td3_robot.vec_env import VecEnv

# steps of an episode that is evaluated; the longest limit in use is that of Atari games, 27,000
LONGEST = 50_000
Policy = Callable[[Tensor], Tensor]  # observation (B, o_dim) -> action (B, a_dim)


@dataclass(frozen=True)
class Rollout:
    """One episode of each of B environments, T steps of the longest.

    After the end of its episode an environment's rows repeat nothing of use: mask with `alive`.
    """

    reward: Tensor  # (T, B)
    alive: Tensor  # (T, B) bool: the step belongs to the episode; the last one included
    action: Tensor  # (T, B, a_dim) in [-1, 1]
    info: dict[str, Tensor]  # per step measurements of the environment, (T, B, ...)

    def last(self, name: str) -> Tensor:
        """A measurement at the last step of each episode, (B, ...)."""
        series = self.info[name]
        number = torch.arange(len(self.alive), device=self.alive.device)[:, None]
        return series[
            (number * self.alive).amax(0), torch.arange(series.shape[1], device=series.device)
        ]


@torch.no_grad()
def rollout(
    policy: Policy,
    env: VecEnv,
    observation: Tensor,
    keep: tuple[str, ...] | None = None,
    limit: int = LONGEST,
) -> Rollout:
    """Play from a fresh reset until every environment has ended its first episode.

    Rows of a step that are no transition (`Step.valid`) belong to no episode, so they neither count
    nor end one.

    Args:
        observation: (B, o_dim), as `env.reset` returned it.
        keep: names of `Step.info` to collect, as far as the environment reports them; None collects
            all.
        limit: steps of the longest episode.

    Raises:
        EnvError: an episode is still running after that.
    """
    running = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    rewards, alives, actions, infos = [], [], [], []
    while running.any():
        if len(rewards) == limit:
            name = getattr(env, "name", type(env).__name__)
            raise EnvError(
                f"env {name!r}: an episode is still running after {limit:,} steps; give it a limit: --time_limit, or"
                " max_episode_steps where it is registered"
            )
        action = policy(observation)
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
    info = {name: torch.stack([i[name] for i in infos]) for name in infos[0]}
    return Rollout(torch.stack(rewards), torch.stack(alives), torch.stack(actions), info)


def rollouts(policy: Policy, env: VecEnv, episodes: int, seed: int) -> Iterator[Rollout]:
    """As many rounds of B episodes as `episodes` needs; the seed fixes the starts and goals of
    each.
    """
    for round_seed in round_seeds(env, episodes, seed):
        yield rollout(policy, env, env.reset(round_seed))


def round_seeds(env: VecEnv, episodes: int, seed: int) -> list[int]:
    """What `rollouts` resets the environment with: episode N is row N % B of round N // B."""
    rounds = math.ceil(episodes / env.num_envs)
    return (
        np.random.SeedSequence(seed).generate_state(rounds).tolist()
    )  # neighbouring seeds share no round


def random_policy(env: VecEnv, seed: int = 0) -> Policy:
    """Uniformly random actions in [-1, 1]: what no control at all achieves."""
    generator = torch.Generator(env.device).manual_seed(seed_of(seed, "random actions"))
    shape = (env.num_envs, env.a_dim)
    return lambda observation: 2.0 * torch.rand(shape, generator=generator, device=env.device) - 1.0


def evaluate(policy: Policy, env: VecEnv, seed: int) -> dict[str, float]:
    """Mean return over B episodes that the seed fixes, and mean success at their ends where the
    task knows success.
    """
    episodes = episode_statistics(rollout(policy, env, env.reset(seed), keep=("success",)))
    scores = (
        {"success_rate": episodes["success"].cpu().double().mean().item()}
        if "success" in episodes
        else {}
    )
    return scores | {"episode_return": episodes["return"].cpu().double().mean().item()}


def episode_statistics(played: Rollout) -> dict[str, Tensor]:
    """Figures of each of B episodes.

    Returns:
        Tensors (B,): `return`, the sum of rewards, undiscounted; `length` in steps; and where the
        environment reports `success`, `success` (bool) at the last step.
    """
    statistics = {
        "return": torch.where(played.alive, played.reward, 0.0).sum(0),
        "length": played.alive.sum(0),
    }
    return statistics | (
        {"success": played.last("success").bool()} if "success" in played.info else {}
    )


def summarise(rounds: Iterable[dict[str, Tensor]], episodes: int | None = None) -> dict[str, Any]:
    """What `episode_statistics` gave of one or several rounds, over all episodes, as plain numbers
    for JSON.

    Args:
        rounds: the statistics of each round, the same names in all.
        episodes: how many of them count, the first ones; None: all.

    Returns:
        `episodes`, their number; `episode_return` {mean, std, min, max}, where std is that of these
        episodes (divided by their number, not one less); `episode_length` {mean}; `success_rate` in
        [0, 1] where known.
    """
    rounds = list(rounds)
    joined = {
        name: torch.cat([part[name] for part in rounds])[:episodes].cpu().double()
        for name in rounds[0]
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
    return summary | (
        {"success_rate": joined["success"].mean().item()} if "success" in joined else {}
    )
