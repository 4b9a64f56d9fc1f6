"""Reach among obstacles: scenes that can be solved and are in the way, contact, the reward."""

import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from envs.arm_env.arm_env import ArmEnv
from envs.collision import Obstacles, clearance, compute_nearest, obstacle_distance
from envs.collision.obstacles import FAR
from envs.collision.queries import compute_segments
from envs.collision.surroundings import obstacle_distances
from envs.controllers.experts import make_expert
from envs.planning import contact_check as contact
from envs.planning import obstacle_scenes as scenes
from envs.planning.motion_planner import plan_path
from envs.robots import make_robot
from envs.simulation.calibration import displace_scene, make_pose_error, measured_scene
from envs.simulation.disturbances import Disturbances
from envs.tasks import among_obstacles
from envs.tasks.registry import make_task
from envs.world import get_obstacles
from td3_robot.errors import ConfigError
from tests.envs.playing import actions, play

TASK = make_task("reach_avoid")


@pytest.fixture(scope="module")
def env():
    return ArmEnv(make_robot("panda"), TASK, 64, "cpu", 0)


@pytest.fixture(scope="module")
def drawn(env):
    """Some hundred scenes."""
    generator = torch.Generator().manual_seed(3)
    blocks = [TASK.sample_scenes(env.world, 8192, generator) for _ in range(3)]
    return {name: torch.cat([block[name] for block in blocks]) for name in blocks[0]}


@pytest.fixture(scope="module")
def detour(env):
    """Those that `drawn` were made of."""
    generator = torch.Generator().manual_seed(3)
    known = [TASK.draw(env.world, 8192, generator)[0] for _ in range(3)]
    return scenes.Detour(
        *(torch.cat([getattr(one, name) for one in known]) for name in ("start", "via", "solution"))
    )


def number(scene) -> torch.Tensor:
    return sum(there.sum(1) for there in scenes.is_present(get_obstacles(scene)))


# Scenes


def test_starts_and_solutions_are_what_they_are_said_to_be(env, drawn, detour):
    world = env.world
    assert torch.equal(detour.start, drawn["start"])
    assert_close(env.fkine(detour.solution)[:, :3, 3], drawn["goal"])
    assert world.in_workspace(drawn["goal"]).all()
    assert ((drawn["start"] - world.home).abs() < TASK.start_spread + 1e-6).all()
    for q in (detour.start, detour.solution):
        assert (
            obstacle_distance(world.collision, q, get_obstacles(drawn)) > TASK.margin - 2.5e-4
        ).all()
        assert (clearance(world.collision, q, ground=0.0) > contact.MARGIN - 1e-6).all()
    lower, upper = world.model.qlim
    assert ((detour.via >= lower) & (detour.via <= upper)).all()
    assert not drawn["passed"].any()


def test_the_known_way_is_free_however_finely_it_is_walked(env, drawn, detour):
    assert (detour.compute_duration(env.world) < TASK.path_time).all()
    apart = touching = torch.full((len(detour.via),), torch.inf)
    for q in detour.sample_points(100):
        apart = torch.minimum(
            apart, obstacle_distance(env.world.collision, q, get_obstacles(drawn))
        )
        touching = torch.minimum(touching, clearance(env.world.collision, q, ground=0.0))
    assert (apart > 0).all() and (apart > 0.8 * TASK.path_margin).float().mean() > 0.97
    assert (touching > 0).all()


def test_one_to_five_obstacles_of_all_kinds_stand_in_the_way(env, drawn):
    count = number(drawn)
    assert set(count.tolist()) == {1, 2, 3, 4, 5}
    assert all(there.any(0).all() for there in scenes.is_present(get_obstacles(drawn)))
    first = env.fkine(drawn["start"])[:, :3, 3]
    last = drawn["goal"]
    share = torch.linspace(0, 1, 200)[:, None, None]
    line = torch.lerp(first, last, share).permute(2, 0, 1)
    assert (
        scenes.compute_point_distances(line, get_obstacles(drawn)).amin((0, 1))
        < scenes.IN_THE_WAY + 1e-6
    ).all()


def test_boxes_stand_upright_and_normals_have_unit_length(drawn):
    spheres, boxes, walls = scenes.is_present(get_obstacles(drawn))
    boxes = drawn["boxes"][boxes]
    walls = drawn["walls"][walls]
    assert_close(boxes[:, 6:].norm(dim=1), torch.ones(len(boxes)))
    assert not boxes[:, 7:9].any() and (boxes[:, 3:6] > 0).all()
    assert_close(walls[:, :3].norm(dim=1), torch.ones(len(walls)))
    assert (drawn["spheres"][spheres][:, 3] >= 0.05).all()


def test_points_are_as_far_from_obstacles_as_capsules_of_no_size(env, drawn):
    model = env.world.collision
    obstacles = get_obstacles(drawn)
    p, d = compute_segments(model, drawn["start"])
    tiny = replace(model, length_squared=0 * model.length_squared, radius=0 * model.radius)
    assert_close(
        scenes.compute_point_distances(p, obstacles), obstacle_distances(tiny, p, 0 * d, obstacles)
    )


def test_a_teacher_who_knows_the_way_gets_there_untouched(env):
    """So the ways are feasible for the simulator too, with its limits of speed and acceleration and
    4 s.
    """
    expert = make_expert("solution", env)
    observation = env.reset(11)
    going = torch.ones(64, dtype=torch.bool)
    arrived = torch.zeros(64, dtype=torch.bool)
    for _ in range(TASK.horizon):
        step = env.step(expert(observation))
        observation = step.observation
        arrived |= going & step.truncated & step.info["success"]
        going &= ~(step.terminated | step.truncated)
    assert not going.any() and arrived.float().mean() > 0.9


def test_the_way_is_looked_for_in_the_scene_as_it_is_measured():
    """Where the base is elsewhere than it is taken to be, goals and obstacles seem to be, too."""
    off = Disturbances(base_offset=0.05, base_turn=0.1)
    env = ArmEnv(make_robot("panda"), TASK, 64, "cpu", 0, disturbances=off)
    scene = env.arrived.scene
    q = env.arrived.state.q
    measured = measured_scene(scene)
    assert_close(
        scene["via"], plan_path(env.world, q, measured["goal"], get_obstacles(measured))[0]
    )
    true = plan_path(env.world, q, scene["goal"], get_obstacles(scene))[0]
    assert ((scene["via"] - true).abs().amax(1) > 0.01).float().mean() > 0.5


def test_the_way_is_shown_as_an_action_and_the_time_that_is_left(env):
    """Straight to what comes next: the corner, and once that is near the end."""
    observation = env.reset(12)
    scene = env.moment.scene
    for passed in (False, True):
        moved(env, passed=torch.full((64,), passed))
        observation = TASK.observe(env.world, env.moment)
        to = scene["solution"] if passed else scene["via"]
        action, left = (observation[:, env.layout[name]] for name in ("way", "way_left"))
        wanted = 6.0 * (to - env.state.q) / env.model.qdlim
        assert_close(action, wanted / wanted.abs().amax(1, keepdim=True).clamp(min=1.0))
        legs = [
            (to - env.state.q).abs() / env.model.qdlim,
            (scene["solution"] - to).abs() / env.model.qdlim,
        ]
        assert_close(left[:, 0], sum(leg.amax(1) for leg in legs))


def test_what_is_drawn_of_the_way_leads_from_the_tcp_over_the_corner_to_the_goal(env):
    env.reset(14)
    scene = env.moment.scene
    drawn = torch.tensor(TASK.make_shapes(env.world, env.moment)[-1].points)
    assert_close(drawn[0], env.moment.tcp[0])
    assert_close(drawn[-1], env.fkine(scene["solution"])[0, :3, 3])
    assert (drawn - env.fkine(scene["via"])[0, :3, 3]).norm(dim=1).min() < 1e-5


def test_a_corner_is_passed_for_good_when_every_joint_is_near(env):
    env.reset(13)
    near = env.state.q + torch.tensor([0.14, -0.14, 0.0, 0.0, 0.0, 0.0, 0.14])
    via = torch.where(torch.arange(64)[:, None] < 32, near, env.state.q + 0.16)
    moved(env, via=via)
    env.step(torch.zeros(64, 7))
    assert torch.equal(env.moment.scene["passed"] > 0, torch.arange(64) < 32)
    moved(env, via=env.state.q + 1.0)
    env.step(torch.zeros(64, 7))
    assert env.moment.scene["passed"][:32].all()


def test_an_arm_that_is_never_clear_of_itself_is_refused(env, monkeypatch):
    monkeypatch.setattr(
        among_obstacles, "is_free", lambda world, q: torch.zeros(q.shape[:-1], dtype=torch.bool)
    )
    with pytest.raises(
        ConfigError, match=r"'panda'.*clearance at home is 0\.05. m.* more than 0\.005 m"
    ):
        TASK.sample_scenes(env.world, 64, torch.Generator())


@pytest.mark.parametrize("name", ["reach_avoid", "reach_moving"])
def test_an_arm_without_a_scene_is_told_what_it_lacks(env, name, monkeypatch):
    """One is too slow for every way, the other cannot reach its workspace."""
    monkeypatch.setattr(f"envs.tasks.{name}.ROUNDS", 1)
    slow = replace(env.world, model=replace(env.model, qdlim=0.01 * env.model.qdlim))
    far = replace(env.world, workspace=env.world.workspace + 3.0)
    for world, words in (
        (slow, r"of another 64 positions [1-9].* and 0 a free way there of less than [\d.]+ s"),
        (far, "of another 64 positions 0 have the TCP in the workspace"),
    ):
        with pytest.raises(ConfigError, match=words):
            make_task(name).sample_scenes(world, 64, torch.Generator().manual_seed(0))


# Contact


def moved(env, **scene):
    """Put other things into the scene that the environment is in."""
    env.moment = replace(env.moment, scene={**env.moment.scene, **scene})


def test_contact_ends_the_episode_without_success(env):
    env.reset(1)
    touched = torch.arange(64) < 32
    spheres = env.moment.scene["spheres"].clone()
    # around the hand of the first half
    spheres[:32, 0] = torch.cat((env.tcp[:32], torch.full((32, 1), 0.05)), 1)
    before = env.step(torch.zeros(64, 7))
    still = torch.zeros(64, 7)
    assert not before.info["touched"].any() and not before.terminated.any()
    moved(env, spheres=spheres, goal=env.tcp)
    step = env.step(still)
    assert torch.equal(step.info["touched"], touched) and torch.equal(
        step.info["clearance"] < 0, touched
    )
    assert (step.info["position_error"] < TASK.tolerance).all() and torch.equal(
        step.info["success"], ~touched
    )
    assert torch.equal(step.terminated, touched) and not step.truncated.any()
    assert torch.equal(env.moment.steps == 0, touched)
    assert_close(step.info["reward/contact"], -TASK.contact_weight * touched.float())


def test_clearance_is_that_of_the_whole_arm(env):
    env.reset(2)
    for action in actions(env, 20):
        step = env.step(action)
        on = ~step.terminated  # where it is still the same episode
        whole = clearance(
            env.world.collision, env.state.q, get_obstacles(env.scene), 0.0, env.state.gripper
        )
        assert on.any() and (step.info["clearance"][~on] < 0).all()
        assert_close(step.info["clearance"][on], whole[on], atol=3e-4, rtol=0)


# Reward


# Observation


def test_push_is_the_way_down_of_each_nearness(env):
    """By differences in its own direction, times repulsion."""
    shown = env.reset(4)
    world = env.world
    scene = env.moment.scene
    moving = among_obstacles.find_moving_links(world)

    def nearness(q):
        return torch.exp(
            -compute_nearest(world.collision, q, get_obstacles(scene), 0.0).distance
            / TASK.repulsion
        )[:, moving]

    full = torch.zeros(64, scene["distance"].shape[1] * 7)
    h = 2e-3
    full[:, among_obstacles.find_gradient_columns(world)] = shown[:, env.layout["push"]]
    for link, push in enumerate(full.view(64, -1, 7)[:, moving].unbind(1)):
        fall = (nearness(env.state.q - h * push) - nearness(env.state.q + h * push))[:, link] / (
            2 * h
        )
        close = (
            TASK.repulsion * fall - push.square().sum(1)
        ).abs() < 1e-3 + 0.05 * push.square().sum(1)
        assert close.float().mean() > 0.95  # a nearest point may jump to another capsule


def test_what_is_left_out_of_push_is_zero(env):
    env.reset(4)
    gradient = compute_nearest(
        env.world.collision, env.state.q, get_obstacles(env.moment.scene), 0.0
    ).gradient.flatten(1)
    gradient[:, among_obstacles.find_gradient_columns(env.world)] = 0.0
    assert gradient.abs().max() < 0.06  # [m/rad] a link that turns in place is not quite round


def test_closing_is_how_fast_nearness_rises(env):
    env.reset(4)
    closing = play(env, 6)[-1].observation[:, env.layout["closing"]]
    world = env.world
    scene = env.moment.scene
    state = env.moment.state

    def nearness(q):
        return torch.exp(
            -compute_nearest(world.collision, q, get_obstacles(scene), 0.0).distance
            / TASK.repulsion
        )

    h = 1e-3
    rise = (nearness(state.q + h * state.qd) - nearness(state.q - h * state.qd)) / (2 * h)
    moving = among_obstacles.find_moving_links(world)
    assert rise[:, [link for link in range(rise.shape[1]) if link not in moving]].abs().max() < 0.3
    rise = rise[:, moving]
    close = (rise - closing).abs() < 0.02 + 0.05 * rise.abs()
    # a nearest point may jump to another capsule
    assert close.float().mean() > 0.98 and rise.abs().max() > 1.0


def test_the_observation_shows_what_is_near(env):
    env.reset(5)
    observation = play(env, 15)[-1].observation
    scene = env.moment.scene
    observed = {name: observation[:, env.layout[name]] for name in env.layout}
    assert_close(observed["nearness"], torch.exp(-scene["distance"] / TASK.repulsion))
    spheres = observed["spheres"].view(64, -1, 5)
    there = scenes.is_present(get_obstacles(scene))
    assert torch.equal(spheres[:, :, 4] > 0.5, there[0])
    for slot in range(scenes.SPHERES):
        stands = there[0][:, slot]
        assert_close(
            spheres[stands, slot, :3] * TASK.sight,
            (scene["spheres"][:, slot, :3] - env.moment.tcp)[stands],
        )
        assert not spheres[~stands, slot].any()
    walls = observed["walls"]
    wall = scene["walls"][:, 0]
    stands = there[2][:, 0]
    height = (wall[:, :3] * env.moment.tcp).sum(1) - wall[:, 3]
    assert_close(walls[stands, 3] * TASK.sight, height[stands], atol=1e-5, rtol=1e-4)


def test_a_box_turned_by_half_a_revolution_looks_the_same(env):
    def shown(yaw):
        box = torch.tensor(
            [[[0.5, 0.1, 0.3, 0.1, 0.2, 0.05, math.cos(yaw / 2), 0, 0, math.sin(yaw / 2)]]]
        )
        moved(env, boxes=box.expand(64, 2, 10))
        return TASK.observe(env.world, env.moment)[:, env.layout["boxes"]]

    env.reset(6)
    assert_close(shown(0.3), shown(0.3 + math.pi), atol=1e-5, rtol=1e-5)
    assert (shown(0.3) - shown(0.4)).abs().max() > 0.1


def test_parked_obstacles_are_out_of_reach(env):
    none = [
        torch.zeros(64, count, dtype=torch.bool)
        for count in (scenes.SPHERES, scenes.BOXES, scenes.WALLS)
    ]
    parked = scenes.park(get_obstacles(env.moment.scene), *none)
    assert not any(there.any() for there in scenes.is_present(parked))
    found = compute_nearest(env.world.collision, env.state.q, parked)
    assert (found.distance[:, :-1] == 10.0).all() and isinstance(parked, Obstacles) and FAR > 100


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("angle", [-2.4, -0.8, 0.5, 0.8, 2.4])
def test_obstacles_are_as_present_as_they_are_seen_from_a_base_that_is_turned(env, axis, angle):
    env.reset(6)
    true = get_obstacles(env.moment.scene)
    turn = torch.zeros(64, 3)
    turn[:, axis] = angle
    T = make_pose_error(torch.full((64, 3), 0.01), turn)
    names = ("spheres", "boxes", "walls")
    seen = displace_scene(dict(zip(names, true.kinds)), T)
    for before, after in zip(scenes.is_present(true), scenes.is_present(Obstacles(**seen))):
        assert torch.equal(before, after) and not before.all()
