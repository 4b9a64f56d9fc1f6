"""Contact: of the arm with itself, the ground, or what stands around it. No success survives it, whatever the task.

What is known of it is part of the scene, where the robot has capsules: `clearance` (B,), how far the arm is from
touching anything [m], and `touched` (B,), whether it has touched something since the episode began. It is looked for
at the end of each control step.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from envs.collision import clearance
from envs.world import GROUND, Moment, World

if TYPE_CHECKING:
    from envs.tasks.task import Outcome, Task

KEPT = ("clearance", "touched")  # of the scene; what `judged` depends on
ROOM = 0.005  # [m] by which what solves a goal is free of contact
_HALVINGS = 4


def free(world: World, q: Tensor, room: float = ROOM, driver: float | None = None) -> Tensor:
    """Whether arms at q (..., n) are more than `room` [m] away from themselves and the ground.

    Args:
        driver: coordinate of the gripper's [rad or m]; None: whatever it does.

    Returns:
        (...) bool, and true of a robot whose capsules are not known.
    """
    if world.collision is None:
        return torch.ones(q.shape[:-1], dtype=torch.bool, device=q.device)
    q_each = q.flatten(0, -2)
    gripper = None if driver is None else q_each.new_full((len(q_each),), driver)
    return clearance(world.collision, q_each, ground=GROUND, gripper=gripper).view(q.shape[:-1]) > room


def free_start(world: World, offset: Tensor) -> Tensor:
    """Joint positions (B, n) at offsets (B, n) from home, halved until nothing touches, at home in the end."""
    for _ in range(_HALVINGS):
        q = torch.clamp(world.home + offset, *world.model.qlim)
        offset = torch.where(free(world, q, 0.0)[:, None], offset, 0.5 * offset)
    q = torch.clamp(world.home + offset, *world.model.qlim)
    return torch.where(free(world, q, 0.0)[:, None], q, world.home)


def felt(task: "Task", world: World, moment: Moment, touched: Tensor | None = None) -> Moment:
    """A moment that really is, with `clearance` and `touched` in its scene.

    Args:
        touched: (B,) bool of the moment before; None where episodes begin.
    """
    if world.collision is None:
        return moment
    distance = task.clearance(world, moment)
    if "contact_depth" in moment.scene:  # of an engine with contacts of its own
        depth = moment.scene["contact_depth"].to(distance.dtype)
        distance = torch.where(depth > 0, torch.minimum(distance, -depth), distance)
    now = distance < 0
    return replace(
        moment,
        scene={**moment.scene, "clearance": distance, "touched": now if touched is None else touched | now},
    )


def judged(task: "Task", moment: Moment, outcome: "Outcome") -> "Outcome":
    """What a step was worth, contact heeded: no success after one, and the terms of `contact_terms`.

    Among its measures are `success_with_contact`, the success that it would be otherwise, and `KEPT`.
    """
    success, scene = outcome.success, moment.scene
    measures = {**outcome.measures, "success_with_contact": success}
    if "touched" not in scene:
        return replace(outcome, measures=measures)
    return replace(
        outcome,
        success=success & ~scene["touched"],
        terms={**outcome.terms, **contact_terms(task, scene["clearance"])},
        measures={**measures, **{name: scene[name] for name in KEPT}},
    )


def contact_terms(task: "Task", clearance: Tensor) -> dict[str, Tensor]:
    """What being near and being in contact cost, where it costs anything.

    Args:
        clearance: (B,) the least of all [m].

    Returns:
        Each term (B,).
    """
    terms: dict[str, Callable[[], Tensor]] = {
        "near": lambda: -task.near_weight * (1.0 - clearance / task.near_distance).clamp(0.0, 1.0),
        "contact": lambda: -task.contact_weight * (clearance < 0).to(clearance.dtype),
    }
    return {name: term() for name, term in terms.items() if getattr(task, f"{name}_weight")}
