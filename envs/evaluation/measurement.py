"""Measurement of one controller: its episodes are played and summarised."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from envs.config.env_options import KINEMATIC, EnvOptions
from envs.evaluation.failures import FailureCounter
from envs.evaluation.metrics import join_figures, measure
from envs.evaluation.report import RecordingPolicy, Trajectories
from envs.evaluation.summary import summarise_arm
from td3_robot.evaluation.rollout import compute_episode_statistics, iter_rollouts, summarise
from td3_robot.vec_env import Policy, VecEnv

PolicyFactory = Callable[[VecEnv], Policy]


class Controller(NamedTuple):
    """A policy to measure, and the environment that it acts in."""

    make: PolicyFactory
    guard: bool
    policy: Policy
    env: Any


@dataclass(frozen=True)
class EpisodeSet:
    """The episodes that every controller of an evaluation plays, in rounds.

    Attributes:
        count: number of episodes, which is part of what an episode is, see `draw_round_seeds`.
        seed: of starts, goals and obstacles.
        chosen: number, from 0, of the only episode to play; None plays all.
        round_size: number of episodes of a round, which are played together.
    """

    count: int
    seed: int
    chosen: int | None
    round_size: int

    @property
    def chosen_place(self) -> tuple[int | None, int]:
        """The round of the chosen episode and its row there; None and 0 without one."""
        return (None, 0) if self.chosen is None else divmod(self.chosen, self.round_size)


class Measurement(NamedTuple):
    """The result of a controller.

    Attributes:
        summary: `td3_robot.evaluation.rollout.summarise` and, of our robots,
            `summary.summarise_arm`.
        trajectories: of all episodes, where they were kept.
        unstable: number of failures of the MuJoCo engine.
    """

    summary: dict[str, object]
    trajectories: Trajectories | None
    unstable: int


def measure_controller(
    name: str, controller: Controller, episodes: EpisodeSet, options: EnvOptions, keep: bool
) -> Measurement:
    """Play all episodes, or the chosen one, and summarise them.

    Args:
        name: of the controller, for the progress.
        options: of its environment.
        keep: keep the trajectories.
    """
    env = controller.env
    has_robot = options.env is None
    chosen_round, row = episodes.chosen_place
    count = episodes.count if chosen_round is None else 1
    recorder = RecordingPolicy(controller.policy, env) if keep else None
    policy = recorder or controller.policy
    counter = None if options.engine == KINEMATIC else FailureCounter(policy, env)
    statistics = []
    figures = []
    trajectories = []
    for played in iter_rollouts(
        counter or policy, env, episodes.count, episodes.seed, name, chosen_round
    ):
        if counter:
            played.info["unstable"] = counter.take()
        if recorder:
            recorded = Trajectories.from_round(played.alive, played.info, recorder)
            trajectories.append(recorded if chosen_round is None else recorded.select(row))
        counted = played if chosen_round is None else played.select(row)
        statistics.append(compute_episode_statistics(counted))
        if has_robot:
            figures.append(measure(env.task, env.model, counted.info, counted.alive))
    summary = summarise(statistics, count)
    joined = join_figures(figures, count) if has_robot else {}
    if has_robot:
        summary |= summarise_arm(joined, env.task.measures)
    return Measurement(
        summary,
        Trajectories.join(trajectories, count) if keep else None,
        int(joined["unstable"].sum()) if counter else 0,
    )


def measure_success_rate(name: str, controller: Controller, episodes: EpisodeSet) -> float:
    """Play all episodes and return the share that succeeds; faster than `measure_controller`."""
    played = iter_rollouts(controller.policy, controller.env, episodes.count, episodes.seed, name)
    return summarise(map(compute_episode_statistics, played), episodes.count)["success_rate"]
