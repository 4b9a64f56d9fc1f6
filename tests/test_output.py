"""A command whose output nobody takes ends with its own exit code, without a traceback."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import drop_progress

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = [
    ("train.py", "--list", "tasks"),
    ("-m", "td3_robot", "--help"),
    ("-m", "envs.collision.fitting", "--help"),
]
MAIN = """
import sys; sys.path.insert(0, {root!r})
from pathlib import Path
from td3_robot.errors import ConfigError
from td3_robot.utils.console import run_script
def main(argv):
    print("x" * 100_000, flush=True)
    print("warned", file=sys.stderr, flush=True)
    Path("work").write_text("done")
    {ending}
run_script(main)
"""


def run(folder: Path, *words: str, **streams) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = tuple(str(ROOT / word) if word.endswith(".py") else word for word in words)
    options = {"cwd": folder, "env": environment, "text": True, "timeout": 240} | streams
    return subprocess.run([sys.executable, *words], **options)


def close(*numbers: int):
    """Close streams in the new process, as `>&-` does."""
    return lambda: [os.close(number) for number in numbers]


def make_pipe_without_reader() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.skipif(os.name != "posix", reason="streams are closed as on POSIX")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_prints_to_a_closed_stream_and_to_one_without_a_reader(tmp_path, command):
    done = run(tmp_path, *command, stderr=subprocess.PIPE, preexec_fn=close(1))
    assert (done.returncode, done.stderr) == (0, "")
    writer = make_pipe_without_reader()
    done = run(tmp_path, *command, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.name != "posix", reason="streams are closed as on POSIX")
@pytest.mark.parametrize(
    "ending, code", [("return 0", 0), ("return 7", 7), ("raise ConfigError('wrong')", 2)]
)
@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2), "pipe"], ids=str)
def test_all_work_is_done_and_the_exit_code_stays(tmp_path, closed, ending, code):
    script = MAIN.format(root=str(ROOT), ending=ending)
    if closed == "pipe":
        writer = make_pipe_without_reader()
        done = run(tmp_path, "-c", script, stdout=writer, stderr=writer)
        os.close(writer)
    else:
        done = run(tmp_path, "-c", script, capture_output=True, preexec_fn=close(*closed))
    assert done.returncode == code
    assert (tmp_path / "work").read_text() == "done"  # and no output in it
    if closed == (1,):
        assert done.stderr == "warned\n" + ("error: wrong\n" if code == 2 else "")
    if closed == (2,):
        assert done.stdout == "x" * 100_000 + "\n"


@pytest.mark.skipif(os.name != "posix", reason="streams are closed as on POSIX")
def test_an_evaluation_writes_its_results_with_a_closed_output(tmp_path):
    line = f"--checkpoint {ROOT / 'checkpoints/run1'} --episodes 5 --baseline= --json r.json"
    done = run(tmp_path, "evaluate.py", *line.split(), stderr=subprocess.PIPE, preexec_fn=close(1))
    assert (done.returncode, drop_progress(done.stderr)) == (0, "")
    assert json.loads((tmp_path / "r.json").read_text())["episodes"] == 5


@pytest.mark.parametrize("output", ["--json=r.json", "--report=page"])
def test_an_evaluation_that_cannot_write_its_results_shows_them(
    tmp_path, in_process, monkeypatch, output
):
    """The disk has become full while it was measured."""

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    line = f"--checkpoint {ROOT / 'checkpoints/run1'} --episodes 5 --baseline="
    monkeypatch.setattr("os.replace", fail)
    code, out, err = in_process(tmp_path, "evaluate", *line.split(), output)
    file = {"--json=r.json": "r.json", "--report=page": "page/index.html"}[output]
    assert (code, err) == (2, f"error: cannot write '{file}': No space left on device\n")
    assert "5 episodes" in out and "jerks over their limits" in out and "the report is" not in out
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
