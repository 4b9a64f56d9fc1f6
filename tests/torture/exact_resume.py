"""Whatever the options: stopped somewhere and resumed, a training is to the bit the one that nobody
stopped.

Each attempt draws a robot and a task, or a Gymnasium environment that can restore itself, and
options. It is trained in one go to a late step and again with one or two stops on the way. Then all
that was saved is compared: networks, targets, optimizers, normaliser, replay, noise, generators,
environments, and every figure of the curve but the clocks.
"""

import sys
from pathlib import Path
from random import Random

from attempts import Fork, read_flags, script, torture
from runs import differing, rows, tensors_of, warm_up

from envs.command_line import TrainFlags
from envs.config.env_options import EnvOptions
from td3_robot import checkpoint
from td3_robot.checkpoint.resume_point import LAST
from td3_robot.cli.arguments import parse_train
from td3_robot.errors import ConfigError
from td3_robot.loggers.csv import CSV_NAME

ENVS = 4
ROUNDS = 75  # steps of each environment; an episode of reach has 60
CLOCKS = ("wall_s", "solved_at_s", "seconds")
TASKS = ["reach", "reach", "reach_pose", "reach_avoid", "track", "pick_place", "push"]
# that restore themselves
IDS = ["td3_robot/PandaReach-v0", "td3_robot/Ur5eTrack-v0", "td3_robot/PandaReachGoal-v0"]
ROBOTS = ["panda", "ur5e", "ur3e", "vx300s", "wx250s", "puma560", "lbr"]
OPTIONS = [  # each is left out or one of its choices
    *("sparse", "guard", "td3.actor_min_q", "td3.normalize_observations", "exploration.per_env"),
    *("exploration.uncertainty", "reward.normalize", "stop_when_solved"),
    f"robot {' '.join(ROBOTS)}",
    "engine mujoco",
    "randomize lab",
    "latency_spread 0.02",
    "joint_offset 0.001",
    "tcp_offset 0.001",
    "object_offset 0.002",
    "base_offset 0.002",
    "base_turn 0.003",
    "latency 0.02 0.05 0.1",
    "servo_lag 0.02",
    "noise 0.001",
    "assumed_latency 0 0.05",
    "estimate_latency true false",
    "seed 1 2 3",
    "td3.critic crossq",
    "td3.hidden 8 16,16",
    "td3.critic_hidden 12",
    "td3.gamma 0.95",
    "td3.r_min -2",
    "td3.r_max 1",
    "td3.normalize_epsilon 0.01",
    "td3.normalize_clip 5",
    "td3.norm layer batch",
    "td3.init orthogonal",
    "td3.final_bound 0.003",
    "td3.tau 0.02 1",
    "td3.policy_noise 0 0.3",
    "td3.policy_delay 1 3",
    "td3.twin_critics false",
    "td3.action_l2 0.5",
    "td3.actor_grad_clip 0.1",
    "td3.critic_grad_clip 0.1",
    "td3.bc_alpha 2.5",
    "td3.bc_filter true",
    "replay.capacity 150 1000",
    "replay.n_step 1 3",
    "replay.prioritized true false",
    "replay.hindsight future final episode",
    "replay.hindsight_still 0.3",
    "reward.scale 2",
    "reward.clip 0.5",
    "exploration.kind ou pink",
    "exploration.noise 0.3",
    "exploration.random_share 0.2",
    "exploration.expert solution",
    "exploration.expert_delay 7",
    "schedule.lr linear cosine",
    "schedule.noise linear cosine",
    "updates_per_step 2",
    "evaluation.every 160",
    "evaluation.keep 1",
]


def draw(random: Random) -> list[str]:
    """A command line; it may be one that is refused."""
    chosen = random.sample(OPTIONS, random.randint(0, 16))
    words = (
        ["--task", random.choice(TASKS)] if random.random() < 0.8 else ["--env", random.choice(IDS)]
    )
    for option in chosen:
        name, *choices = option.split()
        words += [f"--{name}", random.choice(choices or ["true"])]
    if random.random() < 0.2:
        words += "--td3.atoms 11 --td3.v_min -20 --td3.v_max 5".split()
    defaults = {"td3.hidden": "8", "replay.capacity": "160", "evaluation.every": str(50 * ENVS)}
    words += [
        word
        for name, value in defaults.items()
        if f"--{name}" not in words
        for word in (f"--{name}", value)
    ]
    return words


def sitting(folder: Path, words: list[str]) -> tuple[int, str]:
    """Train up to a stop. Returns exit code and stderr."""
    process = Fork(folder, TRAIN, words)
    return process.wait(), process.err


def attempt(random: Random, folder: Path) -> str | None:
    """One configuration that is not refused."""
    while True:
        words = [
            *draw(random),
            "--num_envs",
            str(ENVS),
            "--steps",
            str(ENVS * (ROUNDS + 20)),
            "--evaluation.episodes",
            "2",
        ]
        words += "--replay.batch_size 16 --exploration.start_steps 40 --save_every 1e9".split()
        end = ENVS * ROUNDS
        try:
            parse_train(words, EnvOptions, TrainFlags)  # what is refused here needs no process
        except ConfigError:
            continue
        code, error = sitting(folder, [*words, "--run", "whole", "--stop_at", str(end)])
        if code != 2:
            break
        refusal = [line for line in error.splitlines() if not line.startswith("warning: ")]
        if len(refusal) != 1:
            return f"{' '.join(words)}: refused in more than a line: {error}"
    shown = " ".join(words)
    if code:
        return f"{shown}: exit code {code}: {error}"
    stops = sorted(random.sample(range(1, ROUNDS), random.choice([1, 1, 2])))
    for number, stop in enumerate([*stops, ROUNDS]):
        begin = ["--resume", "cut"] if number else [*words, "--run", "cut"]
        code, error = sitting(folder, [*begin, "--stop_at", str(ENVS * stop)])
        if code:
            return f"{shown}: stopped at {stops}: exit code {code}: {error}"
    whole, cut = (folder / "checkpoints" / name for name in ("whole", "cut"))
    for part in (Path(), Path(LAST)):
        if different := differing(
            *(tensors_of(checkpoint.read(run / part), CLOCKS) for run in (whole, cut))
        ):
            return f"{shown}: stopped at {stops}: {part}: {len(different)} differ: {different[:3]}"
    if (whole / CSV_NAME).exists() and rows(whole) != rows(cut):
        return f"{shown}: stopped at {stops}: the curves differ"
    return None


if __name__ == "__main__":
    flags = read_flags(__doc__ or "")
    warm_up(ROBOTS if flags.count > len(ROBOTS) else ROBOTS[:1])
    TRAIN = script("train")
    sys.exit(min(1, torture("exact_resume", flags.count, flags.seed, attempt)))
