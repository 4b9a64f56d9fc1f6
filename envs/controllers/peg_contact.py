"""The contact of a held peg with a block that has a hole: what the hand feels of it, and what an
episode remembers of it.

The programs of envs/controllers/insertion.py decide by both, and the task `insert` keeps the memory
in its scene. All is in the hand's frame e, whose z is the approach.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from envs.controllers.insert_constants import DEFAULTS, InsertConstants
from envs.world import Moment, Scene

MEMORY = ("searched", "sunk", "seated")  # parts of the scene, see `Feeling`; zero at the start
_FELT = 1.5  # [N] that a peg which has met the surface presses with at least
_CAUGHT = 2e-4  # [m] a peg that has sunk deeper may be on the bevel: it searches slowly
_SLOW = 0.25  # speed of that search, in parts of the search on the surface


@dataclass(frozen=True)
class Feeling:
    """Quantities that a program knows, in the hand's frame.

    Attributes:
        aside: (B, 2) from the peg to the assumed axis of the hole [m].
        height: (B,) of the peg's tip over the assumed surface [m].
        turn: (B, 3) rotation vector to the assumed orientation [rad].
        corner: how much lower the lowest corner of the tilted peg is than its tip's middle [m].
        force, moment: (B, 3) on the hand, at the peg's tip [N, Nm].
        searched: (B,) time of the search since the peg first pressed; 0 before [s].
        sunk: (B,) how far the peg has moved along the approach since then [m].
        seated: (B,) time since two walls held the tilted peg; 0 before [s].
        depth: of the hole [m].
    """

    aside: Tensor
    height: Tensor
    turn: Tensor
    corner: Tensor
    force: Tensor
    moment: Tensor
    searched: Tensor
    sunk: Tensor
    seated: Tensor
    depth: float

    @property
    def press(self) -> Tensor:
        """The force (B,) that the peg presses with [N]."""
        return -self.force[:, 2]


def feel(moment: Moment, reach: float, depth: float, half: float) -> Feeling:
    """Return what is known at a moment, whose goal is the pose of the TCP with the peg inserted.

    Args:
        reach: distance of the peg's tip from the TCP [m].
        depth: of the hole [m].
        half: of the peg's width [m].
    """
    R = moment.T_be[:, :3, :3]

    def transform(x: Tensor) -> Tensor:
        return (x[:, :, None] * R).sum(1)

    error = transform(moment.scene["goal"][:, :3] - moment.tcp)
    force = transform(moment.wrench[:, :3])
    tip = error.new_tensor([0.0, 0.0, reach]).expand_as(force)
    at_tip = transform(moment.wrench[:, 3:]) - torch.linalg.cross(tip, force)
    turn = transform(moment.rotation_error)
    corner = half * turn[:, :2].abs().sum(1)
    return Feeling(
        aside=error[:, :2],
        height=error[:, 2] - depth,
        turn=turn,
        corner=corner,
        force=force,
        moment=at_tip,
        searched=moment.scene["searched"],
        sunk=moment.scene["sunk"],
        seated=moment.scene["seated"],
        depth=depth,
    )


def find_walls(felt: Feeling, constants: InsertConstants = DEFAULTS) -> Tensor:
    """Return whether tilted pegs have fallen in between two walls, which hold them, (B,) bool."""
    against = (-felt.force[:, :2]).amin(1)
    return (against > constants.held * constants.lean) & (felt.sunk > constants.fallen)


def compute_search_rate(sunk: Tensor) -> Tensor:
    """Compute how fast the time of a search runs (B,), by how far pegs have sunk (B,) [m]."""
    return torch.where(sunk > _CAUGHT, _SLOW, 1.0)


def update_memory(
    felt: Feeling, advanced: Tensor, dt: float, constants: InsertConstants = DEFAULTS
) -> Scene:
    """Return the parts `MEMORY` of a scene after a control step.

    Args:
        felt: after the step, with the memory of before it.
        advanced: (B,) how far the peg's tip has moved along the approach in the step [m].
        dt: control period [s].
    """
    has_met = felt.searched > 0.0
    sunk = felt.sunk + torch.where(has_met, advanced, 0.0)
    searches = has_met | (felt.press > _FELT)
    is_held = has_met & find_walls(replace(felt, sunk=sunk), constants)
    is_held = is_held | (felt.seated >= constants.held_for)
    return {
        "searched": felt.searched + dt * searches * compute_search_rate(sunk),
        "sunk": sunk,
        "seated": felt.seated + dt * is_held,
    }
