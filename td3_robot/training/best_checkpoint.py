"""The best policy of a run: the one that the run folder holds, and what made it the best."""

import copy
import math
from collections.abc import Mapping
from pathlib import Path

from td3_robot import checkpoint
from td3_robot.errors import CheckpointError
from td3_robot.td3.agent import TD3

_NONE = (-math.inf, -math.inf)


class Best:
    """Which policy is the best so far.

    Args:
        folder: the run folder.
        metadata: what a checkpoint says of where it learned.

    Attributes:
        score: success rate, 0 where the environment tells none, and return; minus infinity before
            the first.
        figures: those of them that are known, by name.
        actor_trained: whether its actor has. Before, it is what it was made as, a controller that it is to
            correct for one.
    """

    def __init__(self, folder: Path, metadata: Mapping[str, object]):
        self._folder, self._metadata = folder, metadata
        self.score = _NONE
        self.figures: dict[str, float] = {}
        self.actor_trained = False
        self._waiting: tuple[dict[str, dict], dict[str, object]] | None = None  # to be written

    def judge(self, metrics: dict[str, float], actor_trained: bool) -> bool:
        """Whether these are the scores of a better policy than all before, which then counts as the
        best.

        One that has learnt is better than any that has not. A return that is no number is worse
        than all others; where there is none at all, the newest policy is the best.
        """
        known = math.isfinite(metrics.get("episode_return", math.nan))
        score = (metrics.get("success_rate", 0.0), metrics["episode_return"]) if known else _NONE
        better = (
            actor_trained > self.actor_trained
            or actor_trained == self.actor_trained
            and (score > self.score or self.score == _NONE)
        )
        if better:
            names = ("success_rate", "episode_return") if known else ()
            self.actor_trained = actor_trained
            self.score = score
            self.figures = {name: metrics[name] for name in names if name in metrics}
        return better

    def save(self, agent: TD3, more: dict[str, object]) -> None:
        """Make the agent's policy the one that the folder holds, with its score and `more` to be
        known of it.

        Raises:
            CheckpointError: it cannot be written; it waits for `catch_up`.
        """
        metadata = {
            "agent": agent.metadata(),
            "trained_on": self._metadata,
            "score": self.figures,
            "actor_trained": self.actor_trained,
            **more,
        }
        self._waiting = agent.state_dicts(), metadata
        try:
            self.catch_up()
        except CheckpointError:
            self._waiting = copy.deepcopy(self._waiting)  # the agent learns on
            raise

    def catch_up(self) -> None:
        """Write what could not be written before.

        Raises:
            CheckpointError: it still cannot be.
        """
        if self._waiting is not None:
            checkpoint.write(self._folder, *self._waiting)
            self._waiting = None

    def policy(self, like: TD3) -> TD3:
        """The policy that the folder holds, as a copy of an agent."""
        best = copy.deepcopy(like)
        best.load(self._folder)
        return best

    def recall(self, saved: list[float]) -> None:
        """Take the score of what the folder holds, which may have been found after `saved` was,
        with a resume point.
        """
        metadata = checkpoint.load(self._folder, names=()).metadata
        self.figures = metadata.get("score", {})
        trained = metadata.get("learnt", True)  # the key of older ones, if they have any
        self.actor_trained = bool(metadata.get("actor_trained", trained))
        if self.figures:
            saved = [self.figures.get("success_rate", 0.0), self.figures["episode_return"]]
        success_rate, episode_return = map(float, saved)
        self.score = success_rate, episode_return
