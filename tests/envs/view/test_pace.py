"""When the page draws, in a real Chromium that draws by software."""

import numpy as np
import pytest

from envs.robots import make_robot
from envs.view.swift import SwiftViewer

pytestmark = pytest.mark.slow  # drawing by software takes its time
PICTURES = "swiftView.renderer.info.render.frame"


@pytest.fixture(scope="module")
def viewer():
    with SwiftViewer(make_robot("wx250s"), open_browser=False, realtime=False) as viewer:
        yield viewer


@pytest.fixture(scope="module")
def tab(page, viewer):
    """A page that draws by itself."""
    tab = page.context.browser.new_page(viewport={"width": 96, "height": 64})
    tab.set_default_timeout(300_000)
    tab.goto(viewer.url)
    assert viewer.show(np.zeros(6))
    yield tab
    tab.close()


def wait_for(tab, condition: str) -> None:
    tab.wait_for_function(f"() => {condition}", polling=20)


def at_rest(tab) -> None:
    wait_for(tab, "swiftView.pace.fine && !swiftView.pace.dirty")


def moments(tab) -> None:
    """As many as the page could have drawn ten pictures in."""
    tab.evaluate(
        "new Promise((ready) => { let n = 10; (function on() "
        "{ n-- ? requestAnimationFrame(on) : ready() })() })"
    )


def test_nothing_is_drawn_where_nothing_moves(tab, viewer):
    at_rest(tab)
    drawn = tab.evaluate(PICTURES)
    for _ in range(3):
        assert viewer.show(np.full(6, 1e-6))
        moments(tab)
    assert tab.evaluate(PICTURES) == drawn
    assert viewer.show(np.full(6, 0.1))
    wait_for(tab, f"{PICTURES} > {drawn}")


def test_whoever_turns_the_scene_or_changes_its_size_sees_it(tab):
    event = "new WheelEvent('wheel', { deltaY: 100, cancelable: true })"
    wheel = f"swiftView.renderer.domElement.dispatchEvent({event})"
    for act in (
        lambda: tab.evaluate(wheel),
        lambda: tab.set_viewport_size({"width": 98, "height": 64}),
    ):
        at_rest(tab)
        drawn = tab.evaluate(PICTURES)
        act()
        wait_for(tab, f"{PICTURES} > {drawn}")


def test_no_picture_is_begun_before_the_last_one_is_done(tab):
    at_rest(tab)
    tab.evaluate(
        "() => { const { gl } = swiftView.pace; gl.getSyncParameter = () => gl.UNSIGNALED; }"
    )
    drawn = tab.evaluate(PICTURES)
    tab.evaluate("swiftView.pace.change()")
    moments(tab)
    assert tab.evaluate(PICTURES) == drawn
    tab.evaluate("delete swiftView.pace.gl.getSyncParameter")
    wait_for(tab, f"{PICTURES} > {drawn}")


def test_where_software_draws_motion_is_coarse_and_what_is_at_rest_fine(tab):
    look = (
        "[swiftView.renderer.getPixelRatio(), swiftView.lights.some((light) => light.castShadow)]"
    )
    # for as long as it takes
    tab.evaluate("swiftView.pace.change(), swiftView.pace.changed = Infinity")
    wait_for(tab, "!swiftView.pace.fine && !swiftView.pace.dirty")
    assert tab.evaluate(look) == [0.5, False]
    tab.evaluate("swiftView.pace.changed = 0")
    wait_for(tab, "swiftView.pace.fine")
    assert tab.evaluate(look) == [1, True]


def test_a_second_tab_is_told_why_it_shows_nothing(tab, page, viewer, monkeypatch):
    monkeypatch.setattr("envs.view.server._RELOAD", 0.2)
    second = page.context.browser.new_page(viewport={"width": 96, "height": 64})
    second.goto(viewer.url)
    second.locator(
        ".disconnected-banner", has_text="The scene is shown in another tab already."
    ).wait_for()
    second.close()
    assert viewer.show(np.zeros(6))
