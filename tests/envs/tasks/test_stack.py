"""Stacking: what counts as stacked, what the other cube does, and that it can be done; in both
engines.
"""

from dataclasses import replace

import pytest
import torch

import envs
from envs.controllers import ScriptedPick
from envs.simulation.engine import OBJECT, SUPPORT
from envs.tasks.registry import make_task
from tests.envs.playing import play, same, tensors

TASK = make_task("stack")
ON = torch.tensor([0.0, 0.0, TASK.cube])


@pytest.fixture(scope="module", params=("kinematic", "mujoco"))
def env(request):
    """Both have the same starts."""
    if request.param == "mujoco":
        pytest.importorskip("mujoco")
    return envs.make("panda", "stack", 6, seed=1, engine=request.param)


def begun(env, off):
    """The engine's account of episodes in which the cube is put at `off` (3,) from the other
    [m].
    """
    env.reset(1)
    scene = {**env.arrived.scene, OBJECT: env.arrived.scene[SUPPORT] + torch.as_tensor(off)}
    engine = env.engine or env._plant
    env.moment = replace(env.arrived, scene=engine.begin(env.model, env.arrived.state, scene))


def stand(env, steps=12):
    """The arm stays where it is, with an open hand."""
    still = torch.zeros(env.num_envs, env.a_dim)
    still[:, -1] = 1.0
    for _ in range(steps):
        step = env.step(still)
    return step


def test_a_cube_that_is_put_on_the_other_stays_there_and_is_a_success(env):
    begun(env, ON)
    step = stand(env)
    scene = env.arrived.scene
    torch.testing.assert_close(scene[OBJECT] - scene[SUPPORT], ON.expand(6, 3), atol=1e-3, rtol=0)
    assert step.info["success"].all() and (step.info["reward/stacked"] == TASK.stacked_weight).all()


def test_beside_the_other_or_over_its_edge_is_no_success(env):
    begun(env, (0.06, 0.0, 0.0))
    assert not stand(env).info["success"].any()
    begun(env, (0.03, 0.0, TASK.cube))
    step = stand(env)
    # it has fallen off
    assert not step.info["success"].any() and (env.arrived.scene[OBJECT][:, 2] < 0.05).all()


def test_the_script_stacks_and_what_it_still_holds_is_no_success(env):
    observation = env.reset(12345)
    pick = ScriptedPick(env)
    for _ in range(TASK.horizon):
        step = env.step(pick(observation))
        observation = step.observation
        assert not (env.arrived.scene["held"] & step.info["success"]).any()
    assert step.info["success"].float().mean() >= 5 / 6


def test_a_world_of_two_cubes_is_taken_up_again_to_the_bit(env):
    env.reset(3)
    play(env, 4)
    saved = env.state_dict()
    first = play(env, 5, 7)
    env.reset(4)
    env.load_state_dict(saved)
    assert all(same(tensors(a), tensors(b)) for a, b in zip(first, play(env, 5, 7)))


def test_a_cube_that_lost_what_it_was_on_is_no_success(env):
    """The other one is taken away from below it."""
    begun(env, ON)
    scene = env.arrived.scene
    away = {**scene, SUPPORT: scene[SUPPORT] + torch.tensor([0.0, 0.1, 0.0])}
    engine = env.engine or env._plant
    env.moment = replace(env.arrived, scene=engine.begin(env.model, env.arrived.state, away))
    step = stand(env)
    assert not step.info["success"].any() and (env.arrived.scene[OBJECT][:, 2] < 0.025).all()
    goal = env.arrived.scene["goal"] - env.arrived.scene[SUPPORT]
    torch.testing.assert_close(goal, ON.expand(6, 3))  # it has gone with it


def test_how_far_the_lower_cube_was_moved_is_measured(env):
    """By 3 cm, and half of the way back."""
    env.reset(2)
    after = env.arrived
    for way, moved in ((0.03, 0.03), (-0.015, 0.015)):
        before = after
        away = before.scene[SUPPORT] + torch.tensor([way, 0.0, 0.0])
        after = replace(before, scene={**before.scene, SUPPORT: away})
        after = env.task.advance(env.world, before, after)
        outcome = env.task.compute_outcome(env.world, after, torch.zeros(6, env.a_dim))
        torch.testing.assert_close(outcome.measures["support_moved"], torch.full((6,), moved))


@pytest.mark.parametrize("error", ["base_offset", "object_offset"])
def test_a_cube_that_is_seen_elsewhere_has_not_been_moved(error):
    env = envs.make("panda", "stack", 4, seed=1, **{error: 0.03})
    still = torch.zeros(4, env.a_dim)
    outcome = env.task.compute_outcome(env.world, env.moment, still)
    torch.testing.assert_close(outcome.measures["support_moved"], torch.zeros(4), atol=1e-6, rtol=0)


def test_another_goal_does_not_undo_how_far_the_lower_cube_was_moved(env):
    env.reset(2)
    scene = env.arrived.scene
    away = scene[SUPPORT] + torch.tensor([0.03, 0.0, 0.0])
    pushed = env.task.sense(env.world, replace(env.arrived, scene={**scene, SUPPORT: away}))
    for shift in (0.0, 0.1):
        goal = pushed.scene["goal"] + torch.tensor([0.0, shift, 0.0])
        other = env.task.replace_goal(env.world, pushed, goal)
        outcome = env.task.compute_outcome(env.world, other, torch.zeros(6, env.a_dim))
        torch.testing.assert_close(outcome.measures["support_moved"], torch.full((6,), 0.03))
        torch.testing.assert_close(other.scene["goal"] - other.scene[SUPPORT], ON.expand(6, 3))


@pytest.mark.parametrize(("moved", "counts"), [(0.019, True), (0.021, False)])
def test_on_a_cube_that_was_pushed_too_far_nothing_is_a_success(env, moved, counts):
    begun(env, ON)
    after = env.arrived
    scene = {**after.scene, "settled": torch.ones(6, dtype=torch.bool)}
    for name in (OBJECT, SUPPORT, "goal"):
        scene[name] = scene[name] + torch.tensor([0.0, moved, 0.0])
    outcome = env.task.compute_outcome(
        env.world, replace(after, scene=scene), torch.zeros(6, env.a_dim)
    )
    assert outcome.success.tolist() == [counts] * 6
    assert (outcome.terms["stacked"] == TASK.stacked_weight * counts).all()


def test_a_held_cube_stays_outside_of_the_berth_until_it_can_pass_over_the_other():
    """Ways from 0.1 m, 0.05 m and 0.01 m off, by the height over its place on the other."""
    berth = TASK.berth
    aside = torch.tensor([0.1, 0.05, 0.01])
    for height, low in ((-TASK.cube, True), (TASK.over, True), (2.0 * TASK.over, False)):
        way = torch.stack((aside, torch.zeros(3), torch.full((3,), -height)), 1)
        carried = TASK.compute_carrying_vector(way)
        wanted = torch.tensor([0.1 - berth, 0.05 - berth, 0.01]) if low else aside
        torch.testing.assert_close(carried[:, 0], wanted)
        assert (carried[:, 1] == 0.0).all()
        over = (TASK.descent * (aside - TASK.corridor)).clamp(0.0, TASK.hover)
        torch.testing.assert_close(carried[:, 2], over - height)


def test_randomised_physics_knows_both_cubes():
    pytest.importorskip("mujoco")
    from envs.simulation.disturbances import Disturbances
    from envs.simulation.variation import Variation

    varied = Disturbances(physics=Variation(cube_side=(0.044, 0.044), cube_mass=(0.1, 0.1)))
    env = envs.make("panda", "stack", 2, engine="mujoco", disturbances=varied)
    stand(env)
    for name in (OBJECT, SUPPORT):
        assert env.arrived.scene[name][:, 2].tolist() == pytest.approx([0.022] * 2, abs=2e-4)
