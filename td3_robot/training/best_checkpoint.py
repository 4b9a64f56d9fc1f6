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
        about: what a checkpoint says of where it learned.

    Attributes:
        score: success rate, 0 where the environment tells none, and return; minus infinity before
            the first.
        figures: those of them that are known, by name.
        learnt: whether its actor has. Before, it is what it was made as, a controller that it is to
            correct for one.
    """

    def __init__(self, folder: Path, about: Mapping[str, object]):
        self._folder, self._about = folder, about
        self.score = _NONE
        self.figures: dict[str, float] = {}
        self.learnt = False
        self._waiting: tuple[dict[str, dict], dict[str, object]] | None = None  # to be written

    def judge(self, metrics: dict[str, float], learnt: bool) -> bool:
        """Whether these are the scores of a better policy than all before, which then counts as the
        best.

        One that has learnt is better than any that has not. A return that is no number is worse
        than all others; where there is none at all, the newest policy is the best.
        """
        known = math.isfinite(metrics.get("episode_return", math.nan))
        score = (metrics.get("success_rate", 0.0), metrics["episode_return"]) if known else _NONE
        better = (
            learnt > self.learnt
            or learnt == self.learnt
            and (score > self.score or self.score == _NONE)
        )
        if better:
            names = ("success_rate", "episode_return") if known else ()
            self.learnt, self.score, self.figures = (
                learnt,
                score,
                {name: metrics[name] for name in names if name in metrics},
            )
        return better

    def save(self, agent: TD3, more: dict[str, object]) -> None:
        """Make the agent's policy the one that the folder holds, with its score and `more` to be
        known of it.

        Raises:
            CheckpointError: it cannot be written; it waits for `catch_up`.
        """
        about = {
            "agent": agent.about(),
            "trained_on": self._about,
            "score": self.figures,
            "learnt": self.learnt,
            **more,
        }
        self._waiting = agent.state_dicts(), about
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
        about = checkpoint.load(self._folder, names=()).about
        self.figures, self.learnt = (
            about.get("score", {}),
            bool(about.get("learnt", True)),
        )  # older ones do not say
        if self.figures:
            saved = [self.figures.get("success_rate", 0.0), self.figures["episode_return"]]
        success_rate, episode_return = map(float, saved)
        self.score = success_rate, episode_return
