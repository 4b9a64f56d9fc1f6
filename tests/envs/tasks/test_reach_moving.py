"""Reach among obstacles that move: where they are, scenes that can be solved, what is seen."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from envs.arm_env.arm_env import ArmEnv
from envs.collision import Obstacles, clearance, compute_nearest, obstacle_distance
from envs.controllers import make_baseline
from envs.controllers.follow_replanned_path import LOOK_EVERY
from envs.controllers.follow_solution import AT_VIA, compute_joint_move
from envs.planning import moving_scenes as moving
from envs.planning import obstacle_scenes as scenes
from envs.planning.motion_planner import is_path_free, plan_path
from envs.robots import make_robot
from envs.simulation.calibration import displace_scene
from envs.simulation.disturbances import Disturbances
from envs.tasks.registry import make_task
from envs.view.handles import put
from envs.world import get_obstacles

TASK = make_task("reach_moving")


@pytest.fixture(scope="module")
def env():
    return ArmEnv(make_robot("panda"), TASK, 64, "cpu", 0)


# Where obstacles are


def test_an_obstacle_goes_there_and_back_in_a_round():
    """A line of 0.4 m at 0.25 rounds a second is gone along at 0.2 m/s: there in 2 s, back in 2."""
    ends = torch.tensor([[[[0.1, 0.0, 0.5], [0.5, 0.0, 0.5]]]])
    strokes = moving.Strokes(ends, torch.tensor([[0.25]]), torch.tensor([[0.0]]))
    for time, x, speed in ((0.0, 0.1, 0.2), (1.0, 0.3, 0.2), (3.0, 0.3, -0.2), (4.5, 0.2, 0.2)):
        place, velocity = strokes.locate(time)
        assert_close(place[0, 0], torch.tensor([x, 0.0, 0.5]))
        assert_close(velocity[0, 0], torch.tensor([speed, 0.0, 0.0]))
    later = replace(strokes, phases=torch.tensor([[0.5]]))  # half a round on: at the other end
    assert_close(later.locate(0.0)[0][0, 0], ends[0, 0, 1])


def test_obstacles_move_by_their_velocity_in_each_step(env):
    env.reset(1)
    for number in range(1, 6):
        before = env.now
        env.step(torch.zeros(64, 7))
        same = env.now.steps == number
        place, velocity = (before.scene[name] for name in ("spheres", "sphere_velocities"))
        step = env.now.scene["spheres"][:, :, :3] - place[:, :, :3]
        turned = (env.now.scene["sphere_velocities"] * velocity).sum(2) < 0
        goes_on = same[:, None] & ~turned
        assert goes_on.float().mean() > 0.8
        assert_close(step[goes_on], TASK.dt * velocity[goes_on], atol=1e-5, rtol=0)
    present = scenes.is_present(get_obstacles(env.scene))[0]
    speed = torch.linalg.vector_norm(env.scene["sphere_velocities"], dim=2)
    low, high = TASK.speed
    assert ((speed[present] > low - 1e-5) & (speed[present] < high + 1e-5)).all()
    assert not speed[~present].any()


def test_drift_is_how_fast_distances_change_while_the_arm_rests(env):
    env.reset(2)
    found = compute_nearest(env.world.collision, env.state.q, get_obstacles(env.scene), 0.0)
    h = 1e-3
    ahead, behind = (
        compute_nearest(env.world.collision, env.state.q, get_obstacles(env.scene).move(time), 0.0)
        for time in (h, -h)
    )
    change = (ahead.distance - behind.distance) / (2 * h)
    assert change.abs().max() > 0.2 and not found.drift[:, -1].any()
    # a nearest point may jump to another capsule or obstacle
    assert ((change - found.drift).abs() < 0.01).float().mean() > 0.97


def test_standing_obstacles_have_no_drift(env):
    standing = Obstacles(*get_obstacles(env.scene).kinds)
    assert compute_nearest(env.world.collision, env.state.q, standing, 0.0).drift is None
    assert standing.move(1.0).spheres is standing.spheres


# Scenes


def test_an_arm_on_the_known_motion_or_not_yet_started_touches_nothing(env):
    world = env.world
    duration = TASK.horizon * TASK.dt
    motion = moving.Motion(TASK.speed, TASK.stroke, TASK.crossing, TASK.pace, TASK.wait, duration)
    generator = torch.Generator().manual_seed(5)
    solution = world.random_q(8192, generator)
    solution = solution[world.in_workspace(env.fkine(solution)[:, :3, 3])]
    detour = TASK._draw_detour(world, solution, generator)
    margins = (TASK.margin, TASK.path_margin)
    detour, obstacles, strokes = moving.draw_moving_obstacles(
        world, detour, motion, margins, TASK.spread, generator
    )
    assert len(detour.start) > 50
    apart = torch.full((len(detour.start),), torch.inf)
    for time in torch.arange(0.0, duration, 0.02).tolist():  # finer than it was drawn
        then = moving.relocate(obstacles, strokes.locate(time)[0])
        q = moving.compute_known_motion(world, detour, TASK.pace, time)
        apart = torch.minimum(apart, obstacle_distance(world.collision, q, then))
        if time <= TASK.wait - 0.1:
            still = obstacle_distance(world.collision, detour.start, then)
            assert (still > TASK.margin - 0.02).all()
    assert (apart > 0.0).all()
    assert_close(q, detour.solution)
    assert (clearance(world.collision, q, ground=0.0) > 0.0).all()


def test_scenes_have_several_movers(env):
    drawn = TASK.sample_scenes(env.world, 8192, torch.Generator().manual_seed(4))
    spheres, boxes, walls = scenes.is_present(get_obstacles(drawn))
    movers = torch.cat((spheres, boxes), 1).sum(1)
    assert movers.float().mean() > 1.5 and walls.any() and not walls.all()
    length = torch.linalg.vector_norm(drawn["strokes"][:, :, 1] - drawn["strokes"][:, :, 0], dim=2)
    low, high = TASK.stroke
    moves = length > 0
    assert torch.equal(moves, torch.cat((spheres, boxes), 1))
    assert ((length[moves] > low - 1e-4) & (length[moves] < high + 1e-4)).all()


# What is seen


def test_known_obstacles_are_where_they_are_when_the_command_begins():
    latency = 2 * TASK.dt
    env = ArmEnv(
        make_robot("panda"), TASK, 64, "cpu", 0, disturbances=Disturbances(latency=latency)
    )
    env.step(torch.zeros(64, 7))
    strokes = moving.Strokes(
        *(env.scene[name] for name in ("strokes", "stroke_rates", "stroke_phases"))
    )
    time = env.now.steps[:, None] * TASK.dt + latency + 0.5 * TASK.dt
    place, velocity = strokes.locate(time)
    known = torch.cat((env.moment.scene["spheres"], env.moment.scene["boxes"][:, :, :4]), 1)
    goes_on = (strokes.locate(env.now.steps[:, None] * TASK.dt)[1] * velocity).sum(2) > 0
    assert goes_on.float().mean() > 0.2
    assert_close(known[:, :, :3][goes_on], place[goes_on], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("steps", "shown"), [(1, True), (2, True), (2, False), (1.4, True)])
def test_the_prediction_knows_no_more_than_what_is_seen(steps, shown):
    """Obstacles go on by the velocity that is shown, over their turns too, or stand."""
    latency = steps * TASK.dt
    task = replace(TASK, shows_velocity=shown)
    env = ArmEnv(make_robot("panda"), task, 8, "cpu", 0, disturbances=Disturbances(latency=latency))
    ahead = latency + 0.5 * TASK.dt
    moved = torch.tensor(0.0)
    for _ in range(25):
        env.step(torch.zeros(8, 7))
        for name, velocity in (("spheres", "sphere_velocities"), ("boxes", "box_velocities")):
            seen = env.now.scene[name][:, :, :3] + ahead * env.now.scene[velocity]
            assert_close(env.moment.scene[name][:, :, :3], seen, atol=1e-5, rtol=0)
            moved = torch.maximum(moved, env.now.scene[velocity].abs().max())
    assert (moved > 0.0) == shown


def test_a_displaced_scene_moves_along_displaced_lines(env):
    env.reset(3)
    turn = torch.tensor([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    T = torch.eye(4).repeat(64, 1, 1)
    T[:, :3, :3] = turn
    seen = displace_scene(env.scene, T)
    later = TASK._locate(seen, 0.3)
    true = TASK._locate(env.scene, 0.3)
    present = scenes.is_present(get_obstacles(env.scene))[0]
    assert_close(
        later["spheres"][present][:, :3],
        true["spheres"][present][:, :3] @ turn.T,
        atol=1e-5,
        rtol=0,
    )
    assert_close(seen["sphere_velocities"], env.scene["sphere_velocities"] @ turn.T)


def test_velocities_that_are_not_shown_are_nowhere():
    blind = replace(TASK, shows_velocity=False)
    env = ArmEnv(make_robot("panda"), blind, 8, "cpu", 0)
    assert "sphere_velocities" not in env.layout and "drift" not in env.layout
    env.step(torch.zeros(8, 7))
    assert not env.moment.scene["sphere_velocities"].any() and not env.find_nearest().drift.any()
    first = env.now.scene["spheres"]
    env.step(torch.zeros(8, 7))
    assert (env.now.scene["spheres"] != first).any()


def test_a_dragged_obstacle_goes_on_from_there(env):
    env.reset(6)
    one = env.now.each(lambda x: x[:1])
    row = scenes.is_present(one.obstacles)[0][0].nonzero()
    assert len(row), "seed 6 must have a sphere"
    number = int(row[0])
    T = torch.eye(4).numpy()
    T[:3, 3] = (0.5, 0.2, 0.4)
    moved = put(TASK, env.world, one, f"sphere {number}", T)
    assert_close(moved.scene["spheres"][0, number, :3], torch.tensor([0.5, 0.2, 0.4]))
    there = TASK._locate(moved.scene, 0.0)["spheres"][0, number, :3]
    assert_close(there, torch.tensor([0.5, 0.2, 0.4]), atol=1e-5, rtol=0)


# Programs


def test_planned_paths_are_free_when_the_arm_gets_there(env):
    """More of them than of paths among the same obstacles that are taken to stand; not all, since
    a goal may be covered just then.
    """
    env.reset(7)
    obstacles = get_obstacles(env.scene)
    goal = env.goal
    q = env.state.q
    via, solution = plan_path(env.world, q, goal, obstacles)
    free = is_path_free(env.world, q, via, solution, obstacles)
    assert free.float().mean() > 0.75
    standing = Obstacles(*obstacles.kinds)
    blind_via, blind = plan_path(env.world, q, goal, standing)
    assert is_path_free(env.world, q, blind_via, blind, obstacles).sum() < free.sum()


def test_a_path_is_planned_again_when_something_comes_into_its_way(env):
    """Looked at in every fourth step, of arms that stand still."""
    env.reset(8)
    program = make_baseline("replan", env)
    program(torch.empty(0))
    before = program._via
    changed = []
    for _ in range(8):
        env.step(torch.zeros(64, 7))
        program(torch.empty(0))
        same = env.moment.steps > 0
        changed.append(int(((program._via != before).any(1) & same).sum()))
        before = program._via
    looks = [count for number, count in enumerate(changed, 1) if number % LOOK_EVERY == 0]
    assert sum(looks) == sum(changed) > 0


def test_a_new_episode_has_a_path_of_its_own(env):
    program = make_baseline("replan", env)
    for seed in (9, 10):
        action = program(env.reset(seed))
        q = env.moment.state.q
        via, solution = plan_path(env.world, q, env.moment.scene["goal"], env.moment.obstacles)
        passed = ((q - via).abs().amax(1) < AT_VIA)[:, None]
        waypoint = torch.where(passed, solution, via)
        moved = compute_joint_move(env.model, q, waypoint, TASK.move_gain)
        assert_close(action, moved)


def test_a_new_episode_has_a_path_of_its_own_under_latency():
    """The observed moment of a latency of one step begins at step 1, and never is at 0."""
    late = ArmEnv(
        make_robot("panda"), TASK, 4, "cpu", 0, disturbances=Disturbances(latency=TASK.dt)
    )
    program = make_baseline("replan", late)
    for seed in (9, 10):
        program(late.reset(seed))
        assert (late.moment.steps == 1).all()
        moment = late.moment
        planned = plan_path(late.world, moment.state.q, moment.scene["goal"], moment.obstacles)
        assert_close((program._via, program._solution), planned)


def test_a_goal_that_is_moved_has_a_path_of_its_own(env):
    program = make_baseline("replan", env)
    program(env.reset(11))
    before = program._solution
    moment = env.moment
    goal = moment.scene["goal"].clone()
    goal[0, 2] += 0.05
    env.moment = TASK.move_goal(env.world, moment, goal)
    program(torch.empty(0))
    changed = (program._solution != before).any(1)
    assert changed[0] and not changed[1:].any()
