"""Resolved-rate motion control (RRMC) of the TCP's position or pose."""

from torch import Tensor

from envs.controllers.controlled import Controlled
from envs.controllers.servo import compute_tcp_velocity, has_orientation
from envs.kinematics.least_squares import damped_least_squares


class ResolvedRate:
    """Resolved-rate motion control of the TCP's position, or of its pose if the goal is one.

    The TCP moves straight to the goal at gain times the distance (Whitney, "Resolved motion
    rate control of manipulators and human prostheses", IEEE Trans. Man-Machine Systems 10(2),
    1969), plus the velocity of a goal that moves. Joint velocities come
    from the damped least-squares inverse (Nakamura & Hanafusa, "Inverse kinematic solutions with
    singularity robustness", J. Dyn. Sys. Meas. Control 108(3), 1986), finite in every singularity:

        qd = J^T (J J^T + damping^2 I)^-1 v,        v = gain error + v_goal

    with the three rows of J that move the TCP, or all six. They are scaled down together if one
    exceeds its limit, so that the direction stays.

    The defaults for positions are the fastest of those that always arrive. Panda, reach, 1,000
    episodes of seed 12345, damping 0.1: gains 2 to 20 all reach 100%, in a median time of 1.9 s
    (gain 2), 0.75 s (5), 0.55 s (8), 0.65 s (12) and 0.75 s (20), where the acceleration limits
    make the arm overshoot. At gain 8 damping 0.02 to 0.1 differs by 0.01 s.

    For poses no gain always arrives, and the defaults are the fastest of those within 0.2 points of
    the most. Panda, reach_pose, 1,000 episodes of seed 12345, success [%] and median time of those
    that arrive [s]:

    | gain | damping 0.02 | 0.05 | 0.1 | 0.2 |
    | --- | --- | --- | --- | --- |
    | 2 | 79.3, 1.95 | 78.6, 2.05 | 74.1, 2.40 | 48.2, 3.45 |
    | 3 | 81.1, 1.40 | 81.0, 1.50 | 77.9, 1.75 | 60.8, 2.60 |
    | 5 | 82.7, 1.10 | 83.6, 1.10 | 82.1, 1.30 | 74.3, 1.90 |
    | 8 | 83.8, 1.00 | 84.4, 1.00 | 83.7, 1.10 | 80.1, 1.45 |
    | 12 | 84.0, 1.05 | 84.8, 1.05 | 84.5, 1.05 | 82.7, 1.25 |
    | 16 | | 84.8, 1.10 | | |
    | 24 | | 85.0, 1.25 | | |

    Args:
        env: the environment to act in.
        gain: TCP speed per distance [1/s]; None: 8 for positions, 12 for poses.
        damping: lambda above [m/rad]; None: 0.1 for positions, 0.05 for poses.
    """

    def __init__(self, env: Controlled, gain: float | None = None, damping: float | None = None):
        tuned = (12.0, 0.05) if has_orientation(env.moment) else (8.0, 0.1)
        self._env = env
        self._gain = tuned[0] if gain is None else gain
        self._damping = tuned[1] if damping is None else damping

    def __call__(self, observation: Tensor) -> Tensor:
        """Return the action (B, a_dim) in [-1, 1] for the environment's moment."""
        moment = self._env.moment
        velocity = compute_tcp_velocity(moment, self._gain)
        J = moment.J[:, : velocity.shape[1]]
        action = damped_least_squares(J, velocity, self._damping) / self._env.model.qdlim
        return action / action.abs().amax(1, keepdim=True).clamp_min(1.0)
