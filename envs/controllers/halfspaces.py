"""Bounds on joint velocities: half-spaces G qd <= h of distances, box bounds, and projections.

The guard, the reactive controller and NEO share this form, as mink's limits do
(https://github.com/kevinzakka/mink).

A damper (stop, influence, gain) holds a distance d: once below `influence`, it may fall at no more
than gain (d - stop) / (influence - stop), so that it never falls below `stop` (Faverjon &
Tournassoud, "A local based approach for path planning of manipulators with a high number of degrees
of freedom", IEEE Int. Conf. Robotics and Automation, 1987). A brake lets it fall as fast as the
joints can still stop.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from envs.collision import Nearest
from envs.kinematics import Chain
from envs.simulation.kinematic import SimModel, compute_stopping_speed

Damper = tuple[float, float, float]  # stop [m or rad], influence [m or rad], gain [m/s or rad/s]
Bounds = tuple[Tensor, Tensor]  # lowest and highest velocities of joints, (B, n) [rad/s or m/s]

LEAST_RATE = 1e-6  # least change of a distance in a period for the joints to brake it [m/s]
RETREAT = 0.5  # share of the joints' speeds with which an arm recedes from what comes near
_RAD_PER_METRE = 10.0  # of a joint that slides, for its damper
_LEAST_EFFECT = 1e-9  # least effect on a distance of joint motion that leaves the TCP alone


@dataclass(frozen=True)
class HalfSpaces:
    """The conditions G qd <= h on the velocities of B arms.

    Attributes:
        G: (B, k, n).
        h: (B, k), infinite in rows without a bound.
    """

    G: Tensor
    h: Tensor

    def __and__(self, other: "HalfSpaces") -> "HalfSpaces":
        """Return the conditions of both."""
        return HalfSpaces(torch.cat((self.G, other.G), 1), torch.cat((self.h, other.h), 1))


def compute_damped_speed(distance: Tensor, stop: float, influence: float, gain: float) -> Tensor:
    """Return the speed at which a damper lets a distance fall; infinite beyond `influence`."""
    speed = gain * (distance - stop) / (influence - stop)
    return torch.where(distance < influence, speed, torch.inf)


def make_joint_dampers(
    q: Tensor, qlim: Tensor, qdlim: Tensor, damper: Damper, chain: Chain
) -> Bounds:
    """Return the speed limits of joints at q (B, n), damped at their position limits.

    The damper is for revolute joints. Prismatic ones get a tenth of its distances, in metres: 0.9
    would be more than most of them have.
    """
    units = torch.where(chain.slides, _RAD_PER_METRE, 1.0) if any(chain.prismatic) else 1.0

    def limit_speed(room):
        return torch.minimum(compute_damped_speed(room * units, *damper), qdlim)

    return -limit_speed(q - qlim[0]), limit_speed(qlim[1] - q)


def make_distance_dampers(near: Nearest, around: Damper, own: Damper, qdlim: Tensor) -> HalfSpaces:
    """Return dampers of each link to obstacles and the ground, and of the arm to itself, which is
    the last row of a `Nearest`.

    Args:
        qdlim: (n,) speed limits of the joints, for obstacles that move.
    """
    allowed = (
        compute_damped_speed(near.distance[:, :-1], *around),
        compute_damped_speed(near.distance[:, -1:], *own),
    )
    return HalfSpaces(-near.gradient, add_drift(torch.cat(allowed, 1), near, qdlim))


def add_drift(allowed: Tensor, near: Nearest, qdlim: Tensor) -> Tensor:
    """Return the speeds (B, k) at which the arm may let distances fall, of those at which they may
    fall by the motion of arm and obstacles together.

    Where an obstacle comes nearer than that, the arm has to recede: at most at `RETREAT` of what
    its joints can do, since a link near the base can hardly make way.
    """
    if near.drift is None:
        return allowed
    most = RETREAT * (near.gradient.abs() * qdlim).sum(2)
    return torch.where(near.drift == 0, allowed, torch.maximum(allowed + near.drift, -most))


def make_brakes(model: SimModel, near: Nearest, stop: float, share: float) -> HalfSpaces:
    """Return half-spaces in which every distance can be braked to `stop` [m] in whole periods.

    A distance below `stop` grows back to it in one period.

    Args:
        share: assumed share of the braking of all joints together.
    """
    # 0 * inf: not by this joint
    slowing = (near.gradient.abs() * model.dqd).nan_to_num(nan=0.0, posinf=torch.inf)
    braking = share * slowing.sum(2)  # [m/s] a period
    room = near.distance - stop
    stopping = compute_stopping_speed(room.clamp_min(0.0), braking.clamp_min(LEAST_RATE), model.dt)
    allowed = torch.where(room > 0, stopping, room / model.dt)
    return HalfSpaces(-near.gradient, add_drift(allowed, near, model.qdlim))


def make_lookahead(ahead: Nearest, qd: Tensor, least: float, dt: float) -> HalfSpaces:
    """Return half-spaces in which distances after a period dt are at least `least` [m].

    Args:
        ahead: distances after a period with velocity qd (B, n).
    """
    G = -ahead.gradient
    return HalfSpaces(G, (G @ qd[:, :, None])[:, :, 0] + (ahead.distance - least) / dt)


def project_hildreth(spaces: HalfSpaces, qd: Tensor, metric: Tensor, sweeps: int) -> Tensor:
    """Project qd (B, n) onto the intersection of half-spaces; more sweeps get nearer.

    Hildreth, "A quadratic programming procedure", Naval Research Logistics Quarterly 4, 1957: the
    correction for each half-space is remembered, and reverted if another one made it needless.

    Args:
        metric: (B, n, n) inverse of the matrix that measures distances; singular if some motion is
            not to be used.

    Returns:
        (B, n).
    """
    rows = _split_rows(spaces, spaces.G @ metric, _LEAST_EFFECT)
    qd = _copy_joint_first(qd)
    corrections = [torch.zeros_like(h) for _, _, h in rows]  # in sum, of each half-space
    for _ in range(sweeps):
        for (g, step, h), correction in zip(rows, corrections):
            change = torch.maximum((g * qd).sum(0) - h, -correction)
            correction += change
            qd.addcmul_(change, step, value=-1.0)
    return qd.T


def project_agmon(
    spaces: HalfSpaces, qd: Tensor, weight: Tensor, within: Bounds, sweeps: int
) -> Tensor:
    """Move qd (B, n) inside `within` and, as far as the sweeps lead, into all half-spaces.

    Half-spaces that contradict each other are met in part. Agmon, "The relaxation method for linear
    inequalities", Canadian J. Mathematics 6, 1954: qd is projected onto the bound of each violated
    half-space in turn.

    Args:
        weight: (n,) share of each joint in the projections.

    Returns:
        (B, n).
    """
    rows = _split_rows(spaces, spaces.G * weight, LEAST_RATE**2)
    qd, lower, upper = map(_copy_joint_first, (qd, *within))
    for _ in range(sweeps):
        for g, step, h in rows:
            qd.addcmul_(((g * qd).sum(0) - h).clamp_min_(0.0), step, value=-1.0)
        torch.clamp(qd, lower, upper, out=qd)
    return qd.T.contiguous()


def _split_rows(
    spaces: HalfSpaces, direction: Tensor, least: float
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """List g (n, B), step (n, B) and h (B,) of each half-space.

    The step along `direction` raises g . qd by one; it is negligible where the direction raises it
    by less than `least`.
    """
    step = direction / (direction * spaces.G).sum(2, keepdim=True).clamp_min(least)

    def split(x):
        return x.permute(1, 2, 0).contiguous().unbind(0)

    return list(zip(split(spaces.G), split(step), spaces.h.T.contiguous().unbind(0)))


def _copy_joint_first(x: Tensor) -> Tensor:
    """Copy (B, n) to (n, B)."""
    return x.T.clone(memory_format=torch.contiguous_format)
