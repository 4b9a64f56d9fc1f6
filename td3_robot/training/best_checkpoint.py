"""The best policy of a run, which the run folder holds, and its score."""

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from td3_robot import checkpoint
from td3_robot.errors import CheckpointError
from td3_robot.td3.agent import TD3
from td3_robot.utils.communicator import SINGLE_PROCESS, Communicator

_NONE = (-math.inf, -math.inf)


class BestCheckpoint:
    """The best policy so far; of several processes that train together, process 0 writes it.

    Args:
        folder: the run folder.
        metadata: where the policy learned, for its checkpoint.
        communicator: of the processes that train together.

    Attributes:
        score: success rate, 0 where the environment does not have one, and return; minus infinity
            before the first.
        figures: those of them that are known, by name.
        steps: of the run when it was evaluated; None before, and for older resume points.
        actor_trained: whether its actor was updated, here or where the run starts from. Before, it
            is as it was made, for example a controller that it is to correct.
    """

    def __init__(
        self,
        folder: Path,
        metadata: Mapping[str, object],
        communicator: Communicator = SINGLE_PROCESS,
    ):
        self._folder = folder
        self._metadata = metadata
        self._communicator = communicator
        self.score = _NONE
        self.figures: dict[str, float] = {}
        self.steps: int | None = None
        self.actor_trained = False
        self._unwritten: tuple[dict[str, dict], dict[str, object]] | None = None

    def judge(
        self, metrics: dict[str, float], actor_trained: bool, steps: int | None = None
    ) -> bool:
        """Return whether these are the scores of a better policy than all before, and adopt them
        if so.

        A trained actor is better than any that is not, and stays trained, also where a resume
        raises `burn_in`. A return that is NaN or infinite is worse than all others; where there is
        no return at all, the newest policy is the best.
        """
        actor_trained |= self.actor_trained
        is_scored = math.isfinite(metrics.get("episode_return", math.nan))
        score = _NONE
        if is_scored:
            score = (metrics.get("success_rate", 0.0), metrics["episode_return"])
        better = actor_trained > self.actor_trained or score > self.score or self.score == _NONE
        if better:
            names = ("success_rate", "episode_return") if is_scored else ()
            self.actor_trained = actor_trained
            self.score = score
            self.steps = steps
            self.figures = {name: metrics[name] for name in names if name in metrics}
        return better

    def save(self, agent: TD3, notes: dict[str, object]) -> None:
        """Write the agent's policy into the folder, with its score and `notes` as metadata.

        Raises:
            CheckpointError: it cannot be written; `write` tries again.
        """
        metadata = {
            "agent": agent.metadata(),
            "trained_on": self._metadata,
            "score": self.figures,
            "actor_trained": self.actor_trained,
            "steps": self.steps,
            **notes,
        }
        self._unwritten = agent.state_dicts(), metadata
        try:
            self.write()
        except CheckpointError:
            self._unwritten = copy.deepcopy(self._unwritten)  # the agent goes on learning
            raise

    def write(self) -> None:
        """Write what `save` could not write, if anything.

        Raises:
            CheckpointError: it still cannot be written.
        """
        if self._unwritten is not None and self._communicator.rank == 0:
            checkpoint.write(self._folder, *self._unwritten)
        self._unwritten = None

    def load(self, agent: TD3) -> TD3:
        """Return a copy of an agent with the policy that the folder of process 0 holds."""
        states = None
        try:
            if self._communicator.rank == 0:
                states = [checkpoint.read(self._folder)] * self._communicator.size
        finally:  # the others are told of a failure, too
            received = self._communicator.scatter(states)
        best = copy.deepcopy(agent)
        best.load_state_dicts(received)
        return best

    def restore(self, score: list[float], metadata: Mapping[str, Any]) -> None:
        """Take back the score of a resume point, or of the metadata of the folder's checkpoint,
        which may be newer.
        """
        self.figures = dict(metadata.get("score", {}))
        trained = metadata.get("learnt", True)  # the key of older checkpoints, if they have any
        self.actor_trained = bool(metadata.get("actor_trained", trained))
        steps = metadata.get("steps")
        self.steps = None if steps is None else int(steps)
        if self.figures:
            score = [self.figures.get("success_rate", 0.0), self.figures["episode_return"]]
        success_rate, episode_return = map(float, score)
        self.score = success_rate, episode_return
