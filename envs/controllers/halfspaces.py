"""What bounds a velocity: the half-spaces G qd <= h that distances make, the bounds that joints
have, and two ways to move a velocity into them. The guard, the reactive controller and NEO share
this form, as mink's limits do (https://github.com/kevinzakka/mink).

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
Bounds = tuple[
    Tensor, Tensor
]  # the lowest and the highest velocity of each joint, (B, n) each [rad/s or m/s]

# [m/s] a distance that the joints cannot change by more in a period is not theirs to brake
LEAST_RATE = 1e-6
_RAD_PER_METRE = 10.0  # of a joint that slides, for its damper
_LEAST_EFFECT = (
    1e-9  # a distance that joint motion off the goal's directions changes by less is left alone
)


@dataclass(frozen=True)
class HalfSpaces:
    """The conditions G qd <= h on the velocities of B arms.

    Attributes:
        G: (B, k, n).
        h: (B, k), infinite where a row asks for nothing.
    """

    G: Tensor
    h: Tensor

    def __and__(self, other: "HalfSpaces") -> "HalfSpaces":
        """Both."""
        return HalfSpaces(torch.cat((self.G, other.G), 1), torch.cat((self.h, other.h), 1))


def compute_damped_speed(distance: Tensor, stop: float, influence: float, gain: float) -> Tensor:
    """The speed at which a damper lets a distance fall; infinite beyond `influence`."""
    speed = gain * (distance - stop) / (influence - stop)
    return torch.where(distance < influence, speed, torch.inf)


def make_joint_dampers(
    q: Tensor, qlim: Tensor, qdlim: Tensor, damper: Damper, chain: Chain
) -> Bounds:
    """The speed limits, and dampers to the position limits, of a chain's joints at q (B, n).

    The damper is for joints that turn. One that slides is held back over a tenth of that, in
    metres: 0.9 would be more than most of them have.
    """
    units = torch.where(chain.slides, _RAD_PER_METRE, 1.0) if any(chain.prismatic) else 1.0

    def towards(room):
        return torch.minimum(compute_damped_speed(room * units, *damper), qdlim)

    return -towards(q - qlim[0]), towards(qlim[1] - q)


def make_distance_dampers(near: Nearest, around: Damper, own: Damper) -> HalfSpaces:
    """Dampers of each link to obstacles and the ground, and of the arm to itself, the last row of a
    `Nearest`.
    """
    allowed = (
        compute_damped_speed(near.distance[:, :-1], *around),
        compute_damped_speed(near.distance[:, -1:], *own),
    )
    return HalfSpaces(-near.gradient, torch.cat(allowed, 1))


def make_brakes(model: SimModel, near: Nearest, stop: float, share: float) -> HalfSpaces:
    """No distance falls faster than it can be braked to `stop` [m] in whole periods; one below it
    grows back in one.

    Args:
        share: of what all joints together could brake it with, this much is counted on.
    """
    slowing = (near.gradient.abs() * model.dqd).nan_to_num(
        nan=0.0, posinf=torch.inf
    )  # 0 * inf: not by this joint
    braking = share * slowing.sum(2)  # [m/s] a period
    room = near.distance - stop
    stopping = compute_stopping_speed(room.clamp_min(0.0), braking.clamp_min(LEAST_RATE), model.dt)
    return HalfSpaces(-near.gradient, torch.where(room > 0, stopping, room / model.dt))


def make_lookahead(ahead: Nearest, qd: Tensor, least: float, dt: float) -> HalfSpaces:
    """What would be near after a period dt with velocity qd (B, n) shall then be `least` [m]
    away.
    """
    G = -ahead.gradient
    return HalfSpaces(G, (G @ qd[:, :, None])[:, :, 0] + (ahead.distance - least) / dt)


def project_hildreth(spaces: HalfSpaces, qd: Tensor, metric: Tensor, sweeps: int) -> Tensor:
    """The nearest point of all half-spaces together; the more sweeps over them, the nearer.

    Hildreth, "A quadratic programming procedure", Naval Research Logistics Quarterly 4, 1957: how
    far qd was moved for each half-space is remembered, and taken back where another one made it
    needless.

    Args:
        qd: (B, n).
        metric: (B, n, n) inverse of the matrix that measures distances; singular where some motion
            is not to be used.

    Returns:
        (B, n).
    """
    rows = _split_rows(spaces, spaces.G @ metric, _LEAST_EFFECT)
    qd, so_far = _copy_joint_first(qd), [torch.zeros_like(h) for _, _, h in rows]
    for _ in range(sweeps):
        for (g, step, h), moved in zip(rows, so_far):
            further = torch.maximum((g * qd).sum(0) - h, -moved)
            moved += further
            qd.addcmul_(further, step, value=-1.0)
    return qd.T


def project_agmon(
    spaces: HalfSpaces, qd: Tensor, weight: Tensor, within: Bounds, sweeps: int
) -> Tensor:
    """A point inside `within`, and in all half-spaces together as far as the sweeps lead; kept in
    part where they contradict each other.

    Agmon, "The relaxation method for linear inequalities", Canadian J. Mathematics 6, 1954: onto
    the bound of each half-space that qd is outside of, in turn, again and again.

    Args:
        qd: (B, n).
        weight: (n,) how readily each joint takes part.

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
    """One half-space after the other: g (n, B); a step (n, B) along its direction that raises g .
    qd by one, and none to speak of where a direction raises it by less than `least`; and h (B,).
    """
    step = direction / (direction * spaces.G).sum(2, keepdim=True).clamp_min(least)

    def apart(x):
        return x.permute(1, 2, 0).contiguous().unbind(0)

    return list(zip(apart(spaces.G), apart(step), spaces.h.T.contiguous().unbind(0)))


def _copy_joint_first(x: Tensor) -> Tensor:
    """(B, n) -> (n, B), a copy."""
    return x.T.clone(memory_format=torch.contiguous_format)
