"""Trials of a sweep without Ray: rows that are told whatever happens, and what comes of them."""

import functools
import io
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from envs.command_line import TrainFlags
from envs.config.env_options import EnvOptions
from td3_robot.cli import arguments
from td3_robot.cli.arguments import save_config
from td3_robot.sweep.parallel_coordinates import PICTURE, make_axis, plot_settings
from td3_robot.sweep.relaunch import replace_run
from td3_robot.sweep.results import (
    BEST,
    Result,
    Setting,
    make_rows,
    rank_settings,
    read_result,
    write_best,
)
from td3_robot.sweep.search_space import Categorical, FloatRange, SearchSpace, SweepConfig, Trial
from td3_robot.sweep.status_table import TrialTable
from td3_robot.sweep.trial_process import STOP, TrialProcess, get_end_mark

parse_train = functools.partial(arguments.parse_train, environment=EnvOptions, flags=TrainFlags)

# Stands in for train.py: three rows of 100 steps each; the way it ends is in the variable END.
SCRIPT = """
import json, os, signal, sys, time
from pathlib import Path

words = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
folder = Path(words["resume"] if "resume" in words else f"checkpoints/{words['run']}")
(folder / "last").mkdir(parents=True, exist_ok=True)
signal.signal(signal.SIGTERM, lambda *_: os._exit(130))
with open(folder / "sittings", "a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
csv = folder / "metrics.csv"
if not csv.exists():
    csv.write_text("env_steps,gradient_steps,success_rate\\n")
made = len(csv.read_text().splitlines()) - 1
for row in range(made, 3):
    end = os.environ.get("END") if row == 2 else None
    if end == "fails":
        print("error: no luck", file=sys.stderr)
        sys.exit(2)
    if end == "raises":
        raise ValueError
    if end == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "waits":
        time.sleep(60)
    with open(csv, "a") as file:
        file.write(f"{100 * (row + 1)},0,{0.1 * row}\\n")
(folder / "summary.json").write_text(json.dumps({"finished": True, "success_rate": 0.9}))
"""


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    """Another attempt at the one trial there is, in its folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)
    folder = Path("checkpoints/s/trial0")
    folder.parent.mkdir(parents=True)
    made = []

    def attempt(metric: str = "success_rate") -> tuple[Path, TrialProcess]:
        made.append(
            TrialProcess(folder, Path("script.py"), ["--td3.tau=0.1"], ["--td3.tau=0.1"], metric)
        )
        return folder, made[-1]

    yield attempt
    for one in made:
        one.stop()


def follow(attempt: TrialProcess) -> tuple[list[float], dict]:
    """The steps of all rows, and the end."""
    steps = []
    while "done" not in (row := attempt.wait_for_row()):
        steps.append(row["steps"])
    return steps, row


def test_all_rows_are_told_and_again_by_whoever_comes_later(attempt):
    folder, first = attempt()
    assert follow(first) == ([100, 200, 300], {"done": True, "outcome": "finished"})
    assert follow(attempt()[1]) == ([100, 200, 300], {"done": True, "outcome": "finished"})
    assert len((folder / "sittings").read_text().splitlines()) == 1  # it was not trained twice


@pytest.mark.parametrize(
    "end, why",
    [("fails", "no luck"), ("is killed", "ended by SIGKILL; see checkpoints/s/trial0.log")],
)
def test_what_failed_says_why_and_is_gone_on_with(attempt, monkeypatch, end, why):
    monkeypatch.setenv("END", end)
    folder, first = attempt()
    assert follow(first) == ([100, 200], {"done": True, "outcome": "failed", "why": why})
    monkeypatch.delenv("END")
    steps, told = follow(attempt()[1])
    assert steps == [100, 200, 300] and told["outcome"] == "finished"
    assert (folder / "sittings").read_text().splitlines()[
        1
    ] == "--resume=checkpoints/s/trial0 --td3.tau=0.1"


def test_a_failure_is_not_explained_by_an_earlier_one(attempt, monkeypatch):
    monkeypatch.setenv("END", "fails")
    assert follow(attempt()[1])[1]["why"] == "no luck"
    monkeypatch.setenv("END", "raises")
    why = "ended with exit code 1; see checkpoints/s/trial0.log"
    assert follow(attempt()[1])[1]["why"] == why


def test_a_wish_to_stop_reaches_a_trial_that_trains(attempt, monkeypatch):
    monkeypatch.setenv("END", "waits")
    folder, first = attempt()
    assert [first.wait_for_row()["steps"] for _ in range(2)] == [100, 200]
    (folder.parent / STOP).touch()
    assert first.wait_for_row() == {"done": True, "outcome": "stopped"}


def test_what_the_scheduler_has_ended_is_told_and_not_trained(attempt, monkeypatch):
    monkeypatch.setenv("END", "waits")
    folder, first = attempt()
    first.wait_for_row()
    first.wait_for_row()
    first.stop()
    get_end_mark(folder).touch()
    assert follow(attempt()[1]) == ([100, 200], {"done": True, "outcome": "ended early"})


HOLD = """
import fcntl, sys
with open(sys.argv[1], "a") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_trial_is_not_over_before_its_last_process_is(attempt):
    """That of a sweep which was killed may be at its last pictures when another sweep goes on."""
    folder, first = attempt()
    follow(first)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, folder / ".lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout and holder.stdout.readline() == "held\n"
    told: list = []
    follower = threading.Thread(target=lambda: told.extend(follow(attempt()[1])))
    follower.start()
    follower.join(0.5)
    assert follower.is_alive() and not told
    holder.communicate()
    follower.join(60)
    assert (
        told == [[100, 200, 300], {"done": True, "outcome": "finished"}]
        and not (folder / ".lock").exists()
    )


def list_files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_run_is_replaced_by_another_one_whole_or_not_at_all(tmp_path):
    run = tmp_path / "sweep" / "trial1"
    other = tmp_path / "trial0"
    for folder, text in ((run, "own"), (other, "other")):
        (folder / "last").mkdir(parents=True)
        for name in ("actor", "last/actor", "id"):
            (folder / name).write_text(text)
    (run / "old").write_text("own")
    before = list_files(run)

    (other / "last" / "gone").symlink_to("nowhere")  # a file that cannot be copied
    with pytest.raises(OSError, match="gone"):
        replace_run(run, other, "id")
    assert list_files(run) == before
    (other / "last" / "gone").unlink()
    replace_run(run, other, "id")
    assert list_files(run) == {"actor": "other", "last/actor": "other"}


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a process of its parent's end"
)
def test_no_training_outlives_the_process_that_follows_it(attempt, tmp_path):
    code = """import os, signal, sys
from pathlib import Path
from td3_robot.sweep.trial_process import TrialProcess
trial = TrialProcess(Path("checkpoints/s/trial0"), Path("script.py"), [], [], "success_rate")
trial.wait_for_row()
print(trial._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)"""
    root = str(Path(__file__).resolve().parents[3])
    environment = os.environ | {"END": "waits", "PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    until = time.monotonic() + 50
    while Path(f"/proc/{done.stdout.strip()}/cmdline").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert time.monotonic() < until


@pytest.mark.parametrize("metric", ["succes_rate", "wall_s"])
def test_a_metric_that_never_comes_is_said_at_the_first_row(attempt, metric):
    told = attempt(metric)[1].wait_for_row()
    assert told["done"] and told["outcome"] == "no metric"
    assert told["why"] == (
        f"metric '{metric}' never comes: an evaluation of trial0 has env_steps, gradient_steps, "
        "success_rate"
    )


def test_success_may_come_with_the_first_training_episode_that_ends(attempt):
    """Some environments report it from the end of an episode on, see `EpisodeStatistics`."""

    def follow_rows(metric: str, *lines: str) -> tuple[list[float], dict]:
        folder, trial = attempt(metric)
        folder.mkdir(exist_ok=True)
        (folder / "metrics.csv").write_text("\n".join([*lines, ""]))
        (folder / "summary.json").write_text(json.dumps({"finished": True}))
        return follow(trial)

    head = "env_steps,gradient_steps,train_return"
    late = (f"{head},train_success_rate", "100,0,nan,nan", "200,0,-3.0,0.5")
    finished = {"done": True, "outcome": "finished"}
    for metric in ("train_success_rate", "success_rate"):
        why = f"metric '{metric}' never comes: "
        assert follow_rows(metric, *late) == ([100, 200], finished)
        steps, told = follow_rows(metric, head, "100,0,nan", "200,0,nan")
        assert steps == [100, 200] and told["outcome"] == "no metric"
        assert told["why"] == f"{why}trial0 ended without a whole training episode"
        steps, told = follow_rows(metric, head, "100,0,nan", "200,0,-3.0", "300,0,-2.0")
        assert steps == [100] and told["why"].startswith(f"{why}an evaluation of trial0 has env")


@pytest.mark.slow
@pytest.mark.parametrize("env", ["mine:Mine-v0", "Pendulum-v1"])
def test_what_names_code_to_run_is_said_again_at_each_resume(tmp_path, monkeypatch, env):
    """No run's own file may name it."""
    pytest.importorskip("ray")
    from td3_robot.sweep import ray_backend

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray_backend, "TrialProcess", lambda *arguments: arguments)
    options = {"env": env, "plugins": ["mine"], "td3.tau": 0.1, "steps": 300, "seed": 0}
    places = {"place": str(tmp_path), "sweep": "s", "script": "train.py"}
    actor = object.__new__(type("Actor", (ray_backend.TrialActor,), {"trial_name": "trial0"}))
    actor.config = {"trial": {"options": options}, "varied": ["td3.tau"], "metric": "m", **places}
    actor.setup(actor.config)
    _, _, begin, change, *_ = actor._process
    trusted = ["--plugins=mine", *([f"--env={env}"] if ":" in env else [])]
    assert change == ["--td3.tau=0.1", *trusted] and {*change, "--seed=0"} < {*begin}


# What came of it

VARIED = {
    "td3.tau": FloatRange(0.001, 0.1, log=True),
    "schedule.lr": Categorical(("constant", "linear")),
}


FIXED = {"task": "track", "evaluation.every": 500}


def make_space(**settings) -> SearchSpace:
    return SearchSpace(SweepConfig(**settings), FIXED, VARIED, (0, 1))


def results() -> list[Result]:
    figures = [
        (0.01, 900, 0.5),
        (0.01, 900, 0.7),
        (0.02, 900, 0.9),
        (0.02, 300, 0.95),
        (0.03, 900, 0.4),
    ]
    options = [{"td3.tau": tau, "schedule.lr": "linear"} for tau, _, _ in figures]
    return [
        Result(
            Trial(f"trial{i}", FIXED | options[i]),
            options[i],
            "finished" if steps == 900 else "ended early",
            steps,
            value,
        )
        for i, (_, steps, value) in enumerate(figures)
    ]


def test_settings_are_ranked_by_how_far_they_came_and_by_their_mean():
    best, second, last = rank_settings(results(), "max")
    assert (best.mean, best.std) == (pytest.approx(0.6), pytest.approx(math.sqrt(0.02)))
    assert (second.mean, last.options["td3.tau"], last.steps) == (0.4, 0.02, 300)
    assert [s.options["td3.tau"] for s in rank_settings(results(), "min")] == [0.03, 0.01, 0.02]
    heading, first, single, _ = make_rows([best, second, last], make_space())
    assert heading == [
        "td3.tau",
        "schedule.lr",
        "seeds",
        "steps",
        "success_rate mean",
        "std",
        "trials",
    ]
    assert (
        first == ["0.01", "linear", "2", "900", "0.6", "0.14", "trial0, trial1"]
        and single[5] == "-"
    )


def test_who_is_done_sooner_came_no_less_far():
    """As with stop_when_solved, or where the steps themselves vary."""
    options = [{"td3.tau": tau, "schedule.lr": "linear"} for tau in (0.01, 0.02, 0.03)]
    ends = [("finished", 50_000, 1.0), ("finished", 200_000, 0.02), ("ended early", 100_000, 1.0)]
    made = [Result(Trial(f"trial{i}", {}), options[i], *end) for i, end in enumerate(ends)]
    assert [setting.options["td3.tau"] for setting in rank_settings(made, "max")] == [
        0.01,
        0.02,
        0.03,
    ]
    assert [row[3] for row in make_rows(rank_settings(made, "max"), make_space())][1:] == [
        "50000",
        "200000",
        "100000",
    ]


@pytest.mark.parametrize("goal", ["max", "min"])
def test_what_is_no_number_is_worse_than_any(goal):
    options = [{"td3.tau": tau, "schedule.lr": "linear"} for tau in (0.01, 0.02, 0.03)]
    made = [
        Result(Trial(f"trial{i}", {}), options[i], "finished", 900, x)
        for i, x in enumerate((math.nan, 0.9, 0.5))
    ]
    for results in (made, made[::-1], made[1:] + made[:1]):
        assert rank_settings(results, goal)[-1].options["td3.tau"] == 0.01
    one = Setting(options[0], (made[0], made[1]))
    assert list(make_rows([one], make_space()))[1][4:6] == ["nan", "-"]


def test_an_option_has_one_place_on_its_axis_however_it_was_written():
    """As text in the plan, and as a list in the run's own file."""
    axis = make_axis("td3.hidden", [[256, 256], [128, 128]], Categorical(("128,128", "256,256")))
    assert axis.shares == [1.0, 0.0] and [text for _, text in axis.ticks] == ["128,128", "256,256"]


def test_the_best_options_are_a_file_that_train_takes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_best(tmp_path, rank_settings(results(), "max")[0], make_space())
    found = parse_train(["--config", str(tmp_path / BEST)])
    assert (found.config.td3.tau, found.config.schedule.lr, found.config.evaluation.every) == (
        0.01,
        "linear",
        500,
    )
    assert found.environment.task == "track"


def test_a_list_that_a_plan_has_as_text_is_one_in_the_best_options(tmp_path):
    """One value for every trial, in the form that docs/how-to/tune.md has for lists."""
    fixed = {"td3.hidden": "16,8", "plugins": ["mine"]}
    trial = Trial("trial0", fixed | {"td3.tau": 0.01, "seed": 0})
    (tmp_path / "trial0").mkdir()
    trained = parse_train([word for word in trial.words if "plugins" not in word])
    save_config(trained.config, tmp_path / "trial0/config.yaml", trained.environment)
    best = Setting({"td3.tau": 0.01}, (Result(trial, {"td3.tau": 0.01}, "finished", 900, 1.0),))
    write_best(tmp_path, best, SearchSpace(SweepConfig(), fixed, VARIED, (0,)))
    found = parse_train(["--config", str(tmp_path / BEST)]).config.td3
    assert (found.hidden, found.tau) == ((16, 8), 0.01)


@pytest.mark.parametrize("count", [1, 3])
def test_the_picture_is_drawn(tmp_path, count):
    plot_settings(tmp_path, rank_settings(results(), "max")[:count], make_space())
    with Image.open(tmp_path / PICTURE) as picture:
        picture.verify()


def test_results_are_those_of_the_run_folder(tmp_path):
    trial = Trial("trial0", {"td3.tau": 0.5, "schedule.lr": "linear"})
    run = tmp_path / "trial0"
    assert read_result(tmp_path, trial, make_space()) is None
    run.mkdir()
    (run / "metrics.csv").write_text(
        "env_steps,gradient_steps,success_rate\n100,1,0.3\n200,2,0.4\n"
    )
    arguments = parse_train(["--td3.tau=0.25", "--schedule.lr=linear"])
    save_config(arguments.config, run / "config.yaml", arguments.environment)
    found = read_result(tmp_path, trial, make_space())
    assert found and (found.state, found.steps, found.value) == ("unfinished", 200, 0.4)
    # changed in the middle, as by pbt
    assert found.options == {"td3.tau": 0.25, "schedule.lr": "linear"}
    (run / "summary.json").write_text(json.dumps({"finished": True, "success_rate": 0.6}))
    found = read_result(tmp_path, trial, make_space())
    assert found and (found.state, found.value) == ("finished", 0.6)


@pytest.mark.parametrize("goal", ["max", "min"])
def test_a_setting_of_which_a_seed_failed_before_its_first_evaluation_is_not_the_best(
    tmp_path, goal
):
    """The one that is left would be the mean of all."""
    values = {0.01: ("0.9", None), 0.02: ("0.5", "0.5"), 0.03: ("0.1", None)}
    results = []
    for i, (tau, seed) in enumerate((tau, seed) for tau in values for seed in range(2)):
        trial = Trial(f"trial{i}", {"td3.tau": tau, "schedule.lr": "linear", "seed": seed})
        (tmp_path / trial.name).mkdir()
        if (value := values[tau][seed]) is not None:
            text = f"env_steps,gradient_steps,success_rate\n900,1,{value}\n"
            (tmp_path / trial.name / "metrics.csv").write_text(text)
            (tmp_path / trial.name / "summary.json").write_text('{"finished": true}')
        results.append(read_result(tmp_path, trial, make_space()))
    best, *others = rank_settings(results, goal)
    assert (best.options["td3.tau"], best.mean) == (0.02, 0.5)
    assert [(other.steps, other.reached) for other in others] == [(0, 0)] * 2
    assert "trial1 (unfinished)" in "".join(list(make_rows([best, *others], make_space()))[2])


def test_the_table_prints_what_each_trial_does(capsys):
    trials = [Trial(f"trial{i}", {"td3.tau": 0.1 * (i + 1)}) for i in range(2)]
    with TrialTable(trials, ["td3.tau"], "success_rate") as table:
        table.start_trial("trial0", {"td3.tau": 0.1})
        table.update_trial("trial0", 1_000, 0.25)
        table.end_trial("trial0", "failed", "no luck")
    lines = [
        "trial0: td3.tau 0.1",
        "trial0: 1,000 steps, success_rate 0.25",
        "trial0: failed: no luck",
    ]
    assert capsys.readouterr().out.splitlines() == lines


def test_at_a_terminal_a_table_is_kept_up_to_date():
    trials = [Trial(f"trial{i}", {"td3.tau": 0.1 * (i + 1)}) for i in range(2)]
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with TrialTable(trials, ["td3.tau"], "success_rate", console) as table:
        table.start_trial("trial1", trials[1].options)
        table.start_trial("trial1", {"td3.tau": 0.3})  # pbt has changed it
        table.update_trial("trial1", 1_000, 0.25)
    shown = console.file.getvalue().splitlines()
    assert any(
        line.split() == ["trial1", "td3.tau", "0.3", "1,000", "0.25", "trains"] for line in shown
    )
    assert any("1 of 2 wait" in line for line in shown) and not any(
        "trial0" in line for line in shown
    )
