"""Estimate the latency of each arm from the commands that it was sent and from its motion.

At every control step each candidate latency predicts the measured joint positions: the kinematic
engine is stepped from the previous measurement, with the commands that would act under this
latency. The squared error of a prediction is evidence against its candidate. The estimate is the
mean of the candidates, weighted by the softmax of their evidence (a bank of models, see Bar-Shalom,
Li and Kirubarajan, "Estimation with Applications to Tracking and Navigation", 2001, section 11.6).

The motion of an arm at rest does not depend on its latency: all candidates predict the same, and
the evidence stays. So it does for a joint whose predictions differ by less than their errors: a
controller that holds an arm answers to the noise of its encoders, and a prediction without latency
would seem to take that noise back. Old evidence is forgotten only as new evidence arrives. So an
estimate follows a latency that changes within a fraction of a second of motion, and lasts while the
arm pauses.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from envs.simulation import kinematic
from envs.simulation.engine import SimModel, SimState

LONGEST = 0.2  # [s] of the candidates, unless a longer latency is announced
SPACING = 0.01  # [s] between candidates
PRIOR = 0.03  # [s] standard deviation of the true latency around the first guess
SIGMA = 0.003  # [rad or m] standard deviation of a joint's motion around its prediction
CLIP = 4.0  # [SIGMA] largest error that counts: a joint that is held up is not driven away
MEMORY = 20.0  # [nats] of evidence that are remembered


@dataclass(frozen=True)
class LatencyEstimator:
    """A bank of candidate latencies for B arms.

    Args:
        dt: control period [s].
        nominal: the first guess [s].
        longest: of the candidates [s].
    """

    dt: float
    nominal: float
    longest: float = LONGEST

    @property
    def longest_steps(self) -> float:
        """The longest candidate [control steps]."""
        return round(self.longest / self.dt, 9)

    def make_candidates(self, device: torch.device | str) -> Tensor:
        """Return the candidate latencies (C,) [control steps], ascending."""
        count = round(self.longest / SPACING) + 1
        return torch.linspace(0.0, self.longest_steps, count, device=device, dtype=torch.float32)

    def begin(self, count: int, device: torch.device | str) -> Tensor:
        """Return the evidence (count, C) [nats] for arms that have not moved: that of the prior."""
        error = (self.make_candidates(device) * self.dt - self.nominal) / PRIOR
        return (-0.5 * error**2).expand(count, -1).clone()

    def update(
        self, model: SimModel, before: SimState, after: SimState, sent: Tensor, evidence: Tensor
    ) -> Tensor:
        """Return the evidence (B, C) [nats] after one more control step.

        Args:
            model: the arms.
            before: their measured state at the beginning of the step; after: at its end.
            sent: (B, K, a) the latest commands, oldest first, the last one sent at the beginning of
                the step; joints in [-1, 1], then further columns. K is at least 1 + the longest
                candidate.
            evidence: (B, C) before the step.
        """
        acting = mix_commands(sent[..., : before.q.shape[1]], self.make_candidates(sent.device))
        predicted = kinematic.step(model, before, acting).q  # (C, B, n)
        error = ((predicted - after.q) / SIGMA).clamp(-CLIP, CLIP)
        is_telling = predicted.amax(0) - predicted.amin(0) > SIGMA  # joints whose candidates differ
        fit = -0.5 * (error**2 * is_telling).sum(2).T
        fit = fit - fit.amax(1, keepdim=True)
        contrast = -fit.amin(1, keepdim=True)  # between the best and the worst candidate
        return evidence * (MEMORY / (MEMORY + contrast)) + fit

    def estimate(self, evidence: Tensor) -> Tensor:
        """Return the estimated latencies (B,) [control steps] for evidence (B, C)."""
        return torch.softmax(evidence, 1) @ self.make_candidates(evidence.device)


def mix_commands(sent: Tensor, late: Tensor) -> Tensor:
    """Return the mean commands (C, B, n) that act in the period after the last of `sent`.

    Args:
        sent: (B, K, n), oldest first.
        late: (C,) latencies [control steps], at most K - 1.
    """
    whole = late.long()
    last = sent.shape[1] - 1
    newer = sent[:, last - whole]
    older = sent[:, (last - whole - 1).clamp_min(0)]
    return torch.lerp(newer, older, (late - whole)[None, :, None]).transpose(0, 1)
