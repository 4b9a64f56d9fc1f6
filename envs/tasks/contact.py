"""Contact of the arm with itself, the ground or an obstacle, which rules out success in any task.

Where the robot has capsules, the scene holds `clearance` (B,), the least distance to anything [m],
and `touched` (B,), whether there was contact since the episode began. Both are updated at the end
of each control step.
"""

from dataclasses import replace

import torch
from torch import Tensor

from envs.tasks.task import Outcome, Task
from envs.world import Moment, World

CONTACT_KEYS = ("clearance", "touched")  # of the scene; `apply_contact_rules` depends on them


def sense_contact(
    task: Task, world: World, moment: Moment, touched: Tensor | None = None
) -> Moment:
    """Return the true moment with `clearance` and `touched` in its scene.

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
    touched = now if touched is None else touched | now
    return replace(moment, scene={**moment.scene, "clearance": distance, "touched": touched})


def apply_contact_rules(task: Task, moment: Moment, outcome: Outcome) -> Outcome:
    """Return the outcome without success after a contact, and with the costs of contact.

    Among its measures are `success_with_contact`, the success of the task alone, and
    `CONTACT_KEYS`.
    """
    scene = moment.scene
    measures = {**outcome.measures, "success_with_contact": outcome.success}
    if "touched" not in scene:
        return replace(outcome, measures=measures)
    return replace(
        outcome,
        success=outcome.success & ~scene["touched"],
        terms={**outcome.terms, **compute_contact_terms(task, scene["clearance"])},
        measures={**measures, **{name: scene[name] for name in CONTACT_KEYS}},
    )


def compute_contact_terms(task: Task, clearance: Tensor) -> dict[str, Tensor]:
    """Compute the reward terms (B,) of being near and in contact, of those that have a weight.

    Args:
        clearance: (B,) least distance to anything [m].
    """
    terms = {}
    if task.near_weight:
        nearness = (1.0 - clearance / task.near_distance).clamp(0.0, 1.0)
        terms["near"] = -task.near_weight * nearness
    if task.contact_weight:
        terms["contact"] = -task.contact_weight * (clearance < 0).to(clearance.dtype)
    return terms
