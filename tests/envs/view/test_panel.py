"""The page as a person uses it: a mouse that drags, clicks and slides, in a real Chromium."""

import json

import numpy as np
import pytest

from envs.config.env_options import EnvOptions
from envs.controllers import make_baseline
from envs.evaluation import Evaluation
from envs.view.interactive_control import InteractiveControl
from envs.view.panel import Panel
from envs.view.swift import SwiftViewer


class Led:
    """An arm in a page, its control steps made one by one."""

    def __init__(self, tab, task: str):
        evaluation = Evaluation(EnvOptions(task=task), episodes=1)
        evaluation.add("policy", lambda env: make_baseline("rrmc", env))
        self.tab = tab
        self.control = InteractiveControl(evaluation)
        self.panel = Panel(self.control)
        self.viewer = SwiftViewer(
            self.control.robot, open_browser=False, realtime=False, panel=self.panel
        )
        tab.goto(self.viewer.url)
        self.steps(2)

    def steps(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.viewer.show(*self.control.frame)
            self.panel.apply()
            self.control.step()

    def error(self) -> float:
        """Between TCP and goal [m]."""
        return float(
            np.linalg.norm(
                self.control.robot.rtb.fkine(self.control.frame.q).t - self.control.goal[:3]
            )
        )

    def pixel(self, point) -> tuple[float, float]:
        """Where a point of the world is in the page."""
        x, y = self.tab.evaluate(
            """(p) => { const { camera } = swiftView, v = camera.position.clone().set(...p);
            camera.updateMatrixWorld(); swiftGizmo.fit(); v.project(camera);
            return [(v.x + 1) / 2 * innerWidth, (1 - v.y) / 2 * innerHeight]; }""",
            list(map(float, point)),
        )
        return x, y

    def drag(self, start: tuple[float, float], by: tuple[float, float]) -> None:
        mouse = self.tab.mouse
        mouse.move(*start)
        mouse.down()
        for part in (0.3, 0.6, 1.0):
            mouse.move(start[0] + part * by[0], start[1] + part * by[1])
            self.steps()
        mouse.up()

    def slide(self, name: str, value: float) -> None:
        slider = self.tab.locator(".slider-div", has_text=name).first.locator("input")
        slider.evaluate(
            "(one, v) => { one.value = v; one.dispatchEvent(new Event('input')); }", value
        )
        self.steps(2)

    def shown(self, name: str) -> float:
        return float(
            self.tab.locator(".slider-div", has_text=name).first.locator("input").input_value()
        )

    def click(self, label: str) -> None:
        self.tab.locator("button", has_text=label).first.click()
        self.steps()

    def choose(self, name: str, option: str) -> None:
        self.tab.locator(".select-div", has_text=name).locator("select").select_option(option)
        self.steps()


@pytest.fixture(scope="module")
def led(page):
    page.set_viewport_size({"width": 640, "height": 400})
    led = Led(page, "reach")
    yield led
    led.viewer.close()


def test_the_arm_follows_a_goal_that_is_dragged_in_the_picture(led):
    led.control.put(
        "goal", np.array([[1.0, 0, 0, 0.5], [0, 1, 0, 0], [0, 0, 1, 0.4], [0, 0, 0, 1]])
    )
    led.steps(2)
    camera = led.tab.evaluate("swiftView.camera.position.toArray()")
    before = led.control.goal
    led.drag(led.pixel(before), (50, -30))
    led.steps(2)
    now = led.control.goal
    view = led.tab.evaluate(
        "swiftView.camera.getWorldDirection(swiftView.camera.position.clone()).toArray()"
    )
    # in the plane of the picture
    assert np.linalg.norm(now - before) > 0.05 and abs((now - before) @ view) < 1e-4
    # the scene did not orbit
    assert led.tab.evaluate("swiftView.camera.position.toArray()") == camera
    led.steps(60)
    assert led.error() < 0.01
    assert np.allclose([led.shown(name) for name in "xyz"], led.control.goal, atol=1e-3)


def test_the_middle_of_a_goal_is_no_arrow_where_one_points_away_behind_it(led):
    T = np.eye(4)
    T[:3, 3] = before = np.array([0.58, 0.4, 0.55])
    led.control.put("goal", T)
    led.steps(2)
    led.drag(led.pixel(before), (30, 20))
    led.steps(2)
    assert (
        np.abs(led.control.goal - before) > 0.01
    ).all()  # in the plane of the picture, not along y


def test_what_is_dragged_out_of_the_workspace_has_its_tools_where_it_is(led):
    T = np.eye(4)
    T[:3, 3] = 0.5, 0.0, led.control.placement_bounds[0, 2] + 0.01
    led.control.put("goal", T)
    led.steps(2)
    led.drag(led.pixel(led.control.goal + (0, 0, 0.09)), (0, 60))  # by the upright arrow
    led.steps(2)
    np.testing.assert_allclose(
        led.control.goal, (0.5, 0.0, led.control.placement_bounds[0, 2]), atol=1e-4
    )
    tools = led.tab.evaluate("swiftGizmo.handles.get('goal').ball.position.toArray()")
    np.testing.assert_allclose(tools, led.control.goal, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 2])
def test_an_arrow_moves_the_goal_along_its_axis_alone(led, axis):
    led.control.put(
        "goal", np.array([[1.0, 0, 0, 0.5], [0, 1, 0, 0.1], [0, 0, 1, 0.4], [0, 0, 0, 1]])
    )
    led.steps(2)
    before = led.control.goal
    tip = before + 0.09 * np.eye(3)[axis]
    start = led.pixel(before)
    end = led.pixel(tip)
    way = np.subtract(end, start)
    way *= 70 / np.linalg.norm(way)
    led.drag(tuple(np.add(start, way)), tuple(-0.7 * way))
    led.steps(2)
    moved = led.control.goal - before
    assert moved[axis] < -0.02 and np.abs(np.delete(moved, axis)).max() < 1e-4


def test_beside_the_goal_the_mouse_turns_the_scene(led):
    before = led.control.goal
    camera = led.tab.evaluate("swiftView.camera.position.toArray()")
    led.drag((560, 360), (-40, 0))
    assert led.tab.evaluate("swiftView.camera.position.toArray()") != camera
    np.testing.assert_array_equal(led.control.goal, before)


def test_sliders_move_the_goal_and_are_not_pushed_back(led):
    led.slide("x", 0.45)
    led.slide("z", 0.3)
    np.testing.assert_allclose(led.control.goal[[0, 2]], [0.45, 0.3], atol=1e-6)
    led.steps(5)
    assert (led.shown("x"), led.shown("z")) == (0.45, 0.3)


def test_every_button_and_choice_does_what_it_says(led):
    control = led.control
    goal = led.control.goal
    led.click("new goal")
    assert np.abs(control.goal - goal).max() > 1e-3
    gripper = control.frame.gripper
    led.click("gripper")
    control.step()
    assert control.frame.gripper != gripper
    led.click("❚❚")
    paused = control.frame.q
    led.steps(2)
    np.testing.assert_array_equal(control.frame.q, paused)
    led.click("step")
    assert np.abs(control.frame.q - paused).max() > 1e-6
    led.click("▶")
    assert not control.paused
    led.choose("controller", "neo")
    assert control.frame.text.startswith("neo")
    led.choose("compare", "rrmc")
    assert len(control.frame.ghosts) == 1
    led.choose("guard", "on")
    led.slide("latency", 50)
    assert control.options.guard and control.options.latency == 0.05
    led.choose("guard", "off")
    assert not control.options.guard
    led.tab.locator("#control-panel select").select_option("2x")
    led.steps()
    assert led.viewer._swift.speed == 2.0
    led.viewer._swift.set_pace(None)
    led.steps(20)
    led.click("reset")
    assert np.abs(control.frame.q - control.robot.home).max() < 0.4
    start = control._start.state.q
    goal = control.goal
    led.click("new episode")
    assert (control._start.state.q - start).abs().max() > 1e-3 and np.abs(
        control.goal - goal
    ).max() > 1e-3


BAD = [
    None,
    7,
    "goal",
    [],
    {},
    {"name": "goal"},
    {"name": "goal", "t": [0.5, 0, None], "q": [0, 0, 0, 1]},
]
BAD += [
    {"name": "goal", "t": [0.5, 0, 1e300], "q": [0, 0, 0, 1]},
    {"name": "goal", "t": [0.5, 0, 0.3], "q": [0, 0, 0, 0]},
]
BAD += [
    {"name": ["goal"], "t": [0.5, 0, 0.3], "q": [0, 0, 0, 1]},
    {"name": "sphere 99", "t": [0, 0, 0], "q": [0, 0, 0, 1]},
]
BAD += [
    json.loads('{"name": "goal", "t": [NaN, 0, 0.3], "q": [0, 0, 0, 1]}'),
    {"name": "goal", "t": "0.5", "q": [1] * 4},
]


def test_what_no_page_says_moves_nothing(led):
    before = led.control.goal
    swift = led.viewer._swift
    for moved in BAD:
        swift.process_events({"moved": moved})
    sliders = [key for key, element in swift.elements.items() if type(element).__name__ == "Slider"]
    selects = [key for key, element in swift.elements.items() if type(element).__name__ == "Select"]
    for value in (None, "0.5", float("nan"), float("inf"), -1e9, 1e9, [], True):
        swift.process_events({key: value for key in sliders})
    for value in (None, "99", "-1", 0, "x", [], "1.0", "0; DROP"):
        swift.process_events({key: value for key in selects})
    led.steps(3)
    np.testing.assert_array_equal(led.control.goal, before)


def test_the_picture_after_next_shows_what_a_drag_has_made_of_the_motion(led):
    """At 20 Hz that is 50 to 100 ms after the mouse moved."""
    led.control.reset()
    start = led.pixel(led.control.goal)
    led.tab.mouse.move(*start)
    led.tab.mouse.down()
    led.steps()
    led.tab.mouse.move(start[0] - 30, start[1] + 10)
    goal = led.control.goal
    led.steps()
    assert np.abs(led.control.goal - goal).max() > 0.01  # and a step was made with it
    led.tab.mouse.up()


# A drag right after the page's answer to the next picture, that is, while the period goes on.
DRAG_IN_A_PERIOD = """() => {
const { heard } = window;
window.heard = (name, data) => {
  heard(name, data);
  if (name !== "shape_poses" || !data.length) return;
  window.heard = heard;
  setTimeout(() => { swiftGizmo.moved = { name: "goal", t: [0.5, 0.2, 0.4], q: [0, 0, 0, 1] }; });
}; }"""


def test_what_comes_of_a_drag_within_a_period_is_in_the_next_picture(led):
    """Heard only before the next period's wait, and drawn after it, it would be in the one after
    that.
    """
    led.control.put(
        "goal", np.array([[1.0, 0, 0, 0.5], [0, 1, 0, -0.2], [0, 0, 1, 0.4], [0, 0, 0, 1]])
    )
    led.steps(2)
    led.tab.evaluate(DRAG_IN_A_PERIOD)
    led.viewer._swift.set_pace(0.1)
    led.steps()
    led.viewer._swift.set_pace(None)
    assert led.control.goal[1] == pytest.approx(0.2)


def test_a_page_that_is_reloaded_is_drawn_anew_with_its_controls_and_the_show_goes_on(led):
    led.click("❚❚")
    led.tab.reload()
    led.steps(3)
    assert led.tab.locator("button", has_text="▶").count() == 1  # it stands still, as before
    places = np.array(
        led.tab.evaluate("swiftScene.children.map((child) => child.position.toArray())")
    )
    for T_bl in led.control.robot.rtb.fkine_geometry(led.control.frame.q):
        assert np.linalg.norm(places - T_bl.t, axis=1).min() < 1e-6
    led.slide("x", 0.4)
    assert led.control.goal[0] == pytest.approx(0.4)
    led.click("▶")


def test_a_pose_is_turned_by_its_rings_and_sliders(page):
    led = Led(page, "reach_pose")
    try:
        led.slide("yaw", 30)
        led.slide("pitch", 120)  # beyond where roll, pitch and yaw are unique
        assert (led.shown("yaw"), led.shown("pitch")) == (30, 120)
        turned = led.control.frame.handles[0].T_bh
        led.pixel(turned[:3, 3])  # so that the rings have their size
        ring = turned[:3, 3] + 0.7 * led.tab.evaluate("swiftGizmo.frame.scale.x") * turned[
            :3, :3
        ] @ [0.6, 0.8, 0]
        led.drag(led.pixel(ring), (25, 25))
        led.steps(2)
        now = led.control.frame.handles[0].T_bh
        np.testing.assert_allclose(now[:3, 3], turned[:3, 3], atol=1e-6)
        change = turned[:3, :3].T @ now[:3, :3]
        assert np.degrees(np.arccos((np.trace(change) - 1) / 2)) > 5
        np.testing.assert_allclose(change[2], [0, 0, 1], atol=1e-4)  # about its own z axis
    finally:
        led.viewer.close()
