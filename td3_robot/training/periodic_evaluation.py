"""Evaluations of a policy during a run, on episodes that the seed fixes and nothing learns from."""

import contextlib
import threading

from td3_robot.evaluation.rollout import evaluate
from td3_robot.td3.agent import TD3
from td3_robot.utils.communicator import SINGLE_PROCESS, Communicator
from td3_robot.utils.seeding import derive_seed
from td3_robot.utils.signals import Stopped
from td3_robot.vec_env import VecEnv

PERIODIC = "evaluation"  # use of the run's seed
FINAL = "final evaluation"


class PeriodicEvaluation:
    """The evaluations of a run; a stop does not wait for their end.

    Args:
        env: as many environments as there are episodes; None for no evaluations.
        seed: of the run or, of several processes that train together, of this one.
        communicator: of these; the scores are the means over the episodes of all.

    Attributes:
        stop: set it, from whatever thread, to end an evaluation after the step it is at.
    """

    def __init__(self, env: VecEnv | None, seed: int, communicator: Communicator = SINGLE_PROCESS):
        self.env = env
        self._communicator = communicator
        self._seed = seed
        self.stop = threading.Event()

    def evaluate(self, agent: TD3, use: str) -> dict[str, float]:
        """Evaluate an agent on the episodes of this use, and return its scores; none without an
        environment.

        Raises:
            Stopped: the run is to end before the episodes are over.
        """
        if self.env is None:
            return {}

        def policy(o):
            if self.stop.is_set():
                raise Stopped
            return agent.select_action(o)

        scores: dict[str, float] | None = None
        with contextlib.suppress(Stopped):
            scores = evaluate(policy, self.env, derive_seed(self._seed, use))
        if any(self._communicator.all_reduce_any(scores is None)) or scores is None:
            raise Stopped
        if self._communicator.size == 1:
            return scores
        everywhere = self._communicator.all_gather_object([self.env.num_envs, scores])
        episodes = sum(count for count, _ in everywhere)
        # success that another process alone has seen reported was none here
        names = max((own for _, own in everywhere), key=len)
        return {
            name: sum(count / episodes * own.get(name, 0.0) for count, own in everywhere)
            for name in names
        }
