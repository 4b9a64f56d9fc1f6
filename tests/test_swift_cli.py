"""evaluate.py --swift: the page comes first, figures meanwhile and where they are asked for."""

import json
import socket
import threading
from pathlib import Path

import pytest

from envs.command_line import EvaluateFlags
from envs.evaluation import Evaluation
from td3_robot.commands.evaluate import leave_out_view
from tests.support import ROOT

RUN = str(ROOT / "checkpoints" / "run1")
SWIFT = ("--checkpoint", RUN, "--swift", "--no-browser")
PAGE = "envs.view.evaluation_view.run_interactive"


def test_the_page_alone_measures_nothing_and_says_how_to(tmp_path, in_process, monkeypatch):
    opened = []
    monkeypatch.setattr(PAGE, lambda *evaluation, **how: opened.append((*evaluation, how["note"])))
    monkeypatch.setattr(Evaluation, "play", lambda *_, **__: pytest.fail("it is measured"))
    code, out, err = in_process(tmp_path, "evaluate", *SWIFT, "--port", "5000")
    assert (code, out, err) == (0, "", "") and len(opened) == 1
    evaluation, note = opened[0]
    assert evaluation.env.num_envs == 1  # a thousand take seconds to prepare
    assert note.endswith(f"python evaluate.py --checkpoint {RUN}")


def test_a_page_that_cannot_be_served_is_not_said_to_be_open(tmp_path, in_process):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = in_process(tmp_path, "evaluate", *SWIFT, "--port", str(port))
    assert (code, out) == (2, "") and f"cannot serve the page on port {port}" in err


def test_figures_that_are_asked_for_are_measured_while_the_page_is_open(
    tmp_path, in_process, monkeypatch
):
    begun = threading.Event()
    closed = threading.Event()
    play = Evaluation.play

    def play_after_the_page(self, keep=False):
        begun.set()
        assert closed.wait(60)
        return play(self, keep)

    def show_page(evaluation, **how):
        assert begun.wait(60), "the page waits for nothing, and the figures for no page"
        closed.set()

    monkeypatch.setattr(Evaluation, "play", play_after_the_page)
    monkeypatch.setattr(PAGE, show_page)
    words = ("--episodes", "20", "--baseline", "", "--json", "out.json")
    code, out, err = in_process(tmp_path, "evaluate", *SWIFT, *words)
    assert (code, err) == (0, "") and "success rate [%]" in out
    shown = json.loads((tmp_path / "out.json").read_text())
    assert in_process(tmp_path, "evaluate", "--checkpoint", RUN, *words)[0] == 0
    assert json.loads((tmp_path / "out.json").read_text()) == shown


@pytest.mark.parametrize(
    ("changes", "measures"),
    [
        ({}, True),
        ({"swift": True}, False),
        ({"swift": True, "baseline": ("rrmc",)}, False),  # a second arm on the page
        ({"swift": True, "episodes": 5}, True),
        ({"swift": True, "episode": 0}, True),
        ({"swift": True, "json": Path("out.json")}, True),
        ({"swift": True, "robustness": True}, True),
    ],
)
def test_what_asks_for_figures(changes, measures):
    assert EvaluateFlags(checkpoint=RUN, **changes).measures is measures


def test_the_command_for_figures_has_no_words_of_the_page():
    words = "--checkpoint run1 --swift --port 5 --grid=4 --no_browser --camera side --seed 3"
    assert leave_out_view(words.split()) == ["--checkpoint", "run1", "--seed", "3"]
    words = "--swift true --checkpoint run1 --no-browser=true --guard true --no-browser false"
    assert leave_out_view(words.split()) == ["--checkpoint", "run1", "--guard", "true"]
