"""A run as it was when an evaluation of its policy began: what becomes its row as soon as the
scores are there.
"""

import copy
import json
from dataclasses import dataclass
from typing import Any

from td3_robot.evaluation.periodic import PendingEvaluation, PeriodicEvaluation
from td3_robot.td3.agent import TD3
from td3_robot.training.callbacks import Run


@dataclass(frozen=True)
class Evaluated:
    """What a row and a checkpoint say of that moment.

    Attributes:
        pending: the evaluation.
        steps, env_steps: where the run was.
        since: its `steps` at the evaluation before.
        figures: what was measured besides, by name.
        metadata: what a checkpoint is to say of where the policy learned.
    """

    pending: PendingEvaluation
    steps: int
    env_steps: int
    since: int
    figures: dict[str, float]
    metadata: dict[str, object]

    def metrics(self) -> dict[str, float]:
        """The row but for its clock; waits for the scores.

        Raises:
            Stopped: the run is to end before they are there.
        """
        counters = {
            "env_steps": self.env_steps,
            "gradient_steps": self.pending.agent.gradient_steps,
        }
        return {**counters, **self.pending.scores(), **self.figures}

    def seen(self, run: Run) -> Any:
        """The run as a callback is to see it, a `Run`: agent and counters are those of the
        evaluation.
        """
        return _Seen(self, run)

    def state_dict(self) -> dict[str, Any]:
        """All that `of` needs, as tensors and plain values."""
        agent = self.pending.agent
        counters = [self.steps, self.env_steps, self.since, agent.gradient_steps]
        return {
            "agent": agent.state_dicts(),
            "at": counters,
            "figures": self.figures,
            "metadata": self.metadata,
        }

    @classmethod
    def of(cls, state: dict[str, Any], agent: TD3, periodic: PeriodicEvaluation) -> "Evaluated":
        """What `state_dict` was of; it is evaluated anew.

        Args:
            state: what it gave.
            agent: a like of which is judged; itself it stays as it is.
            periodic: of the run.

        Raises:
            CheckpointError, LookupError, TypeError, ValueError: it was not of an evaluation of such
                an agent.
        """
        judged = copy.deepcopy(agent)
        judged.load_state_dicts(state["agent"])
        steps, env_steps, since, judged.gradient_steps = map(int, state["at"])
        figures = {str(name): float(figure) for name, figure in state["figures"].items()}
        metadata = state["metadata"] if "metadata" in state else state["about"]  # of an older run
        metadata = json.loads(json.dumps(metadata))  # as a checkpoint will have it
        return cls(periodic.anew(judged), steps, env_steps, since, figures, metadata)


class _Seen:
    def __init__(self, evaluated: Evaluated, run: Run):
        self._run, self.agent = run, evaluated.pending.agent
        self.steps, self.env_steps = evaluated.steps, evaluated.env_steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)  # all else is of now
