"""Compare policies by the return of an episode and by the discounted return that they maximise.

    python benchmarks/discounted_returns.py RUN ... --gammas 0.99 0.995

Both networks of each run are measured: the actor, and the policy if that is another network. Where
the orders of the two columns differ, a policy that is better for the critics is worse in the table
of returns: in Hopper, a quicker gait that falls in the end.
"""

import argparse
import sys

import torch
from torch import Tensor

import envs
from envs.config.env_options import EnvOptions
from td3_robot import TD3
from td3_robot.checkpoint import find
from td3_robot.cli.arguments import load_run_config
from td3_robot.evaluation.rollout import Rollout, compute_episode_statistics, play_seeded
from td3_robot.utils.console import exit_code

SEED = 7341


def compute_discounted_return(played: Rollout, gamma: float) -> Tensor:
    """Return the discounted sums of rewards (B,) from the starts of B episodes."""
    steps = torch.arange(len(played.reward), dtype=torch.float64)
    rewards = torch.where(played.alive, played.reward, 0.0).cpu().double()
    return (gamma ** steps[:, None] * rewards).sum(0)


def measure(run: str, episodes: int, gammas: list[float]) -> list[list[str]]:
    """Play the networks of a run; return a row of words for each."""
    checkpoint = find(run)
    _, options = load_run_config(checkpoint, EnvOptions)
    env = envs.make_from_config(options, episodes, "cpu", SEED)
    agent = TD3.from_checkpoint(checkpoint)
    policies = {"actor": agent.select_exploratory_action}
    if agent.config.policy != "actor":
        policies[agent.config.policy] = agent.select_action
    rows = []
    for name, policy in policies.items():
        played = play_seeded(policy, env, SEED)
        figures = compute_episode_statistics(played)
        total = figures["return"].sum()
        row = [run, name, f"{total / episodes:,.0f}", f"{figures['length'].double().mean():.0f}"]
        row.append(f"{total / figures['length'].sum():.2f}")
        row += [f"{compute_discounted_return(played, gamma).mean():.1f}" for gamma in gammas]
        rows.append(row)
    return rows


def main(argv: list[str]) -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="RUN", help="names or folders of runs")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--gammas", type=float, nargs="+", default=[0.99, 0.995])
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    head = ["run", "network", "return", "steps", "reward/step"]
    rows = [head + [f"gamma {gamma}" for gamma in options.gammas]]
    for run in options.runs:
        rows += measure(run, options.episodes, options.gammas)
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  ".join(word.rjust(width) for word, width in zip(row, widths)))


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
