"""Pushing: where the hand is led, what it is paid, and that the cube gets there; by hand and by the
scripted push.
"""

import dataclasses
import math

import pytest
import torch

import envs
from envs.controllers import ScriptedPush
from envs.controllers.pointing import point_down
from envs.simulation import grasp
from envs.tasks.push import RewardInputs, compute_reward_terms
from envs.tasks.registry import make_task

TASK = make_task("push")


@pytest.fixture(scope="module", params=["panda", "ur5e"])
def env(request):
    return envs.make(request.param, "push", num_envs=100)


@pytest.fixture(scope="module")
def led():
    """A function of where the TCP and the cube are, with the goal 20 cm ahead of the latter along
    x: `Push.way`.
    """
    env = envs.make("panda", "push")

    def led(tcp, cube=(0.5, 0.0), goal=(0.7, 0.0)):
        moment = env.moment
        height = TASK.compute_tcp_height(env.world)
        T = moment.T_be.clone()
        T[0, :3, 3] = torch.tensor((*tcp[:2], height + tcp[2]))
        places = {"object": torch.tensor([[*cube, 0.02]]), "goal": torch.tensor([[*goal, 0.02]])}
        moment = dataclasses.replace(moment, T_be=T, scene={**moment.scene, **places})
        return TASK.compute_approach_vector(env.world, moment)[0].tolist()

    return led


def test_behind_the_cube_it_goes_on_towards_the_goal_and_back_onto_the_line(led):
    up = TASK.lift_gain * TASK.lift
    assert led((0.45, 0.0, 0.0)) == pytest.approx([TASK.stride, 0.0, up], abs=1e-6)
    high = TASK.lift_gain * (TASK.lift - 0.003)
    assert led((0.45, 0.004, 0.003)) == pytest.approx([TASK.stride, -0.004, high], abs=1e-6)
    # no farther than that
    assert led((0.45, 0.0, 0.0), goal=(0.52, 0.0)) == pytest.approx([0.02, 0.0, up], abs=1e-6)


def test_from_elsewhere_it_is_led_over_the_place_behind_the_cube_and_down_there(led):
    behind = 0.5 - TASK.behind
    # from the goal's side
    assert led((0.6, 0.0, 0.0)) == pytest.approx([behind - 0.6, 0.0, TASK.hover], abs=1e-6)
    # beside the cube: up first
    assert led((0.54, 0.0, 0.0)) == pytest.approx([0.0, 0.0, TASK.hover], abs=1e-6)
    nearly = TASK.hover - 0.9 * TASK.corridor
    assert led((0.54, 0.0, nearly))[:2] == pytest.approx([behind - 0.54, 0.0], abs=1e-6)
    # beside the line
    assert led((0.45, 0.03, 0.0))[:2] == pytest.approx([behind - 0.45, -0.03], abs=1e-6)
    high = led((behind, 0.0, 0.05))
    assert high == pytest.approx([0.0, 0.0, -0.05], abs=1e-6)
    aside = math.hypot(0.02, 0.0) - TASK.corridor
    assert led((behind - 0.02, 0.0, 0.05))[2] == pytest.approx(
        TASK.descent * aside - 0.05, abs=1e-6
    )


def test_once_the_cube_is_there_it_goes_nowhere_but_out_of_the_table(led):
    there = (0.5 + 0.9 * TASK.near, 0.0)
    assert led((0.45, 0.0, 0.0), goal=there) == [0.0, 0.0, 0.0]
    assert led((0.45, 0.0, 0.05), goal=there) == [0.0, 0.0, 0.0]
    assert led((0.45, 0.0, -0.005), goal=there) == pytest.approx([0.0, 0.0, 0.005], abs=1e-6)


def test_a_cube_nearly_there_is_pushed_on_but_not_come_back_for(led):
    nearly = (0.5 + (TASK.near + TASK.again) / 2.0, 0.0)
    assert led((0.45, 0.0, 0.0), goal=nearly)[0] > 0.0
    assert led((0.45, 0.05, 0.0), goal=nearly) == [0.0, 0.0, 0.0]


def test_once_the_cube_is_there_the_hand_does_not_turn(env):
    """It stands at the cube, and would push it on."""
    env.reset(4)
    scene = env.moment.scene
    assert TASK.compute_turn(env.world, env.moment).abs().max() > 0.1
    aside = torch.tensor([0.8 * TASK.near, 0.0, 0.0])
    there = {**scene, "object": scene["goal"] + aside}
    moment = dataclasses.replace(env.moment, scene=there)
    assert (TASK.compute_turn(env.world, moment) == 0.0).all()


def test_broad_faces_are_square_twice_a_turn(env):
    """What the hand has to turn by is what it is off, to a quarter of a turn; after it there is
    nothing left, and the push is across the closing direction.
    """
    moment = env.moment
    turn = env.task.compute_turn(env.world, moment)
    assert turn.abs().max() <= math.pi / 2 + 1e-5 and turn.abs().max() > 0.3
    cos = turn.cos()
    sin = turn.sin()
    one = torch.ones_like(turn)
    R = torch.stack((cos, -sin, 0 * one, sin, cos, 0 * one, 0 * one, 0 * one, one), 1).view(
        -1, 3, 3
    )
    T = moment.T_be.clone()
    T[:, :3, :3] = R @ T[:, :3, :3]
    assert env.task.compute_turn(env.world, dataclasses.replace(moment, T_be=T)).abs().max() < 1e-3
    across = grasp.compute_hand_axes(env.world.model.hand, T)[:, :2, 0]
    ahead = (env.scene["goal"] - env.scene["object"])[:, :2]
    assert torch.cosine_similarity(across, ahead).abs().min() > 0.999


def test_a_cube_that_is_seen_at_another_height_is_pushed_the_same_way(led):
    """A camera that is off by 5 mm makes the direction of a short push steep, if it may."""
    env = envs.make("panda", "push")
    scene = env.moment.scene
    level = scene["goal"].clone()
    level[:, 0] -= 0.014
    ways = []
    turns = []
    for height in (0.02, 0.025):
        cube = level.clone()
        cube[:, 2] = height
        T = env.moment.T_be.clone()
        T[:, :3, 3] = level - torch.tensor([0.05, 0.0, 0.0])
        T[:, 2, 3] = TASK.compute_tcp_height(env.world)
        moment = dataclasses.replace(env.moment, T_be=T, scene={**scene, "object": cube})
        ways.append(TASK.compute_approach_vector(env.world, moment))
        turns.append(TASK.compute_turn(env.world, moment))
    assert ways[0][0, 0] > 0.01
    torch.testing.assert_close(ways[0], ways[1])
    torch.testing.assert_close(turns[0], turns[1])


def test_a_hand_at_the_limit_of_its_last_joint_turns_to_its_other_face(env):
    moment = env.moment
    turn = TASK.compute_turn(env.world, moment)
    q = moment.state.q.clone()
    lower, upper = env.world.model.qlim[:, -1]
    onward = turn * moment.J[:, 5, -1]
    q[:, -1] = torch.where(onward > 0.0, upper, lower)
    moment = dataclasses.replace(moment, state=dataclasses.replace(moment.state, q=q))
    other = TASK.compute_turn(env.world, moment)
    turned = turn.abs() > 1e-3
    assert (other[turned].sign() == -turn[turned].sign()).all()
    torch.testing.assert_close(
        (turn - other)[turned].abs(), torch.full_like(turn, torch.pi)[turned]
    )


def test_free_joints_follow_what_is_preferred_and_the_hand_does_not_notice():
    """The elbow of a Panda swings towards home, while the hand stands still."""
    env = envs.make("panda", "push", num_envs=100)
    moment = env.moment
    still = torch.zeros(100, 3)
    turn = torch.zeros(100)
    preferred = 0.3 * (env.world.home - moment.state.q)
    assert preferred.norm(dim=1).min() > 0.01
    at_rest, homing = (
        point_down(env.world, moment, still, turn, 5.0, 0.01, each) * env.model.qdlim
        for each in (None, preferred)
    )
    difference = homing - at_rest
    assert (difference * preferred).sum(1).gt(0.0).all()  # nearer home
    velocity = (moment.J @ difference[:, :, None])[:, :, 0]
    alone = (moment.J @ preferred[:, :, None])[:, :, 0]
    assert velocity.norm(dim=1).median() < 0.02 * alone.norm(dim=1).median()


def test_the_reward_is_what_is_written_down():
    seen = RewardInputs(*(torch.tensor([value]) for value in (0.1, 0.2, 0.05, 0.9, -0.01)))
    terms = compute_reward_terms(TASK, seen, torch.tensor([[0.6, -0.8]]))
    effort = (0.36 + 0.64) / 2
    expected = {
        "approach": -0.1 * TASK.approach_weight,
        "tilt": -0.1 * TASK.tilt_weight,
        "turn": -0.2 * TASK.turn_weight,
        "distance": -0.05 * TASK.distance_weight,
        "precision": TASK.precision_weight * math.exp(-0.05 / TASK.precision_scale),
        "action": -effort * TASK.action_weight,
        "stillness": -TASK.stillness_weight
        * math.exp(-0.05 / TASK.stillness_scale)
        * math.sqrt(effort),
        "table": -TASK.table_weight,
    }
    assert {name: value.item() for name, value in terms.items()} == pytest.approx(
        expected, rel=1e-5
    )


def test_cubes_and_goals_lie_on_the_table_as_far_apart_as_it_says(env):
    env.reset(1)
    cube = env.scene["object"]
    goal = env.scene["goal"]
    apart = torch.linalg.vector_norm(goal - cube, dim=1)
    assert (cube[:, 2] == 0.02).all() and (goal[:, 2] == 0.02).all()
    assert (apart >= TASK.least_way).all() and (apart <= TASK.longest_way).all()
    assert env.world.in_workspace(
        torch.cat((cube, goal)) + torch.tensor([0, 0, env.world.workspace[0, 2] + 0.1])
    ).all()


def test_the_scripted_push_gets_it_there_and_decides_from_the_moment_alone(env):
    observation = env.reset(12345)
    push = ScriptedPush(env)
    touched = torch.zeros(100, dtype=torch.bool)
    for step in range(env.task.horizon):
        action = push(observation)
        assert action.shape == (100, env.a_dim) and (action.abs() <= 1 + 1e-6).all()
        if step == 40:
            assert torch.equal(action, ScriptedPush(env)(torch.zeros_like(observation)))
        result = env.step(action)
        observation = result.observation
        touched = touched | (result.info["table_clearance"] < 0)
    done = result.info["success"]
    assert done.float().mean() >= 0.9 and not touched[done].any()


def test_no_joint_is_led_out_of_its_limits_and_the_others_make_up_for_it(env):
    """Wherever the joints are within or at their limits, and wherever the hand is led."""
    world = env.world
    model = world.model
    lower, upper = model.qlim
    generator = torch.Generator().manual_seed(3)
    q = lower + torch.rand(100, len(lower), generator=generator) * (upper - lower)
    side = torch.randint(3, q.shape, generator=generator)
    q = torch.where(side == 0, lower, torch.where(side == 1, upper, q))
    moment = env.moment
    moment = dataclasses.replace(moment, state=dataclasses.replace(moment.state, q=q))
    way = 0.2 * torch.randn(100, 3, generator=generator)
    turn = torch.randn(100, generator=generator)
    action = point_down(world, moment, way, turn, 5.0, 0.05)
    assert (action[q == lower] >= 0.0).all() and (action[q == upper] <= 0.0).all()
    assert action[(q > lower) & (q < upper)].abs().max() > 0.1
    # joint 1 of those that would leave: the way is made without it
    start = env.moment
    way = way[:1].new_tensor([[0.0, 0.02, 0.0]]).expand(100, 3)
    free = point_down(world, start, way, None, 5.0, 0.001)
    moving = free[:, 0] > 0.01
    at = start.state.q.clone()
    at[:, 0] = upper[0]
    stopped = dataclasses.replace(start, state=dataclasses.replace(start.state, q=at))
    action = point_down(world, stopped, way, None, 5.0, 0.001)
    assert moving.any() and (action[moving, 0] <= 0.0).all()
    velocity = (start.J[:, :3] @ (action * model.qdlim)[:, :, None])[:, :, 0]
    made = velocity[:, 1] > 0.5 * velocity.norm(dim=1)
    assert made[moving].float().mean() > 0.9


def test_a_hand_that_comes_down_on_the_cube_stops_there_and_has_failed(env):
    """Led over the middle of the cube and then straight down on it."""
    env.reset(7)
    cube = env.scene["object"].clone()
    over = cube + torch.tensor([0.0, 0.0, 0.15])
    for step in range(90):
        there = over if step < 50 else cube
        way = there - env.moment.tcp
        result = env.step(point_down(env.world, env.moment, way, None, gain=3.0, damping=0.1))
        if step == 49:
            before = env.scene["touched"].clone()
            led = torch.linalg.vector_norm(over - env.now.tcp, dim=1) < 0.005
    led &= ~before & (env.scene["goal"] - cube).norm(dim=1).gt(0.1)
    led &= (env.now.tcp - cube)[:, :2].norm(dim=1) < 0.005  # no joint limit has led it aside
    assert led.sum() > 60
    assert env.scene["touched"][led].all() and not result.info["success"][led].any()
    # it does not slide out from under
    torch.testing.assert_close(env.scene["object"][led], cube[led])
