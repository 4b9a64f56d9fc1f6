"""What judges a policy during a run: episodes that the seed fixes and that nothing is learnt from."""

import threading

from td3_robot.agent import TD3
from td3_robot.evaluation import evaluate
from td3_robot.seeds import seed_of
from td3_robot.signals import Stopped
from td3_robot.vec_env import VecEnv


class Examination:
    """Plays a policy; a stop does not wait for the end.

    Args:
        env: as many environments as there are episodes; None for none.
        seed: of the run.

    Attributes:
        asked: set, from whatever thread, to end it after the step it is at.
    """

    def __init__(self, env: VecEnv | None, seed: int):
        self.env, self._seed = env, seed
        self.asked = threading.Event()

    def scores(self, agent: TD3, use: str) -> dict[str, float]:
        """Those of `evaluate`, on the episodes of this use; none without an environment.

        Raises:
            Stopped: the run is to end before they are over.
        """
        if self.env is None:
            return {}

        def policy(o):
            if self.asked.is_set():
                raise Stopped
            return agent.select_action(o)

        return evaluate(policy, self.env, seed_of(self._seed, use))
