"""Exit codes and the one line of an error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from td3_robot.errors import ConfigError, NotFiniteError
from td3_robot.utils.console import exit_code


def outcome(error):
    raise error


@pytest.mark.parametrize(
    "main, code, stderr",
    [
        (lambda argv: None, 0, ""),
        (lambda argv: 3, 3, ""),
        (lambda argv: outcome(ConfigError("a\nb")), 2, "error: a b\n"),
        (lambda argv: outcome(NotFiniteError("loss")), 1, "error: loss\n"),
        (lambda argv: outcome(KeyboardInterrupt()), 130, ""),
    ],
)
def test_exit_codes(main, code, stderr, capsys):
    assert exit_code(main, []) == code
    assert capsys.readouterr().err == stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_on_a_full_device_is_one_line_and_an_exit_code():
    code = "import sys; sys.path.insert(0, %r); from td3_robot.utils.console import run_script; "
    code += "run_script(lambda argv: print('all is done'))"
    root = str(Path(__file__).resolve().parents[3])
    with open("/dev/full", "w") as full:
        pipes = {
            "stdout": full,
            "stderr": subprocess.PIPE,
            "text": True,
            "env": os.environ | {"PYTHONUNBUFFERED": ""},
        }
        done = subprocess.run([sys.executable, "-c", code % root], **pipes)
    assert done.returncode == 3
    assert done.stderr == "warning: the output cannot be written (No space left on device)\n"


def test_a_signal_after_the_end_changes_nothing():
    code = """
import io, signal, sys; sys.path.insert(0, %r)
from td3_robot.utils.console import run_script
class Slow(io.StringIO):
    def flush(self): signal.raise_signal(signal.SIGINT)
def main(argv): sys.stdout = Slow(); return 3
run_script(main)
"""
    command = [sys.executable, "-c", code % str(Path(__file__).resolve().parents[3])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (3, "")


@given(st.lists(st.text("abcdefgh", min_size=1, max_size=20), min_size=1, max_size=90))
def test_a_message_that_is_too_long_lacks_whole_words_of_its_middle(words):
    text = " ".join(words)
    told = str(ConfigError(text))
    assert len(told) <= 280 and (told == text) == (len(text) <= 280)
    if told != text:
        start, end = told.split(" ... ")
        assert text.startswith(f"{start} ") and text.endswith(f" {end}")


def test_one_long_word_is_cut():
    assert str(ConfigError(300 * "a")) == f"{175 * 'a'} ... {100 * 'a'}"
