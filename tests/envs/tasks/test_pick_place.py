"""Pick and place: scenes that can be solved, what the policy sees, what it is paid, and who is
refused.
"""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.optimize import least_squares

import envs
from envs import kinematics
from envs.arm_env.arm_env import ArmEnv
from envs.robots import make_robot
from envs.robots.gripper import make_gripper
from envs.simulation import grasp
from envs.tasks.pick_place import RewardInputs, compute_reward_terms
from envs.tasks.registry import make_task
from td3_robot.errors import ConfigError

TASK = make_task("pick_place")
HANDED = pytest.mark.parametrize("robot", ["panda", "ur5e"])


@pytest.fixture(scope="module")
def robots():
    """Loaded once: name -> Robot."""
    return {name: make_robot(name) for name in ("panda", "ur5e")}


@pytest.fixture
def make(robots):
    return lambda robot="panda", num_envs=4, seed=0: ArmEnv(
        robots[robot], TASK, num_envs, "cpu", seed
    )


def actions(env, steps: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.rand(steps, env.num_envs, env.a_dim, generator=generator) - 1


def grasped(env, away: float = 0.0) -> None:
    """Put every cube between its open pads, and shut them."""
    put(env, env.tcp + away)
    for _ in range(20):
        action = torch.zeros(env.num_envs, env.a_dim)
        action[:, -1] = -1
        put(env, env.tcp) if not env.moment.scene["held"].all() else None
        env.step(action)


def put(env, cube: torch.Tensor) -> None:
    state = env.state_dict()
    known = state["known"] | {"scene": state["known"]["scene"] | {"object": cube.clone()}}
    env.load_state_dict(
        state | {"scene": state["scene"] | {"object": cube.clone()}, "known": known}
    )


# The environment


@HANDED
def test_everything_is_finite_and_of_the_declared_shape(make, robot):
    env = make(robot)
    assert env.a_dim == env.robot.n + 1
    assert env.reset(0).shape == (4, env.o_dim) and env.o_dim == env.layout.size
    for action in actions(env, 105):
        step = env.step(action)
        assert step.next_observation.shape == (4, env.o_dim) and step.reward.shape == (4,)
        for name, value in (step.info | {"o": step.observation, "r": step.reward}).items():
            assert value.shape[0] == 4 and torch.isfinite(value).all(), name
        assert not step.terminated.any()


def test_the_same_seed_gives_the_same_trajectory_and_a_state_dict_goes_on_exactly(make):
    first = make(seed=1)
    second = make(seed=2)
    assert torch.equal(first.reset(5), second.reset(5))
    for action in actions(first, 30):
        assert torch.equal(first.step(action).observation, second.step(action).observation)
    third = make(seed=3)
    third.load_state_dict(first.state_dict())
    for action in actions(first, 80, seed=1):  # over a reset
        assert torch.equal(first.step(action).observation, third.step(action).observation)


def test_no_element_of_the_observation_is_constant(make):
    env = make(num_envs=50)
    seen = [env.reset(0), *(env.step(action).observation for action in actions(env, 110))]
    put(env, env.tcp)
    grasped(env)
    seen = torch.cat([*seen, env.task.observe(env.world, env.moment)])
    ranges = seen.amax(0) - seen.amin(0)
    assert [name for name in env.layout if (ranges[env.layout[name]] < 1e-3).any()] == []


# Scenes


@HANDED
def test_cubes_lie_on_the_table_and_half_of_the_goals_in_the_air(make, robot):
    env = make(robot, num_envs=2000)
    cube = env.moment.scene["object"]
    goal = env.goal
    (lower, upper) = env.world.workspace
    assert (cube[:, 2] == 0.02).all() and not env.moment.scene["held"].any()
    air = goal[:, 2] != 0.02
    assert 0.4 < air.float().mean() < 0.6
    assert (goal[air, 2] > 0.07).all() and (goal[air, 2] < 0.3).all() and goal[air, 2].max() > 0.28
    for place in (cube, goal):
        assert (place[:, :2] >= lower[:2]).all() and (place[:, :2] <= upper[:2]).all()
        assert ((place[:, :2].amax(0) - place[:, :2].amin(0)) > 0.8 * (upper - lower)[:2]).all()
    assert (torch.linalg.vector_norm(goal - cube, dim=1) >= 0.1).all()


def test_cubes_and_goals_beyond_the_arms_reach_are_not_drawn(robots):
    """855 mm from the shoulder, by the Panda's data sheet, to a flange that has to be above the
    hand.
    """
    box = np.array([[0.2, -1.0, 0.05], [1.5, 1.0, 0.8]])
    env = ArmEnv(dataclasses.replace(robots["panda"], workspace=box), TASK, 500, "cpu", seed=0)
    for place in (env.moment.scene["object"], env.goal):
        assert torch.linalg.vector_norm(place[:, :2], dim=1).max() < 0.855


def test_the_hand_can_point_down_at_every_cube_and_goal_inside_the_joint_limits(robots, make):
    """By a solver and a model that know nothing of how the scenes were drawn."""
    env = make(num_envs=6)
    ets = robots["panda"].rtb.ets(end=robots["panda"].rtb.grippers[0])
    qlim = env.robot.qlim
    home = env.robot.home
    others = np.random.default_rng(0)

    def error(q: np.ndarray, place: np.ndarray) -> np.ndarray:
        T = ets.fkine(q).A
        return np.append(T[:3, 3] - place, 0.2 * (T[:3, 2] - [0, 0, -1]))

    for place in torch.cat((env.moment.scene["object"], env.goal)).double().numpy():
        costs = []
        for start in (home, *others.uniform(*qlim, (10, 7))):
            costs.append(least_squares(error, start, bounds=qlim, args=(place,)).cost)
            if costs[-1] < 1e-8:
                break
        assert min(costs) < 1e-8, place


# What the policy sees


@HANDED
def test_what_the_observation_says_is_so(make, robot):
    env = make(robot, num_envs=64)
    env.reset(0)
    for action in actions(env, 3):
        step = env.step(action)
    seen = {name: step.next_observation[:, env.layout[name]] for name in env.layout}
    T = env.fkine(seen["q"])
    scene = env.moment.scene
    closing = T[:, :3, 1] if robot == "panda" else T[:, :3, 0]
    torch.testing.assert_close(seen["tcp"], T[:, :3, 3])
    torch.testing.assert_close(seen["approach"], T[:, :3, 2])
    torch.testing.assert_close(seen["closing"], closing)
    assert torch.equal(seen["goal"], env.goal) and torch.equal(seen["object"], scene["object"])
    # in units of an eighth of a metre
    torch.testing.assert_close(seen["error"], 8 * (env.goal - scene["object"]))
    across = torch.linalg.cross(closing, T[:, :3, 2])
    axes = torch.stack((across, closing, T[:, :3, 2]), 1)
    torch.testing.assert_close(
        seen["in_hand"], 8 * (axes @ (scene["object"] - seen["tcp"])[:, :, None])[:, :, 0]
    )
    assert (seen["room"] <= 1).all() and (seen["held"] == 0).all()


def test_joint_way_and_joint_tilt_are_the_steepest_ways(make):
    """Gradients of minus half the squared distance to where `way` leads, and of the hand's height
    of pointing.
    """
    env = make(num_envs=20)
    observation = env.reset(0)
    h = 1e-6
    way = observation[:, env.layout["way"]].double() * TASK.error_unit
    aim = env.tcp.double() + way
    chain = env.model.chain.to(dtype=torch.float64)
    q = env.state.q.double()

    def distance(T):
        return 0.5 * (aim - T[:, :3, 3]).square().sum(1)

    def up(T):
        return T[:, 2, 2]

    for i in range(env.model.position_joints):
        dq = h * torch.eye(7, dtype=torch.float64)[i]
        T = [kinematics.fkine(chain, q + sign * dq) for sign in (1, -1)]
        for name, f, unit in (("joint_way", distance, TASK.error_unit), ("joint_tilt", up, 1.0)):
            if name == "joint_tilt" and i == 0:
                continue  # turns about the vertical
            slope = (f(T[0]) - f(T[1])) / (2 * h)
            shown = observation[:, env.layout[name]][:, i - (name == "joint_tilt")].double()
            torch.testing.assert_close(shown, -slope / unit, atol=1e-4, rtol=1e-3)


def test_the_way_leads_over_the_cube_and_then_straight_down(make):
    env = make()

    def target(x: float, z: float) -> list[float]:
        put(env, env.tcp - torch.tensor([x, 0.0, z]))
        cube = env.moment.scene["object"]
        return (env.moment.tcp + TASK.compute_approach_vector(env.world, env.moment) - cube)[
            0
        ].tolist()

    assert target(0.3, 0.2) == pytest.approx([0, 0, 0.07], abs=1e-6)  # hover
    assert target(0.03, 0.1) == pytest.approx([0, 0, 0.04], abs=1e-6)  # twice what is beyond 1 cm
    assert target(0.009, 0.1) == pytest.approx([0, 0, 0], abs=1e-6)


def test_with_the_cube_the_way_leads_to_the_goal(make):
    env = make()
    grasped(env)
    assert env.moment.scene["held"].all()
    torch.testing.assert_close(
        TASK.compute_approach_vector(env.world, env.moment), env.goal - env.moment.scene["object"]
    )


# The cube


@HANDED
def test_the_cube_keeps_the_gripper_open_and_goes_with_the_hand(make, robot):
    env = make(robot, num_envs=8)
    grasped(env)
    assert env.moment.scene["held"].all()
    torch.testing.assert_close(
        env.state.gripper, torch.full((8,), grasp.find_driver(env.model.hand, TASK.cube))
    )
    there = env.arrived
    offset = there.T_be[:, :3, :3].mT @ (there.scene["object"] - there.tcp)[:, :, None]
    action = 0.3 * actions(env, 10)
    action[:, :, -1] = -1
    for a in action:
        env.step(a)
    assert env.moment.scene["held"].all()
    there = env.arrived
    after = there.T_be[:, :3, :3].mT @ (there.scene["object"] - there.tcp)[:, :, None]
    torch.testing.assert_close(after, offset, atol=1e-5, rtol=0)
    action[-1, :, -1] = 1
    env.step(action[-1])
    assert not env.moment.scene["held"].any() and (env.moment.scene["object"][:, 2] == 0.02).all()


# What it is paid for


def seen(**changes) -> RewardInputs:
    values = {
        "approach_distance": 0.0,
        "distance": 0.0,
        "held": False,
        "down": 1.0,
        "room": 1.0,
        "clearance": 0.01,
    } | changes
    return RewardInputs(**{name: torch.tensor([value]) for name, value in values.items()})


def pay(action=(0.0, 0.0, 1.0), **changes) -> dict[str, float]:
    return {
        name: term.item()
        for name, term in compute_reward_terms(
            TASK, seen(**changes), torch.tensor([action])
        ).items()
    }


def test_reward_terms_are_what_a_hand_gets():
    terms = pay(
        (1.0, -0.2, 0.9),
        approach_distance=0.02,
        distance=0.05,
        down=0.5,
        room=0.25,
        clearance=-0.02,
    )
    effort = (1 + 0.04) / 2
    e = math.exp(-1)
    expected = {
        "approach": -0.02,
        "tilt": -0.2 * 0.5,
        "around": 0.5 * e,
        "gripper": -0.25 * ((1 - e) * 0.75 + e * 0.25),
        "held": 0.0,
        "distance": -2 * 0.05,
        "precision": 2 * math.exp(-5 / 2),
        "action": -0.05 * effort,
        "stillness": -0.3 * e * math.sqrt(effort),
        "table": -1.5 * 2,
    }
    assert terms == pytest.approx(expected, abs=1e-6)
    held = pay(held=True, approach_distance=0.2, distance=0.2, room=0.0)
    assert (
        held["approach"] == held["gripper"] == 0 and held["held"] == 1.5 and held["around"] == 0.5
    )


def test_each_stage_is_worth_more_than_the_one_before():
    stages = [
        pay(approach_distance=0.5, distance=0.4),
        pay(approach_distance=0.07, distance=0.4),
        pay(approach_distance=0.0, distance=0.4),
        pay(approach_distance=0.0, distance=0.4, room=0.0),
        pay(held=True, distance=0.4, room=0.0),
        pay(held=True, distance=0.1, room=0.0),
        pay(held=True, distance=0.0, room=0.0),
    ]
    worth = [sum(terms.values()) for terms in stages]
    assert (np.diff(worth) > 0).all()


def test_reward_is_the_sum_of_its_named_terms_and_success_the_cube_at_the_goal(make):
    env = make(num_envs=64)
    put(env, env.goal + torch.tensor([0.0, 0.0199, 0.0]) * (torch.arange(64) % 2)[:, None] * 1.01)
    for action in actions(env, 5):
        step = env.step(action)
        torch.testing.assert_close(
            step.reward, sum(v for k, v in step.info.items() if k.startswith("reward/"))
        )
        distance = torch.linalg.vector_norm(env.goal - env.moment.scene["object"], dim=1)
        torch.testing.assert_close(step.info["position_error"], distance)
        assert torch.equal(step.info["success"], distance < 0.02)
        assert torch.equal(step.info["object"], env.moment.scene["object"])


# Hindsight


@HANDED
@pytest.mark.parametrize("holding", [False, True])
def test_relabelled_with_its_own_goal_a_transition_stays_as_it_is(make, robot, holding):
    env = make(robot, num_envs=8)
    if holding:
        grasped(env)
    action = 0.2 * actions(env, 1)[0]
    action[:, -1] = -1
    state = env.task.observe(env.world, env.moment)
    before = env.memory()
    step = env.step(action)
    again = env.relabel(before, action, env.memory(arrived=True), env.goal)
    for name, mine, other in zip(
        ("state", "next", "reward"), again, (state, step.next_observation, step.reward)
    ):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5, msg=name)
    assert torch.equal(env.achieved_goal(env.memory()), env.moment.scene["object"])
    assert (step.next_observation[:, env.layout["held"]] == holding).all()


def test_relabelled_with_where_the_cube_came_to_lie_it_is_a_success(make):
    env = make()
    env.reset(0)
    kept = env.memory()
    action = actions(env, 1)[0]
    env.step(action)
    arrived = env.memory(arrived=True)
    goal = env.achieved_goal(arrived)
    before, after, _, _ = env.relabel(kept, action, arrived, goal)
    assert (after[:, env.layout["error"]] == 0).all() and torch.equal(
        before[:, env.layout["goal"]], goal
    )
    assert env.task.is_goal_met(after[:, env.layout["object"]], goal).all()


# Refused


def test_an_arm_that_cannot_grasp_the_cube_is_refused():
    with pytest.raises(ConfigError, match="needs a gripper, and robot 'puma560' has none"):
        envs.make("puma560", "pick_place")
    padless = dataclasses.replace(make_gripper("robotiq_2f_85"), pads=None)
    with pytest.raises(ConfigError, match="pads of gripper 'robotiq_2f_85'"):
        grasp.compile_hand(padless, TASK.cube)


def test_a_cube_too_large_for_the_gripper_is_refused(robots):
    with pytest.raises(
        ConfigError, match="'panda_hand' cannot grasp a cube of 0.09 m: it opens from 0 to 0.08 m"
    ):
        ArmEnv(robots["panda"], dataclasses.replace(TASK, cube=0.09), 1, "cpu", 0)
