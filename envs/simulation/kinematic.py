"""The kinematic engine: joints follow their commands within limits; cubes move by geometry alone.

State in, state out: nothing here keeps or draws anything.
"""

import dataclasses
import math
from functools import partial

import torch
from torch import Tensor

from envs import kinematics
from envs.simulation import grasp
from envs.simulation.engine import OBJECT, SUPPORT, Command, Scene, SimModel, SimState
from td3_robot.errors import not_none
from td3_robot.utils.legacy import find_old_names


class KinematicEngine:
    """The kinematic `Engine`: `step` moves the arms, `grasp.move_cube` the cubes.

    Args:
        servo_lag: time constant with which joints follow the result of `step`, of first order [s].
            That reference is kept in the scene: `reference` (B, 2, n), its q and qd.
    """

    def __init__(self, servo_lag: float = 0.0):
        self._lag = servo_lag

    def begin(self, model: SimModel, state: SimState, scene: Scene) -> Scene:
        """Return the scene, with the servos' reference if they lag."""
        return {**scene, "reference": torch.stack((state.q, state.qd), 1)} if self._lag else scene

    def step(
        self, model: SimModel, state: SimState, command: Command, scene: Scene
    ) -> tuple[SimState, Scene]:
        """Move the arms and the cubes by one control period."""
        if self._lag:
            after, scene = self._follow_reference(model, state, command, scene)
        else:
            after = step(model, state, command.joints, command.grip)
        return (after, scene) if OBJECT not in scene else move_cubes(model, state, after, scene)

    def _follow_reference(
        self, model: SimModel, state: SimState, command: Command, scene: Scene
    ) -> tuple[SimState, Scene]:
        """Solve T dqd/dt + qd = qd_ref over a period with linear qd_ref; q_ref - q = T qd."""
        q_ref, qd_ref = scene["reference"].unbind(1)
        ahead = step(model, SimState(q_ref, qd_ref, state.gripper), command.joints, command.grip)
        lag = self._lag
        rise = (ahead.qd - qd_ref) / model.dt
        start = state.qd - qd_ref + lag * rise  # what decays
        qd = ahead.qd - lag * rise + math.exp(-model.dt / lag) * start
        q = torch.clamp(ahead.q - lag * qd, *model.qlim)  # the clamp only removes rounding
        return SimState(q, qd, ahead.gripper), {
            **scene,
            "reference": torch.stack((ahead.q, ahead.qd), 1),
        }


def move_cubes(
    model: SimModel,
    before: SimState,
    after: SimState,
    scene: Scene,
    any_width: bool = False,
    poses: tuple[Tensor, Tensor] | None = None,
) -> tuple[SimState, Scene]:
    """Push, hold, carry or release the cubes; one between the pads keeps the gripper open.

    Args:
        any_width: a held cube keeps the pads as far apart as they are, whatever its side: on a
            real arm it may differ from that of the model.
        poses: (B, 4, 4) TCP poses before and after, of a caller that has them.
    """
    hand = not_none(model.hand)
    T_0, T_1 = poses or (kinematics.fkine(model.chain, state.q) for state in (before, after))
    gap_0, gap_1 = (grasp.compute_gap(hand, state.gripper) for state in (before, after))
    was_held = scene["held"]
    support = scene.get(SUPPORT)
    cube, is_held, gap = grasp.move_cube(
        hand, T_0, T_1, scene[OBJECT], was_held, gap_0, gap_1, support
    )
    # Python's own numbers where the side is known: a tensor would round otherwise
    side = 2.0 * hand.half
    stopped = grasp.find_driver(hand, gap) if any_width else grasp.find_driver(hand, side)
    gripper = torch.where(gap > gap_1, stopped, after.gripper)
    compute_depth = partial(grasp.compute_press_depth, hand, T_0, T_1, gap=gap_0)
    cubes: Scene = {OBJECT: cube, "held": is_held}  # after the step
    if "contact_depth" in scene:
        depth = compute_depth(scene)
        cubes |= _hold_pressed_cube(OBJECT, scene, cubes, depth)
        cubes["held"] = is_held & (depth <= 0.0)
    if support is not None:
        pushed = grasp.push_cube(hand, T_0, T_1, support, gap_0)
        cubes[SUPPORT] = _push_support(hand, cubes[OBJECT], pushed)
        depth = compute_depth({**scene, OBJECT: support, "held": torch.zeros_like(was_held)})
        cubes |= _hold_pressed_cube(SUPPORT, scene, cubes, depth)
    return dataclasses.replace(after, gripper=gripper), {**scene, **cubes}


def _hold_pressed_cube(name: str, before: Scene, after: Scene, depth: Tensor) -> Scene:
    """Keep a cube under a finger where it was, and record the finger's depth."""
    place = torch.where((depth > 0.0)[:, None], before[name], after[name])
    return {name: place, "contact_depth": torch.maximum(depth, after.get("contact_depth", depth))}


def _push_support(hand: grasp.Hand, cube: Tensor, support: Tensor) -> Tensor:
    """Push the support (B, 3) away from a cube that comes from the side, as if both were round."""
    apart = support - cube
    distance = torch.linalg.vector_norm(apart[:, :2], dim=1)
    beside = apart[:, 2].abs() < 2.0 * hand.half - grasp.SOFTNESS
    stretch = torch.where(
        beside, (2.0 * hand.half - distance).clamp_min(0.0) / distance.clamp_min(1e-6), 0.0
    )
    return torch.cat((support[:, :2] + stretch[:, None] * apart[:, :2], support[:, 2:]), 1)


def step(model: SimModel, state: SimState, action: Tensor, grip: Tensor | None = None) -> SimState:
    """Advance every arm by one control period.

    The velocity command is action * qdlim. It is held to what the acceleration limit lets the joint
    reach in one period, and to what still lets it brake to rest inside its position limits, so that
    no limit is ever traded for another. Velocity rises or falls evenly over the period.

    Args:
        action: (B, n), clipped to [-1, 1]: the commanded fraction of each joint's velocity limit.
        grip: (B,) wanted opening in [0, 1], 1 is open; None leaves the gripper where it is.

    Returns:
        The state one period later; `qd` is the velocity that is reached at its end.
    """
    command = action.clamp(-1.0, 1.0) * model.qdlim
    ahead = predict_half_period_state(model, state)
    qd = torch.clamp(command, *find_reachable_velocities(model, ahead))
    lower, upper = model.qlim
    # the clamp only removes rounding
    q = torch.clamp(state.q + (0.5 * model.dt) * (state.qd + qd), lower, upper)
    return SimState(q, qd, _move_gripper(model, state.gripper, grip))


def predict_half_period_state(model: SimModel, state: SimState) -> SimState:
    """Return the arms with the half-period-ahead joint position, q + qd dt / 2 inside the limits.

    Commanded a velocity qd, an arm in a state (q, qd_0) comes to q + (qd_0 + qd) dt / 2, so its
    half-period-ahead position changes by qd dt, as if velocities jumped. Controllers and limits
    therefore use this position instead of q.
    """
    return dataclasses.replace(
        state, q=torch.clamp(state.q + (0.5 * model.dt) * state.qd, *model.qlim)
    )


def find_reachable_velocities(model: SimModel, ahead: SimState) -> tuple[Tensor, Tensor]:
    """Find the lowest and the highest velocity (B, n) that each joint can have after a period.

    Args:
        ahead: the arms half a period ahead, from `predict_half_period_state`.

    Returns:
        Both [rad/s or m/s].
    """
    lower, upper = model.qlim
    # both at once: with few arms the calls take the time
    room = torch.stack((ahead.q - lower, upper - ahead.q))
    down, fastest = compute_stopping_speed(room, model.dqd, model.dt).unbind()
    slowest = -down
    return torch.clamp(ahead.qd - model.dqd, slowest, fastest), torch.clamp(
        ahead.qd + model.dqd, slowest, fastest
    )


def compute_stopping_speed(distance: Tensor, dqd: Tensor, dt: float) -> Tensor:
    """Compute the greatest speed from which a joint can still stop within a distance.

    Commanded once and then lowered by dqd every period, a speed u * dqd (m - 1 < u <= m) moves the
    half-period-ahead position by u + (u - 1) + ... + (u - m + 1) = m u - m (m - 1) / 2 times
    dqd * dt before it is zero. Set equal to the distance and solved for u; m is the smallest count
    whose full sum m (m + 1) / 2 reaches it.

    Args:
        distance: (B, n) room from the half-period-ahead position to the limit, not negative
            [rad or m].
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


__getattr__ = find_old_names(__name__)
