"""The kinematic engine: joints do what they are told within their limits; what the hand touches moves without forces.

State in, state out: nothing here keeps or draws anything.
"""

import dataclasses

import torch
from torch import Tensor

from envs import kinematics
from envs.simulation import grasp
from envs.simulation.engine import Command, Scene, SimModel, SimState
from td3_robot.errors import need


class Kinematic:
    """See `step` and `grasp.move_cube`; an `Engine`."""

    def step(self, model: SimModel, state: SimState, command: Command, scene: Scene) -> tuple[SimState, Scene]:
        """See `Engine.step`."""
        after = step(model, state, command.joints, command.grip)
        return (after, scene) if "object" not in scene else _with_cube(model, state, after, scene)


def _with_cube(model: SimModel, before: SimState, after: SimState, scene: Scene) -> tuple[SimState, Scene]:
    """The cube is pushed, held, carried or let go; between the pads it keeps the gripper from shutting."""
    hand, (T_before, T_after) = need(model.hand), (kinematics.fkine(model.chain, state.q) for state in (before, after))
    gap_before, gap_after = (grasp.gap_of(hand, state.gripper) for state in (before, after))
    cube, held, gap = grasp.move_cube(hand, T_before, T_after, scene["object"], scene["held"], gap_before, gap_after)
    gripper = torch.where(gap > gap_after, grasp.driver_of(hand, 2.0 * hand.half), after.gripper)
    return dataclasses.replace(after, gripper=gripper), {**scene, "object": cube, "held": held}


def step(model: SimModel, state: SimState, action: Tensor, grip: Tensor | None = None) -> SimState:
    """Advance every arm by one control period.

    The velocity command is action * qdlim. It is held to what the acceleration limit lets the joint
    reach in one period, and to what still lets it brake to rest inside its position limits, so that no
    limit is ever traded for another.

    Args:
        action: (B, n), clipped to [-1, 1]: the commanded fraction of each joint's velocity limit.
        grip: (B,) wanted opening in [0, 1], 1 is open; None leaves the gripper where it is.

    Returns:
        The state one period later; `qd` is the velocity held during that period.
    """
    command = action.clamp(-1.0, 1.0) * model.qdlim
    qd = torch.clamp(command, *reachable(model, state))
    lower, upper = model.qlim
    q = torch.clamp(state.q + qd * model.dt, lower, upper)  # the clamp only removes rounding
    return SimState(q, qd, _move_gripper(model, state.gripper, grip))


def reachable(model: SimModel, state: SimState) -> tuple[Tensor, Tensor]:
    """The lowest and the highest velocity (B, n) [rad/s or m/s] that each joint can take in the next period."""
    lower, upper = model.qlim
    slowest = -stopping_speed(state.q - lower, model.dqd, model.dt)
    fastest = stopping_speed(upper - state.q, model.dqd, model.dt)
    return torch.clamp(state.qd - model.dqd, slowest, fastest), torch.clamp(state.qd + model.dqd, slowest, fastest)


def stopping_speed(distance: Tensor, dqd: Tensor, dt: float) -> Tensor:
    """The greatest speed from which a joint, or what else moves, can still stop within `distance`.

    Held for one period and then lowered by dqd every period, a speed u * dqd (m - 1 < u <= m) covers
    u + (u - 1) + ... + (u - m + 1) = m u - m (m - 1) / 2 times dqd * dt before it is zero. Set equal to
    the distance and solved for u; m is the smallest count whose full sum m (m + 1) / 2 reaches it.

    Args:
        distance: (B, n) room up to the limit, not negative [rad or m].
        dqd: (n,) or (B, n) by how much the speed can fall in one period [rad/s or m/s].
        dt: the period [s].

    Returns:
        (B, n) speed [rad/s or m/s].
    """
    unlimited = distance / dt
    D = unlimited / dqd
    m = torch.ceil((torch.sqrt(1.0 + 8.0 * D) - 1.0) / 2.0).clamp_min(1.0)
    braking = dqd * (D / m + (m - 1.0) / 2.0)
    return torch.where(torch.isinf(dqd), unlimited, braking)


def _move_gripper(model: SimModel, gripper: Tensor, grip: Tensor | None) -> Tensor:
    if grip is None:
        return gripper
    closed, opened = model.gripper_stroke
    wanted = closed + grip.clamp(0.0, 1.0) * (opened - closed)
    return gripper + (wanted - gripper).clamp(-model.gripper_step, model.gripper_step)
