"""Measure how near to the shortest possible time policies and tuned programs come to the goal.

    python benchmarks/minimum_time.py            # reach and reach_pose, 1,000 episodes each
    python benchmarks/minimum_time.py --tasks reach --episodes 300

The bound of an episode is the least time from rest to rest of joint moves to `SOLUTIONS` sampled
solutions of its goal, with the speed and acceleration limits of every joint: sampled, so it is an
upper estimate of the least time. A program's gain is tuned on `TUNING_SEED`: the fastest gain whose
success is within half a point of the best gain's. Episodes count as in an evaluation: the time to
the goal is when the arm is within the tolerance to stay, which can be before it rests.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import figures
import rows
import torch
from torch import Tensor

from envs.config.disturbance_options import DISTURBANCES
from envs.config.env_options import MUJOCO, EnvOptions
from envs.controllers.follow_solution import compute_joint_move
from envs.controllers.resolved_rate import ResolvedRate
from envs.evaluation import Evaluation
from envs.kinematics.inverse import solve_pose, spread_joints
from envs.kinematics.rotations import to_matrix
from td3_robot import TD3
from td3_robot.checkpoint.provenance import find_commit
from td3_robot.cli.arguments import load_run_config
from td3_robot.evaluation.rollout import draw_round_seeds

SOLUTIONS = 128  # sampled for each goal: a quarter near the start, the others anywhere
NEAR = 0.4  # [rad] standard deviation of those near the start
TUNING_SEED = 99
TUNING_EPISODES = 200
GAINS = (4.0, 6.0, 8.0, 10.0, 12.0)  # [1/s]
SLACK = 0.005  # of the success rate that a faster gain may cost
WORLDS = ("exact", "lab")


def compute_move_time(distance: Tensor, speed: Tensor, acceleration: Tensor) -> Tensor:
    """Compute the least times (...) of moves of n joints from rest to rest [s].

    Args:
        distance: (..., n) of each joint [rad or m].
        speed, acceleration: (n,) limits of each joint.
    """
    distance = distance.abs()
    peak = (distance * acceleration).sqrt()  # speed reached without a limit
    cruising = distance / speed + speed / acceleration
    return torch.where(peak > speed, cruising, 2.0 * (distance / acceleration).sqrt()).amax(-1)


def find_fastest(env: Any, q: Tensor, goal: Tensor) -> tuple[Tensor, Tensor]:
    """Find the sampled solutions (B, n) that joint moves reach first, and their times (B,) [s].

    Args:
        q: (B, n) where the arms rest [rad or m].
        goal: (B, 3) or (B, 7).
    """
    model = env.model
    generator = torch.Generator().manual_seed(0)
    orientation = to_matrix(goal[:, 3:]) if goal.shape[1] > 3 else None
    anywhere = spread_joints(model.qlim, SOLUTIONS)
    best = torch.full_like(q[:, 0], torch.inf)
    found = q.clone()
    for index in range(SOLUTIONS):
        if index % 4:
            start = anywhere[index].expand_as(q)
        else:
            start = q + NEAR * (index > 0) * torch.randn(q.shape, generator=generator)
        start = start.clamp(*model.qlim)
        solution, arrived, _ = solve_pose(model.chain, model.qlim, start, goal[:, :3], orientation)
        times = compute_move_time(solution - q, model.qdlim, model.dqd / model.dt)
        better = arrived & (times < best)
        best = torch.where(better, times, best)
        found = torch.where(better[:, None], solution, found)
    return found, best


class MoveJoints:
    """Program that moves the joints straight to the fastest of the sampled solutions.

    Args:
        env: the environment to act in.
        gain: joint speed per distance [1/s].
    """

    def __init__(self, env: Any, gain: float):
        self._env = env
        self._gain = gain
        self._goal = torch.zeros_like(env.moment.scene["goal"])
        self._target = torch.zeros_like(env.moment.state.q)

    def __call__(self, observation: Tensor) -> Tensor:
        """Return the action (B, n) in [-1, 1] for the environment's moment."""
        moment = self._env.moment
        goal = moment.scene["goal"]
        if not torch.equal(goal, self._goal):  # all episodes begin at once
            self._goal = goal.clone()
            self._target, _ = find_fastest(self._env, moment.state.q, goal)
        return compute_joint_move(self._env.model, moment.state.q, self._target, self._gain)


PROGRAMS: dict[str, Callable[[Any, float], Any]] = {"rrmc": ResolvedRate, "joint move": MoveJoints}


def make_options(task: str, world: str) -> EnvOptions:
    """Make the options of a shipped run's task in contact physics."""
    folder = figures.ROOT / "checkpoints" / figures.RUNS[task]
    randomize = "lab" if world == "lab" else "none"
    given = {**dict.fromkeys(DISTURBANCES), "engine": MUJOCO, "randomize": randomize}
    return replace(load_run_config(folder, EnvOptions)[1], **given)


def play(evaluation: Evaluation) -> dict[str, dict[str, float]]:
    """Play and return success, time_s and jerk_rad_s3 of each controller."""
    summaries: dict[str, Any] = dict(evaluation.play())
    return {
        name: {
            "success": round(summary["success_rate"], 4),
            "time_s": round(summary["time_to_goal_s"]["median"] or float("inf"), 3),
            "jerk_rad_s3": round(summary["rms_jerk_rad_s3"]["median"], 2),
        }
        for name, summary in summaries.items()
    }


def tune(options: EnvOptions, program: str) -> float:
    """Return the fastest gain of a program whose success is hardly below the best gain's."""
    evaluation = Evaluation(options, TUNING_EPISODES, TUNING_SEED)
    for gain in GAINS:
        evaluation.add(str(gain), lambda env, gain=gain: PROGRAMS[program](env, gain))
    found = play(evaluation)
    best = max(row["success"] for row in found.values())
    good = [gain for gain in GAINS if found[str(gain)]["success"] >= best - SLACK]
    return min(good, key=lambda gain: found[str(gain)]["time_s"])


def compute_bound(options: EnvOptions, episodes: int, seed: int) -> float:
    """Return the median of the episodes' bounds [s]."""
    env = Evaluation(options, episodes, seed).env
    bounds = []
    for round_seed in draw_round_seeds(env, episodes, seed):
        env.reset(round_seed)
        bounds.append(find_fastest(env, env.state.q, env.scene["goal"])[1])
    return torch.cat(bounds)[:episodes].median().item()


def measure(task: str, world: str, episodes: int, seed: int) -> list[rows.Row]:
    """Return the rows of a task's policy and tuned programs in a world."""
    options = make_options(task, world)
    bound = compute_bound(options, episodes, seed)
    gains = {program: tune(options, program) for program in PROGRAMS}
    agent = TD3.from_checkpoint(figures.ROOT / "checkpoints" / figures.RUNS[task])
    evaluation = Evaluation(options, episodes, seed)
    evaluation.add("policy", lambda env: agent.select_action)
    for program, gain in gains.items():
        evaluation.add(program, lambda env, name=program, gain=gain: PROGRAMS[name](env, gain))
    found = []
    for name, played in play(evaluation).items():
        row: rows.Row = {"task": task, "world": world, "controller": name}
        row |= {"gain": gains.get(name, ""), **played}
        row |= {"bound_s": round(bound, 3), "ratio": round(played["time_s"] / bound, 3)}
        row |= {"episodes": episodes, "seed": seed, "commit": (find_commit() or "")[:7]}
        found.append(row | {"inputs": figures.hash_in_mujoco({"task": task})})
    return found


def main() -> None:
    """Parse, measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    tasks = ("reach", "reach_pose")
    parser.add_argument("--tasks", nargs="+", default=list(tasks), choices=tasks)
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=WORLDS)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=7341)
    parser.add_argument("--out", type=Path, default=figures.RESULTS / "minimum_time.csv")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for task in asked.tasks:
        for world in asked.worlds:
            found = measure(task, world, asked.episodes, asked.seed)
            rows.write_rows(asked.out, tuple(found[0]), ("task", "world", "controller"), found)
            print(*found, sep="\n", flush=True)


if __name__ == "__main__":
    main()
