"""Several seeds beside each other: their command lines, processes that fail or are stopped, mean
and spread.
"""

import functools
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from PIL import Image

from envs.command_line import TrainFlags
from envs.config.env_options import EnvOptions
from td3_robot.cli import arguments
from td3_robot.commands import train
from td3_robot.errors import ConfigError
from td3_robot.loggers.csv import CsvLog
from td3_robot.sweep import multi_seed as module
from td3_robot.sweep.multi_seed import train_seeds
from td3_robot.sweep.seed_summary import compute_spreads, format_table, plot_band

parse_train = functools.partial(arguments.parse_train, environment=EnvOptions, flags=TrainFlags)

# Stands in for train.py: seed 1 ends as the variable SECOND says, unless it is resumed; the others
# finish.
SCRIPT = """
import json, os, signal, sys, time
from pathlib import Path

def end(code):
    (folder / "last").mkdir(exist_ok=True)
    os._exit(code)

words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
resumed = words.get("--resume", "null") != "null"
folder = Path(words["--resume"] if resumed else f"checkpoints/{words['--run']}")
signal.signal(signal.SIGINT, lambda *_: end(130))
folder.mkdir(parents=True, exist_ok=True)
began = time.monotonic()
seed = int(folder.name.removeprefix("seed"))
print("heading", flush=True)
print(f"begins {seed} {'again' if resumed else 'anew'}", flush=True)
if seed == 1 and os.environ.get("AGAIN"):
    os._exit(2)
if seed == 1 and not resumed:
    match os.environ.get("SECOND"):
        case "fails":
            print("error: no luck", file=sys.stderr)
            os._exit(2)
        case "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "waits":
            time.sleep(60)
time.sleep(0.2)
summary = {"finished": True, "success_rate": 0.5 + 0.1 * seed}
summary |= {"episode_return": 10.0 * seed, "env_steps": 100}
(folder / "summary.json").write_text(json.dumps(summary))
(folder / "time").write_text(f"{began} {time.monotonic()}")
names = "env_steps,gradient_steps,success_rate,episode_return"
(folder / "metrics.csv").write_text(f"{names}\\n100,9,{seed / 9},{seed}\\n")
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Train with a command line: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)

    def run(line: str) -> tuple[int, str, str]:
        code = train_seeds(tmp_path / "script.py", line.split(), parse_train(line.split()))
        return code, *capfd.readouterr()

    return run


def test_each_seed_is_the_run_that_a_user_would_have_begun(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = "--task track --steps 500 --td3.gamma 0.9 --seeds 3 4 5 --run three".split()
    told = parse_train(words)
    assert told.config.seeds == (3, 4, 5)
    folder = Path("checkpoints/three")
    folder.mkdir(parents=True)
    arguments.save_config(told.config, folder / "config.yaml", told.environment)
    alone = parse_train(
        "--task track --steps 500 --td3.gamma 0.9 --seed 4 --run three/seed4".split()
    )
    assert told.notes == alone.notes != ()  # of a short run's start steps
    own = parse_train(module._build_words(words, folder, 4))
    assert (own.config, own.environment, own.resume) == (alone.config, alone.environment, None)
    assert own.notes == ()  # told before

    (folder / "seed4/last").mkdir(parents=True)
    arguments.save_config(own.config, folder / "seed4/config.yaml", own.environment)
    again = parse_train(module._build_words(["--resume", "three", "--steps", "40_000"], folder, 4))
    assert again.resume == folder / "seed4" and (again.config.seed, again.config.steps) == (
        4,
        40_000,
    )


@pytest.mark.parametrize(
    "line", ["--seeds 0 1 2", "--seeds 0,1,2", "--seeds=[0,1,2]", "--seeds 0 1,2 --num_envs 8"]
)
def test_a_list_is_one_word_or_several(line):
    assert parse_train(line.split()).config.seeds == (0, 1, 2)


@pytest.mark.parametrize(
    "line, words",
    [
        ("--seeds 1 2 1", r"seeds must differ from each other, got \(1, 2, 1\)"),
        (
            "--seeds 0 1 --run group/two",
            "run 'group/two' with seeds is a folder of runs: its name has no /",
        ),
        ("--seeds 1 --seed 2", "seed and seeds exclude each other"),
        ("--seeds 0 x", "seeds must be a list, each a whole number, got \\[0, 'x'\\]"),
        ("--seeds 0 -1", r"seeds must be in \[0, 4_294_967_295\], got \(0, -1\)"),
        ("--seeds=-1", r"seeds must be in \[0, 4_294_967_295\], got \(-1,\)"),
        ("--seeds", "--seeds needs a value: a list, each a whole number"),
    ],
)
def test_wrong_seeds_are_one_line(line, words, run, tmp_path):
    with pytest.raises(ConfigError, match=words):
        run(line)
    assert not (tmp_path / "checkpoints").exists()


def test_mean_and_spread_of_all_seeds(run, monkeypatch):
    """Success rates 0.5, 0.6 and 0.7: mean 0.6, deviation sqrt((0.01 + 0 + 0.01) / 2)."""
    monkeypatch.setattr(module, "count_cores", lambda: 2)
    code, out, err = run("--seeds 0 1 2 --run three")
    assert (code, err) == (0, "")
    summary = json.loads(Path("checkpoints/three/summary.json").read_text())
    assert summary["success_rate"] == pytest.approx(
        {"mean": 0.6, "std": 0.1, "min": 0.5, "max": 0.7}
    )
    assert (
        summary["seeds"] == [0, 1, 2] and summary["finished"] is True and summary["task"] == "reach"
    )
    lines = out.splitlines()
    assert lines[0] == "seeds 0, 1, 2 in checkpoints/three, 2 in parallel, threads of each: 1"
    assert out.count("heading") == 1 and {f"seed {n}: begins {n} anew" for n in range(3)} < set(
        lines
    )
    assert lines[-3].split() == ["mean", "60.0%", "10.00", "100"]
    assert lines[-2].split() == ["std", "10.0%", "10.00", "0"]
    with Image.open("checkpoints/three/learning_curve.png") as image:
        assert image.format == "PNG" and image.width > 400
    spans = [
        tuple(map(float, Path(f"checkpoints/three/seed{n}/time").read_text().split()))
        for n in range(3)
    ]
    assert max(sum(begin <= time < end for begin, end in spans) for time, _ in spans) <= 2  # cores


@pytest.mark.parametrize(
    "ends, code, told", [("fails", 2, "error: no luck"), ("is killed", 137, "ended by SIGKILL")]
)
def test_a_seed_that_fails_costs_the_others_nothing(ends, code, told, run, monkeypatch):
    monkeypatch.setenv("SECOND", ends)
    ended, out, err = run("--seeds 0 1 2 --run three")
    assert ended == code and err.splitlines() == [
        f"seed 1: {told}",
        "error: 1 of 3 seeds failed: 1",
    ]
    assert out.splitlines()[-1] == "continue with: python train.py --resume three"
    summary = json.loads(Path("checkpoints/three/summary.json").read_text())
    assert summary["finished"] is False and summary["success_rate"]["mean"] == pytest.approx(0.6)
    monkeypatch.delenv("SECOND")
    ended, out, err = run("--resume three")
    assert (ended, err) == (0, "") and "seed 1: begins 1 anew" in out  # it had no resume point
    assert json.loads(Path("checkpoints/three/summary.json").read_text())["finished"] is True


def test_the_command_to_continue_names_again_what_only_a_command_line_may(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)
    monkeypatch.setattr(train, "find_script", lambda _: tmp_path / "script.py")
    monkeypatch.setenv("SECOND", "fails")
    assert train.main("--plugins json --seeds 0 1 2 --run three".split()) == 2
    resume = "python train.py --resume three --plugins json"
    assert capfd.readouterr().out.splitlines()[-1] == f"continue with: {resume}"


def test_what_a_seed_came_to_in_a_sitting_before_does_not_count(run, monkeypatch):
    run("--seeds 0 1 2 --run three")
    monkeypatch.setenv("AGAIN", "fails")
    code, out, err = run("--resume three")
    assert code == 2 and err == "error: 1 of 3 seeds failed: 1\n"
    assert out.splitlines()[-1] == "continue with: python train.py --resume three"
    summary = json.loads(Path("checkpoints/three/summary.json").read_text())
    assert summary["finished"] is False
    assert summary["success_rate"] == pytest.approx(
        {"mean": 0.6, "std": 0.1 * 2**0.5, "min": 0.5, "max": 0.7}
    )
    assert not any(line.split()[:2] == ["1", "60.0%"] for line in out.splitlines())


def test_ctrl_c_stops_all_and_resume_goes_on(run, monkeypatch):
    monkeypatch.setenv("SECOND", "waits")
    monkeypatch.setattr(module, "count_cores", lambda: 2)
    waiting = Path("checkpoints/three/seed1")

    def interrupt() -> None:
        until = time.monotonic() + 30
        while not waiting.exists() and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.1)  # it has set its handler before
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    code, out, err = run("--seeds 0 1 2 3 --run three --threads 2")
    thread.join()
    assert (code, err) == (130, "") and out.splitlines()[
        -1
    ] == "continue with: python train.py --resume three"
    assert "1 in parallel, threads of each: 2" in out
    assert (waiting / "last").is_dir() and not Path(
        "checkpoints/three/seed2"
    ).exists()  # it was not begun
    code, out, err = run("--resume three")
    assert (code, err) == (0, "") and {"seed 1: begins 1 again", "seed 3: begins 3 anew"} < set(
        out.splitlines()
    )


@pytest.mark.parametrize("place", ["checkpoints/july/two", "../my söeds/two"])
def test_seeds_that_were_moved_begin_no_run_elsewhere(run, monkeypatch, place):
    """Nor are the others resumed, until the folder is back."""
    monkeypatch.setenv("SECOND", "fails")
    run("--seeds 0 1 --run two")
    Path("checkpoints/two/seed0/last").mkdir()
    Path(place).parent.mkdir(exist_ok=True)
    Path("checkpoints/two").rename(place)
    name = place.removeprefix("checkpoints/")
    moved = parse_train(["--resume", name])
    with pytest.raises(ConfigError, match="^seed1 of .*: move the folder to 'checkpoints/two'$"):
        train_seeds(Path("script.py"), ["--resume", name], moved)
    Path(place).rename("checkpoints/two")
    monkeypatch.delenv("SECOND")
    assert run(f"--resume ../{Path.cwd().name}/checkpoints/two")[0] == 0
    assert Path("checkpoints/two/seed1/summary.json").exists()


def test_a_resumed_run_keeps_its_seeds(run):
    run("--seeds 0 1 --run two")
    with pytest.raises(ConfigError, match=r"seeds of run 'two' is \(0, 1\) and stays so"):
        run("--resume two --seeds 0 1 2")


def test_figures_that_not_every_seed_has_have_no_mean():
    runs = {0: {"wall_s": 4.0, "solved_at_s": 1.0}, 7: {"wall_s": 8.0, "solved_at_s": None}}
    assert compute_spreads(runs).keys() == {"wall_s"}
    heading, first, second, mean, deviation = format_table(runs)
    assert [row.split() for row in (first, second)] == [["0", "4.0", "1.0"], ["7", "8.0", "-"]]
    assert mean.split() == ["mean", "6.0", "-"] and deviation.split() == ["std", "2.8", "-"]
    assert len({map(len, (heading, first, second, mean, deviation))}) == 1
    # one run has no spread
    assert list(format_table({3: {"wall_s": 1.0}}))[-1].split() == ["std", "-"]


def test_the_band_ends_where_the_first_seed_ends(tmp_path, monkeypatch):
    drawn = []
    for seed, steps in ((0, (10, 20, 30)), (1, (10, 20))):
        folder = tmp_path / f"seed{seed}"
        folder.mkdir()
        log = CsvLog(folder)
        for step in steps:
            log.log(
                {"env_steps": step, "gradient_steps": step, "episode_return": float(step + seed)}
            )
    monkeypatch.setattr(
        "td3_robot.sweep.seed_summary._draw_band", lambda axes, *drawing: drawn.append(drawing)
    )
    plot_band(tmp_path, [0, 1])
    (band,) = drawn
    assert band[:2] == ([10, 20], [[10.0, 11.0], [20.0, 21.0]])
