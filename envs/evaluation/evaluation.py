"""An evaluation: the same episodes for every controller, played, measured, tabulated and
reported.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from envs.config.env_options import DISTURBANCES, KINEMATIC, NOTHING, EnvOptions
from envs.controllers import BASELINES, make_baseline
from envs.evaluation.metrics import join as join_figures
from envs.evaluation.metrics import measure
from envs.evaluation.report import ArmRun, Report, Trajectories, Watched, join, page
from envs.evaluation.robustness import Robustness, Success, sweep
from envs.evaluation.summary import summarise as summarise_arm
from envs.evaluation.table import print_rows, table_rows
from envs.registry import beginning_with, of_config
from envs.robots import Robot
from envs.simulation.randomization import disturbances_of
from envs.tasks.measures import Measure
from td3_robot.errors import unknown
from td3_robot.evaluation.rollout import (
    Policy,
    Rollout,
    episode_statistics,
    random_policy,
    rollout,
    rollouts,
    round_seeds,
    summarise,
)
from td3_robot.vec_env import VecEnv

ROUND = 1000  # arms that step together
GYMNASIUM_ROUND = 10  # environments of others, which step one after the other
GUARDED = "+guard"  # ends the name of a baseline that acts under the guard
RANDOM = "random"  # the baseline that is no controller

Maker = Callable[[VecEnv], Policy]  # a policy for an environment, which it may look at


class Controller(NamedTuple):
    """What is measured: a policy, and the environment that it acts in."""

    make: Maker
    guard: bool
    policy: Policy
    env: Any


class Evaluation:
    """Controllers on the same starts, goals and obstacles: `add` them, `play`, and look at what
    came of it.

    Args:
        options: what is acted in.
        episodes: how many there are; their number is part of what an episode is, see `round_seeds`.
        seed: of starts, goals and obstacles.
        episode: number, from 0, of the one to play alone; None plays all.
        device: where it is simulated.
        robot: that of the options, where it was made before.

    Attributes:
        env: where what is added acts unless it asks for another guard.
        controllers: by name, in the order in which they were added; the first is what the
            evaluation is of.
        summaries: after `play`, by controller: `td3_robot.evaluation.rollout.summarise`, and of our
            robots `summary.summarise`.
        played: after `play(keep=True)`, by controller: its trajectories.
        robustness: after `play_robustness`, what it gave.
    """

    def __init__(
        self,
        options: EnvOptions,
        episodes: int = 1000,
        seed: int = 12345,
        episode: int | None = None,
        device: str = "cpu",
        robot: Robot | None = None,
    ):
        self.options, self.episodes, self.seed, self.episode, self.device = (
            options,
            episodes,
            seed,
            episode,
            device,
        )
        self._robot = robot
        self._made: dict[bool, Any] = {}  # ArmEnv, or of Gymnasium where the options say so
        self.env = self._env(options.guard)
        self.controllers: dict[str, Controller] = {}
        self.summaries: dict[str, dict[str, object]] = {}
        self.played: dict[str, Trajectories] = {}
        self.robustness: Robustness | None = None

    def add(self, name: str, make: Maker, guard: bool | None = None) -> None:
        """Take part in it.

        Args:
            name: heading of its column.
            make: makes the policy for the environment.
            guard: act under the guard or not; None: as the options say.
        """
        guard = self.options.guard if guard is None else guard
        env = self._env(guard)
        self.controllers[name] = Controller(make, guard, make(env), env)

    def add_baseline(self, name: str) -> None:
        """Random actions or, for robots, a classical controller; under the guard where the name
        ends in "+guard".

        Raises:
            ConfigError: there is none of that name, or it cannot do the task.
        """
        robots = self.options.env is None
        plain = name.removesuffix(GUARDED) if robots else name
        known = (RANDOM, *BASELINES) if robots else (RANDOM,)
        if plain not in known:
            raise unknown("baseline", name, known)
        make = self._random if plain == RANDOM else lambda env: make_baseline(plain, env)
        self.add(name, make, guard=plain != name)

    def _random(self, env: VecEnv) -> Policy:
        return random_policy(env, self.seed)

    def play(self, keep: bool = False) -> dict[str, dict[str, object]]:
        """Play and measure every controller.

        Args:
            keep: the trajectories too, for `page`.

        Returns:
            `summaries`.
        """
        for name, controller in self.controllers.items():
            self.summaries[name] = self._play(name, controller, keep)
        return self.summaries

    def play_robustness(self, episodes: int) -> Robustness:
        """Measure success behind delay, noise and lag.

        Args:
            episodes: of each controller behind each disturbance.

        Returns:
            `robustness`, which the results, the table and the page have from then on.
        """
        lagging = self.options.engine != KINEMATIC
        self.robustness = sweep(
            lambda given: self.success_behind(given, episodes), episodes, lagging
        )
        return self.robustness

    def success_behind(self, disturbances: dict[str, float], episodes: int) -> Success:
        """The success rates of all controllers but random actions, in other episodes.

        Args:
            disturbances: between controllers and arms, by field of `Disturbances`; there are no
                others.
            episodes: as the class has it; all of them are played.
        """
        none = {name: getattr(EnvOptions, name) for name in DISTURBANCES}
        options = dataclasses.replace(self.options, **none | {"randomize": NOTHING} | disturbances)
        other = Evaluation(options, episodes, self.seed, device=self.device, robot=self.env.robot)
        for name in self.acting:
            other.add(name, self.controllers[name].make, self.controllers[name].guard)
        return {
            name: other._statistics(one)["success_rate"] for name, one in other.controllers.items()
        }

    def shown(self) -> dict[str, tuple[Policy, Any]]:
        """What there is to see: all controllers but random actions, each as `alone`."""
        return {name: self.alone(name) for name in self.acting}

    def alone(self, name: str, arms: int = 1) -> tuple[Policy, Any]:
        """A controller again, in an environment of its own with one arm: for the chosen episode, or
        for new ones.

        More arms, for new episodes, have a goal each.
        """
        make, guard, *_ = self.controllers[name]
        env = self._new_env(guard, arms)
        return make(env), env

    def env_of_whole_episodes(self, transitions: int) -> Any:
        """An environment to record that many transitions in: its arms come to the ends of their
        episodes.
        """
        horizon = self.env.task.horizon if self.options.env is None else 1
        return self._new_env(self.options.guard, max(1, min(self._arms, transitions // horizon)))

    def beside_random(self) -> dict[str, Rollout]:
        """One episode of the first controller, alone, and the same one of random actions."""
        first = next(iter(self.controllers))
        policy, env = self.alone(first)
        policies = {first: policy, RANDOM: self._random(env)}
        return {
            name: rollout(policy, env, env.reset(self.seed)) for name, policy in policies.items()
        }

    @property
    def action_names(self) -> list[str] | None:
        """Of the action's elements; None where only the environment's author knows them."""
        if self.options.env is not None:
            return None
        joints = [f"joint {number}" for number in range(1, self.env.robot.n + 1)]
        return joints + ["gripper"] * (self.env.a_dim - self.env.robot.n)

    def __str__(self) -> str:
        which = f"{self.episodes} episodes" if self.episode is None else f"episode {self.episode}"
        words = {"guard": "guarded", "sparse": "sparse"}
        under = (
            words.get(name) or f"{name} {_plain(value)}"
            for name, value in self.options.conditions.items()
        )
        return ", ".join((self.options.name, *under, which, f"seed {self.seed}"))

    def results(self) -> dict[str, object]:
        """What was measured and what came out, as plain values for JSON; docs/evaluation.md names
        them.
        """
        about = self.options.about | {"episodes": self.episodes, "seed": self.seed}
        about |= (
            {} if self.episode is None else {"episode": self.episode, "of_episodes": self.episodes}
        )
        about |= self.options.conditions | (
            {} if self.options.engine == KINEMATIC else {"unstable": self.unstable}
        )
        first, *others = self.summaries
        about |= self.summaries[first] | {
            "baselines": {name: self.summaries[name] for name in others}
        }
        return about | (
            {} if self.robustness is None else {"robustness": self.robustness.results()}
        )

    def print_table(self) -> None:
        """Print the figures of all controllers beside each other."""
        print_rows("", list(self.summaries), table_rows(self.summaries, self._measures))
        if self.unstable:
            print(
                f"the physics failed {self.unstable} times: those arms were stopped where they were"
            )
        if self.robustness is not None:
            of = f"success rate [%] of {self.robustness.episodes:,} episodes"
            print_rows(of, self.robustness.controllers, self.robustness.rows())

    def page(
        self,
        facts: dict[str, str],
        curve: Sequence[dict[str, float]],
        replay: Callable[[int], str],
        run: ArmRun | None = None,
    ) -> str:
        """The report as one HTML page, after `play(keep=True)`.

        Args:
            facts: what it is to say of how it was measured, beside what is known here.
            curve, replay, run: see `report.Report`.
        """
        about = {"episodes": f"{self.episodes:,}, seed {self.seed}, {self.device}", "guard": "off"}
        about |= {
            name.replace("_", " "): _plain(value) for name, value in self.options.conditions.items()
        }
        untouched = ", and no contact before" if self.env.world.collision is not None else ""
        about |= {"success": f"{self.env.task.criterion}{untouched}"}
        title = f"{self.options.robot}: {self.options.task}"
        shown = Report(
            title,
            about | facts,
            self.env,
            self.summaries,
            self.played,
            curve,
            replay,
            self.robustness,
            run,
        )
        return page(shown)

    @property
    def acting(self) -> list[str]:
        """The controllers that look before they act: all but random actions."""
        return [name for name in self.controllers if name.removesuffix(GUARDED) != RANDOM]

    @property
    def unstable(self) -> int:
        """How often contact physics failed in these episodes, with all controllers together."""
        return sum(
            getattr(getattr(env, "engine", None), "unstable", 0) for env in self._made.values()
        )

    @property
    def _measures(self) -> Sequence[Measure]:
        return self.env.task.measures if self.options.env is None else ()

    # Playing

    def _env(self, guard: bool) -> Any:
        """Where all episodes are played, or the chosen one; one for each setting of the guard."""
        if guard not in self._made:
            self._made[guard] = self._new_env(guard, self._arms, self._robot)
        return self._made[guard]

    @property
    def _arms(self) -> int:
        return min(self.episodes, ROUND if self.options.env is None else GYMNASIUM_ROUND)

    def _new_env(self, guard: bool, arms: int, robot: Robot | None = None) -> Any:
        options = dataclasses.replace(self.options, guard=guard)
        if self.episode is None:
            return of_config(options, arms, self.device, self.seed, robot=robot)
        many: Any = of_config(options, self._arms, self.device, self.seed)
        number, row = divmod(self.episode, self._arms)
        many.reset(round_seeds(many, self.episodes, self.seed)[number])
        return beginning_with(many.arrived, row, many, guard, disturbances_of(options))

    def _statistics(self, controller: Controller) -> dict[str, Any]:
        """What every task has in common to measure, of one controller: quicker than all that
        `_play` does.
        """
        played = rollouts(controller.policy, controller.env, self.episodes, self.seed)
        return summarise(map(episode_statistics, played), self.episodes)

    def _play(self, name: str, controller: Controller, keep: bool) -> dict[str, object]:
        """The summary of one controller."""
        env, robots = controller.env, self.options.env is None
        episodes = self.episodes if self.episode is None else 1
        watched = Watched(controller.policy, env) if keep else None
        statistics, figures, kept = [], [], []
        for part in rollouts(watched or controller.policy, env, episodes, self.seed):
            statistics.append(episode_statistics(part))
            figures += [measure(env.task, env.model, part.info, part.alive)] if robots else []
            kept += [Trajectories.of_round(part.alive, part.info, watched)] if watched else []
        if keep:
            self.played[name] = join(kept, episodes)
        arm = summarise_arm(join_figures(figures, episodes), env.task.measures) if robots else {}
        return summarise(statistics, episodes) | arm


def _plain(value: bool | str | float) -> str:
    """A condition as a word."""
    return "on" if value is True else value if isinstance(value, str) else f"{value:g}"
