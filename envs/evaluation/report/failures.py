"""Which episodes failed, and what can be told of why."""

import math
from dataclasses import dataclass

import torch

from envs.evaluation.metrics import LIMIT_MARGIN
from envs.evaluation.report.trajectories import Trajectories
from envs.simulation.engine import SimModel


@dataclass(frozen=True)
class Failure:
    """An episode whose last step was no success.

    Attributes:
        episode: its number, from 0.
        position_error: after the last step [m].
        rotation_error: the same [rad], where the task has one.
        why: what is known, in words.
    """

    episode: int
    position_error: float
    rotation_error: float | None
    why: str


def failures(model: SimModel, played: Trajectories, most: int) -> list[Failure]:
    """The failed episodes in order, up to `most` of them."""
    return [_failure(model, played, episode) for episode in played.failed.tolist()[:most]]


def _failure(model: SimModel, played: Trajectories, episode: int) -> Failure:
    alive = played.alive[:, episode]
    own = {name: values[alive, episode] for name, values in played.series.items()}  # (K, ...)
    turned = own["rotation_error"][-1].item() if "rotation_error" in own else None
    return Failure(episode, own["position_error"][-1].item(), turned, "; ".join(_reasons(model, own)))


def _reasons(model: SimModel, own: dict[str, torch.Tensor]) -> list[str]:
    """What is known of one failed episode of K steps, its series (K, ...)."""
    reasons, touched = [], "contact" in own and bool(own["contact"].any())
    if touched:
        reasons.append(f"contact after {_first(own['contact'], model):.2f} s")
    if "held" in own:
        if not own["held"].any():
            reasons.append("never grasped")
        elif not own["held"][-1]:
            reasons.append(f"grasped after {_first(own['held'], model):.2f} s, let go")
    if "tracking_error_mean" in own:  # success is not a place to be at
        reasons.append(f"mean error {1000 * own['tracking_error_mean'][-1].item():.1f} mm")
    elif own["success"].any():
        last = int(own["success"].nonzero().max()) + 1
        reasons.append(f"was at the goal, left it after {last * model.dt:.2f} s")
    elif not touched:  # after contact nothing counts as reached
        reasons.append(f"never reached, nearest {_nearest(own)}")
    lower, upper = model.qlim.cpu()
    room = torch.minimum(own["q"][-1] - lower, upper - own["q"][-1])
    if joints := [str(int(joint) + 1) for joint in (room <= LIMIT_MARGIN).nonzero()[:, 0]]:
        reasons.append(f"ended at a limit of joint {', '.join(joints)}")
    return reasons


def _nearest(own: dict[str, torch.Tensor]) -> str:
    """The least distance on the way and the least angle, be it at another time."""
    distance = f"{1000 * own['position_error'].min().item():.1f} mm"
    if "rotation_error" not in own:
        return distance
    return f"{distance}, {math.degrees(own['rotation_error'].min().item()):.1f} deg"


def _first(flags: torch.Tensor, model: SimModel) -> float:
    """Time after the first step that is true [s]."""
    return (int(flags.nonzero().min()) + 1) * model.dt
