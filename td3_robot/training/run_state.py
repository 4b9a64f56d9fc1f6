"""The state of a training, and how it is saved and restored."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from td3_robot import checkpoint
from td3_robot.checkpoint.resume_point import (
    as_checkpoint_errors,
    load_resume_point,
    write_resume_point,
)
from td3_robot.config.run import Config
from td3_robot.data.batch_source import BatchSource
from td3_robot.td3.agent import TD3
from td3_robot.training.best_checkpoint import BestCheckpoint
from td3_robot.training.meters import TrainingMeters
from td3_robot.training.nan_guard import NanGuard
from td3_robot.utils.seeding import get_global_generators, set_global_generators
from td3_robot.vec_env import restore_generator


class RunState:
    """Everything that the next step of a run depends on, and its counters and clocks.

    Args:
        agent, source, config, folder, metadata: as for `Trainer`.
        started: `time.perf_counter()` at process start.

    Attributes:
        best: the best policy so far.
        meters: losses and speeds since the last evaluation.
        nan_guard: checks what is saved.
        solved_at_s: seconds at the first evaluation at or above 99% success; None before.
        saved_steps: `steps` of the newest resume point.
    """

    def __init__(
        self,
        agent: TD3,
        source: BatchSource,
        config: Config,
        folder: Path,
        metadata: Mapping[str, object],
        started: float,
    ):
        self._agent = agent
        self._source = source
        self._config = config
        self._folder = folder
        self._metadata = metadata
        self._started = started
        self._communicator = agent.communicator
        self.best = BestCheckpoint(folder, metadata, self._communicator)
        self.nan_guard = NanGuard(agent, folder)
        self.solved_at_s: float | None = None
        self.saved_steps = 0
        self.reset_meters()

    @property
    def env_steps(self) -> int:
        """Control steps of all environments of all processes; none in offline learning."""
        return self._source.env_steps * self._communicator.size

    @property
    def steps(self) -> int:
        """The count of `config.steps`: env steps or, with a dataset, gradient steps."""
        return self.env_steps if self._config.dataset is None else self._agent.gradient_steps

    @property
    def counters(self) -> tuple[int, int, int]:
        """`steps`, `env_steps` and gradient steps."""
        return self.steps, self.env_steps, self._agent.gradient_steps

    @property
    def actor_trained(self) -> bool:
        """True once the actor has been updated, here or where the run starts from."""
        return self._agent.actor_trained or self._config.start_from is not None

    @property
    def wall_s(self) -> float:
        """Seconds since process start, earlier sessions included."""
        return time.perf_counter() - self._started

    @property
    def logged_steps(self) -> int:
        """`steps` of the newest row that was logged; a resumed run writes later ones again."""
        return self.meters.steps

    def reset_meters(self) -> None:
        """Start to measure from here."""
        self.meters = TrainingMeters(*self.counters)

    def gather(self, with_replay: bool = True) -> list[dict[str, Any]] | None:
        """Return, in process 0, what each process alone knows of the next step; None elsewhere.

        Raises:
            NotFiniteError: the networks diverged.
        """
        own = {
            "source": self._source.state_dict(with_replay),
            "target_generator": self._agent.generator.get_state(),
            "interval": self.meters.state_dict(),
            "global_generators": get_global_generators(),
        }
        gathered = self._communicator.gather(own)
        replay = own["source"].get("replay")
        rows = {"a transition in the replay": replay["rows"]} if replay else {}
        self.nan_guard.require_finite(self.meters.totals | rows)
        return gathered

    def write(self, gathered: list[dict[str, Any]] | None) -> None:
        """Write the resume point `last`, in process 0, with what `gather` returned.

        Raises:
            CheckpointError: it cannot be written; the former one stays.
        """
        if gathered is not None:
            state = {
                **gathered[0],
                "gradient_steps": self._agent.gradient_steps,
                "actor_trained": self._agent.actor_trained,
                "best": list(self.best.score),
                "solved_at_s": self.solved_at_s,
                "wall_s": self.wall_s,
            }
            if len(gathered) > 1:
                state["source"] = {"ranks": gathered}
            states = {**self._agent.state_dicts(), "trainer_state": state}
            metadata = {"agent": self._agent.metadata(), "trained_on": self._metadata}
            metadata |= {"actor_trained": self.actor_trained, **self._source.metadata()}
            write_resume_point(self._folder, states, metadata)
        self.saved_steps = self.steps

    def load(self) -> list[str]:
        """Continue from the resume point in the folder of process 0; see `Trainer.resume`."""
        parts = None
        try:
            parts = self._read() if self._communicator.rank == 0 else None
        finally:  # the others are told of a failure, too
            part = self._communicator.scatter(parts)
        states, state, metadata = part
        with as_checkpoint_errors(self._folder):
            lost = self._source.load_state_dict(state["source"])
            self._agent.load_state_dicts(states)
            self._agent.gradient_steps = state["gradient_steps"]
            self.best.restore(state["best"], metadata)
            # older resume points do not tell
            trained = state.get("actor_trained", self.best.actor_trained)
            self._agent.actor_trained = bool(trained)
            self.solved_at_s = state["solved_at_s"]
            self._started -= state["wall_s"]
            restore_generator(self._agent.generator, state["target_generator"])
            if generators := state.get("global_generators"):  # older resume points have none
                set_global_generators(generators)
            self.reset_meters()
            if meters := state.get("interval"):  # older resume points have none
                self.meters = TrainingMeters.from_state(meters, self._agent.device)
            if state.get("begun"):  # older runs could evaluate while they trained
                steps = self.meters.steps
                lost = [*lost, f"the evaluation at step {steps} was not over and has no row"]
        self.saved_steps = self.steps
        return lost

    def _read(self) -> list[list[Any]]:
        """Return for each process the networks, its trainer state and the best one's metadata."""
        size = self._communicator.size
        states, state = load_resume_point(self._folder, size)
        metadata = checkpoint.load(self._folder, names=()).metadata
        if size == 1:
            return [[states, state, metadata]]
        del states["trainer_state"]
        # older resume points have the meters of process 0 alone
        with as_checkpoint_errors(self._folder):
            owns = [
                {**own, "interval": own.get("interval") or state.get("interval")}
                for own in state["source"]["ranks"]
            ]
        return [[states, {**state, **own}, metadata] for own in owns]
