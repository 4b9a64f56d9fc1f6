"""A Panda in a Chromium without a window, for the tests of one file."""

import pytest

from envs.robots import make_robot
from envs.view.recording import open_headless_page
from envs.view.swift import SwiftViewer


@pytest.fixture(scope="module")
def robot():
    return make_robot("panda")


@pytest.fixture(scope="module")
def page():
    with open_headless_page((480, 320)) as page:
        yield page


@pytest.fixture(scope="module")
def viewer(robot, page):
    with SwiftViewer(robot, open_browser=False, realtime=False) as viewer:
        page.goto(viewer.url)
        yield viewer
