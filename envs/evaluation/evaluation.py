"""Evaluation: play the same episodes with every controller, measure and report them."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from envs.config.disturbance_options import DISTURBANCES
from envs.config.env_options import KINEMATIC, NOTHING, EnvOptions
from envs.controllers import BASELINES, make_baseline
from envs.evaluation import requirements
from envs.evaluation.measurement import (
    Controller,
    EpisodeSet,
    PolicyFactory,
    measure_controller,
    measure_success_rate,
)
from envs.evaluation.report import ArmRun, Report, Trajectories, render_page
from envs.evaluation.robustness import Robustness, Success, sweep
from envs.evaluation.table import format_condition, make_rows, print_rows
from envs.registry import make_from_config
from envs.robots import Robot
from envs.simulation.failures import describe_failures
from envs.tasks.measures import Measure
from td3_robot.errors import ConfigError, require_integer, unknown
from td3_robot.evaluation.rollout import Rollout, draw_round_seeds, make_random_policy, play_seeded
from td3_robot.utils.legacy import keep_old_names
from td3_robot.utils.progress import iter_with_progress
from td3_robot.vec_env import Policy, VecEnv

MOST_EPISODES = 10**7
ROUND = 1000  # arms that step together
GYMNASIUM_ROUND = 10  # Gymnasium environments, which step one after the other
GUARDED = "+guard"  # suffix of a baseline that acts under the guard
RANDOM = "random"  # the baseline of uniformly random actions


@keep_old_names(
    acting="feedback_controllers",
    alone="make_copy",
    beside_random="compare_with_random",
    env_of_whole_episodes="make_dataset_env",
    page="render_report",
    results="to_dict",
    shown="make_copies",
    success_behind="measure_success",
)
class Evaluation:
    """Evaluation of controllers on the same starts, goals and obstacles.

    Args:
        options: the environment.
        episodes: their number, which is part of what an episode is, see `draw_round_seeds`.
        seed: of starts, goals and obstacles.
        episode: number, from 0, of the only one to play; None plays all.
        device: where the simulation runs.
        robot: the robot of the options, where it exists already.

    Raises:
        ConfigError: a number is out of its range, or the options name something that cannot be
            built.

    Attributes:
        env: the environment of all controllers that were added without another guard setting.
        controllers: by name, in the order in which they were added; the first is the main one.
        summaries: after `play`, by controller, see `Measurement`.
        trajectories: after `play(keep=True)`, by controller.
        robustness: after `play_robustness`, its result.
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
        self.options = options
        self.episodes = require_integer("episodes", episodes, 1, MOST_EPISODES)
        self.seed = require_integer("seed", seed, 0, 2**32 - 1)
        self.episode = episode
        if episode is not None:
            self.episode = require_integer("episode", episode, 0, self.episodes - 1)
        self.device = device
        self._robot = robot
        self._envs: dict[bool, Any] = {}  # by guard setting: an ArmEnv or a GymnasiumEnv
        self.env = self._get_env(options.guard)
        self.controllers: dict[str, Controller] = {}
        self.summaries: dict[str, dict[str, object]] = {}
        self.trajectories: dict[str, Trajectories] = {}
        self.robustness: Robustness | None = None
        self._unstable: dict[str, int] = {}  # by controller

    def add(self, name: str, make: PolicyFactory, guard: bool | None = None) -> None:
        """Add a controller.

        Args:
            name: heading of its column.
            make: makes the policy for an environment.
            guard: act under the guard or not; None: as the options say.

        Raises:
            ConfigError: `make` is something else, such as an agent, or makes something else.
        """
        guard = self.options.guard if guard is None else guard
        env = self._get_env(guard)
        policy = make(env) if callable(make) else make
        if not callable(make) or not callable(policy):
            raise ConfigError(
                "add needs a function from an environment to a policy, such as lambda env: "
                f"agent.select_action; {name!r} gave a {type(policy).__name__}"
            )
        self.controllers[name] = Controller(make, guard, policy, env)

    def add_baseline(self, name: str) -> None:
        """Add random actions or a robot's classical controller; "+guard" puts it under the guard.

        Raises:
            ConfigError: there is no baseline of that name, or it cannot do the task.
        """
        if not self.is_baseline(name):
            raise unknown("baseline", name, self.add_suffix(name, self.baselines))
        plain = name.removesuffix(GUARDED)
        make = self._make_random if plain == RANDOM else lambda env: make_baseline(plain, env)
        self.add(name, make, guard=plain != name)

    @property
    def baselines(self) -> tuple[str, ...]:
        """Names that `add_baseline` takes; not all of these controllers can do every task."""
        return (RANDOM, *BASELINES) if self.options.env is None else (RANDOM,)

    def is_baseline(self, name: str) -> bool:
        """Return whether a name, with or without "+guard", is one of `baselines`."""
        robots = self.options.env is None
        return (name.removesuffix(GUARDED) if robots else name) in self.baselines

    def add_suffix(self, name: str, names: Iterable[str]) -> list[str]:
        """Return the baselines `names`, under the guard where the mistyped `name` has a "+"."""
        suffix = GUARDED if "+" in name and self.options.env is None else ""
        return [each + suffix for each in names]

    def _make_random(self, env: VecEnv) -> Policy:
        return make_random_policy(env, self.seed)

    def play(self, keep: bool = False) -> dict[str, dict[str, object]]:
        """Play and measure every controller; again, with the same results.

        Args:
            keep: keep the trajectories, for `render_report`.

        Returns:
            `summaries`.

        Raises:
            ConfigError: there is no controller, or nothing to keep: no robot.
        """
        requirements.require_controllers("play", self.controllers)
        if keep:
            requirements.require_robot("keep", self.options)
        controllers = self.controllers.items()
        for name, controller in iter_with_progress(
            controllers, "evaluation", len(controllers), "controllers"
        ):
            if name in self.summaries:  # random actions would go on with their stream
                controller = controller._replace(policy=controller.make(controller.env))
            measured = measure_controller(name, controller, self._episode_set, self.options, keep)
            self.summaries[name] = measured.summary
            self._unstable[name] = measured.unstable
            if measured.trajectories is not None:
                self.trajectories[name] = measured.trajectories
        return self.summaries

    def play_robustness(self, episodes: int) -> Robustness:
        """Measure success under latency, noise and servo lag.

        Args:
            episodes: of each controller under each disturbance.

        Returns:
            `robustness`, which `to_dict`, the table and the report then include.
        """
        requirements.require_robot("robustness", self.options)
        requirements.require_controllers("robustness", self.feedback_controllers)
        lagging = self.options.engine != KINEMATIC
        self.robustness = sweep(
            lambda disturbances: self.measure_success(disturbances, episodes), episodes, lagging
        )
        return self.robustness

    def measure_success(self, disturbances: dict[str, float], episodes: int) -> Success:
        """Measure the success rates of all controllers but random actions under disturbances.

        Args:
            disturbances: by field of `Disturbances`; the others are zero.
            episodes: number of episodes, all of which are played.
        """
        requirements.require_robot("measure_success", self.options)
        undisturbed = {name: getattr(EnvOptions, name) for name in DISTURBANCES}
        undisturbed["randomize"] = NOTHING
        options = dataclasses.replace(self.options, **undisturbed | disturbances)
        other = Evaluation(options, episodes, self.seed, device=self.device, robot=self.env.robot)
        for name in self.feedback_controllers:
            other.add(name, self.controllers[name].make, self.controllers[name].guard)
        return {
            name: measure_success_rate(name, controller, other._episode_set)
            for name, controller in other.controllers.items()
        }

    def make_copies(self) -> dict[str, tuple[Policy, Any]]:
        """Make a copy of every controller but random actions, see `make_copy`."""
        return {name: self.make_copy(name) for name in self.feedback_controllers}

    def make_copy(self, name: str, num_envs: int = 1) -> tuple[Policy, Any]:
        """Make a controller's policy and environment again, for new episodes.

        For a chosen episode it has all arms of the round, among which `place` finds it.
        """
        if name not in self.controllers:
            raise unknown("controller", name, self.controllers)
        make, guard, *_ = self.controllers[name]
        env = self._make_env(guard, num_envs if self.episode is None else self._num_envs)
        return make(env), env

    @property
    def place(self) -> tuple[int, int]:
        """The seed with which a copy is reset, and the arm that then plays the chosen episode.

        An episode is played with all of its round: measurement noise is one stream of all arms.
        """
        number, row = self._episode_set.chosen_place
        if number is None:
            return self.seed, row
        return draw_round_seeds(self.env, self.episodes, self.seed)[number], row

    def make_dataset_env(self, transitions: int) -> Any:
        """Make an environment to record that many transitions in, with whole episodes per copy."""
        longest = self.env.horizon or transitions
        num_envs = max(1, min(self._num_envs, transitions // longest))
        return self._make_env(self.options.guard, num_envs)

    def compare_with_random(self) -> dict[str, Rollout]:
        """Play one episode with the first controller and the same one with random actions."""
        requirements.require_controllers("compare_with_random", self.controllers)
        first = next(iter(self.controllers))
        policy, env = self.make_copy(first)
        policies = {first: policy, RANDOM: self._make_random(env)}
        seed, row = self.place
        return {
            name: play_seeded(policy, env, seed).select(row) for name, policy in policies.items()
        }

    @property
    def action_names(self) -> list[str] | None:
        """Names of the action's elements; None for a Gymnasium environment."""
        if self.options.env is not None:
            return None
        joints = [f"joint {number}" for number in range(1, self.env.robot.n + 1)]
        return joints + ["gripper"] * (self.env.a_dim - self.env.robot.n)

    @property
    def _conditions(self) -> dict[str, bool | str | float]:
        """All that differs from undisturbed arms without a guard, for any of the controllers."""
        guarded = any(controller.guard for controller in self.controllers.values())
        stops = {"guard_stops": True} if guarded and self.options.guard_stops else {}
        return stops | self.options.conditions

    def __str__(self) -> str:
        which = f"{self.episodes} episodes" if self.episode is None else f"episode {self.episode}"
        words = {"guard": "guarded", "guard_stops": "stops kept", "sparse": "sparse"}
        conditions = (
            words.get(name) or f"{name} {format_condition(value)}"
            for name, value in self._conditions.items()
        )
        return ", ".join((self.options.name, *conditions, which, f"seed {self.seed}"))

    def to_dict(self) -> dict[str, object]:
        """Return conditions and results as plain values for JSON.

        docs/reference/metrics.md names them.
        """
        requirements.require_played("to_dict", self.summaries)
        results: dict[str, object] = {**self.options.metadata, "episodes": self.episodes}
        results["seed"] = self.seed
        if self.episode is not None:
            results |= {"episode": self.episode, "of_episodes": self.episodes}
        results |= self._conditions
        if self.options.engine != KINEMATIC:
            results["unstable"] = self.unstable
        first, *others = self.summaries
        results |= self.summaries[first]
        results["baselines"] = {name: self.summaries[name] for name in others}
        if self.robustness is not None:
            results["robustness"] = self.robustness.to_dict()
        return results

    def print_table(self) -> None:
        """Print the figures of all controllers next to each other, after `play`."""
        requirements.require_played("print_table", self.summaries)
        print_rows("", list(self.summaries), make_rows(self.summaries, self._measures))
        engines = [getattr(env, "engine", None) for env in self._envs.values()]
        if failures := describe_failures(engines):
            print(failures)
        if self.robustness is not None:
            title = f"success rate [%] of {self.robustness.episodes:,} episodes"
            print_rows(title, self.robustness.controllers, self.robustness.iter_rows())

    def render_report(
        self,
        facts: dict[str, str],
        curve: Sequence[dict[str, float]],
        replay: Callable[[int], str],
        run: ArmRun | None = None,
    ) -> str:
        """Render the report as one HTML page, after `play(keep=True)`.

        Args:
            facts: how it was measured, beside what is known here.
            curve, replay, run: see `report.Report`.
        """
        requirements.require_robot("report", self.options)
        requirements.require_played("render_report", self.trajectories, "play(keep=True)")
        known = {"episodes": f"{self.episodes:,}, seed {self.seed}, {self.device}", "guard": "off"}
        for name, value in self._conditions.items():
            known[name.replace("_", " ")] = format_condition(value)
        untouched = ", and no contact before" if self.env.world.collision is not None else ""
        known["success"] = f"{self.env.task.criterion}{untouched}"
        report = Report(
            f"{self.options.robot}: {self.options.task}",
            known | facts,
            self.env,
            self.summaries,
            self.trajectories,
            curve,
            replay,
            self.robustness,
            run,
        )
        return render_page(report)

    @property
    def feedback_controllers(self) -> list[str]:
        """Names of all controllers but random actions."""
        return [name for name in self.controllers if name.removesuffix(GUARDED) != RANDOM]

    @property
    def unstable(self) -> int:
        """Number of failures of the MuJoCo engine in these episodes, over all controllers."""
        return sum(self._unstable.values())

    @property
    def _measures(self) -> Sequence[Measure]:
        return self.env.task.measures if self.options.env is None else ()

    def _get_env(self, guard: bool) -> Any:
        """Return the environment of the episodes for a guard setting."""
        if guard not in self._envs:
            self._envs[guard] = self._make_env(guard, self._num_envs, self._robot)
        return self._envs[guard]

    @property
    def _episode_set(self) -> EpisodeSet:
        return EpisodeSet(self.episodes, self.seed, self.episode, self._num_envs)

    @property
    def _num_envs(self) -> int:
        return min(self.episodes, ROUND if self.options.env is None else GYMNASIUM_ROUND)

    def _make_env(self, guard: bool, num_envs: int, robot: Robot | None = None) -> Any:
        options = dataclasses.replace(self.options, guard=guard)
        return make_from_config(options, num_envs, self.device, self.seed, robot=robot)
