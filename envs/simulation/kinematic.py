"""The kinematic simulator: joint-velocity commands, limits and a gripper, for B arms at once.

State in, state out: nothing here keeps or draws anything.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from envs import kinematics
from envs.kinematics import Chain
from envs.robots import Robot
from td3_robot.errors import ConfigError


@dataclass(frozen=True)
class SimModel:
    """What stays the same over time: the robot as tensors on one device.

    Attributes:
        chain: kinematics from base to TCP.
        qlim: (2, n) [rad or m]; qdlim: (n,) [rad/s or m/s].
        dqd: (n,) largest change of velocity in one control step, qddlim * dt; infinite without qddlim.
        dt: control period [s].
        gripper_stroke: driver coordinate when closed and when open [rad or m].
        gripper_step: largest change of the driver coordinate in one control step.
        driver_mimic: (2,) position of the right and left driver joint as multiples of the driver
            coordinate; (0,) for an arm without a gripper.
        position_joints: how many joints can move the TCP. The last joint of most arms cannot: its axis
            passes through the TCP, and it only turns the gripper.
        qdddlim: (n,) [rad/s3 or m/s3], or None where none is known; never reached, see `compile_robot`.
    """

    chain: Chain
    qlim: Tensor
    qdlim: Tensor
    dqd: Tensor
    dt: float
    gripper_stroke: tuple[float, float]
    gripper_step: float
    driver_mimic: Tensor
    position_joints: int
    qdddlim: Tensor | None = None


@dataclass(frozen=True)
class SimState:
    """What changes: one row an arm."""

    q: Tensor  # (B, n) [rad or m]
    qd: Tensor  # (B, n) [rad/s or m/s]
    gripper: Tensor  # (B,) driver coordinate [rad or m]


def compile_robot(robot: Robot, dt: float, device: torch.device | str = "cpu") -> SimModel:
    """Turn a Robot into the tensors that `step` needs; `dt` is the control period [s].

    `step` has no jerk limit, because it needs none: it holds the acceleration within ±qddlim, which therefore changes
    by at most 2 qddlim from one period to the next. Over a period that is a jerk of 2 qddlim / dt, far below a real
    arm's limit unless the period is a few milliseconds.

    Raises:
        ConfigError: dt is so short that the jerk limit could be exceeded.
    """
    if robot.qdddlim is not None and dt < (shortest := float((2 * robot.qddlim / robot.qdddlim).max())):
        limits = "the simulator holds speed and acceleration, not jerk, which they bound only over longer periods"
        raise ConfigError(f"dt must be at least {shortest:g} s for robot {robot.name!r}, got {dt:g}: {limits}")
    tensor = lambda x: torch.as_tensor(x, dtype=torch.float32, device=device)  # noqa: E731
    hand = robot._gripper
    return SimModel(
        chain=robot.chain.to(device),
        qlim=tensor(robot.qlim),
        qdlim=tensor(robot.qdlim),
        dqd=tensor(robot.qddlim * dt) if robot.qddlim is not None else torch.full_like(tensor(robot.qdlim), torch.inf),
        dt=dt,
        gripper_stroke=(hand.closed, hand.opened) if hand else (0.0, 0.0),
        gripper_step=hand.speed * dt if hand else 0.0,
        driver_mimic=tensor(hand.mimic[list(hand.drivers)] if hand else []),
        position_joints=_position_joints(robot),
        qdddlim=tensor(robot.qdddlim) if robot.qdddlim is not None else None,
    )


def _position_joints(robot: Robot) -> int:
    """Joints up to the last one that moves the TCP, judged at poses spread over the position limits."""
    lower, upper = torch.as_tensor(robot.qlim)
    q = lower + torch.linspace(0.1, 0.9, 9, dtype=torch.float64)[:, None] * (upper - lower)
    J_v = kinematics.jacob0(robot.chain.to(dtype=torch.float64), q)[:, :3]
    moves = (J_v.abs() > 1e-6).any(0).any(0)  # chain constants are rounded to float32
    return int(moves.nonzero().max()) + 1


def rest(model: SimModel, q: Tensor) -> SimState:
    """Arms at rest at q (B, n) with the gripper open."""
    return SimState(q, torch.zeros_like(q), q.new_full((q.shape[0],), model.gripper_stroke[1]))


def batched_o(model: SimModel, state: SimState) -> Tensor:
    """`envs.o` for every simulated arm: (B, n + 2), or (B, n) without a gripper."""
    return torch.cat((state.q, state.gripper[:, None] * model.driver_mimic), 1)


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
