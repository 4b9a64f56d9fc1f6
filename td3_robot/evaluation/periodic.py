"""What judges a policy during a run: episodes that the seed fixes and that nothing is learnt
from.
"""

import copy
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from td3_robot.evaluation.process import USE, EvaluationProcess
from td3_robot.evaluation.rollout import evaluate
from td3_robot.td3.agent import TD3
from td3_robot.utils.seeding import seed_of
from td3_robot.utils.signals import Stopped
from td3_robot.vec_env import VecEnv


@dataclass(frozen=True)
class PendingEvaluation:
    """A periodic evaluation that was begun.

    Attributes:
        agent: who is judged, as it was then.
        scores: those of `evaluate`; waits until they are there, and raises `Stopped` where the run
            is to end before.
        over: whether nobody would have to wait.
    """

    agent: TD3
    scores: Callable[[], dict[str, float]]
    over: Callable[[], bool] = lambda: True


class PeriodicEvaluation:
    """Plays a policy; a stop does not wait for the end.

    Args:
        env: as many environments as there are episodes; None for none.
        seed: of the run.
        process: plays the periodic evaluations while the training goes on; without one, each holds
            the training up.

    Attributes:
        asked: set, from whatever thread, to end it after the step it is at.
    """

    def __init__(self, env: VecEnv | None, seed: int, process: EvaluationProcess | None = None):
        self.env, self._seed, self._process = env, seed, process
        self.asked = threading.Event()

    def begin(self, agent: TD3) -> PendingEvaluation:
        """The periodic evaluation of an agent as it is now; where no process is ready, it is over
        when this returns.

        Raises:
            Stopped: see `scores`.
        """
        if self._process is None or not self._process.ready():
            scores = self.scores(agent, USE)
            return PendingEvaluation(agent, lambda: scores)
        judged = copy.deepcopy(agent)
        answer = self._process.begin(judged.policy)
        return PendingEvaluation(judged, lambda: self._told(judged, answer), answer.done)

    def anew(self, agent: TD3) -> PendingEvaluation:
        """One that was cut off, of an agent that stays as it was then; it is played when its scores
        are asked for.
        """
        return PendingEvaluation(agent, lambda: self.scores(agent, USE))

    def _told(self, agent: TD3, answer: Future) -> dict[str, float]:
        """The process's scores, or our own where it is lost, which are the same."""
        told = self._process.scores(answer, self._heed) if self._process else None
        return self.scores(agent, USE) if told is None else told

    def scores(self, agent: TD3, use: str) -> dict[str, float]:
        """Those of `evaluate`, on the episodes of this use; none without an environment.

        Raises:
            Stopped: the run is to end before they are over.
        """
        if self.env is None:
            return {}

        def policy(o):
            self._heed()
            return agent.select_action(o)

        return evaluate(policy, self.env, seed_of(self._seed, use))

    def _heed(self) -> None:
        if self.asked.is_set():
            raise Stopped
