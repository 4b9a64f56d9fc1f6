"""sweep.py as its user meets it: a real sweep that is killed and gone on with, and one line for
every mistake.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from td3_robot.checkpoint.resume_point import get_source_states, read_resume_point
from td3_robot.checkpoint.summary import read_summary
from td3_robot.loggers.csv import read_metrics
from tests.support import drop_progress

ROOT = Path(__file__).resolve().parent.parent
PLAN = """
options:
  env: Pendulum-v1
  steps: 800
  evaluation: {every: 200, episodes: 2}
  exploration.start_steps: 100
  td3.hidden: "8"
  replay.batch_size: 8
  save_every: 0.2
  envs: [4, 2]
metric: episode_return
resources: {cpus: CORES}
"""


def processes_of(parent: int) -> set[int]:
    """A process and all that it has started, as Linux tells it."""
    found = {parent}
    for task in Path(f"/proc/{parent}/task").iterdir():
        for child in (task / "children").read_text().split():
            found |= processes_of(int(child))
    return found


def listening(processes: set[int]) -> list[str]:
    """The addresses, in hexadecimal, at which processes take connections."""
    links = [
        os.readlink(path) for process in processes for path in Path(f"/proc/{process}/fd").iterdir()
    ]
    sockets = {
        link.removeprefix("socket:[").removesuffix("]")
        for link in links
        if link.startswith("socket:")
    }
    tables = [Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6")]
    lines = [line.split() for table in tables for line in table.splitlines()[1:]]
    return [line[1].split(":")[0] for line in lines if line[3] == "0A" and line[9] in sockets]


def rows_of(run: Path) -> list[dict]:
    """The curve of a run, which may not have begun."""
    return read_metrics(run) if (run / "metrics.csv").exists() else []


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


@pytest.fixture
def place():
    """For Ray's files, which a sweep that is killed leaves; paths of sockets have to be short."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        yield place


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux")
def test_a_killed_sweep_goes_on_and_repeats_nothing(tmp_path, place):
    """One trial after the other; the second is at work when the sweep is killed."""
    pytest.importorskip("ray")
    (tmp_path / "plan.yaml").write_text(PLAN.replace("CORES", str(len(os.sched_getaffinity(0)))))
    command = [sys.executable, str(ROOT / "sweep.py")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path}
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | {
        "TMPDIR": place
    }
    folder = tmp_path / "checkpoints/s"
    first = folder / "trial0"
    second = folder / "trial1"
    sweep = subprocess.Popen(
        [*command, "--plan", "plan.yaml", "--run", "s"], env=environment, **pipes
    )
    try:
        until = time.monotonic() + 500
        while not (second / "last").exists():
            assert sweep.poll() is None and time.monotonic() < until, sweep.communicate()
            time.sleep(0.01)
        found = listening(processes_of(sweep.pid))
    finally:
        sweep.kill()
    sweep.communicate()
    assert found and set(found) <= LOOPBACK
    whole = (first / "summary.json").stat().st_mtime_ns
    # later rows are made anew: Pendulum has no state
    saved = get_source_states(read_resume_point(second)[1])[0]["env_steps"]
    before = [row for row in rows_of(second) if row["env_steps"] <= saved]
    done = subprocess.run([*command, "--resume", "s"], env=environment, timeout=500, **pipes)
    assert (done.returncode, drop_progress(done.stderr)) == (0, "")
    assert (first / "summary.json").stat().st_mtime_ns == whole
    assert [row["env_steps"] for row in rows_of(second)] == [200, 400, 600, 800]
    assert repr(rows_of(second)[: len(before)]) == repr(before)  # NaN is nothing, itself neither
    assert "trial0: 200 steps" in done.stdout and "trial1: 800 steps" in done.stdout
    for run in (first, second):
        assert read_summary(run)["finished"] and not (run / ".lock").exists()
    files = {path.name for path in folder.iterdir() if path.is_file()}
    assert {
        "best.yaml",
        "table.csv",
        "parallel_coordinates.png",
        "sweep.yaml",
    } <= files and "stop" not in files
    assert not (folder / ".ray").exists()


@pytest.mark.parametrize(
    "said, line, words",
    [
        (
            "td3.tauu: [1, 2]",
            "--plan p.yaml",
            "trial0 of the sweep: unknown option 'td3.tauu'; did you mean td3.tau",
        ),
        ("td3.tau: [0.1, 2]", "--plan p.yaml", "trial1 of the sweep: td3.tau must be in"),
        (
            "td3.tau: [0.1]\nswift: true",
            "--plan p.yaml",
            "a sweep cannot have swift, list, stop_at and the like",
        ),
        ("td3.tau: [0.1", "--plan p.yaml", "'p.yaml': line"),
        ("td3.tau: [0.1]", "--plan q.yaml", "'q.yaml': cannot be read: No such file"),
        ("td3.tau: [0.1]", "--plan p.yaml --run .x", "run must be letters"),
        ("td3.tau: [0.1]", "--plan p.yaml --run x/y", "a folder of runs: its name has no /"),
        ("td3.tau: [0.1]", "--plan p.yaml --resume x", "give --plan FILE, and maybe --run NAME"),
        ("td3.tau: [0.1]", "", "give --plan FILE, and maybe --run NAME"),
        (
            "td3.tau: [0.1]",
            "--resume x",
            "there is no sweep 'x': checkpoints/x/sweep.yaml does not exist",
        ),
        ("td3.tau: [0.1]", "--resume x --run y", "give --plan FILE, and maybe --run NAME"),
    ],
)
def test_mistakes_are_said_in_one_line_before_anything_begins(
    tmp_path, in_process, said, line, words
):
    (tmp_path / "p.yaml").write_text("options:\n  " + said.replace("\n", "\n  ") + "\n")
    code, out, err = in_process(tmp_path, "sweep", *line.split())
    assert (code, out) == (2, "") and err.count("\n") == 1 and words in err, err
    assert [path.name for path in tmp_path.iterdir()] == ["p.yaml"]


@pytest.mark.parametrize("name", ["num_envs", "envs"])  # the older name, too
def test_pbt_changes_only_what_a_run_can_change(tmp_path, in_process, name):
    (tmp_path / "p.yaml").write_text(f"options:\n  {name}: [16, 32]\nscheduler: pbt\n")
    code, _, err = in_process(tmp_path, "sweep", "--plan", "p.yaml")
    assert (
        code == 2
        and "scheduler pbt changes options in the middle of a run, where num_envs cannot change"
        in err
    )


@pytest.mark.parametrize("begun, refused", [((), "trial0"), (("trial0",), "trial1")])
def test_a_sweep_that_was_moved_begins_no_trial_elsewhere(tmp_path, in_process, begun, refused):
    folder = tmp_path / "checkpoints/july/s"
    for name in begun:
        (folder / name / "last").mkdir(parents=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sweep.yaml").write_text(PLAN.replace("CORES", "1"))
    code, _, err = in_process(tmp_path, "sweep", "--resume", "july/s")
    assert code == 2 and err == (
        f"error: {refused} of 'checkpoints/july/s' has nothing to resume, and a run begins in "
        "checkpoints alone: move the folder to 'checkpoints/s'\n"
    )
