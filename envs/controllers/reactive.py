"""A reactive controller for many arms at once: to a goal by what is near now, without a plan.

It solves the quadratic programme of NEO (Haviland & Corke, "NEO: A Novel Expeditious Optimisation Algorithm for
Reactive Motion Control of Manipulators", IEEE Robotics and Automation Letters 6(2), 2021) without its manipulability,
nearly, in a fixed number of operations and without a solver: fast enough for a policy to be shown what it says at every
step.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from envs.collision import Nearest
from envs.controllers.controlled import Controlled
from envs.controllers.servo import pose_error, wanted_velocity
from envs.simulation.kinematic import SimModel
from envs.world import Moment

LEAST_ERROR = 1e-4  # [m + rad] the weight of the slack grows no further: keeps the programme well conditioned
_LEAST_EFFECT = 1e-9  # a distance that joint motion off the goal's directions changes by less is left alone


@dataclass(frozen=True)
class ReactiveConstants:
    """The constants of the controller.

    A damper (stop, influence, gain) holds a distance d: once below `influence`, it may fall at no more than
    gain (d - stop) / (influence - stop), so that it never falls below `stop`.

    Attributes:
        gain: TCP speed per distance [1/s].
        effort: cost of joint speed, lambda_q.
        joint_damper: of each joint to its limits [rad or m, and rad/s or m/s].
        obstacle_damper: of each link to obstacles and the ground [m, m/s].
        self_damper: of the arm to itself [m, m/s].
    """

    gain: float = 8.0
    effort: float = 0.01
    joint_damper: tuple[float, float, float] = (0.05, 0.9, 1.0)
    obstacle_damper: tuple[float, float, float] = (0.02, 0.3, 1.0)
    self_damper: tuple[float, float, float] = (0.01, 0.1, 1.0)


DEFAULTS = ReactiveConstants()


def reactive(
    model: SimModel, moment: Moment, near: Nearest, constants: ReactiveConstants = DEFAULTS, sweeps: int = 4
) -> Tensor:
    """Joint velocities that bring the TCP to its goal, as far as dampers let them; see `behind_dampers`.

    Joint limits come last, by clamping.

    Args:
        near: what the arms are near to.

    Returns:
        (B, n) [rad/s or m/s], inside the speed limits.
    """
    error, velocity = pose_error(moment), wanted_velocity(moment, constants.gain)
    qd = behind_dampers(moment.J[:, : error.shape[1]], error, velocity, near, constants, sweeps)
    return qd.clamp(*speed_bounds(moment.state.q, model.qlim, model.qdlim, constants))


def behind_dampers(
    J: Tensor, error: Tensor, velocity: Tensor, near: Nearest, constants: ReactiveConstants, sweeps: int
) -> Tensor:
    """The joint velocities that move the TCP as wanted, and along which no distance falls faster than its damper lets.

    Over qd and a slack s that lets the TCP leave its straight way, with e the sum of the absolute errors:

        minimise effort/2 |qd|^2 + 1/(2 e) |s|^2   subject to J qd + s = velocity,   dampers a . qd >= b

    Without dampers that is damped least squares, J^T M velocity with M = (J J^T + effort e I)^-1. A damper moves it
    along F a with F = I - J^T M J, mostly such motion as leaves the TCP alone. How far is found for one damper after
    the other, `sweeps` times over (Hildreth, "A quadratic programming procedure", Naval Research Logistics Quarterly
    4, 1957); the more sweeps, the nearer to the optimum.

    Args:
        J: (B, m, n) rows of the Jacobians that belong to the error.
        error: (B, m) what is left to the goal [m or rad].
        velocity: (B, m) wanted of the TCP [m/s or rad/s].
        near: what the arms are near to.

    Returns:
        (B, n) [rad/s or m/s].
    """
    like = {"dtype": J.dtype, "device": J.device}
    e = error.abs().sum(1).clamp_min(LEAST_ERROR)
    damping = (constants.effort * e)[:, None, None] * torch.eye(J.shape[1], **like)
    inverse = J.mT @ torch.linalg.inv(J @ J.mT + damping)  # (B, n, m)
    qd = (inverse @ velocity[:, :, None])[:, :, 0]
    direction = near.gradient @ (torch.eye(J.shape[2], **like) - inverse @ J)
    return _moved(qd, near.gradient, direction, -falling_rates(near.distance, constants), sweeps)


def _moved(qd: Tensor, gradient: Tensor, direction: Tensor, least: Tensor, sweeps: int) -> Tensor:
    """Hildreth's method: qd (B, n) moved along directions (B, L, n) until gradient . qd >= least, (B, L).

    `so_far` is how far it has been moved along each, never less than nothing: where another direction made it
    needless, it is taken back.
    """
    step = direction / (direction * gradient).sum(2, keepdim=True).clamp_min(_LEAST_EFFECT)
    apart = lambda x: x.permute(1, 2, 0).contiguous().unbind(0)  # noqa: E731
    dampers = list(zip(apart(gradient), apart(step), least.T.contiguous().unbind(0)))
    qd, so_far = qd.T.contiguous(), [torch.zeros_like(b) for _, _, b in dampers]
    for _ in range(sweeps):
        for row, (a, along, b) in enumerate(dampers):
            further = torch.maximum(b - (a * qd).sum(0), -so_far[row])
            so_far[row] = so_far[row] + further
            qd = torch.addcmul(qd, further, along)
    return qd.T


def falling_rates(distance: Tensor, constants: ReactiveConstants) -> Tensor:
    """How fast each distance (B, L) [m] of a `Nearest` may fall [m/s]; the last one is the arm's to itself."""
    around, own = damped(distance[:, :-1], *constants.obstacle_damper), damped(distance[:, -1:], *constants.self_damper)
    return torch.cat((around, own), 1)


def speed_bounds(q: Tensor, qlim: Tensor, qdlim: Tensor, constants: ReactiveConstants) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds of qd, each (B, n): the speed limits, and dampers to the position limits."""
    towards = lambda room: torch.minimum(damped(room, *constants.joint_damper), qdlim)  # noqa: E731
    return -towards(q - qlim[0]), towards(qlim[1] - q)


def damped(distance: Tensor, stop: float, influence: float, gain: float) -> Tensor:
    """The speed at which a distance may fall; infinite beyond `influence`. See `ReactiveConstants`.

    Faverjon & Tournassoud, "A local based approach for path planning of manipulators with a high number of degrees of
    freedom", IEEE Int. Conf. Robotics and Automation, 1987.
    """
    speed = gain * (distance - stop) / (influence - stop)
    return torch.where(distance < influence, speed, torch.inf)


class Reactive:
    """Damped least squares behind dampers, see `reactive`: nearly NEO, for many arms at once and on any device.

    Args:
        env: the environment to act in; its obstacles are heeded where its task has any.
    """

    def __init__(self, env: Controlled):
        self._env = env

    def __call__(self, observation: Tensor) -> Tensor:
        """(B, o_dim) -> (B, a_dim) in [-1, 1]; of the observation only the moment matters, not the values."""
        env = self._env
        near = self._nothing() if env.world.collision is None else env.nearest()
        return reactive(env.model, env.moment, near) / env.model.qdlim

    def _nothing(self) -> Nearest:
        q = self._env.moment.state.q
        return Nearest(q.new_full((len(q), 1), torch.inf), q.new_zeros(len(q), 1, q.shape[1]))
