"""Estimate an arm's latency from the commands that it was sent and from its motion.

The estimator of the simulator (envs/simulation/latency_estimator.py) for one arm, in numpy:
candidate latencies predict the measured joint positions, and the better a candidate predicts, the
more it counts.
"""

import numpy as np

from td3_robot.deploy.runtime.latency_compensation import KEPT, LONGEST, LatencyCompensator

LONGEST_CANDIDATE = 0.2  # [s]
SPACING = 0.01  # [s] between candidates
PRIOR = 0.03  # [s] standard deviation of the true latency around the first guess
SIGMA = 0.003  # [rad or m] standard deviation of a joint's motion around its prediction
FINEST = 0.0005  # [rad or m] least of it: noise of encoders does not shrink with the speed
CLIP = 4.0  # [SIGMA] largest error that counts
MEMORY = 20.0  # [nats] of evidence that are remembered
PERIOD = 0.05  # [s] between measurements that are compared
GAP = 4.0  # [PERIOD] without a measurement, after which comparison begins anew
ROUNDING = 1e-6  # [s]


class LatencyEstimator:
    """The latency of one arm; it keeps a compensator's latency up to date.

    Args:
        compensator: records the commands; its latency is the first guess.
        speed: share of full speed at which the arm moves; the errors of predictions are
            proportional to it.
    """

    def __init__(self, compensator: LatencyCompensator, speed: float = 1.0):
        first = compensator.latency
        longest = min(max(LONGEST_CANDIDATE, 2.0 * first), LONGEST)
        self.candidates = np.linspace(0.0, longest, round(longest / SPACING) + 1)
        self.evidence = -0.5 * ((self.candidates - first) / PRIOR) ** 2
        self._sigma = max(speed * SIGMA, FINEST)
        self._compensator = compensator
        self._before: tuple[np.ndarray, np.ndarray, float] | None = None
        compensator.memory = longest + (GAP + 1.0) * PERIOD + KEPT

    @property
    def latency(self) -> float:
        """The estimate [s]."""
        weights = np.exp(self.evidence - self.evidence.max())
        return float(weights @ self.candidates / weights.sum())

    def see(self, q: np.ndarray, qd: np.ndarray, now: float) -> None:
        """Compare a measured state (n,), (n,) with its predictions, once a `PERIOD`.

        Args:
            q: [rad or m]; qd: [rad/s or m/s].
            now: when it came in [s], of the clock of the commands.
        """
        before = self._before
        if before is not None and now - before[2] < PERIOD - ROUNDING:
            return
        self._before = (q, qd, now)
        if before is None or now - before[2] > GAP * PERIOD or not self._compensator.has_sent:
            return
        predicted = self._predict(*before, now)
        error = np.clip((predicted - q) / self._sigma, -CLIP, CLIP)
        is_telling = np.ptp(predicted, 0) > self._sigma  # joints for which candidates differ
        fit = -0.5 * (error**2 * is_telling).sum(1)
        fit = fit - fit.max()
        self.evidence = self.evidence * (MEMORY / (MEMORY - fit.min())) + fit
        self._compensator.latency = self.latency

    def _predict(self, q: np.ndarray, qd: np.ndarray, then: float, now: float) -> np.ndarray:
        """Predict the positions (C, n) now from the state at an earlier time, by each candidate."""
        compensator = self._compensator
        late = self.candidates
        n = len(q)
        span = now - then
        single = span * compensator.rate < 1.5
        lag = late if single else late + 0.5 / compensator.rate  # velocities ramp over a period
        ends = np.concatenate((then - now - lag, -lag))
        start, end = np.split(compensator.integrate(now, ends)[:, :n], 2)
        way = end - start
        if not single:
            return q + way
        return compensator.step(np.tile(q, (len(late), 1)), qd, None, way / span)[0]
