"""Programs that put a peg into a hole by feel, as a programmer would write them.

They have no state: where the arm is and what it feels decide what to do. All is computed in the
hand's frame e, whose z is the approach. A program knows the assumed place of the hole, not the true
one.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.controllers import register_controller
from envs.controllers.controlled import Controlled
from envs.kinematics.least_squares import damped_least_squares
from envs.world import Moment, World


@dataclass(frozen=True)
class InsertConstants:
    """Constants of the programs, tuned on episodes of a seed of their own (docs: insert).

    Attributes:
        fast, slow: speed far above the surface, and where contact may come [m/s].
        guard: height over the assumed surface below which the peg is slow [m].
        in_depth: depth under the assumed surface from which the peg is in the hole [m].
        press, insert: force to press with while searching and while inserting [N].
        press_gain: speed per force that is missing [m/s/N].
        comply: speed aside per force from aside, in the hole [m/s/N]; turn_comply: turning speed
            per moment [rad/s/Nm].
        search: speed of the spiral [m/s]; pitch: distance of its turns [m]; widest: radius [m].
        whirl: fastest turning of the spiral [rad/s]; lag: of the arm behind its commands, by which
            it would widen the spiral [s].
        blocked: force from aside at which the search stops [N].
        friction: highest coefficient that is expected; more force from aside, by `sure` [N], comes
            from a wall of the hole. edge: speed per force then [m/s/N].
        gain: speed per distance [1/s]; damping: see `ResolvedRate` [m/rad].
        tilt: of the tilted strategy, about both axes of the hand [rad].
    """

    fast: float = 0.06
    slow: float = 0.008
    guard: float = 0.0015
    in_depth: float = 0.002
    press: float = 10.0
    insert: float = 25.0
    press_gain: float = 2e-4
    comply: float = 2e-4
    turn_comply: float = 0.05
    search: float = 0.008
    pitch: float = 0.0022
    widest: float = 0.0045
    whirl: float = 12.0
    lag: float = 0.04
    friction: float = 0.5
    sure: float = 2.0
    blocked: float = 10.0
    edge: float = 2.5e-4
    gain: float = 6.0
    damping: float = 0.02
    tilt: float = 0.1


DEFAULTS = InsertConstants()


@dataclass(frozen=True)
class Feeling:
    """Quantities that a program knows, in the hand's frame.

    Attributes:
        aside: (B, 2) from the peg to the assumed axis of the hole [m].
        height: (B,) of the peg's tip over the assumed surface [m].
        turn: (B, 3) rotation vector to the assumed orientation [rad].
        corner: how much lower the lowest corner of the tilted peg is than its tip's middle [m].
        force, moment: (B, 3) on the hand, at the peg's tip [N, Nm].
    """

    aside: Tensor
    height: Tensor
    turn: Tensor
    corner: Tensor
    force: Tensor
    moment: Tensor

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
    return Feeling(error[:, :2], error[:, 2] - depth, turn, corner, force, at_tip)


def compute_straight(felt: Feeling, constants: InsertConstants = DEFAULTS) -> Tensor:
    """Compute the twist (B, 6) that moves straight down and complies [m/s, rad/s]."""
    return _join(felt, constants, _comply(felt, constants), _align(felt, constants))


def compute_spiral(felt: Feeling, constants: InsertConstants = DEFAULTS) -> Tensor:
    """Compute the twist (B, 6) that searches along a spiral while it presses [m/s, rad/s]."""
    place = -felt.aside
    radius = torch.linalg.vector_norm(place, dim=1, keepdim=True)
    start = place.new_tensor([1.0, 0.0]).expand_as(place)
    outward = torch.where(radius > 1e-4, place / radius.clamp_min(1e-6), start)
    around = torch.stack((-outward[:, 1], outward[:, 0]), 1)
    speed = (constants.whirl * radius).clamp(0.25 * constants.search, constants.search)
    widening = constants.pitch / (2.0 * math.pi) - constants.lag * speed
    share = (widening / radius.clamp_min(1e-5)).clamp(-0.9, 0.9)
    share = torch.where(radius < constants.widest, share, -0.5)
    search = speed * (share * outward + (1.0 - share.square()).sqrt() * around)
    force = torch.linalg.vector_norm(felt.force[:, :2], dim=1, keepdim=True)
    rubs = constants.friction * felt.press.clamp_min(0.0)[:, None] + 1.0
    wall = ((force - rubs) / constants.sure).clamp(0.0, 1.0)  # more than friction explains
    search = (1.0 - wall) * search + wall * constants.edge * felt.force[:, :2]
    touching = (felt.press > 0.3 * constants.press)[:, None]
    aside = torch.where(touching, search, torch.zeros_like(search))
    press = constants.press + wall[:, 0] * (constants.insert - constants.press)
    return _join(felt, constants, aside, _align(felt, constants), press)


def compute_tilted(felt: Feeling, constants: InsertConstants = DEFAULTS) -> Tensor:
    """Compute the twist (B, 6) that lets a corner of the tilted peg into the hole [m/s, rad/s].

    Deeper, the peg is turned upright, pressed against the walls that its corner has found.
    """
    lean = 0.5 * constants.press
    against = (-felt.force[:, :2]).amin(1)  # what both walls that the corner has found give
    deep = (-felt.height / constants.in_depth).clamp(0.0, 1.0)
    found = torch.maximum(deep, (against / (0.7 * lean)).clamp(0.0, 1.0))
    wanted = constants.tilt * (1.0 - found[:, None]) * felt.turn.new_tensor([1.0, -1.0, 0.0])
    turn = constants.gain * (felt.turn + wanted)
    touching = (felt.press > 0.3 * constants.press)[:, None]
    aside = constants.press_gain * (lean + felt.force[:, :2])
    aside = torch.where(touching, aside.clamp(-0.01, 0.01), constants.gain * felt.aside)
    return _join(felt, constants, aside, turn)


def _comply(felt: Feeling, constants: InsertConstants) -> Tensor:
    return constants.comply * felt.force[:, :2]


def _align(felt: Feeling, constants: InsertConstants) -> Tensor:
    return constants.gain * felt.turn


def _join(
    felt: Feeling,
    constants: InsertConstants,
    aside: Tensor,
    turn: Tensor,
    press: Tensor | None = None,
) -> Tensor:
    """Join the approach, the search of a program and the insertion to a twist (B, 6).

    Args:
        press: (B,) force to press with in the search [N]; None: the constant.
    """
    wanted = constants.press if press is None else press
    above = (felt.height - felt.corner > constants.guard)[:, None]
    inside = (felt.height < -constants.in_depth)[:, None]
    room = felt.height - felt.corner - constants.guard
    approach = (constants.slow + constants.gain * room).clamp(constants.slow, constants.fast)
    search = (constants.press_gain * (wanted - felt.press)).clamp(-constants.slow, constants.slow)
    search = torch.where(felt.press > 1.0, search, constants.slow)
    force = (constants.press_gain * 4.0 * (constants.insert - felt.press)).clamp(-0.02, 0.02)
    insert = torch.where(felt.press > 5.0, force, constants.fast)
    insert = torch.minimum(insert, constants.gain * (felt.height + 0.025))
    above_, inside_ = above[:, 0], inside[:, 0]
    down = torch.where(above_, approach, torch.where(inside_, insert, search))
    to_axis = constants.gain * felt.aside
    across = torch.where(inside, _comply(felt, constants), torch.where(above, to_axis, aside))
    comply = constants.turn_comply * felt.moment
    turned = torch.where(inside, comply, turn)
    return torch.cat((across, down[:, None], turned), 1)


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
        constants: of the programs.
    """

    def __init__(self, env: Controlled, constants: InsertConstants = DEFAULTS):
        self._env = env
        self._constants = constants

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
    """Tilted peg whose corner finds the hole, then turned upright."""

    def compute_twist(self, felt: Feeling) -> Tensor:
        """Compute the twist (B, 6) of the peg's tip [m/s, rad/s]."""
        return compute_tilted(felt, self._constants)
