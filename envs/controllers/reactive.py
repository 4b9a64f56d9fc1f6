"""Reactive controller for many arms: moves to the goal around near obstacles, without a plan.

It solves the quadratic programme of NEO (Haviland & Corke, "NEO: A Novel Expeditious Optimisation
Algorithm for Reactive Motion Control of Manipulators", IEEE Robotics and Automation Letters 6(2),
2021) without its manipulability, approximately, in a fixed number of operations and without a
solver: fast enough for its action to be part of an observation.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from envs.collision import Nearest
from envs.controllers.controlled import Controlled, Surroundings
from envs.controllers.halfspaces import (
    Damper,
    HalfSpaces,
    make_distance_dampers,
    make_joint_dampers,
    project_hildreth,
)
from envs.controllers.servo import compute_pose_error, compute_tcp_velocity
from envs.kinematics.least_squares import damped_inverse, multiply_small
from envs.simulation.engine import SimModel
from envs.world import Moment

# Error below which the weight of the slack does not grow, for the conditioning [m + rad].
LEAST_ERROR = 1e-4


@dataclass(frozen=True)
class ReactiveConstants:
    """The constants of the controller; dampers are defined in envs/controllers/halfspaces.py.

    Attributes:
        gain: TCP speed per distance [1/s].
        effort: cost of joint speed, lambda_q.
        joint_damper: of each joint to its limits [rad, rad/s], see `make_joint_dampers`.
        obstacle_damper: of each link to obstacles and the ground [m, m/s].
        self_damper: of the arm to itself [m, m/s].
    """

    gain: float = 8.0
    effort: float = 0.01
    joint_damper: Damper = (0.05, 0.9, 1.0)
    obstacle_damper: Damper = (0.02, 0.3, 1.0)
    self_damper: Damper = (0.01, 0.1, 1.0)


DEFAULTS = ReactiveConstants()


def compute_reactive_velocity(
    model: SimModel,
    moment: Moment,
    near: Nearest,
    constants: ReactiveConstants = DEFAULTS,
    sweeps: int = 4,
) -> Tensor:
    """Compute joint velocities towards the goal inside dampers, see `solve_with_dampers`.

    Joint limits come last, by clamping.

    Args:
        near: distances of the arms.

    Returns:
        (B, n) [rad/s or m/s], inside the speed limits.
    """
    error = compute_pose_error(moment)
    velocity = compute_tcp_velocity(moment, constants.gain)
    dampers = make_distance_dampers(
        near, constants.obstacle_damper, constants.self_damper, model.qdlim
    )
    qd = solve_with_dampers(
        moment.J[:, : error.shape[1]], error, velocity, dampers, constants.effort, sweeps
    )
    return qd.clamp(
        *make_joint_dampers(
            moment.state.q, model.qlim, model.qdlim, constants.joint_damper, model.chain
        )
    )


def solve_with_dampers(
    J: Tensor, error: Tensor, velocity: Tensor, dampers: HalfSpaces, effort: float, sweeps: int
) -> Tensor:
    """Compute the joint velocities inside half-spaces that move the TCP as wanted.

    Over qd and a slack s that lets the TCP leave its straight line, with e the sum of the absolute
    errors:

        minimise    effort/2 |qd|^2 + 1/(2 e) |s|^2
        subject to  J qd + s = velocity
                    G qd <= h, the dampers

    Without dampers that is damped least squares, J^T M velocity with M = (J J^T + effort e I)^-1. A
    damper moves it along F g with F = I - J^T M J, mostly motion that leaves the TCP alone, by a
    distance that `project_hildreth` finds.

    Args:
        J: (B, m, n) rows of the Jacobians that belong to the error.
        error: (B, m) to the goal [m or rad].
        velocity: (B, m) wanted velocity of the TCP [m/s or rad/s].
        dampers: half-spaces of the distances.

    Returns:
        (B, n) [rad/s or m/s].
    """
    e = error.abs().sum(1).clamp_min(LEAST_ERROR)
    inverse = damped_inverse(J, (effort * e)[:, None, None])  # (B, n, m)
    qd = (inverse @ velocity[:, :, None])[:, :, 0]
    F = torch.eye(J.shape[2], dtype=J.dtype, device=J.device) - multiply_small(inverse, J)
    return project_hildreth(dampers, qd, F, sweeps)


class Reactive:
    """Damped least squares inside dampers: nearly NEO, for many arms and on any device.

    Args:
        env: the environment to act in; the ground, the arm itself and any obstacles are avoided.
    """

    def __init__(self, env: Controlled):
        self._env = env
        self._surroundings = Surroundings(env)

    def __call__(self, observation: Tensor) -> Tensor:
        """Return the action (B, a_dim) in [-1, 1] for the environment's moment."""
        env = self._env
        return (
            compute_reactive_velocity(env.model, env.moment, self._surroundings()) / env.model.qdlim
        )
