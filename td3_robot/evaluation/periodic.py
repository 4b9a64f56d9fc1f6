"""Evaluations of a policy during a run, on episodes that the seed fixes and nothing learns from."""

import threading

from td3_robot.evaluation.rollout import evaluate
from td3_robot.td3.agent import TD3
from td3_robot.utils.seeding import derive_seed
from td3_robot.utils.signals import Stopped
from td3_robot.vec_env import VecEnv

PERIODIC = "evaluation"  # use of the run's seed
FINAL = "final evaluation"


class PeriodicEvaluation:
    """The evaluations of a run; a stop does not wait for their end.

    Args:
        env: as many environments as there are episodes; None for no evaluations.
        seed: of the run.

    Attributes:
        stop: set it, from whatever thread, to end an evaluation after the step it is at.
    """

    def __init__(self, env: VecEnv | None, seed: int):
        self.env = env
        self._seed = seed
        self.stop = threading.Event()

    def scores(self, agent: TD3, use: str) -> dict[str, float]:
        """Return what `evaluate` measures on the episodes of this use; nothing without an
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

        return evaluate(policy, self.env, derive_seed(self._seed, use))
