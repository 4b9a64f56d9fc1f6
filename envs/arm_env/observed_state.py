"""What a controller is shown of arms: where they are bound for, under disturbances as they are
measured, and as they will be when its next command begins to act.
"""

from dataclasses import replace

import torch

from envs.simulation.calibration import measured_scene
from envs.simulation.disturbances import DisturbedEngine, correct_held_cube
from envs.simulation.engine import OBJECT, SUPPORT, Command, Scene, SimState
from envs.simulation.kinematic import KinematicEngine, bound_for
from envs.tasks.task import Task
from envs.world import Moment, World, make_moment

NOMINAL = KinematicEngine()  # what a controller takes the arms for


def predict_half_period(task: Task, world: World, moment: Moment) -> Moment:
    """The moment with its arms where they are bound for, and what they hold or go after with
    them.
    """
    there = make_moment(world, bound_for(world.model, moment.state), moment.scene, moment.steps)
    there = replace(there, scene=correct_held_cube(moment.scene, there.tcp - moment.tcp))
    return task.predict(there, 0.5 * world.model.dt)


def predict_command_start(
    task: Task, world: World, disturbed: DisturbedEngine, true: Moment
) -> Moment:
    """What the controller takes a moment for by what it has measured, when its next command begins
    to act.

    Its kinematics are worked out only where hands may carry something; for `predict_half_period` works them out
    in any case.
    """
    measured = disturbed.measure(world.model, true.state, true.scene)
    known = _rebuild_moment(world, true, measured, true.scene, true.steps)
    known = replace(
        known, scene=measured_scene(correct_held_cube(true.scene, known.tcp - true.tcp))
    )
    for command, share in disturbed.iter_pending(true.scene):
        after = _step_nominal(task, world, known, command)
        known = after if share == 1.0 else _interpolate(task, world, known, after, share)
    return known


def _rebuild_moment(
    world: World, before: Moment, state: SimState, scene: Scene, steps: torch.Tensor
) -> Moment:
    if "object" in scene:
        return make_moment(world, state, scene, steps)
    return replace(before, state=state, scene=scene, steps=steps, frames=None)


def _step_nominal(task: Task, world: World, before: Moment, command: Command) -> Moment:
    state, scene = NOMINAL.step(world.model, before.state, command, before.scene)
    return task.advance(
        world, before, _rebuild_moment(world, before, state, scene, before.steps + 1)
    )


def _interpolate(task: Task, world: World, now: Moment, then: Moment, share: float) -> Moment:
    """What comes a share of a control step after `now`: that share of the way to where it is bound
    for `then`, with the speed that it has then, since what was told before ends sooner.
    """
    model = world.model
    bounds = (bound_for(model, moment.state) for moment in (now, then))
    between, (before, later) = (lambda a, b: torch.lerp(a, b, share)), bounds
    q = torch.clamp(between(before.q, later.q) - (0.5 * model.dt) * later.qd, *model.qlim)
    state = SimState(q, later.qd, between(before.gripper, later.gripper))
    objects = {
        name: between(now.scene[name], then.scene[name])
        for name in (OBJECT, SUPPORT)
        if name in now.scene
    }
    part = _rebuild_moment(world, now, state, {**now.scene, **objects}, now.steps)
    return task.predict(part, share * model.dt)
