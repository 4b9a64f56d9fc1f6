"""Observed states: predictions half a period ahead and, under disturbances, over the latency."""

from dataclasses import replace

import torch
from torch import Tensor

from envs.simulation import kinematic
from envs.simulation.calibration import measured_scene
from envs.simulation.disturbances import DisturbedEngine, correct_held_cube
from envs.simulation.engine import CLOCK, OBJECT, SUPPORT, Command, Scene, SimState
from envs.simulation.kinematic import predict_half_period_state
from envs.tasks.task import Task
from envs.world import Moment, World, make_moment


def predict_half_period(task: Task, world: World, moment: Moment) -> Moment:
    """Return the moment with arms, grasped cubes and moving goals half a period ahead."""
    state = predict_half_period_state(world.model, moment.state)
    ahead = make_moment(world, state, moment.scene, moment.steps)
    ahead = replace(ahead, scene=correct_held_cube(moment.scene, ahead.tcp - moment.tcp))
    return task.predict(ahead, 0.5 * world.model.dt)


def predict_command_start(
    task: Task, world: World, disturbed: DisturbedEngine, true: Moment
) -> Moment:
    """Predict the moment when the next command takes effect from the measured state.

    Kinematics are computed only if hands may carry something, or for `task.tcp_keys`;
    `predict_half_period` computes them in any case.
    """
    measured = disturbed.measure(world.model, true.state, true.scene)
    known = _rebuild_moment(task, world, true, measured, true.scene, true.steps)
    held = correct_held_cube(true.scene, known.tcp - true.tcp)
    known = replace(known, scene=measured_scene(held, task.goal_is_place))
    for command, share in disturbed.iter_pending(true.scene):
        after = _step_nominal(task, world, known, command)
        if isinstance(share, Tensor):
            known = _interpolate_each(task, world, known, after, share)
        else:
            known = after if share == 1.0 else _interpolate(task, world, known, after, share)
    return known


def _rebuild_moment(
    task: Task, world: World, before: Moment, state: SimState, scene: Scene, steps: Tensor
) -> Moment:
    if OBJECT in scene or task.tcp_keys:
        return make_moment(world, state, scene, steps)
    return replace(before, state=state, scene=scene, steps=steps, frames=None)


def _step_nominal(task: Task, world: World, before: Moment, command: Command) -> Moment:
    """Step the controller's model of the arms, the kinematic engine without lag."""
    model = world.model
    scene = before.scene
    state = kinematic.step(model, before.state, command.joints, command.grip)
    after = _rebuild_moment(task, world, before, state, scene, before.steps + 1)
    if OBJECT in scene:
        poses = before.T_be, after.T_be
        state, scene = kinematic.move_cubes(model, before.state, state, scene, poses=poses)
        after = replace(after, state=state, scene=scene)
    return task.advance_known(world, before, after)


def _interpolate(
    task: Task, world: World, now: Moment, then: Moment, share: float | Tensor
) -> Moment:
    """Return the moment a share of a control step after `now`, towards `then`, one step after it.

    The half-period-ahead positions are interpolated. The speed is that of `then`, since the command
    before ends sooner.

    Args:
        share: in [0, 1], a number or one for each arm (B, 1).
    """
    model = world.model
    before = predict_half_period_state(model, now.state)
    later = predict_half_period_state(model, then.state)
    q = torch.lerp(before.q, later.q, share) - (0.5 * model.dt) * later.qd
    gripper = torch.lerp(before.gripper[:, None], later.gripper[:, None], share)[:, 0]
    state = SimState(torch.clamp(q, *model.qlim), later.qd, gripper)
    gradual = {
        name: _lerp(now.scene[name], then.scene[name], share)
        for name in (OBJECT, SUPPORT, CLOCK, *task.tcp_keys)
        if name in now.scene
    }
    part = _rebuild_moment(task, world, now, state, {**now.scene, **gradual}, now.steps)
    return task.predict(part, share * model.dt)


def _interpolate_each(task: Task, world: World, now: Moment, then: Moment, share: Tensor) -> Moment:
    """Interpolate with a share (B,) for each arm; 0 is exactly `now` and 1 exactly `then`."""
    part = _interpolate(task, world, now, then, share[:, None])

    def choose(between: Tensor, first: Tensor, last: Tensor) -> Tensor:
        if first is last and between is first:
            return first
        each = _align(share, first)
        return torch.where(each == 0.0, first, torch.where(each == 1.0, last, between))

    return part.each(choose, now, then)


def _lerp(first: Tensor, last: Tensor, share: float | Tensor) -> Tensor:
    """Return values (B, ...) a share of the way from `first` to `last`."""
    return torch.lerp(first, last, _align(share, first) if isinstance(share, Tensor) else share)


def _align(share: Tensor, values: Tensor) -> Tensor:
    """Return a share of each arm in the shape that multiplies values (B, ...)."""
    return share.view(-1, *[1] * (values.ndim - 1))
