"""A serial arm's poses, for a few configurations together.

T_be(q) = A_0 J(q_0) A_1 J(q_1) ... A_n, in which every joint J turns about, or slides along, its
own +z axis. Frame i is carried by the first i joints: frame 0 stands still, its z axis is joint
0's, and frame n is the TCP.
"""

from dataclasses import dataclass

import numpy as np

from td3_robot.deploy.errors import DeployError

RIGID = 1e-4  # by which a rotation may be off, of numbers with a few digits
LAST_ROW = (0.0, 0.0, 0.0, 1.0)  # of a pose


@dataclass(frozen=True)
class Chain:
    """A serial chain of n joints.

    Attributes:
        constants: (n+1, 4, 4) the transforms A_i above.
        prismatic: (n,) bool; False is a revolute joint.

    Raises:
        DeployError: a constant is no rotation and translation.
    """

    constants: np.ndarray
    prismatic: np.ndarray

    def __post_init__(self):
        if self.constants.shape != (self.n + 1, 4, 4):
            raise DeployError(
                f"a chain of {self.n} joints has constants of shape ({self.n + 1}, 4, 4), "
                f"got {self.constants.shape}"
            )
        R = self.constants[:, :3, :3]
        turns = np.isclose(R @ R.swapaxes(1, 2), np.eye(3), atol=RIGID).all((1, 2))
        is_rigid = turns & (np.linalg.det(R) > 0.0) & (self.constants[:, 3] == LAST_ROW).all(1)
        if not is_rigid.all():
            raise DeployError(
                f"constant {is_rigid.argmin()} of the chain is no rotation and translation"
            )

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.prismatic)

    def frames(self, q: np.ndarray) -> np.ndarray:
        """Compute the frames (m, n + 1, 4, 4) in the base frame at joint positions (m, n) [rad or
        m].
        """
        A = self.constants[1:]
        c = np.cos(q)[..., None]
        s = np.sin(q)[..., None]
        frames = np.empty((len(q), self.n + 1, 4, 4))
        frames[:] = self.constants
        frames[:, 1:, 0] = c * A[:, 0] - s * A[:, 1]
        frames[:, 1:, 1] = s * A[:, 0] + c * A[:, 1]
        if self.prismatic.any():
            slides = self.prismatic
            frames[:, 1:][:, slides] = A[slides]
            frames[:, 1:, 2, 3] += np.where(slides, q, 0.0)
        done = 1
        # products of 2, 4, 8, ... neighbours: fewer calls than one joint after the other
        while done <= self.n:
            frames[:, done:] = frames[:, :-done] @ frames[:, done:]
            done *= 2
        return frames

    def jacobian(self, frames: np.ndarray) -> np.ndarray:
        """Compute the Jacobians (m, 6, n) of the TCP in the base frame from `frames`.

        They take joint velocities to its linear [m/s] and angular [rad/s] velocity (Siciliano et
        al., "Robotics", eq. 3.30).
        """
        axes = frames[:, :-1, :3, 2]
        arms = frames[:, -1:, :3, 3] - frames[:, :-1, :3, 3]
        J = np.empty((len(frames), 6, self.n))
        # np.cross takes several times as long
        for row, (a, b) in enumerate(((1, 2), (2, 0), (0, 1))):
            J[:, row] = axes[..., a] * arms[..., b] - axes[..., b] * arms[..., a]
        J[:, 3:] = axes.swapaxes(1, 2)
        if self.prismatic.any():
            J[:, :3] = np.where(self.prismatic, J[:, 3:], J[:, :3])
            J[:, 3:] = np.where(self.prismatic, 0.0, J[:, 3:])
        return J
