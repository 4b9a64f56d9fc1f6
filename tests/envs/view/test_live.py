"""The live view: a process beside the learner that shows its newest policy and never holds it up.

The page is played by a websocket client that answers as Swift's page does without drawing.
"""

import functools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from weakref import ref

import numpy as np
import pytest
import torch
from torch import nn
from websockets.sync.client import connect

from envs.robots import make_robot
from envs.view.live import LiveView, SharedWeights, _run_viewer
from envs.view.scene import Frame
from td3_robot.errors import ConfigError, ViewerError

PANDA = functools.partial(make_robot, "panda")
HOME = np.array([0.0, -0.3, 0.0, -2.2, 0.0, 2.0, 0.785])


def rollout(weights: SharedWeights):
    """An arm at rest that tells the newest bias and how nice its process is."""
    while True:
        bias = weights.copy_state()["bias"].item()
        yield Frame(
            HOME, 0.04, text=f"bias {bias:g}, nice {os.nice(0)}, threads {torch.get_num_threads()}"
        )


class Page:
    """Swift's page without a picture. `labels` is every text shown, oldest first."""

    def __init__(self, url: str):
        self.labels = []
        self._closed = threading.Event()
        threading.Thread(target=self._answer, args=(url,), daemon=True).start()

    def _answer(self, url: str):
        objects = 0
        origin = url.rsplit("/", 2)[0]
        with connect(
            url.replace("http", "ws", 1) + "socket", origin=origin, compression=None
        ) as websocket:
            websocket.send("hello")
            while not self._closed.is_set():
                name, data = json.loads(websocket.recv())
                if name == "shape":
                    websocket.send(str(objects))
                    objects += 1
                elif name == "update_element" and str(data["label"]).startswith("bias"):
                    self.labels.append(data["label"])
                elif name in ("element", "shape_mounted", "shape_poses"):
                    websocket.send(
                        {"element": "0", "shape_mounted": "[1, null]", "shape_poses": "{}"}[name]
                    )

    def close(self):
        self._closed.set()


def policy(bias: float) -> nn.Module:
    module = nn.Linear(2, 1)
    nn.init.constant_(module.bias, bias)
    return module


def until(condition, seconds: float) -> bool:
    give_up = time.monotonic() + seconds
    while not condition() and time.monotonic() < give_up:
        time.sleep(0.02)
    return condition()


def test_the_newest_policy_is_shown_and_the_learner_outlives_the_view():
    urls = []
    with LiveView(PANDA, rollout, policy(1.0), open_browser=False, on_url=urls.append) as view:
        (url,) = urls  # the learner goes on before anybody has opened it
        page = Page(url)
        assert until(lambda: page.labels, 120)
        assert page.labels[0] == f"bias 1, nice {min(19, os.nice(0) + 10)}, threads 1"
        assert until(lambda: view.publish(policy(2.0)) or page.labels[-1].startswith("bias 2"), 120)
        page.close()
        assert until(lambda: not view.alive, 120), "closing the tab ends the viewer"
        start = time.perf_counter()
        for _ in range(100):
            view.publish(policy(3.0))
        assert time.perf_counter() - start < 10.0


def test_a_reader_killed_while_it_reads_does_not_hold_the_learner():
    weights = SharedWeights(policy(1.0))
    context = multiprocessing.get_context("spawn")
    holding = context.Event()
    reader = context.Process(target=hold, args=(weights, holding), daemon=True)
    reader.start()
    assert holding.wait(120)
    os.kill(reader.pid, signal.SIGKILL)
    reader.join()
    start = time.perf_counter()
    assert weights.publish(policy(2.0)) is False
    assert time.perf_counter() - start < 5.0  # whoever waited would wait for ever


def hold(weights: SharedWeights, holding) -> None:
    with weights._lock:  # the one thing a reader does that a writer could wait for
        holding.set()
        time.sleep(60)


def test_a_snapshot_is_a_copy_of_what_was_published():
    weights = SharedWeights(policy(1.0))
    before = weights.copy_state()
    version = weights.version
    published = policy(2.0)
    assert weights.publish(published)
    assert weights.version == version + 1
    assert before["bias"].item() == 1.0
    assert weights.copy_state().keys() == published.state_dict().keys()
    for name, value in published.state_dict().items():
        torch.testing.assert_close(weights.copy_state()[name], value)


def test_an_error_of_the_viewers_process_is_raised_by_the_learner(monkeypatch):
    locks = []
    make = SharedWeights.__init__
    monkeypatch.setattr(
        SharedWeights, "__init__", lambda own, of: (make(own, of), locks.append(ref(own._lock)))[1]
    )
    with pytest.raises(ConfigError, match="unknown robot 'pandas'") as caught:
        LiveView(functools.partial(make_robot, "pandas"), rollout, policy(1.0), open_browser=False)
    # else a program that ends with it is told of a leak
    assert caught.tb is not None and locks[0]() is None


class Slow:
    """A pipe into which an error goes while the learner, who has it, ends the viewer."""

    def send(self, told) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)


def test_a_viewer_that_is_ended_while_it_tells_an_error_says_nothing(capfd):
    told = (
        functools.partial(make_robot, "pandas"),
        rollout,
        SharedWeights(policy(1.0)),
        Slow(),
        False,
        0,
    )
    viewer = multiprocessing.get_context("spawn").Process(target=_run_viewer, args=told)
    viewer.start()
    viewer.join(120)
    assert viewer.exitcode == 0 and capfd.readouterr().err == ""


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="other systems come with a browser"
)
def test_without_a_browser_training_is_told_at_once(monkeypatch, tmp_path):
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    start = time.monotonic()
    with pytest.raises(ViewerError, match="no display"):
        LiveView(PANDA, rollout, policy(1.0))
    assert time.monotonic() - start < 5.0


def test_a_stopped_viewer_does_not_hold_the_learner():
    def stop(url):
        (viewer,) = multiprocessing.active_children()
        os.kill(viewer.pid, signal.SIGSTOP)
        began.append(time.monotonic())
        raise KeyboardInterrupt  # what ends a training

    began = []
    with pytest.raises(KeyboardInterrupt):
        LiveView(PANDA, rollout, policy(1.0), open_browser=False, on_url=stop)
    assert time.monotonic() - began[0] < 10.0 and multiprocessing.active_children() == []


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for the process in /proc")
def test_the_view_dies_with_a_killed_learner(tmp_path):
    learner = tmp_path / "learner.py"
    learner.write_text(
        "import functools, multiprocessing, os, signal, time, torch\n"
        "from envs.view.live import LiveView\n"
        "from envs.robots import make_robot\n"
        "def rollout(weights):\n"
        "    time.sleep(60)\n"
        "def told(url):\n"
        "    print(multiprocessing.active_children()[0].pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "if __name__ == '__main__':\n"
        "    panda = functools.partial(make_robot, 'panda')\n"
        "    LiveView(panda, rollout, torch.nn.Linear(2, 1), open_browser=False, on_url=told)\n"
    )
    root = Path(__file__).resolve().parents[3]
    environment = os.environ | {"PYTHONPATH": str(root)}
    quiet = {"stderr": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, learner], env=environment, **quiet) as process:
        child = int(process.stdout.readline())
        process.wait(120)
    assert until(lambda: not Path(f"/proc/{child}").exists() or "Z" in state(child), 60)


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0]
    except OSError:
        return "Z"
