"""Contact of the arm with itself, the ground or an obstacle, which rules out success in any task.

Where the robot has capsules, the scene holds `clearance` (B,), the least distance to anything [m],
and `touched` (B,), whether there was contact since the episode began. Both are updated at the end
of each control step. Contacts that a task allows do not count, see `PhysicsSpec`, unless their
force was greater than it allows: that counts as `touched`, too.
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
    forced = _is_forced(task, moment)
    if world.collision is None and forced is None:
        return moment
    if world.collision is None:
        distance = torch.full_like(moment.state.gripper, torch.inf)
    else:
        distance = task.compute_clearance(world, moment)
    if "contact_depth" in moment.scene:  # of an engine with contacts of its own
        depth = moment.scene["contact_depth"].to(distance.dtype)
        distance = torch.where(depth > 0, torch.minimum(distance, -depth), distance)
    now = distance < 0
    now = now if forced is None else now | forced
    touched = now if touched is None else touched | now
    return replace(moment, scene={**moment.scene, "clearance": distance, "touched": touched})


def _is_forced(task: Task, moment: Moment) -> Tensor | None:
    """Tell (B,) if an allowed contact had too much force; None if no contact is allowed."""
    force = moment.scene.get("contact_forces")
    if force is None or task.physics is None:
        return None
    return (force > force.new_tensor([contact.force for contact in task.physics.contacts])).any(1)


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
