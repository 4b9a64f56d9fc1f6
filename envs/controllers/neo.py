"""NEO: a reactive controller that solves a quadratic programme for every arm at every step."""

from dataclasses import dataclass

import torch
from torch import Tensor

from envs.collision import Nearest
from envs.controllers.controlled import Controlled, Surroundings
from envs.controllers.halfspaces import (
    Bounds,
    HalfSpaces,
    make_distance_dampers,
    make_joint_dampers,
)
from envs.controllers.quadratic import QuadraticSolver
from envs.controllers.reactive import LEAST_ERROR, ReactiveConstants
from envs.controllers.servo import compute_pose_error, compute_tcp_velocity
from envs.kinematics.manipulability import manipulability_gradient


@dataclass(frozen=True)
class NeoConstants(ReactiveConstants):
    """The constants of NEO.

    Attributes:
        manipulability: weight of the gradient of the manipulability in the cost.
    """

    manipulability: float = 0.1


class Neo:
    """NEO: avoids obstacles and joint limits on the way to the goal by a quadratic programme (QP).

    Haviland & Corke, "NEO: A Novel Expeditious Optimisation Algorithm for Reactive Motion Control
    of Manipulators", IEEE Robotics and Automation Letters 6(2), 2021,
    https://arxiv.org/abs/2010.08686. Over qd and a slack s that lets the TCP leave its straight
    way:

        minimise   effort/2 |qd|^2 + 1/(2 e) |s|^2 - manipulability dm/dq . qd
        subject to J qd + s = v,   |qd| <= qdlim,   dampers on joint limits and distances

    where v is the wanted velocity of `servo`, e the sum of the absolute errors [m + rad] and m the
    manipulability. For a goal without an orientation, J, v, e and m are those of the position.
    Solved for s, s = v - J qd leaves a strictly convex programme in qd alone. If its conditions
    contradict each other the arm stops.

    Differences from the authors' example, https://github.com/petercorke/robotics-toolbox-python
    examples/neo.py: the rotation error is a rotation vector in the base frame, not roll, pitch and
    yaw in the TCP's; the slack has no bounds; the nearest point of each link to all obstacles makes
    one damper, not one to each obstacle; the arm itself and the ground have dampers too. Constants
    differ where the Panda does better (500 episodes of seed 12345, success and median time of those
    that arrive; the example has gain 0.5, manipulability 1, obstacles stopped at 0.05 m; those of
    reach_pose without dampers to the ground and the arm itself):

    - reach_pose, gain: 4 90.0% in 1.45 s, 6 89.4% in 1.30 s, 8 90.0% in 1.30 s.
    - reach_pose, gain 2, manipulability: 1 79.4%, 0.1 87.8%, 0.01 88.0%, 0 88.0%.
    - reach_pose, gain 8, joint_damper: (0.05, 0.9, 1) 90.0%, (0, 0.9, 1) 90.6%, (0.05, 0.9, 4)
      87.6%, (0.05, 0.9, 0.5) 88.8%, (0, 1.5, 1) 90.8% in 1.75 s; effort 0.001: 90.2% in 1.40 s.
    - reach_avoid, obstacle_damper: (0.05, 0.3, 1) 89.0%, (0.02, 0.3, 1) 94.2%, (0.005, 0.3, 1)
      94.6%, (0.01, 0.2, 1) 92.0%, (0.01, 0.1, 1) 83.8%, (0.01, 0.2, 0.5) 94.6%.

    Args:
        env: the environment to act in; the ground, the arm itself and any obstacles are avoided.
        constants: other than the tuned ones.

    Raises:
        ConfigError: qpsolvers or quadprog is not installed.
    """

    def __init__(self, env: Controlled, constants: NeoConstants | None = None):
        self._env = env
        self._surroundings = Surroundings(env)
        self._constants = constants or NeoConstants()
        self._solver = QuadraticSolver()

    def __call__(self, observation: Tensor) -> Tensor:
        """Return the action (B, a_dim) in [-1, 1] for the environment's moment."""
        qd = self._solver.solve(
            *self._compute_cost(), self._compute_dampers(), self._compute_bounds()
        )
        qdlim = self._env.model.qdlim
        return (qd.to(qdlim) / qdlim).clamp(-1.0, 1.0)  # the clamp only removes rounding

    def _compute_cost(self) -> tuple[Tensor, Tensor]:
        """Return P (B, n, n) and c (B, n) of the cost qd^T P qd / 2 + c^T qd."""
        k = self._constants
        moment = self._env.moment
        error = _double(compute_pose_error(moment))
        v = _double(compute_tcp_velocity(moment, k.gain))
        J = _double(moment.J)
        J_r = J[:, : error.shape[1]]
        slack = 1.0 / error.abs().sum(1).clamp_min(LEAST_ERROR)
        P = slack[:, None, None] * (J_r.mT @ J_r) + k.effort * torch.eye(J.shape[2], dtype=J.dtype)
        pull = slack[:, None] * (J_r.mT @ v[:, :, None])[:, :, 0]
        return P, -pull - k.manipulability * manipulability_gradient(J, error.shape[1])

    def _compute_bounds(self) -> Bounds:
        """Return the speed limits, damped at the position limits."""
        model = self._env.model
        q = self._env.moment.state.q
        damper = self._constants.joint_damper
        chain = model.chain
        return make_joint_dampers(
            _double(q), _double(model.qlim), _double(model.qdlim), damper, chain
        )

    def _compute_dampers(self) -> HalfSpaces:
        """Return the dampers to obstacles, the ground and the arm itself."""
        near = self._surroundings()
        near = Nearest(
            _double(near.distance),
            _double(near.gradient),
            None if near.drift is None else _double(near.drift),
        )
        k = self._constants
        qdlim = _double(self._env.model.qdlim)
        return make_distance_dampers(near, k.obstacle_damper, k.self_damper, qdlim)


def _double(x: Tensor) -> Tensor:
    """Convert to float64 on the CPU, which the solver takes."""
    return x.cpu().double()
