"""Solver of many small quadratic programmes, one for each arm."""

import numpy as np
import torch
from torch import Tensor

from envs.controllers.halfspaces import Bounds, HalfSpaces
from td3_robot.errors import missing_package


class QuadraticSolver:
    """Solver of small strictly convex programmes by quadprog.

    Goldfarb & Idnani, "A numerically stable dual method for solving strictly convex quadratic
    programs", Mathematical Programming 27, 1983.

    Raises:
        ConfigError: the packages are not installed.
    """

    def __init__(self):
        try:
            import quadprog  # noqa: F401  # what qpsolvers calls
            from qpsolvers import solve_qp
        except ImportError as error:
            raise missing_package("baseline neo", error.name) from error
        self._solve_qp = solve_qp

    def solve(self, P: Tensor, c: Tensor, spaces: HalfSpaces, bounds: Bounds) -> Tensor:
        """Return the x inside half-spaces and bounds that minimises x^T P x / 2 + c^T x.

        Args:
            P: (B, n, n) positive definite; c: (B, n).

        Returns:
            (B, n); zeros in rows whose conditions contradict each other. All in float64 on the
            CPU.
        """
        x = -torch.linalg.solve(P, c[:, :, None])[:, :, 0]
        one = torch.eye(x.shape[1], dtype=x.dtype).expand_as(P)
        lower, upper = bounds
        G = torch.cat((spaces.G, one, -one), 1)
        h = torch.cat((spaces.h, upper, -lower), 1)
        met = ((G @ x[:, :, None])[:, :, 0] <= h).all(1)  # the unconstrained minimum is the answer
        left = (~met).nonzero().squeeze(1)
        if len(left):
            parts = (part[left].numpy() for part in (P, c, G, h, h.isfinite()))
            x[left] = torch.from_numpy(np.stack([self._solve_one(*row) for row in zip(*parts)]))
        return x

    def _solve_one(
        self, P: np.ndarray, c: np.ndarray, G: np.ndarray, h: np.ndarray, counts: np.ndarray
    ) -> np.ndarray:
        x = self._solve_qp(P, c, G[counts], h[counts], solver="quadprog")
        return np.zeros_like(c) if x is None else x
