"""Programs that put a peg into a hole by feel, as a programmer would write them.

They have no state of their own: where the arm is, what it feels, how long and how far it has moved
since it first pressed, and how long since two walls held it decide what to do. All is computed in
the hand's frame e, whose z is the approach. A program knows the assumed place of the hole, not the
true one.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.controllers import register_controller
from envs.controllers.controlled import Controlled
from envs.kinematics.least_squares import damped_least_squares
from envs.world import Moment, World

FELT = 1.5  # [N] that a peg which has met the surface presses with at least
CAUGHT = 2e-4  # [m] deeper than there: the peg may be on the bevel, and searches
SLOW = 0.25  # times as fast
_PERIOD = 0.05  # [s] over which the speed along the spiral is taken


@dataclass(frozen=True)
class InsertConstants:
    """Constants of the programs, tuned on episodes of a seed of their own (docs: insert).

    Attributes:
        fast: speed far above the surface [m/s].
        slow: speed where contact may come [m/s].
        slow_height: height over the assumed surface below which the peg is slow [m].
        in_depth: depth under the first contact from which the peg is in the hole [m].
        press, insert: force to press with while searching, and while inserting [N].
        press_gain, insert_gain: speed per force that is missing then [m/s/N].
        insert_limit: greatest speed that follows from a missing force while inserting [m/s].
        touches: press force below which the peg counts as touching nothing [N].
        resists: press force below which the peg counts as moving freely in the hole [N].
        overtravel: depth below the assumed bottom of the hole at which insertion ends [m].
        comply, comply_limit: speed aside per force from aside, in the hole [m/s/N], and fastest.
        turn_comply: turning speed per moment, in the hole [rad/s/Nm].
        turn_limit: fastest that follows, of the tilted peg [rad/s].
        search: speed along the spiral [m/s].
        pitch: distance of the spiral's turns [m].
        widest: radius of the spiral's outermost turn [m].
        whirl, spiral_gain: its fastest turning [rad/s], and speed per distance from it [1/s].
        return_time: time of the way back to the spiral's start [s].
        friction: highest coefficient that is expected.
        blocked: force from aside, beyond what friction explains, that comes from an edge of the
            hole [N].
        edge_gain: speed away from an edge per force beyond that [m/s/N].
        gain: speed per distance [1/s].
        damping: see `ResolvedRate` [m/rad].
        yaw_gain: turning speed about the approach per angle left, of the tilted peg [1/s].
        yaw_comply: turning speed about the approach per moment, of the tilted peg [rad/s/Nm].
        tilt: of the tilted strategy, about both axes of the hand [rad].
        tip_offset: of the tilted peg from the assumed axis, along both axes, where it comes down
            [m].
        touch: speed of the tilted peg where contact may come [m/s].
        lean, lean_press: force aside along both axes while it slides, and down meanwhile [N].
        slide, slide_gain: fastest sliding along each axis [m/s], per missing force [m/s/N].
        settle: fastest down meanwhile [m/s].
        held: share of `lean` that a wall gives.
        fallen: depth below the first contact that a peg between walls has [m].
        held_for: time between walls before the peg is turned upright [s].
        upright, upright_gain: speed of that turn [rad/s], per angle left at the depth below [1/s].
        seated_depth: depth under the first contact from which an upright peg is inserted [m].
        sink: speed of the tilted strategy down in the hole, without resistance [m/s].
    """

    fast: float = 0.06
    slow: float = 0.015
    slow_height: float = 0.012
    in_depth: float = 0.0012
    press: float = 15.0
    insert: float = 25.0
    press_gain: float = 6e-4
    insert_gain: float = 2.4e-3
    insert_limit: float = 0.02
    touches: float = 1.0
    resists: float = 5.0
    overtravel: float = 0.005
    comply: float = 1e-3
    comply_limit: float = math.inf
    turn_comply: float = 0.05
    turn_limit: float = math.inf
    search: float = 0.018
    pitch: float = 0.0035
    widest: float = 0.0065
    whirl: float = 12.0
    spiral_gain: float = 1.0
    return_time: float = 0.6
    friction: float = 0.5
    blocked: float = 1.0
    edge_gain: float = 4e-3
    gain: float = 6.0
    damping: float = 0.02
    yaw_gain: float = 6.0
    yaw_comply: float = 0.0
    tilt: float = 0.1
    tip_offset: float = 0.006
    touch: float = 0.013
    lean: float = 9.0
    lean_press: float = 9.0
    slide: float = 0.011
    slide_gain: float = 1.5e-3
    settle: float = 0.01
    held: float = 0.7
    fallen: float = 0.0015
    held_for: float = 0.05
    upright: float = 1.6
    upright_gain: float = 1.5
    seated_depth: float = 0.003
    sink: float = 0.02


DEFAULTS = InsertConstants()
# In a tight hole the peg has to take over its turn and tilt, and to be slow where it may hit. What
# yields within a latency has to stay below the clearance, or the peg strikes from wall to wall.
TIGHT = InsertConstants(
    slow_height=0.0045,
    insert=10.0,
    insert_gain=1e-3,
    comply_limit=0.003,
    turn_comply=0.2,
    turn_limit=0.1,
    yaw_gain=0.7,
    yaw_comply=0.05,
    slide=0.009,
    settle=0.006,
    upright_gain=2.0,
    sink=0.01,
)


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


def compute_search_rate(sunk: Tensor) -> Tensor:
    """Compute how fast (B,) the time of a search runs for pegs that have sunk so far (B,) [m]."""
    return torch.where(sunk > CAUGHT, SLOW, 1.0)


def compute_straight(felt: Feeling, constants: InsertConstants = DEFAULTS) -> Tensor:
    """Compute the twist (B, 6) that moves straight down and complies [m/s, rad/s]."""
    return _join(felt, constants, _comply(felt, constants), _align(felt, constants))


def compute_spiral(felt: Feeling, constants: InsertConstants = DEFAULTS) -> Tensor:
    """Compute the twist (B, 6) that searches along a spiral while it presses [m/s, rad/s]."""
    here = locate_on_spiral(felt.searched, constants)
    there = locate_on_spiral(felt.searched + _PERIOD, constants)
    along = compute_search_rate(felt.sunk)[:, None] * (there - here) / _PERIOD
    force = torch.linalg.vector_norm(felt.force[:, :2], dim=1, keepdim=True)
    most = constants.blocked + constants.friction * felt.press.clamp_min(0.0)[:, None]
    over = (1.0 - most / force.clamp_min(1.0)).clamp_min(0.0)  # more than friction explains
    away = constants.edge_gain * over * felt.force[:, :2]
    search = along + constants.spiral_gain * (here + felt.aside) + away
    return _join(felt, constants, search, _align(felt, constants))


def locate_on_spiral(seconds: Tensor, constants: InsertConstants = DEFAULTS) -> Tensor:
    """Locate the search (B, 2) that began some seconds (B,) ago, around its start [m].

    It turns at `whirl` until it has its speed, and then keeps it. From the widest turn it goes back
    to the start, and begins again the other way round.
    """
    growth = constants.pitch / (2.0 * math.pi)
    bend = constants.search / constants.whirl  # the radius from which on the speed is kept
    begun = bend / (growth * constants.whirl)
    area = 2.0 * growth * constants.search
    ends = begun + (constants.widest**2 - bend**2) / area
    rounds = (seconds / (ends + constants.return_time)).floor()
    time = seconds - rounds * (ends + constants.return_time)
    late = (time - begun).clamp(min=0.0, max=ends - begun)
    radius = torch.where(
        time < begun, growth * constants.whirl * time, (bend**2 + area * late).sqrt()
    )
    angle = (1.0 - 2.0 * (rounds % 2.0)) * radius / growth
    radius = radius * (1.0 - (time - ends) / constants.return_time).clamp(0.0, 1.0)
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


def find_walls(felt: Feeling, constants: InsertConstants = DEFAULTS) -> Tensor:
    """Find the tilted pegs (B,) that have fallen in between two walls, which hold them."""
    against = (-felt.force[:, :2]).amin(1)
    return (against > constants.held * constants.lean) & (felt.sunk > constants.fallen)


def compute_turned_share(seated: Tensor, constants: InsertConstants = DEFAULTS) -> Tensor:
    """Compute the share (B,) of its tilt that a peg has lost which was held for so long [s]."""
    seconds = seated - constants.held_for
    return (constants.upright / constants.tilt * seconds).clamp(0.0, 1.0)


def _comply(felt: Feeling, constants: InsertConstants) -> Tensor:
    limit = constants.comply_limit
    return (constants.comply * felt.force[:, :2]).clamp(-limit, limit)


def _align(felt: Feeling, constants: InsertConstants) -> Tensor:
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
    """Join the approach, the search of a program and the insertion to a twist (B, 6)."""
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
        felt = feel(env.moment, task.reach, task.depth, task.width / 2.0)
        twist = self.compute_twist(felt)
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
