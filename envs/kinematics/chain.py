"""Batched forward kinematics and geometric Jacobian, compiled once from a sequence of transforms.

An elementary transform sequence (Corke & Haviland, "Not your grandmother's toolbox", ICRA 2021) is
a product of constant transforms and one-parameter joint transforms. `compile_ets` rewrites it as

    T_be(q) = A_0 J(q_0) A_1 J(q_1) ... A_{n-1} J(q_{n-1}) A_n

in which every joint J turns about, or slides along, its own +z axis: rotations that bring x or y to
z, and the half turn that reverses a flipped joint, are absorbed into the constants A_i. So one
short loop serves every serial arm.

Arrays are kept component-first, (3, 4, B) with B contiguous, so that each operation runs over long
vectors; the public functions take and return batch-first tensors.
"""

import functools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_HALF_TURN = np.diag([1.0, -1.0, -1.0, 1.0])  # about x: maps +z to -z
_Z_TO = {  # constant rotations that carry the z axis to the named axis
    "z": np.eye(4),
    "x": np.array([[0.0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]]),
    "y": np.array([[0.0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]]),
}


@dataclass(frozen=True)
class ElementaryTransform:
    """A constant transform, or a joint's, as roboticstoolbox's ET is.

    Attributes:
        T: (4, 4) of a constant one [m].
        kind: of a joint: "Rx" to "Rz" turn about an axis, "tx" to "tz" slide along it.
        isflip: the joint moves the other way.
        jindex: number of the joint, if it has one.
    """

    T: np.ndarray | None = None
    kind: str = ""
    isflip: bool = False
    jindex: int | None = None

    @property
    def isjoint(self) -> bool:
        """Tell if it is a joint's."""
        return bool(self.kind)

    def A(self) -> np.ndarray:
        """Return the constant transform (4, 4)."""
        assert self.T is not None
        return self.T


@dataclass(frozen=True)
class Chain:
    """A serial chain of n joints, ready for batched evaluation.

    Attributes:
        constants: (n+1, 4, 4) the transforms A_i above.
        prismatic: n flags; False is a revolute joint.
    """

    constants: Tensor
    prismatic: tuple[bool, ...]

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.prismatic)

    @functools.cached_property
    def slides(self) -> Tensor:
        """(n,) `prismatic` on the device of the constants."""
        return torch.tensor(self.prismatic, device=self.constants.device)

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> "Chain":
        """Return the chain on another device or in another precision."""
        return Chain(self.constants.to(device=device, dtype=dtype), self.prismatic)


def compile_ets(ets, dtype: torch.dtype = torch.float32) -> Chain:
    """Compile transforms from base to TCP into a Chain on the CPU.

    They are a roboticstoolbox ETS or a sequence of `ElementaryTransform`.

    Joints are numbered by their place in the sequence. Constants are composed in float64.

    Raises:
        ValueError: the joint indices of the ETS are not 0..n-1 in order.
    """
    constants = []
    prismatic = []
    pending = np.eye(4)
    for et in ets:
        if not et.isjoint:
            pending = pending @ et.A()
            continue
        if et.jindex is not None and et.jindex != len(prismatic):
            raise ValueError(
                f"joint {len(prismatic)} of the chain has index {et.jindex}; expected a chain in "
                "order"
            )
        to_axis = _Z_TO[et.kind[-1]] @ (_HALF_TURN if et.isflip else np.eye(4))
        constants.append(pending @ to_axis)
        prismatic.append(et.kind.startswith("t"))
        pending = to_axis.T  # a pure rotation: its transpose is its inverse
    constants.append(pending)
    return Chain(torch.as_tensor(np.stack(constants), dtype=dtype), tuple(prismatic))


def _walk(chain: Chain, q: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Follow the chain from base to TCP.

    Args:
        q: (B, n) [rad or m].

    Returns:
        The top three rows of T_be as (3, 4, B), and for every joint the frame just before it moves,
        also (3, 4, B): its column 2 is the joint's axis and its column 3 the joint's origin, in b.
    """
    q = q.T.contiguous()  # (n, B)
    sin = torch.sin(q)
    cos = torch.cos(q)
    # M @ A, for M with its columns last but one, is A^T @ M
    transposed = chain.constants.transpose(1, 2)
    frames = []
    M = chain.constants[0, :3, :, None].expand(3, 4, q.shape[1])
    for i, slides in enumerate(chain.prismatic):
        frames.append(M)
        x, y, z, p = M.unbind(1)  # (3, B) each
        if slides:
            M = torch.stack((x, y, z, p + q[i] * z), 1)
        else:
            M = torch.stack((cos[i] * x + sin[i] * y, cos[i] * y - sin[i] * x, z, p), 1)
        M = transposed[i + 1] @ M
    return M, frames


def fkine(chain: Chain, q: Tensor) -> Tensor:
    """Compute forward kinematics.

    Args:
        q: (B, n) joint positions [rad or m].

    Returns:
        (B, 4, 4) T_be, the pose of the TCP in the base frame.
    """
    return _homogeneous(_walk(chain, q)[0])


def link_frames(chain: Chain, q: Tensor) -> list[Tensor]:
    """Compute a frame on every rigid part of the arm, for placing what is fixed to it.

    Args:
        q: (B, n) joint positions [rad or m].

    Returns:
        n + 1 poses in the base frame, the top three rows of each as (3, 4, B). Frame i is carried
        by the first i joints: frame 0 stands still, its z axis is joint 0's, and frame n is the
        TCP.
    """
    tcp, frames = _walk(chain, q)
    return [*frames, tcp]


def jacob0(chain: Chain, q: Tensor) -> Tensor:
    """Compute the geometric Jacobian in the base frame (Siciliano et al., "Robotics", eq. 3.30).

    Args:
        q: (B, n) joint positions [rad or m].

    Returns:
        (B, 6, n): qd -> (v, w), the TCP's linear [m/s] and angular [rad/s] velocity in the base
            frame.
    """
    return fkine_jacob0(chain, q)[1]


def fkine_jacob0(chain: Chain, q: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `fkine` and `jacob0` in one walk along the chain."""
    return pose_jacobian(chain, link_frames(chain, q))


def pose_jacobian(chain: Chain, frames: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Compute `fkine_jacob0` from the `link_frames` of q."""
    return compute_tcp_pose(frames), compute_jacobian(chain, frames)


def compute_tcp_pose(frames: list[Tensor]) -> Tensor:
    """Compute `fkine` from the `link_frames` of q."""
    return _homogeneous(frames[-1])


def compute_jacobian(chain: Chain, frames: list[Tensor]) -> Tensor:
    """Compute `jacob0` from the `link_frames` of q."""
    *joints, tcp = frames
    lines = [frame[:, 2:].expand(3, 2, tcp.shape[2]) for frame in joints]  # axis and origin
    axes, origins = torch.stack(lines).unbind(2)  # (n, 3, B) each
    linear = _cross(axes, tcp[:, 3] - origins)
    angular = axes
    if any(chain.prismatic):
        slides = chain.slides[:, None, None]
        linear = torch.where(slides, axes, linear)
        angular = angular.masked_fill(slides, 0.0)
    return torch.cat((linear, angular), 1).permute(2, 1, 0)


def _cross(a: Tensor, b: Tensor) -> Tensor:
    """Compute the cross product over axis 1 of (n, 3, B); torch's own is several times slower."""
    ax, ay, az = a.unbind(1)
    bx, by, bz = b.unbind(1)
    return torch.stack((ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx), 1)


def _homogeneous(M: Tensor) -> Tensor:
    """Convert (3, 4, B) to (B, 4, 4)."""
    T = M.new_zeros(M.shape[2], 4, 4)
    T[:, :3] = M.permute(2, 0, 1)
    T[:, 3, 3] = 1.0
    return T
