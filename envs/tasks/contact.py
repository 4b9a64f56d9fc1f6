"""Contact: of the arm with itself, the ground, or what stands around it. No success survives it,
whatever the task.

What is known of it is part of the scene, where the robot has capsules: `clearance` (B,), how far
the arm is from touching anything [m], and `touched` (B,), whether it has touched something since
the episode began. It is looked for at the end of each control step.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from envs.tasks.task import Outcome, Task
from envs.world import Moment, World

CONTACT_KEYS = ("clearance", "touched")  # of the scene; what `apply_contact_rules` depends on


def sense_contact(
    task: Task, world: World, moment: Moment, touched: Tensor | None = None
) -> Moment:
    """A moment that really is, with `clearance` and `touched` in its scene.

    Args:
        touched: (B,) bool of the moment before; None where episodes begin.
    """
    if world.collision is None:
        return moment
    distance = task.compute_clearance(world, moment)
    if "contact_depth" in moment.scene:  # of an engine with contacts of its own
        depth = moment.scene["contact_depth"].to(distance.dtype)
        distance = torch.where(depth > 0, torch.minimum(distance, -depth), distance)
    now = distance < 0
    return replace(
        moment,
        scene={
            **moment.scene,
            "clearance": distance,
            "touched": now if touched is None else touched | now,
        },
    )


def apply_contact_rules(task: Task, moment: Moment, outcome: Outcome) -> Outcome:
    """What a step was worth, contact heeded: no success after one, and the terms of
    `compute_contact_terms`.

    Among its measures are `success_with_contact`, the success that it would be otherwise, and
    `CONTACT_KEYS`.
    """
    success, scene = outcome.success, moment.scene
    measures = {**outcome.measures, "success_with_contact": success}
    if "touched" not in scene:
        return replace(outcome, measures=measures)
    return replace(
        outcome,
        success=success & ~scene["touched"],
        terms={**outcome.terms, **compute_contact_terms(task, scene["clearance"])},
        measures={**measures, **{name: scene[name] for name in CONTACT_KEYS}},
    )


def compute_contact_terms(task: Task, clearance: Tensor) -> dict[str, Tensor]:
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
