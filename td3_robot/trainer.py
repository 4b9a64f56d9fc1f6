"""The training loop: collect -> store -> update -> evaluate -> checkpoint."""

import contextlib
import dataclasses
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from td3_robot import checkpoint
from td3_robot.agent import TD3
from td3_robot.collector import Collector
from td3_robot.config import Config
from td3_robot.errors import CheckpointError, NotFiniteError
from td3_robot.evaluation import Policy, evaluate
from td3_robot.offline import Dataset
from td3_robot.schedules import schedule_factor
from td3_robot.states import LARGEST
from td3_robot.tracking import Tracker, write_json
from td3_robot.vec_env import VecEnv

LAST = "last"  # the resume point inside a run folder; the folder itself holds the best policy
_TRAINER_STATE = frozenset(("gradient_steps", "best", "solved_at_s", "wall_s", "target_generator", "source"))
_SEED_OF_PERIODIC, _SEED_OF_FINAL = 1_000_000, 2_000_000  # added to the seed: goals never trained on


class Trainer:
    """One run of TD3 on a VecEnv, or on a dataset with a VecEnv to evaluate in.

    The run folder holds the best policy so far, by success rate, then return, of the periodic evaluation;
    its subfolder `last` holds all that an exact resume needs.

    Every evaluation logs: `env_steps`, `gradient_steps`; `episode_return` and, where the task knows success,
    `success_rate` of the policy without noise on fixed held-out episodes; `Q1_loss`, `Q2_loss`, `Q1`, `actor_loss`,
    means since the last evaluation; `env_steps_per_s`, `updates_per_s` while collecting and learning since then;
    `wall_s` since the process started, earlier sittings of a resumed run included; `left_s`, an estimate of what
    remains.

    Args:
        agent, env: who learns, where.
        evaluation_env: as many environments as an evaluation has episodes.
        config: the resolved configuration.
        folder: the run folder.
        started: `time.perf_counter()` at process start.
        on_step: called after every step of the environments with the steps made, for displays; must be cheap.
        guide: controls `env` in a share of the episodes, see `ExplorationConfig`.

    Attributes:
        source: where batches come from: environments that are explored, or the dataset.
        trackers: what takes the metrics.
    """

    def __init__(
        self,
        agent: TD3,
        env: VecEnv,
        evaluation_env: VecEnv,
        config: Config,
        folder: Path,
        started: float,
        on_step: Sequence[Callable[[int], None]] = (),
        guide: Policy | None = None,
    ):
        self.agent, self.evaluation_env = agent, evaluation_env
        self.config, self.folder, self.on_step = config, folder, on_step
        collects = config.dataset is None
        self.source = Collector(agent, env, config, guide) if collects else Dataset(agent, env.device, config)
        self.trackers: list[Tracker] = []
        self._started = started
        self.solved_at_s: float | None = None
        self.best = (-math.inf, -math.inf)
        self._saved_at = time.perf_counter()
        self._begin_interval()

    # The loop ---------------------------------------------------------------------------------------------

    def run(self) -> dict:
        """Train until `config.steps`, or until Ctrl-C or SIGTERM, which saves the resume point first.

        Returns:
            The summary, as written to `summary.json`; its key `finished` says which of the two it was.

        Raises:
            NotFiniteError: a loss became NaN or infinite; checkpoints stay as they last were good.
        """
        if not self.steps:
            self.agent.save(self.folder)  # from here on the folder is a whole checkpoint
        with _stop_requests() as stop:
            while self.steps < self.config.steps and not stop:
                before = self.steps
                self.source.collect(self.progress)
                if self.source.ready:
                    self._learn()
                for tell in self.on_step:
                    tell(self.steps)
                every = self.config.evaluation.every
                if self.steps // every > before // every:
                    self._evaluate()
                if time.perf_counter() - self._saved_at > self.config.save_every:
                    self.save_resume_point()
        finished = self.steps >= self.config.steps
        if finished and self.steps > self._interval[1]:  # the last steps are not evaluated yet
            self._evaluate()
        self.save_resume_point(with_replay=not finished)
        return self._summarise(finished)

    @property
    def env_steps(self) -> int:
        """Control steps of all environments together; none in offline learning."""
        return self.source.env_steps

    @property
    def steps(self) -> int:
        """What `config.steps` counts: env steps or, learning from a dataset, gradient steps."""
        return self.env_steps if self.config.dataset is None else self.agent.gradient_steps

    @property
    def progress(self) -> float:
        """Share of the run's steps already made."""
        return self.steps / self.config.steps

    def _learn(self) -> None:
        """The gradient steps that follow one step of the environments."""
        schedule = self.config.schedule
        self.agent.scale_learning_rates(schedule_factor(schedule.lr, self.progress, schedule.lr_floor))
        self.source.replay.anneal(self.progress)
        for _ in range(self.config.updates_per_step):
            metrics = self.agent.update(self.source.sample())
            if "td_error" in metrics:
                self.source.replay.update_priorities(metrics.pop("td_error"))
            for name, value in metrics.items():
                total, count = self._losses.get(name, (0.0, 0))
                self._losses[name] = (total + value, count + 1)

    # Measuring --------------------------------------------------------------------------------------------

    def _begin_interval(self) -> None:
        """Start the sums and clocks that one evaluation reports."""
        self._losses: dict[str, tuple[Tensor, int]] = {}
        self._interval = (time.perf_counter(), self.steps, self.env_steps, self.agent.gradient_steps)

    def _evaluate(self) -> None:
        """Measure the policy, log, and keep it if it is the best so far."""
        began, steps, env_steps, gradient_steps = self._interval
        seconds = time.perf_counter() - began
        self._require_finite()
        losses = {name: float(total / count) for name, (total, count) in self._losses.items()}
        scores = evaluate(self.agent.select_action, self.evaluation_env, self.config.seed + _SEED_OF_PERIODIC)
        metrics = {
            "env_steps": self.env_steps,
            "gradient_steps": self.agent.gradient_steps,
            **scores,
            **{name: losses.get(name, math.nan) for name in ("Q1_loss", "Q2_loss", "Q1", "actor_loss")},
            "env_steps_per_s": (self.env_steps - env_steps) / seconds,
            "updates_per_s": (self.agent.gradient_steps - gradient_steps) / seconds,
            "wall_s": self.wall_s,
            "left_s": max(0, self.config.steps - self.steps) * seconds / (self.steps - steps),
        }
        success_rate = scores.get("success_rate", 0.0)  # not every environment knows success
        if success_rate >= 0.99 and self.solved_at_s is None:
            self.solved_at_s = self.wall_s
        if (score := (success_rate, scores["episode_return"])) > self.best:
            self.best = score
            self.agent.save(self.folder)
        for tracker in self.trackers:
            tracker.log(metrics)
        self._begin_interval()

    def _require_finite(self, replay_rows: Tensor | None = None) -> None:
        """Hold what is about to be reported or saved to finite numbers.

        Raises:
            NotFiniteError: names what is NaN or infinite.
        """
        values = {name: total for name, (total, _) in self._losses.items()}
        for name in ("actor", "Q1", "Q2"):
            weights = torch.cat([weight.detach().flatten() for weight in getattr(self.agent, name).parameters()])
            values[f"a weight of {name}"] = weights.where(weights.abs() <= LARGEST, math.inf)  # as when it is loaded
        if replay_rows is not None:
            values["a transition in the replay"] = replay_rows
        for name, value in values.items():
            if not torch.isfinite(value).all():
                raise NotFiniteError(
                    f"{name} became NaN or infinite by update {self.agent.gradient_steps}; the last good checkpoint "
                    f"is intact in {self.folder}; lower td3.critic_lr or check the reward"
                )

    @property
    def wall_s(self) -> float:
        """Seconds since process start, earlier sittings included."""
        return time.perf_counter() - self._started

    def _summarise(self, finished: bool) -> dict:
        """Measure the best policy on episodes used for nothing else, and write `summary.json`."""
        best = TD3(self.agent.o_dim, self.agent.a_dim, device=self.agent.device, **dataclasses.asdict(self.config.td3))
        best.load(self.folder)
        scores = evaluate(best.select_action, self.evaluation_env, self.config.seed + _SEED_OF_FINAL)
        named = ("robot", "task") if self.config.env is None else ("env",)
        summary = {
            **{name: getattr(self.config, name) for name in named},
            "seed": self.config.seed,
            **scores,
            "env_steps": self.env_steps,
            "gradient_steps": self.agent.gradient_steps,
            "wall_s": self.wall_s,
            "solved_at_s": self.solved_at_s,
            "finished": finished,
        }
        write_json(self.folder / "summary.json", summary)
        return summary

    # Resuming ---------------------------------------------------------------------------------------------

    def save_resume_point(self, with_replay: bool = True) -> None:
        """Write `last`: networks, optimizers and everything else the next step depends on.

        Raises:
            NotFiniteError: the networks diverged; the former resume point stays.
        """
        source = self.source.state_dict(with_replay)
        self._require_finite(source["replay"]["rows"] if source["replay"] else None)
        state = {
            "gradient_steps": self.agent.gradient_steps,
            "best": list(self.best),
            "solved_at_s": self.solved_at_s,
            "wall_s": self.wall_s,
            "target_generator": self.agent.generator.get_state(),
            "source": source,
        }
        checkpoint.write(self.folder / LAST, {**self.agent.state_dicts(), "trainer_state": state})
        self._saved_at = time.perf_counter()

    def resume(self) -> None:
        """Take up where `last` left off. Without a saved replay the policy first collects a new one.

        Raises:
            CheckpointError: there is no resume point, it is damaged, or its networks have other shapes.
            ConfigError: the run had another number of environments.
        """
        if not (self.folder / LAST).is_dir():
            raise CheckpointError(f"run {self.folder.name!r} has no resume point: {self.folder / LAST} does not exist")
        states = checkpoint.read(self.folder / LAST)
        state = states.get("trainer_state", {})
        if missing := sorted(_TRAINER_STATE - state.keys()):
            raise CheckpointError(f"{self.folder / LAST}: trainer_state lacks {', '.join(missing)}")
        self.source.load_state_dict(state["source"])
        self.agent.load_state_dicts(states)
        self.agent.gradient_steps = state["gradient_steps"]
        self.best, self.solved_at_s = tuple(state["best"]), state["solved_at_s"]
        self._started -= state["wall_s"]
        self.agent.generator.set_state(state["target_generator"])
        self._begin_interval()


@contextlib.contextmanager
def _stop_requests() -> Iterator[list]:
    """A list that becomes non-empty at Ctrl-C or SIGTERM, so that a step is never cut in half.

    A second Ctrl-C interrupts at once.
    """
    requests: list[int] = []

    def ask(number: int, frame: object) -> None:
        if requests:
            raise KeyboardInterrupt
        requests.append(number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
