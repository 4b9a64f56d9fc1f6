"""The browser view in a real Chromium."""

import html
import io
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import imageio.v3 as iio
import numpy as np
import pytest
import torch
from spatialmath import SE3

import envs
import envs.view
from envs.robots import make_robot
from envs.tasks.shapes import Shape, make_pose_shapes
from envs.view.recording import find_chromium
from envs.view.scene import GHOST, Arm
from envs.view.swift import SwiftViewer, open_viewer
from td3_robot.errors import ConfigError, ViewerError

OPEN = 0.04  # [m] the Panda hand's driver coordinate when open
ELSEWHERE = np.array([0.8, 0.2, 0.0, -1.5, 0.0, 1.8, 0.0])


def picture(page) -> np.ndarray:
    """(H, W, 3) what the page shows now."""
    page.evaluate("drawFrame()")
    return iio.imread(io.BytesIO(page.screenshot()))[..., :3].astype(int)


def positions(page) -> np.ndarray:
    """(k, 3) of everything in the page's three.js scene [m]."""
    return np.array(page.evaluate("swiftScene.children.map((child) => child.position.toArray())"))


def axes_in(page) -> list[np.ndarray]:
    """Pose of every group of three arrows in the scene: (4, 4) each."""
    flat = page.evaluate(
        """() => { swiftScene.updateMatrixWorld(true);
        return swiftScene.children.filter((c) => c.userData.disposables?.length === 6)
          .map((c) => c.matrixWorld.toArray()) }"""
    )
    return [np.array(matrix).reshape(4, 4).T for matrix in flat]


def goal_pose() -> np.ndarray:
    T_bt = np.eye(4)
    T_bt[:3, :3] = [[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]
    T_bt[:3, 3] = [0.5, 0.2, 0.4]
    return T_bt


def test_the_arm_is_visible_and_moves(viewer, page, robot):
    assert viewer.show(robot.home, OPEN)
    before = picture(page)
    assert viewer.show(ELSEWHERE, OPEN)
    moved = np.abs(picture(page) - before).max(-1) > 40
    middle = before[60:260, 120:360]
    dark_joints = (middle.max(-1) < 90).sum()  # the Panda's black caps; nothing else here is dark
    assert dark_joints > 50
    assert moved.mean() > 0.02


@pytest.mark.parametrize("q", [np.array([0.0, -0.3, 0, -2.2, 0, 2.0, 0.8]), ELSEWHERE])
def test_every_link_is_where_the_kinematics_puts_it(viewer, page, robot, q):
    viewer.show(q, OPEN)
    for T_bl in robot.rtb.fkine_geometry(q):
        assert np.linalg.norm(positions(page) - T_bl.t, axis=1).min() < 1e-6


def test_fingers_slide_by_the_gripper_coordinate(viewer, page, robot):
    viewer.show(robot.home, 0.0)
    closed = positions(page)
    viewer.show(robot.home, 0.03)
    travel = np.linalg.norm(positions(page) - closed, axis=1)
    assert np.sort(travel)[-3:] == pytest.approx([0.0, 0.03, 0.03], abs=1e-6)


def test_a_mounted_gripper_is_drawn_on_the_flange_and_moves(page):
    """The 2F-85's meshes have no material files, which Swift's page insists on."""
    robot = make_robot("puma560", gripper="robotiq_2f_85")
    hand = robot.gripper
    tcp = robot.rtb.fkine(robot.home)
    tab = page.context.browser.new_page(viewport={"width": 96, "height": 64})
    with SwiftViewer(robot, open_browser=False, realtime=False) as viewer:
        tab.goto(viewer.url)
        for driver, forward, aside in ((hand.closed, 0.0, 0.0037), (hand.opened, -0.0139, 0.0462)):
            assert viewer.show(robot.home, driver)
            for side in (-1, 1):  # the pads: 6.35 mm thick, so their middles are never less apart
                pad = (tcp * SE3(side * aside, 0, forward)).t
                assert np.linalg.norm(positions(tab) - pad, axis=1).min() < 5e-4
        assert len(positions(tab)) >= 7 + 11  # shapes of the arm and of the gripper
    tab.close()


def test_ghosts_are_see_through_and_each_has_its_own_joints(viewer, page, robot):
    viewer.show(robot.home, OPEN)
    alone = len(positions(page))
    viewer.show(robot.home, OPEN, ghosts=(Arm(ELSEWHERE, 0.0),))
    arm = np.split(positions(page), [alone])[0]
    ghost = positions(page)[alone:]
    for q, drawn in ((robot.home, arm), (ELSEWHERE, ghost)):
        for T_bl in robot.rtb.fkine_geometry(q)[
            :8
        ]:  # the arm's own: fingers are the gripper's affair
            assert np.linalg.norm(drawn - T_bl.t, axis=1).min() < 1e-6
    viewer.show(robot.home, OPEN, ghosts=(Arm(ELSEWHERE, OPEN),))
    travel = np.linalg.norm(positions(page) - np.concatenate((arm, ghost)), axis=1)
    assert (
        np.sort(travel[alone:])[-3:] == pytest.approx([0.0, OPEN, OPEN], abs=1e-6)
        and travel[:alone].max() < 1e-9
    )
    opacities = page.evaluate(
        """() => swiftScene.children.map((child) => {
        const found = new Set();
        const note = ({ material, isMesh }) =>
            isMesh && [material].flat().map((m) => m.opacity);
        child.traverse((part) => (note(part) || []).forEach((opacity) => found.add(opacity)));
        return [...found]; })"""
    )
    assert [1] in opacities and opacities[-1] == [GHOST]
    viewer.show(robot.home, OPEN)  # as where nobody is to be compared with any more
    assert len(positions(page)) == alone
    viewer.show(robot.home, OPEN, ghosts=(Arm(ELSEWHERE, OPEN),))
    assert len(positions(page)) == len(arm) + len(ghost)


def test_the_goal_stands_at_its_pose_moves_and_goes_away(viewer, page, robot):
    T_bt = goal_pose()
    viewer.show(robot.home, OPEN)
    without = picture(page)
    assert axes_in(page) == []
    for shift in (0.0, 0.1):
        T_bt[1, 3] += shift
        viewer.show(robot.home, OPEN, shapes=make_pose_shapes(T_bt))
        (shown,) = axes_in(page)
        np.testing.assert_allclose(shown, T_bt, atol=1e-6)
    assert (np.abs(picture(page) - without).max(-1) > 60).sum() > 30
    viewer.show(robot.home, OPEN)
    assert axes_in(page) == []


def test_shapes_are_drawn_moved_and_removed_and_only_made_anew_when_they_look_another_way(
    viewer, page, robot
):

    def at(x):
        return SE3(x, 0.3, 0.5).A

    red = (1.0, 0.0, 0.0, 0.5)
    line = Shape(
        "line", (0.01,), red, np.eye(4), ((0.3, 0.3, 0.3), (0.5, 0.3, 0.3), (0.5, 0.3, 0.6))
    )

    def ball_and_box(x, y, h):
        return [Shape("sphere", (0.1,), red, at(x)), Shape("box", (0.1, 0.2, h), red, at(y))]

    viewer.show(robot.home, OPEN)
    count = len(uuids(page))
    without = picture(page)
    viewer.show(robot.home, OPEN, shapes=[*ball_and_box(0.4, 0.6, 0.3), line])
    first = uuids(page)
    assert len(first) == count + 3
    assert (np.abs(picture(page) - without).max(-1) > 60).sum() > 200
    viewer.show(robot.home, OPEN, shapes=[*ball_and_box(0.45, 0.7, 0.3), line])
    assert uuids(page) == first
    for x in (0.45, 0.7):
        assert np.linalg.norm(positions(page) - at(x)[:3, 3], axis=1).min() < 1e-6
    viewer.show(robot.home, OPEN, shapes=ball_and_box(0.4, 0.7, 0.2))
    assert len(uuids(page) - first) == 1 and len(first - uuids(page)) == 2  # another box, no line
    viewer.show(robot.home, OPEN)
    assert len(uuids(page)) == count


def uuids(page) -> set[str]:
    """A name for everything in the page's scene that lasts as long as it does."""
    return set(page.evaluate("swiftScene.children.map((child) => child.uuid)"))


@pytest.mark.parametrize("text", ["episode 3  error 4.1 mm", "<b>a</b> & b"])
def test_the_label_is_in_the_page_as_written(viewer, page, robot, text):
    viewer.show(robot.home, OPEN, text=text)
    page.wait_for_function(
        "text => document.body.innerHTML.includes(text)", arg=html.escape(text), polling=50
    )


@pytest.mark.parametrize("q", [np.zeros(6), np.full(7, np.nan), np.zeros((7, 7)), np.inf])
def test_a_state_of_another_shape_or_not_finite_is_refused(viewer, robot, q):
    for given in ({"q": q}, {"q": robot.home, "ghosts": (Arm(q),)}):
        with pytest.raises(ConfigError, match="must be finite with shape"):
            viewer.show(**given)


def test_the_page_fetches_nothing_from_elsewhere(viewer, page, robot):
    """A mesh from elsewhere may name its textures by any address."""
    viewer.show(robot.home, OPEN)
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.settimeout(1.0)
        url = f"http://127.0.0.1:{elsewhere.getsockname()[1]}/a.png"
        page.evaluate("(url) => { new Image().src = url; fetch(url).catch(() => {}); }", url)
        with pytest.raises(TimeoutError):
            elsewhere.accept()


def test_closing_the_tab_ends_the_show_in_one_line(robot, page, monkeypatch, capsys):
    monkeypatch.setattr("envs.view.swift._RELOAD", 0.5)
    tab = page.context.browser.new_page()
    with SwiftViewer(robot, open_browser=False, realtime=False) as viewer:
        tab.goto(viewer.url)
        assert viewer.show(robot.home, OPEN)
        tab.close()
        start = time.monotonic()
        while viewer.show(robot.home, OPEN):
            assert time.monotonic() - start < 30.0
        assert viewer.show(robot.home, OPEN) is False
    assert capsys.readouterr().err == "the page was closed: the view has ended\n"
    with pytest.raises(OSError):
        socket.create_connection(viewer.address)


def test_a_notebooks_cell_shows_an_arm_that_moves_while_the_notebook_goes_on(page):
    shown = envs.view.show(envs.make("wx250s", "reach"), height=60)
    tab = page.context.browser.new_page(viewport={"width": 96, "height": 64})
    tab.set_default_timeout(300_000)
    tab.set_content(shown._repr_html_())
    there = "window.swiftScene ? swiftScene.children.map((child) => child.position.toArray()) : []"
    seen = []
    give_up = time.monotonic() + 120
    while len(seen) < 3 and time.monotonic() < give_up:
        now = tab.frames[1].evaluate(there)
        if len(now) > 8 and now not in seen:
            seen.append(now)
        time.sleep(0.1)
    assert len(seen) == 3
    assert shown.is_running and repr(shown).startswith(f"open {shown.url} ")
    tab.close()
    shown.close()
    shown.close()
    assert not shown.is_running


def test_a_notebook_that_nobody_looks_at_is_closed_at_once():
    shown = envs.view.show(envs.make("wx250s", "reach"), lambda o: torch.zeros(1, 6))
    shown.close()
    assert not shown.is_running


def script(path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="other systems come with a browser"
)
@pytest.mark.parametrize(
    ("browser", "display", "named"),
    [
        (False, None, "apt install chromium"),
        (False, ":0", "apt install chromium"),
        (True, None, "no display to open firefox on"),
    ],
)
def test_without_a_browser_the_error_comes_at_once(
    monkeypatch, tmp_path, robot, browser, display, named
):
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    if display:
        monkeypatch.setenv("DISPLAY", display)
    if browser:
        script(tmp_path / "firefox", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    start = time.monotonic()
    with pytest.raises(ViewerError, match=named) as caught:
        SwiftViewer(robot)
    assert time.monotonic() - start < 5.0
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="other systems open the browser themselves"
)
def test_a_browser_that_fails_is_quoted(monkeypatch, tmp_path, robot):
    monkeypatch.setenv(
        "BROWSER", script(tmp_path / "broken", "echo cannot open display >&2; exit 3")
    )
    with pytest.raises(ViewerError, match="exit code 3: cannot open display"):
        SwiftViewer(robot)


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="other systems open the browser themselves"
)
def test_the_users_browser_is_opened_and_shows_the_robot(monkeypatch, tmp_path, robot):
    flags = (
        f"--headless --no-sandbox --user-data-dir={tmp_path / 'profile'} --use-angle=swiftshader"
    )
    chromium = f"{find_chromium()} {flags} --enable-unsafe-swiftshader"
    body = f'echo $$ > {tmp_path / "pid"}; exec {chromium} "$1"'
    monkeypatch.setenv("BROWSER", script(tmp_path / "browser", body))
    with pytest.raises(KeyboardInterrupt), SwiftViewer(robot) as viewer:
        start = time.monotonic()
        assert all(viewer.show(robot.home, OPEN, dt=0.05) for _ in range(10))
        assert time.monotonic() - start > 0.4  # real time
        raise KeyboardInterrupt
    assert viewer._browser._process.wait(60) is not None  # Ctrl-C does not leave it behind


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="other systems open the browser themselves"
)
def test_a_killed_browser_ends_the_show_in_one_line(monkeypatch, tmp_path, robot, capsys):
    monkeypatch.setattr("envs.view.swift._RELOAD", 0.5)
    flags = (
        f"--headless --no-sandbox --user-data-dir={tmp_path / 'profile'} --use-angle=swiftshader"
    )
    browser = f'exec {find_chromium()} {flags} --enable-unsafe-swiftshader --window-size=96,64 "$1"'
    monkeypatch.setenv("BROWSER", script(tmp_path / "browser", browser))
    with SwiftViewer(robot, realtime=False) as viewer:
        assert viewer.show(robot.home, OPEN)
        os.killpg(viewer._browser._process.pid, signal.SIGKILL)
        start = time.monotonic()
        while viewer.show(robot.home, OPEN):
            assert time.monotonic() - start < 30.0
    err = capsys.readouterr().err
    assert err.endswith(": the view has ended\n") and err.count("\n") == 1


BAD_PAGE = """
import sys, time
from websockets.sync.client import connect
origin = sys.argv[2].rsplit("/", 2)[0]
url = sys.argv[2].replace("http", "ws", 1) + "socket"
with connect(url, origin=origin, compression=None) as page:
    page.send("hello")
    time.sleep(0.1)
    for message in page if sys.argv[1] != "close" else ():
        page.send(sys.argv[1])
time.sleep(600)
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="other systems open the browser themselves"
)
@pytest.mark.parametrize(
    ("answer", "said"),
    [("close", "closed before the robot"), ("nonsense", "answered what"), ("[]", "answered what")],
)
def test_a_page_that_fails_at_once_is_one_line_and_its_browser_ends(
    monkeypatch, tmp_path, robot, answer, said
):
    (tmp_path / "page.py").write_text(BAD_PAGE)
    browser = f'exec {sys.executable} {tmp_path / "page.py"} {answer} "$1"'
    monkeypatch.setenv("BROWSER", script(tmp_path / "browser", browser))
    started = []
    popen = subprocess.Popen

    def run(*args, **named):
        return started.append(popen(*args, **named)) or started[-1]

    monkeypatch.setattr(subprocess, "Popen", run)
    with pytest.raises(ViewerError, match=said):
        SwiftViewer(robot)
    assert started[0].wait(60) == -signal.SIGTERM


def test_without_a_desktop_the_address_is_printed_with_a_way_to_it_and_who_comes_is_shown(
    robot, page, capsys
):
    with open_viewer(robot, open_browser=False, note="then", realtime=False) as viewer:
        told, _, note = capsys.readouterr().out.partition("\n")
        port = viewer.address[1]
        assert told.startswith(f"open {viewer.url} in a browser (")
        assert note == "then\n"
        assert f"ssh -L {port}:127.0.0.1:{port} " in told
        page.goto(viewer.url.replace("127.0.0.1", "localhost"))
        assert viewer.show(robot.home, OPEN)


def test_without_webgl_page_and_program_say_so(robot, page):
    tab = page.context.browser.new_page()
    tab.add_init_script("HTMLCanvasElement.prototype.getContext = () => null")
    with SwiftViewer(robot, open_browser=False) as viewer:
        tab.goto(viewer.url)
        tab.locator(".sorry", has_text="WebGL").wait_for()
        with pytest.raises(ViewerError, match="WebGL"):
            viewer.show(robot.home, OPEN)
    tab.close()


STARTS = """
import os, signal, sys
from envs.view.browser import Browser
browser = Browser(["sh", "-c", "sleep 600 & wait"], "", sys.stderr)
print(browser._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="other systems open the browser themselves"
)
def test_a_killed_viewer_leaves_no_browser_behind():
    root = Path(__file__).resolve().parents[3]
    told = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True, "cwd": root}
    with subprocess.Popen([sys.executable, "-c", STARTS], **told) as viewer:
        pid = int(viewer.stdout.readline())
    give_up = time.monotonic() + 60
    while members(pid) and time.monotonic() < give_up:
        time.sleep(0.02)
    assert members(pid) == []


def members(group: int) -> list[str]:
    """What still runs of a process group."""
    fields = [
        path.read_text().rsplit(")", 1)[1].split() for path in Path("/proc").glob("[0-9]*/stat")
    ]
    return [state for state, _, pgrp, *_ in fields if int(pgrp) == group and state != "Z"]
