"""An arm that is led by hand, without drawing it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from envs.config.env_options import EnvOptions
from envs.controllers import make_baseline
from envs.evaluation import Evaluation
from envs.planning.motion_planner import plan_path
from envs.view.handles import list_handles, put
from envs.view.interactive_control import InteractiveControl
from envs.view.panel import Panel
from envs.view.scene import GHOST
from envs.world import get_obstacles
from td3_robot.errors import ConfigError

ALONG_X = np.array([[0.0, 0, 1, 0], [0, 1, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 1]])
HALF = np.diag([-1.0, 1, -1, 1])  # a half turn about y


def control(task: str = "reach", name: str = "rrmc", **options) -> InteractiveControl:
    evaluation = Evaluation(EnvOptions(task=task, **options), episodes=1)
    evaluation.add("policy", lambda env: make_baseline(name, env))
    return InteractiveControl(evaluation)


def pose(x: float, y: float, z: float) -> np.ndarray:
    T = np.eye(4)
    T[:3, 3] = x, y, z
    return T


def tcp(led: InteractiveControl) -> np.ndarray:
    return led.robot.rtb.fkine(led.frame.q).t


def steps(led: InteractiveControl, count: int) -> None:
    for _ in range(count):
        led.step()


@pytest.mark.parametrize("turned", [[1e-200, 0, 0, 0], [0, 0, 0, 0], [1e200, 0, 1e200, 0]])
def test_a_quaternion_without_a_direction_is_no_request(turned):
    """Its norm is 0 or infinite in floating point, and the goal would be no number."""
    panel = Panel(control("reach_pose"))
    panel._request_move("goal", [0.4, 0.1, 0.4], turned)
    assert not panel._requests
    panel._request_move("goal", [0.4, 0.1, 0.4], [0, 2.0, 0, 0])
    assert list(panel._requests) == ["move goal"]


def test_the_arm_follows_its_goal_without_end_and_each_wish_does_what_it_says():
    led = control()
    for x, y in ((0.5, 0.2), (0.4, -0.3)):  # for longer than an episode takes
        led.put("goal", pose(x, y, 0.4))
        steps(led, 70)
        assert np.linalg.norm(tcp(led) - (x, y, 0.4)) < 0.01
        assert "success" in led.frame.text and "3.50 s, at the goal after" in led.frame.text
    led.paused, still = True, led.frame.q
    steps(led, 3)
    np.testing.assert_array_equal(led.frame.q, still)
    led.step_once()
    assert "paused" in led.frame.text
    led.paused, before = False, led.goal
    led.draw_goal()
    assert np.abs(led.goal - before).max() > 1e-3 and np.abs(led.frame.q - still).max() < 0.05
    goal = led.goal
    led.reset()
    assert np.abs(led.frame.q - led.robot.home).max() <= 0.3 + 1e-6
    np.testing.assert_array_equal(led.goal, goal)
    start = led.frame.q
    led.draw_episode()
    assert np.abs(led.frame.q - start).max() > 1e-3 and np.abs(led.goal - goal).max() > 1e-3


def test_another_controller_takes_the_arm_over_and_a_ghost_begins_where_it_is():
    led = control(name="neo")
    steps(led, 5)
    there = led.frame.q
    led.choose("rrmc")
    led.compare("policy")
    np.testing.assert_array_equal(led.frame.q, there)
    (ghost,) = led.frame.ghosts
    np.testing.assert_array_equal(ghost.q, there)
    led.put("goal", pose(0.5, 0.0, 0.5))
    steps(led, 60)
    for q in (led.frame.q, led.frame.ghosts[0].q):  # one goal for both
        assert np.linalg.norm(led.robot.rtb.fkine(q).t - (0.5, 0.0, 0.5)) < 0.01
    led.compare(None)
    assert led.frame.ghosts == ()


def test_a_ghost_s_cube_is_seen_where_it_is_another():
    led = control("push", "push")
    led.compare("push")
    assert len(led.frame.shapes) == 2
    led._ghost.put("cube", pose(0.5, 0.3, 0.02))
    *_, cube = led.frame.shapes
    np.testing.assert_allclose(cube.T_bs[:3, 3], (0.5, 0.3, 0.02), atol=1e-6)
    assert len(led.frame.shapes) == 3 and cube.colour[3] == pytest.approx(GHOST)


def test_the_gripper_is_shut_and_opened_by_hand_until_another_controller_has_it():
    led = control()
    led.put("goal", pose(0.5, 0.4, 0.6))
    hand = led.robot.gripper
    assert led.frame.gripper == pytest.approx(hand.opened)
    for wanted in (hand.closed, hand.opened):
        led.toggle_gripper()
        steps(led, 20)
        assert led.frame.gripper == pytest.approx(wanted, abs=1e-4)
    led.toggle_gripper()
    led.choose("neo")
    assert led._arm.gripper.opening is None


def test_guard_and_latency_are_exchanged_while_the_arm_goes_on():
    led = control()
    led.put("goal", pose(0.5, 0.2, 0.05))
    led.disturb(guard=True, latency=0.1)
    assert led.options.guard and led.options.latency == 0.1
    before = led.frame.q
    steps(led, 2)
    np.testing.assert_array_equal(led.frame.q, before)  # nothing has arrived yet
    steps(led, 70)
    assert np.linalg.norm(tcp(led) - (0.5, 0.2, 0.05)) < 0.01
    with pytest.raises(ConfigError, match="latency"):
        led.disturb(latency=9.0)
    assert led.options.latency == 0.1
    steps(led, 1)


@pytest.mark.parametrize(
    ("task", "name", "names"),
    [
        ("reach_pose", "rrmc", ["goal"]),
        ("track", "rrmc", ["goal"]),
        ("reach_avoid", "reactive", ["goal", "sphere", "box"]),
        ("pick_place", "pick", ["goal", "cube"]),
        ("push", "push", ["goal", "cube"]),
        ("stack", "pick", ["goal", "cube"]),
    ],
)
def test_what_is_put_elsewhere_is_there_and_the_arm_goes_on(task, name, names):
    led = control(task, name)
    steps(led, 2)
    offered = {one.name.split()[0]: one for one in led.frame.handles}
    assert set(offered) <= set(names) and "goal" in offered
    for one in offered.values():
        T = one.T_bh.copy()
        T[:3, 3] = 0.9 * T[:3, 3] + 0.1 * led.placement_bounds.mean(0)
        led.put(one.name, T)
        (now,) = (other for other in led.frame.handles if other.name == one.name)
        wanted = np.clip(T[:3, 3], *led.placement_bounds)
        if one.name == "cube" or task in ("push", "stack"):  # as high as it lies, wherever it is
            wanted[2] = one.T_bh[2, 3]
        np.testing.assert_allclose(now.T_bh[:3, 3], wanted, atol=1e-6)
        if one.turns:
            np.testing.assert_allclose(now.T_bh[:3, :3], T[:3, :3], atol=1e-5)
    steps(led, 2)
    led.put("nothing of the kind", np.eye(4))


def test_a_cube_in_physics_stays_where_it_is_put_and_is_drawn_as_it_is_turned():
    pytest.importorskip("mujoco")
    led = control("pick_turned", "pick", engine="mujoco")
    (cube,) = (one for one in led.frame.handles if one.name == "cube")
    there = pose(*(cube.T_bh[:3, 3] + (0.0, 0.1, 0.0)))
    led.put("cube", there)
    steps(led, 2)  # the arm is still far away
    drawn = led.frame.shapes[1].T_bs
    np.testing.assert_allclose(drawn[:3, 3], there[:3, 3], atol=1e-3)
    yaw = led._start.scene["yaw"].item()
    np.testing.assert_allclose(drawn[:2, 0], (np.cos(yaw), np.sin(yaw)), atol=1e-2)


def test_nothing_is_put_outside_the_workspace():
    led = control()
    led.put("goal", pose(9.0, -9.0, 0.3))
    np.testing.assert_allclose(
        led.goal, [led.placement_bounds[1, 0], led.placement_bounds[0, 1], 0.3], atol=1e-6
    )


@pytest.mark.parametrize(
    "task, name, near, far",
    [
        ("reach", "rrmc", pose(0.5, 0.1, 0.4), pose(0.75, 0.5, 0.8)),  # 1.01 m from the shoulder
        # the TCP's z along x; back along it, the wrist would be 0.96 m from the shoulder's axis
        ("reach_pose", "rrmc", pose(0.45, 0, 0.4) @ ALONG_X, pose(0.75, 0, 0.4) @ ALONG_X @ HALF),
        # the hand points down there, so that the wrist is 0.81 m off that axis, and it has 0.72 m
        ("pick_place", "pick", pose(0.5, 0.1, 0.02), pose(0.75, 0.5, 0.02)),
    ],
)
def test_a_goal_that_is_put_out_of_reach_is_said_to_be_so(task, name, near, far):
    led = control(task, name)
    told = "the goal is out of reach"
    for where, out in ((near, False), (far, True), (near, False), (far, True)):
        led.put("goal", where)
        assert (told in led.frame.text) == out
    led.reset()
    assert told in led.frame.text  # the goal is still there
    led.draw_goal()
    assert told not in led.frame.text
    led.put("goal", far)
    led.draw_episode()
    assert told not in led.frame.text


@pytest.mark.parametrize("task, name", [("push", "push"), ("pick_place", "pick")])
def test_a_cube_that_is_put_out_of_reach_is_said_to_be_so(task, name):
    led = control(task, name)
    told = "the cube is out of reach"
    for where, out in ((pose(0.5, 0.1, 0.02), False), (pose(0.75, 0.5, 0.02), True)):
        led.put("cube", where)
        assert (told in led.frame.text) == out
    led.reset()
    led.draw_goal()
    assert told in led.frame.text  # the cube is still there
    assert "the goal is" not in led.frame.text
    led.draw_episode()
    assert told not in led.frame.text
    control().put("cube", pose(0.75, 0.5, 0.02))  # there is none


def test_an_obstacle_in_the_arm_is_a_contact_and_the_arm_is_still_there():
    led = control("reach_avoid", "reactive")
    ball = next(one for one in led.frame.handles if one.name != "goal")
    T = pose(*led.robot.rtb.fkine(led.frame.q).t)
    led.put(ball.name, T)
    before = led.frame.q
    led.step()
    assert "contact" in led.frame.text
    assert np.abs(led.frame.q - before).max() < 0.2  # no new episode


def test_after_a_contact_the_next_goal_is_met_as_any_other():
    led = control()
    steps(led, 3)
    touched = led._arm.env.arrived.scene["touched"]
    assert touched.shape == (1,)
    led._arm.env.moment = replace(
        led._arm.env.arrived, scene={**led._arm.env.arrived.scene, "touched": touched | True}
    )
    led.put("goal", pose(0.5, 0.2, 0.4))
    steps(led, 70)
    assert (
        np.linalg.norm(tcp(led) - (0.5, 0.2, 0.4)) < 0.01 and "at the goal after" in led.frame.text
    )


def test_another_way_is_looked_for_where_something_is_put_into_it():
    led = control("reach_avoid", "ik")
    steps(led, 2)
    env = led._arm.env
    scene = led._arm.env.arrived.scene
    ball = next(one for one in led.frame.handles if one.name != "goal")
    led.put(
        ball.name, pose(*env.fkine((env.arrived.state.q + scene["via"]) / 2)[0, :3, 3].tolist())
    )
    q = env.arrived.state.q
    after = env.arrived.scene
    assert not torch.equal(after["via"], scene["via"]) and not after["passed"].any()
    for name, found in zip(
        ("via", "solution"), plan_path(env.world, q, after["goal"], get_obstacles(after))
    ):
        torch.testing.assert_close(after[name], found)


def test_a_loop_goes_along_with_its_goal_and_a_new_goal_is_a_new_loop():
    led = control("track")
    steps(led, 5)
    before = led.frame.shapes[1].points
    goal = led.goal
    led.put("goal", pose(*(goal + [0.02, 0.0, -0.01])))
    moved = np.array(led.frame.shapes[1].points) - before
    np.testing.assert_allclose(moved, np.broadcast_to(led.goal - goal, moved.shape), atol=1e-6)
    led.draw_goal()
    assert len(led.frame.shapes[1].points) == len(before) and led.frame.shapes[1].points != before


def test_a_held_cube_is_no_handle():
    led = control("pick_place", "pick")
    moment = led._start
    held = torch.ones_like(moment.scene["held"])
    moment.scene["held"] = held
    assert [one.name for one in list_handles(led.task, moment)] == ["goal"]
    moved = put(led.task, led._scenes.world, moment, "goal", pose(0.5, 0.0, 0.3))
    np.testing.assert_allclose(moved.scene["goal"][0], [0.5, 0.0, 0.3])
