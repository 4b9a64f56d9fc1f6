"""The training loop: collect -> store -> update -> evaluate -> checkpoint."""

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from td3_robot import checkpoint
from td3_robot.agent import TD3
from td3_robot.config import Config
from td3_robot.errors import CheckpointError, ConfigError, NotFiniteError
from td3_robot.evaluation import evaluate
from td3_robot.noise import GaussianNoise
from td3_robot.replay import ReplayBuffer
from td3_robot.schedules import schedule_factor
from td3_robot.tracking import Tracker, write_json
from td3_robot.vec_env import VecEnv

LAST = "last"  # the resume point inside a run folder; the folder itself holds the best policy
_TRAINER_STATE = frozenset(
    "env_steps gradient_steps best solved_at_s wall_s generator target_generator sigmas observation refill_until "
    "env replay".split()
)
_SEED_OF_PERIODIC, _SEED_OF_FINAL = 1_000_000, 2_000_000  # added to the seed: goals never trained on


class Trainer:
    """One run of TD3 on a VecEnv.

    The run folder holds the best policy so far, by success rate, then return, of the periodic evaluation;
    its subfolder `last` holds all that an exact resume needs.

    Every evaluation logs: `env_steps`, `gradient_steps`; `success_rate` and `episode_return` of the policy
    without noise on fixed held-out episodes; `Q1_loss`, `Q2_loss`, `Q1`, `actor_loss`, means since the last
    evaluation; `env_steps_per_s`, `updates_per_s` while collecting and learning since then; `wall_s` since
    the process started, earlier sittings of a resumed run included; `left_s`, an estimate of what remains.

    Args:
        agent, env: who learns, where.
        evaluation_env: as many environments as an evaluation has episodes.
        config: the resolved configuration.
        folder: the run folder.
        started: `time.perf_counter()` at process start.
        on_step: called after every step of the environments with their total, for displays; must be cheap.

    Attributes:
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
    ):
        self.agent, self.env, self.evaluation_env = agent, env, evaluation_env
        self.config, self.folder, self.on_step = config, folder, on_step
        self.trackers: list[Tracker] = []
        self._started = started
        self.env_steps = 0
        self.solved_at_s: float | None = None
        self.best = (-math.inf, -math.inf)
        self.generator = torch.Generator(env.device).manual_seed(config.seed)
        self.replay = ReplayBuffer(config.replay.capacity, env.o_dim, env.a_dim, env.device, self.generator)
        exploration = config.exploration
        self.noise = GaussianNoise((env.num_envs, env.a_dim), exploration.noise, exploration.per_env, self.generator)
        self.observation = env.reset(config.seed)
        self._refill_until = exploration.start_steps
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
        if not self.env_steps:
            self.agent.save(self.folder)  # from here on the folder is a whole checkpoint
        with _stop_requests() as stop:
            while self.env_steps < self.config.steps and not stop:
                self._collect()
                if self.env_steps > self._refill_until:
                    self._learn()
                for tell in self.on_step:
                    tell(self.env_steps)
                if self._due(self.config.evaluation.every):
                    self._evaluate()
                if time.perf_counter() - self._saved_at > self.config.save_every:
                    self.save_resume_point()
        finished = self.env_steps >= self.config.steps
        if finished and self.env_steps > self._interval[1]:  # the last steps are not evaluated yet
            self._evaluate()
        self.save_resume_point(with_replay=not finished)
        return self._summarise(finished)

    def _due(self, every: int) -> bool:
        """Whether the step just made reached a multiple of `every` env steps."""
        return self.env_steps // every > (self.env_steps - self.env.num_envs) // every

    @torch.no_grad()
    def _collect(self) -> None:
        """One step of every environment, kept in the replay."""
        action = self._explore()
        step = self.env.step(action)
        self.replay.add(self.observation, action, step.reward, step.next_observation, step.terminated)
        self.noise.end_episodes(step.terminated | step.truncated)
        self.observation = step.observation
        self.env_steps += self.env.num_envs

    def _explore(self) -> Tensor:
        """Uniformly random actions at first, then the policy's with noise; always inside [-1, 1]."""
        if self.env_steps < self.config.exploration.start_steps:
            shape = (self.env.num_envs, self.env.a_dim)
            return torch.rand(shape, generator=self.generator, device=self.env.device) * 2.0 - 1.0
        action = self.agent.select_action(self.observation)
        return (action + self._noise_factor() * self.noise.sample()).clamp(-1.0, 1.0)

    def _noise_factor(self) -> float:
        schedule = self.config.schedule
        return schedule_factor(schedule.noise, self.progress, schedule.noise_floor)

    @property
    def progress(self) -> float:
        """Share of the run's env steps already made."""
        return self.env_steps / self.config.steps

    def _learn(self) -> None:
        """The gradient steps that follow one step of the environments."""
        schedule = self.config.schedule
        self.agent.scale_learning_rates(schedule_factor(schedule.lr, self.progress, schedule.lr_floor))
        for _ in range(self.config.updates_per_step):
            metrics = self.agent.update(self.replay.sample(self.config.replay.batch_size))
            for name, value in metrics.items():
                total, count = self._losses.get(name, (0.0, 0))
                self._losses[name] = (total + value, count + 1)

    # Measuring --------------------------------------------------------------------------------------------

    def _begin_interval(self) -> None:
        """Start the sums and clocks that one evaluation reports."""
        self._losses: dict[str, tuple[Tensor, int]] = {}
        self._interval = (time.perf_counter(), self.env_steps, self.agent.gradient_steps)

    def _evaluate(self) -> None:
        """Measure the policy, log, and keep it if it is the best so far."""
        began, env_steps, gradient_steps = self._interval
        seconds = time.perf_counter() - began
        self._require_finite()
        losses = {name: float(total / count) for name, (total, count) in self._losses.items()}
        scores = evaluate(self.agent.select_action, self.evaluation_env, self.config.seed + _SEED_OF_PERIODIC)
        speed = (self.env_steps - env_steps) / seconds
        metrics = {
            "env_steps": self.env_steps,
            "gradient_steps": self.agent.gradient_steps,
            **scores,
            **{name: losses.get(name, math.nan) for name in ("Q1_loss", "Q2_loss", "Q1", "actor_loss")},
            "env_steps_per_s": speed,
            "updates_per_s": (self.agent.gradient_steps - gradient_steps) / seconds,
            "wall_s": self.wall_s,
            "left_s": max(0, self.config.steps - self.env_steps) / speed,
        }
        if scores["success_rate"] >= 0.99 and self.solved_at_s is None:
            self.solved_at_s = self.wall_s
        if (score := (scores["success_rate"], scores["episode_return"])) > self.best:
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
            weights = getattr(self.agent, name).parameters()
            values[f"a weight of {name}"] = torch.cat([weight.detach().flatten() for weight in weights])
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
        policy = TD3(self.env.o_dim, self.env.a_dim, device=self.agent.device, hidden=self.config.td3.hidden)
        policy.load(self.folder)
        scores = evaluate(policy.select_action, self.evaluation_env, self.config.seed + _SEED_OF_FINAL)
        summary = {
            "robot": self.config.robot,
            "task": self.config.task,
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
        replay = self.replay.state_dict() if with_replay else None
        self._require_finite(replay["rows"] if replay else None)
        state = {
            "env_steps": self.env_steps,
            "gradient_steps": self.agent.gradient_steps,
            "best": list(self.best),
            "solved_at_s": self.solved_at_s,
            "wall_s": self.wall_s,
            "generator": self.generator.get_state(),
            "target_generator": self.agent.generator.get_state(),
            "sigmas": self.noise.sigmas,
            "observation": self.observation,
            "refill_until": self._refill_until,
            "env": self.env.state_dict(),
            "replay": replay,
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
        states = checkpoint.read(self.folder / LAST, self.agent.device)
        state = states.get("trainer_state", {})
        if missing := sorted(_TRAINER_STATE - state.keys()):
            raise CheckpointError(f"{self.folder / LAST}: trainer_state lacks {', '.join(missing)}")
        if len(state["observation"]) != self.env.num_envs:
            raise ConfigError(f"envs must stay {len(state['observation'])} in a resumed run, got {self.env.num_envs}")
        self.agent.load_state_dicts(states)
        self.env_steps, self.agent.gradient_steps = state["env_steps"], state["gradient_steps"]
        self.best, self.solved_at_s = tuple(state["best"]), state["solved_at_s"]
        self._started -= state["wall_s"]
        self.generator.set_state(state["generator"])
        self.agent.generator.set_state(state["target_generator"])
        device = self.env.device  # the trainer's state comes on the CPU, wherever it was made
        self.noise.sigmas, self.observation = state["sigmas"].to(device), state["observation"].to(device)
        self.env.load_state_dict(state["env"])
        self._refill_until = state["refill_until"]
        if state["replay"] is None:
            self._refill_until = self.env_steps + self.config.exploration.start_steps
        else:
            self.replay.load_state_dict(state["replay"])
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
