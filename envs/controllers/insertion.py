"""Programs that put a peg into a hole by feel, as a programmer would write them.

They have no state of their own: where the arm is, what it feels, and what the episode remembers of
the contact decide what to do (`Feeling`). All is computed in the hand's frame e, whose z is the
approach. A program knows the assumed place of the hole, not the true one.
"""

import math

import torch
from torch import Tensor

from envs.controllers import register_controller
from envs.controllers.controlled import Controlled
from envs.controllers.insert_constants import DEFAULTS, InsertConstants
from envs.controllers.peg_contact import Feeling, compute_search_rate
from envs.kinematics.least_squares import damped_least_squares
from envs.world import Moment, World

_PERIOD = 0.05  # [s] over which the speed along the spiral is taken


def compute_straight(felt: Feeling, constants: InsertConstants = DEFAULTS) -> Tensor:
    """Compute the twist (B, 6) that moves straight down and complies [m/s, rad/s]."""
    return _join(felt, constants, _comply(felt, constants), _align(felt, constants))


def compute_spiral(felt: Feeling, constants: InsertConstants = DEFAULTS) -> Tensor:
    """Compute the twist (B, 6) that searches along a spiral while it presses [m/s, rad/s]."""
    place = locate_on_spiral(felt.searched, constants)
    next_place = locate_on_spiral(felt.searched + _PERIOD, constants)
    velocity = compute_search_rate(felt.sunk)[:, None] * (next_place - place) / _PERIOD
    force = torch.linalg.vector_norm(felt.force[:, :2], dim=1, keepdim=True)
    friction = constants.blocked + constants.friction * felt.press.clamp_min(0.0)[:, None]
    excess = (1.0 - friction / force.clamp_min(1.0)).clamp_min(0.0)  # share of the force
    retreat = constants.edge_gain * excess * felt.force[:, :2]  # from an edge
    search = velocity + constants.spiral_gain * (place + felt.aside) + retreat
    return _join(felt, constants, search, _align(felt, constants))


def locate_on_spiral(seconds: Tensor, constants: InsertConstants = DEFAULTS) -> Tensor:
    """Locate the search (B, 2) that began some seconds (B,) ago, around its start [m].

    It turns at `whirl` until it has its speed, and then keeps it. From the widest turn it goes back
    to the start, and begins again the other way round.
    """
    growth = constants.pitch / (2.0 * math.pi)
    bend = constants.search / constants.whirl  # the radius from which on the speed is kept
    whirl_end = bend / (growth * constants.whirl)  # [s], as all times here, from a round's start
    area = 2.0 * growth * constants.search
    spiral_end = whirl_end + (constants.widest**2 - bend**2) / area
    rounds = (seconds / (spiral_end + constants.return_time)).floor()
    time = seconds - rounds * (spiral_end + constants.return_time)
    since_whirl = (time - whirl_end).clamp(min=0.0, max=spiral_end - whirl_end)
    radius = torch.where(
        time < whirl_end, growth * constants.whirl * time, (bend**2 + area * since_whirl).sqrt()
    )
    angle = (1.0 - 2.0 * (rounds % 2.0)) * radius / growth
    radius = radius * (1.0 - (time - spiral_end) / constants.return_time).clamp(0.0, 1.0)
    return radius[:, None] * torch.stack((angle.cos(), angle.sin()), 1)


def compute_tilted(felt: Feeling, constants: InsertConstants = DEFAULTS) -> Tensor:
    """Compute the twist (B, 6) that finds two walls with a corner of the tilted peg [m/s, rad/s].

    The lowest corner comes down near the middle of the hole as it is assumed, and so inside the
    true one unless that is half a width away. Pressed aside, the peg slides until two walls hold
    it, and falls in between them. There it is turned upright, and goes down.
    """
    upright = compute_turned_share(felt.seated, constants)
    met = (felt.searched > 0.0)[:, None]
    inside = ((upright >= 1.0) & (felt.sunk > constants.seated_depth))[:, None]
    wanted = constants.tilt * (1.0 - upright)[:, None] * felt.turn.new_tensor([1.0, -1.0])
    turn = constants.gain * (felt.turn[:, :2] + wanted)
    about = constants.yaw_gain * felt.turn[:, 2:] + constants.yaw_comply * felt.moment[:, 2:]
    give = (constants.turn_comply * felt.moment).clamp(-constants.turn_limit, constants.turn_limit)
    settle = constants.upright_gain * felt.turn + give
    to_start = constants.gain * (felt.aside - constants.tip_offset)
    limit = constants.slide
    slide = (constants.slide_gain * (constants.lean + felt.force[:, :2])).clamp(-limit, limit)
    across = torch.where(met, slide, to_start.clamp(-constants.fast, constants.fast))
    across = torch.where(inside, _comply(felt, constants), across)
    above = _approach(felt, constants, constants.touch)[:, None]
    press = _press(felt, constants, constants.lean_press, constants.settle)[:, None]
    insert = _insert(felt, constants, constants.sink)[:, None]
    down = torch.where(inside, insert, torch.where(met, press, above))
    turned = torch.where(inside, settle, torch.cat((turn, about), 1))
    return torch.cat((across, down, turned), 1)


def compute_turned_share(seated: Tensor, constants: InsertConstants = DEFAULTS) -> Tensor:
    """Compute the share (B,) of its tilt that a peg has lost which was held for so long [s]."""
    seconds = seated - constants.held_for
    return (constants.upright / constants.tilt * seconds).clamp(0.0, 1.0)


def _comply(felt: Feeling, constants: InsertConstants) -> Tensor:
    """Compute the velocity (B, 2) aside that yields to the force from aside."""
    limit = constants.comply_limit
    return (constants.comply * felt.force[:, :2]).clamp(-limit, limit)


def _align(felt: Feeling, constants: InsertConstants) -> Tensor:
    """Compute the turning velocity (B, 3) to the assumed orientation."""
    return constants.gain * felt.turn


def _approach(felt: Feeling, constants: InsertConstants, slow: float) -> Tensor:
    """Return the speed (B,) down above the surface, `slow` where contact may come."""
    room = felt.height - felt.corner - constants.slow_height
    return (slow + constants.gain * room).clamp(slow, constants.fast)


def _press(felt: Feeling, constants: InsertConstants, force: float, fastest: float) -> Tensor:
    """Return the speed (B,) down that presses with a force [N], `fastest` without contact."""
    press = (constants.press_gain * (force - felt.press)).clamp(-fastest, fastest)
    return torch.where(felt.press > constants.touches, press, fastest)


def _insert(felt: Feeling, constants: InsertConstants, fastest: float) -> Tensor:
    """Return the speed (B,) down in the hole, `fastest` without resistance."""
    limit = constants.insert_limit
    press = (constants.insert_gain * (constants.insert - felt.press)).clamp(-limit, limit)
    insert = torch.where(felt.press > constants.resists, press, fastest)
    lowest = felt.depth + constants.overtravel  # below the assumed surface
    return torch.minimum(insert, constants.gain * (felt.height + lowest))


def _join(felt: Feeling, constants: InsertConstants, aside: Tensor, turn: Tensor) -> Tensor:
    """Join the approach, the search of a program and the insertion to a twist (B, 6).

    Args:
        aside, turn: (B, 2) and (B, 3) velocities of the search, across the approach and turning.
    """
    above = (felt.searched <= 0.0)[:, None]
    inside = (felt.sunk > constants.in_depth)[:, None]
    approach = _approach(felt, constants, constants.slow)[:, None]
    search = _press(felt, constants, constants.press, constants.slow)[:, None]
    insert = _insert(felt, constants, constants.fast)[:, None]
    down = torch.where(above, approach, torch.where(inside, insert, search))
    to_axis = constants.gain * felt.aside
    across = torch.where(inside, _comply(felt, constants), torch.where(above, to_axis, aside))
    comply = constants.turn_comply * felt.moment
    turned = torch.where(inside, comply, turn)
    return torch.cat((across, down, turned), 1)


def convert_to_action(
    world: World, moment: Moment, twist: Tensor, reach: float, speed: float, damping: float
) -> Tensor:
    """Convert a twist (B, 6) of the peg at its tip, in the hand frame, to an action (B, n).

    Args:
        speed: share of the joints' speed limits that an action of 1 stands for.
    """
    R = moment.T_be[:, :3, :3]
    tip = twist.new_tensor([0.0, 0.0, reach]).expand(len(twist), 3)
    at_tcp = twist[:, :3] - torch.linalg.cross(twist[:, 3:], tip)
    velocity = torch.cat((R @ at_tcp[:, :, None], R @ twist[:, 3:, None]), 1)[:, :, 0]
    action = damped_least_squares(moment.J, velocity, damping) / (speed * world.model.qdlim)
    return action / action.abs().amax(1, keepdim=True).clamp_min(1.0)


class _Program:
    """A program in an environment of the task `insert`.

    Args:
        env: the environment to act in.
        constants: of the programs; None for those of the environment's task.
    """

    def __init__(self, env: Controlled, constants: InsertConstants | None = None):
        self._env = env
        self._constants = constants or env.task.program

    def compute_twist(self, felt: Feeling) -> Tensor:
        """Compute the twist (B, 6) of the peg's tip [m/s, rad/s]."""
        raise NotImplementedError

    def __call__(self, observation: Tensor) -> Tensor:
        """Return the action (B, n) in [-1, 1] for the environment's moment."""
        env = self._env
        task = env.task
        twist = self.compute_twist(task.feel(env.moment))
        return convert_to_action(
            env.world, env.moment, twist, task.reach, task.speed, self._constants.damping
        )


@register_controller("insert_straight")
class InsertStraight(_Program):
    """Peg straight down, yielding to what it feels from aside."""

    def compute_twist(self, felt: Feeling) -> Tensor:
        """Compute the twist (B, 6) of the peg's tip [m/s, rad/s]."""
        return compute_straight(felt, self._constants)


@register_controller("insert_spiral")
class InsertSpiral(_Program):
    """Spiral search for a hole with a pressed peg."""

    def compute_twist(self, felt: Feeling) -> Tensor:
        """Compute the twist (B, 6) of the peg's tip [m/s, rad/s]."""
        return compute_spiral(felt, self._constants)


@register_controller("insert_tilted")
class InsertTilted(_Program):
    """Tilted peg whose corner finds two walls of the hole, then turned upright."""

    def compute_twist(self, felt: Feeling) -> Tensor:
        """Compute the twist (B, 6) of the peg's tip [m/s, rad/s]."""
        return compute_tilted(felt, self._constants)
