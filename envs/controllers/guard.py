"""Guard: a velocity-damper shield that changes a command as little as needed to avoid contact.

It bounds the speeds at which distances may fall, as velocity dampers do, but by what the arm can
still brake from with its accelerations. An arm moves by centimetres in a control period, and the
nearest obstacle may change meanwhile; so the guard also checks the position after the period, once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.collision import Nearest
from envs.controllers.halfspaces import make_brakes, make_lookahead, project_agmon
from envs.simulation.engine import SimModel, SimState
from envs.simulation.kinematic import find_reachable_velocities
from td3_robot.errors import ConfigError

LONGEST_STOP = 1000  # control periods of a stop that `keep_stop` checks, some 1 ms each


@dataclass(frozen=True)
class GuardConstants:
    """The constants of the guard. How they were chosen: benchmarks/notes/guard-constants.md.

    Attributes:
        stop: distance at which every approach has been braked [m].
        least: least distance after the period that begins [m].
        share: assumed share of the braking of all joints together: they brake for several distances
            simultaneously.
        sweeps: passes over all distances; each reverts part of the one before.
        stops: take only commands after which the arm can brake to rest at `least` or farther, see
            `keep_stop`. Without it, an arm at full speed often hits obstacles; with it, a period
            takes a multiple of the time. Policies were trained without.
    """

    stop: float = 0.01
    least: float = 0.005
    share: float = 0.15
    sweeps: int = 3
    stops: bool = False


DEFAULTS = GuardConstants()


def guard_action(
    model: SimModel,
    ahead: SimState,
    action: Tensor,
    near: Nearest,
    nearest_at: Callable[[Tensor, float], Nearest],
    constants: GuardConstants = DEFAULTS,
) -> Tensor:
    """Return the action nearest to a given one that lets every distance be braked to `stop`.

    Nearest is in units of the joints' largest speed changes. In addition, no distance may be below
    `least` at the end of the period. Bounds that contradict each other are met in part.

    Args:
        ahead: the arms half a period ahead, see `predict_half_period_state`.
        action: (B, n) in [-1, 1].
        near: their distances there.
        nearest_at: finds the distances at other joint positions (B, n), some seconds later.

    Returns:
        (B, n) in [-1, 1].
    """
    k = constants
    within = find_reachable_velocities(model, ahead)
    weight = torch.where(model.dqd.isinf(), model.qdlim, model.dqd).square()
    qd = torch.clamp(action.clamp(-1.0, 1.0) * model.qdlim, *within)
    spaces = make_brakes(model, near, k.stop, k.share)
    qd = project_agmon(spaces, qd, weight, within, k.sweeps)
    spaces &= make_lookahead(nearest_at(ahead.q + qd * model.dt, model.dt), qd, k.least, model.dt)
    changed = project_agmon(spaces, qd, weight, within, k.sweeps) / model.qdlim
    if k.stops:
        return keep_stop(model, ahead, changed, nearest_at, k.least)
    return changed


def keep_stop(
    model: SimModel,
    ahead: SimState,
    action: Tensor,
    nearest_at: Callable[[Tensor, float], Nearest],
    least: float,
) -> Tensor:
    """Return the action if the arm can still stop after it; otherwise brake all joints.

    So does the safety filter of an arm, `td3_robot.deploy`: each period begins on a stop that is
    known to be clear, and a command that leaves no such stop is replaced by the next period of that
    one. From a clear start at rest, an arm without disturbances is never nearer than `least` where
    a period ends, by the capsules of `nearest_at`: for a gripper that the task does not move, those
    of its whole stroke, of which the open fingers' own stand out by some millimetres. An arm that
    touches something already may take any command.

    Args:
        least: least distance on the way to rest [m].

    Other arguments, and what is returned: see `guard_action`.
    """
    action = action.clamp(-1.0, 1.0)
    clear = torch.ones_like(action[:, 0], dtype=torch.bool)
    for period, q in enumerate(iter_stop(model, ahead, action * model.qdlim)):
        clear &= nearest_at(q, (0.5 + period) * model.dt).distance.amin(1) >= least
    now = ahead.q - 0.5 * model.dt * ahead.qd
    touches = nearest_at(now, -0.5 * model.dt).distance.amin(1) <= 0
    brake = _slow_down(ahead.qd, model.dqd) / model.qdlim
    return torch.where((clear | touches)[:, None], action, brake)


def iter_stop(model: SimModel, ahead: SimState, qd: Tensor) -> Iterator[Tensor]:
    """Yield the positions (B, n) at the ends of a period at velocity qd and of those that brake it.

    Velocities ramp over a period, so it ends half a period behind the next state ahead.
    """
    q = ahead.q
    for _ in range(1 + int(_count_braking_periods(model))):
        yield q + 0.5 * model.dt * qd
        q = q + model.dt * qd
        qd = _slow_down(qd, model.dqd)


def require_short_stop(model: SimModel, owner: str) -> None:
    """Require a stop from full speed that is short enough to be checked in every control period.

    Args:
        owner: what the arm is called in the message.

    Raises:
        ConfigError: it takes more than `LONGEST_STOP` periods.
    """
    if (periods := _count_braking_periods(model)) > LONGEST_STOP:
        raise ConfigError(
            f"guard_stops checks stops of at most {LONGEST_STOP:,} control periods; {owner} needs "
            f"{periods:,.0f} from full speed: raise its acceleration limits or drop guard_stops"
        )


def _count_braking_periods(model: SimModel) -> float:
    """Return the control periods that the slowest joint needs to brake from full speed."""
    return float((model.qdlim / model.dqd).max().ceil())


def _slow_down(qd: Tensor, dqd: Tensor) -> Tensor:
    """Return velocities (B, n) after a period of full braking."""
    return qd - torch.clamp(qd, -dqd, dqd)
