"""train.py as its user meets it: a real training, a real Ctrl-C, and every wrong word answered in
one line.
"""

import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from td3_robot import checkpoint
from td3_robot.cli.arguments import load_config
from td3_robot.deploy import DeployError, Policy
from td3_robot.loggers.csv import read_metrics
from tests.support import drop_progress

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = os.environ | {
    "PYTHONPATH": str(ROOT),
    "PYTHONUNBUFFERED": "1",
    "OMP_NUM_THREADS": "1",
}
NETWORKS = ("actor", "Q1", "Q2", "actor_target", "Q1_target", "Q2_target")


def start(cwd: Path, *flags: str) -> subprocess.Popen:
    command = [sys.executable, str(ROOT / "train.py"), *flags]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=cwd, env=ENVIRONMENT, **pipes)


def finish(process: subprocess.Popen, seconds: float = 240) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    try:
        out, err = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return process.returncode, out, drop_progress(err)


def train(cwd: Path, *flags: str) -> tuple[int, str, str]:
    return finish(start(cwd, *flags))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    states = checkpoint.read(folder, names=NETWORKS)
    return {
        f"{name}.{key}": value for name, state in states.items() for key, value in state.items()
    }


def scalars(folder: Path, name: str) -> list[int]:
    """The env steps at which TensorBoard shows a metric."""
    return [
        event.step for event in EventAccumulator(str(folder / "tensorboard")).Reload().Scalars(name)
    ]


# A training


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A short training in a world without latency; run3 is there already."""
    cwd = tmp_path_factory.mktemp("trained")
    (cwd / "checkpoints" / "run3").mkdir(parents=True)
    began = time.monotonic()
    flags = (
        "--robot",
        "panda",
        "--randomize",
        "none",
        "--threads",
        "1",
        "--steps",
        "40_000",
        "--evaluation.every",
        "20_000",
    )
    code, out, err = train(cwd, *flags, "--evaluation.episodes=50")
    return cwd, code, out, err, time.monotonic() - began


def test_a_training_ends_without_a_complaint(trained):
    """That it learns is tested with the tutorial of a first policy."""
    _, code, _, err, _ = trained
    assert (code, err) == (0, "")


def test_the_run_goes_to_the_next_free_number_and_holds_all_it_should(trained):
    runs = trained[0] / "checkpoints"
    assert {path.name for path in runs.iterdir()} == {"run3", "run4"}
    files = {path.name for path in (runs / "run4").iterdir()}
    others = {
        "last",
        "tensorboard",
        "config.yaml",
        "metrics.csv",
        "summary.json",
        "learning_curve.png",
    }
    others |= {"provenance.json"}
    assert files == {*NETWORKS, checkpoint.MANIFEST, *checkpoint.REQUIRED, *others}
    last = {path.name for path in (runs / "run4" / "last").iterdir()}
    assert last == {*checkpoint.NAMES, checkpoint.MANIFEST} - {"normalizer"}
    assert list((runs / "run3").iterdir()) == []


def test_summary_and_metrics_agree_with_what_was_asked_and_what_happened(trained):
    cwd, _, _, _, seconds = trained
    folder = cwd / "checkpoints" / "run4"
    summary = json.loads((folder / "summary.json").read_text())
    rows = read_metrics(folder)
    # the first step of 256 at or past each multiple
    assert [row["env_steps"] for row in rows] == [20_224, 40_192]
    assert (summary["robot"], summary["task"], summary["seed"], summary["finished"]) == (
        "panda",
        "reach",
        0,
        True,
    )
    assert (
        summary["env_steps"] == 40_192 and summary["gradient_steps"] == rows[-1]["gradient_steps"]
    )
    # from process start, so nearly all of it
    assert rows[-1]["wall_s"] < summary["wall_s"] < seconds
    assert summary["wall_s"] > 0.7 * seconds
    solved = [row["wall_s"] for row in rows if row["success_rate"] >= 0.99]
    assert summary["solved_at_s"] == (pytest.approx(solved[0], abs=0.1) if solved else None)
    columns = {
        "success_rate",
        "episode_return",
        "Q1_loss",
        "Q2_loss",
        "env_steps_per_s",
        "updates_per_s",
        "left_s",
    }
    assert columns <= rows[0].keys() and all(
        math.isfinite(value) for row in rows for value in row.values()
    )
    config = load_config(folder / "config.yaml")
    assert (config.steps, config.evaluation.every, config.threads) == (40_000, 20_000, 1)


def test_the_terminal_shows_a_line_an_evaluation_and_what_to_do_next(trained):
    _, _, out, _, _ = trained
    lines = out.splitlines()
    assert lines[0] == "panda learns reach (seed 0) in checkpoints/run4"
    assert lines[1].split()[:2] == ["env", "steps"] and "success" in lines[1]
    assert lines[2].split()[0] == "20,224" and lines[3].split()[0] == "40,192"
    assert re.search(r"success rate \d+\.\d%, return -?\d+\.\d\d after \d+\.\d s", lines[4])
    assert "python evaluate.py --checkpoint checkpoints/run4" in out


def test_the_curve_is_a_picture_and_tensorboard_has_the_metrics(trained):
    folder = trained[0] / "checkpoints" / "run4"
    with Image.open(folder / "learning_curve.png") as image:
        image.verify()
        assert image.format == "PNG" and image.width > 400
    assert scalars(folder, "success_rate") == scalars(folder, "Q1_loss") == [20_224, 40_192]


def test_products_are_of_the_precision_that_was_asked_for(tmp_path, in_process):
    before = torch.get_float32_matmul_precision()
    flags = "--env Pendulum-v1 --steps 32 --num_envs 1 --exploration.start_steps 16 --evaluation.every 32"
    try:
        for given in ("medium", "highest"):
            asked = ("--matmul_precision", given, "--run", given)
            assert in_process(tmp_path, "train", *flags.split(), *asked)[0] == 0
            assert torch.get_float32_matmul_precision() == given
    finally:
        torch.set_float32_matmul_precision(before)
    code, _, err = in_process(tmp_path, "train", "--matmul_precision", "low")
    assert code == 2 and "highest, high, medium" in err


# Stopping and going on

SMALL = (
    *("--threads", "1", "--num_envs", "16", "--steps", "8_000"),
    *("--randomize", "none", "--updates_per_step", "1"),
    *(
        "--evaluation.every",
        "4_000",
        "--evaluation.episodes",
        "10",
        "--exploration.start_steps",
        "320",
    ),
    *("--td3.hidden", "32", "--replay.batch_size", "32", "--replay.capacity", "5_000"),
)


def interrupt_when(process: subprocess.Popen, happened) -> tuple[int, str, str]:
    """Ctrl-C as soon as something is there."""
    deadline = time.monotonic() + 120
    while not happened():
        assert process.poll() is None, finish(process)
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    return finish(process)


def test_ctrl_c_loses_nothing(tmp_path):
    """Stopped before its first evaluation and after it, a run ends exactly as one that nobody
    stopped.
    """
    slow = (*SMALL, "--updates_per_step", "4")  # so that Ctrl-C comes before the evaluation
    assert train(tmp_path, *slow, "--run", "whole")[::2] == (0, "")
    whole = tmp_path / "checkpoints" / "whole"
    cut = tmp_path / "checkpoints" / "cut"

    process = start(tmp_path, *slow, "--run", "cut", "--save_every", "0.3")
    code, out, err = interrupt_when(process, (cut / "last" / "trainer_state").exists)
    assert (code, err) == (130, "")
    stopped = re.fullmatch(
        r"stopped at (\d+) env steps; continue with: python train.py --resume cut",
        out.splitlines()[-1],
    )
    assert stopped and 0 < int(stopped[1]) < 4_000
    assert json.loads((cut / "summary.json").read_text())["finished"] is False

    code, out, err = interrupt_when(
        start(tmp_path, "--resume", "cut"), (cut / "metrics.csv").exists
    )
    assert (code, err) == (130, "")
    assert 4_000 <= int(re.search(r"stopped at (\d+)", out)[1]) < 8_000

    code, out, err = train(tmp_path, "--resume", "cut")
    assert (code, err) == (0, "")
    summary = json.loads((cut / "summary.json").read_text())
    assert summary["finished"] and summary["env_steps"] == 8_000
    assert summary["wall_s"] > json.loads((whole / "summary.json").read_text())["wall_s"]
    assert scalars(cut, "success_rate") == [4_000, 8_000]
    scores = [
        [row[k] for k in ("env_steps", "success_rate", "episode_return")]
        for row in read_metrics(cut)
    ]
    assert scores == [
        [row[k] for k in ("env_steps", "success_rate", "episode_return")]
        for row in read_metrics(whole)
    ]
    for folder in ("", "last"):
        expected = weights(whole / folder)
        assert all(
            torch.equal(value, expected[name]) for name, value in weights(cut / folder).items()
        )


def test_a_run_stops_where_it_is_told_to(tmp_path, in_process):
    code, out, err = in_process(tmp_path, "train", *SMALL, "--run", "half", "--stop_at", "4_000")
    assert (code, err) == (0, "")
    assert (
        out.splitlines()[-1]
        == "stopped at 4000 env steps; continue with: python train.py --resume half"
    )
    code, out, err = in_process(tmp_path, "train", "--resume", "half", "--stop_at", "4_000")
    assert (code, err) == (
        2,
        "error: stop_at must be above 4000 steps, made already, and below steps, 8000, got 4000\n",
    )
    code, out, err = in_process(tmp_path, "train", "--resume", "half", "--steps", "400")
    assert (code, out) == (2, "") and "steps must be at least 4000, made already, got 400" in err
    assert in_process(tmp_path, "train", "--resume", "half", "--steps", "8_000")[::2] == (0, "")
    assert [row["env_steps"] for row in read_metrics(tmp_path / "checkpoints/half")] == [
        4_000,
        8_000,
    ]


def test_a_printed_command_names_a_folder_with_a_space_as_one_word(
    tmp_path, in_process, monkeypatch
):
    """A run that was moved to such a folder is continued, measured and exported by what is
    printed.
    """
    short = (*SMALL, "--steps", "4_800", "--evaluation.every", "1_600")
    assert in_process(tmp_path, "train", *short, "--run", "a", "--stop_at", "1_600")[0] == 0
    (tmp_path / "my runs").mkdir()
    (tmp_path / "checkpoints" / "a").rename(tmp_path / "my runs" / "a b")

    code, out, _ = in_process(tmp_path, "train", "--resume", "my runs/a b", "--stop_at", "3_200")
    _, command = out.splitlines()[-1].split("continue with: ")
    assert (code, shlex.split(command)) == (0, ["python", "train.py", "--resume", "my runs/a b"])
    code, out, _ = in_process(tmp_path, "train", *shlex.split(command)[2:])
    command = shlex.split(out.splitlines()[-1].removeprefix("see how good it is: "))
    assert (code, command) == (0, ["python", "evaluate.py", "--checkpoint", "my runs/a b"])
    motion = ("--policy", "my runs/a b", "--goal", "0.4,0.1,0.4")
    code, _, err = in_process(tmp_path, "run_policy", *motion)
    command = shlex.split(err.strip().split("write its policy with: ")[1])
    assert (code, command) == (2, ["python", "export.py", "--checkpoint", "my runs/a b"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DeployError) as refused:
        Policy.load("my runs/a b")
    command = shlex.split(str(refused.value).split("write it with: ")[1])
    assert command == ["python", "export.py", "--checkpoint", "my runs/a b"]


def test_a_run_may_begin_with_the_networks_of_another(tmp_path, in_process):
    """Here TD3 goes on from DDPG. Its one update is of the critics, so the actor is still the one
    it began with, and the start is the best.
    """
    ddpg = ("--td3.twin_critics", "false", "--td3.policy_delay", "1", "--td3.policy_noise", "0")
    assert in_process(tmp_path, "train", *SMALL, *ddpg, "--steps", "1_600", "--run", "ddpg")[
        ::2
    ] == (0, "")
    begin = (
        *SMALL,
        "--start_from",
        "ddpg",
        "--steps",
        "16",
        "--exploration.start_steps",
        "0",
        "--updates_per_step",
        "1",
    )
    assert in_process(tmp_path, "train", *begin, "--run", "td3")[::2] == (0, "")
    before, best, after = (
        weights(tmp_path / "checkpoints" / name) for name in ("ddpg", "td3", "td3/last")
    )
    for name in (name for name in before if name.startswith("actor.")):
        assert torch.equal(best[name], before[name]) and torch.equal(after[name], before[name])
    assert torch.equal(best["Q1.layers.0.weight"], before["Q1.layers.0.weight"])
    assert not torch.equal(after["Q1.layers.0.weight"], before["Q1.layers.0.weight"])
    assert load_config(tmp_path / "checkpoints/td3/config.yaml").start_from == Path(
        "checkpoints/ddpg"
    )

    code, out, err = in_process(tmp_path, "train", *begin, "--run", "wide", "--td3.hidden", "64")
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert (
        "checkpoints/ddpg: Q1 does not fit an agent with" in err
        and "hidden [64]: its layers are" in err
    )
    assert not (tmp_path / "checkpoints/wide").exists() and "trained on" not in err

    code, out, err = in_process(tmp_path, "train", *begin, "--run", "ur5e", "--robot", "ur5e")
    assert code == 2 and err.count("\n") == 1
    which = "robot panda, task reach, and this run is on robot ur5e, task reach: checkpoint "
    assert err.startswith(f"error: start_from was trained on {which}")
    assert not (tmp_path / "checkpoints/ur5e").exists()


def test_a_run_that_diverges_says_so_and_keeps_its_checkpoint(tmp_path, in_process):
    code, out, err = in_process(tmp_path, "train", *SMALL, "--td3.critic_lr", "1e25")
    assert code == 1
    assert re.fullmatch(r"error: .*\n", err) and ("became" in err or "NaN" in err)
    assert all(
        torch.isfinite(value).all() for value in weights(tmp_path / "checkpoints" / "run1").values()
    )


# Wrong words


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--robot", "pandaa"], "robot 'pandaa'; did you mean 'panda'.*valid choices:.*panda"),
        (["--task", "raech"], "task 'raech'; did you mean 'reach'.*valid choices:.*reach"),
        (["--stepz", "10"], "option 'stepz'; did you mean steps.*--help-all lists all$"),
        (["--td3.gama", "0.9"], "option 'td3.gama'; did you mean td3.gamma[?]"),
        (["--steps", "many"], "steps must be a whole number, got 'many'"),
        (["--td3.gamma", "1.5"], r"td3.gamma must be in \[0, 1\], got 1.5"),
        (["--steps"], "--steps needs a value: a whole number"),
        (["panda"], "'panda': options are written --name value"),
        (["--device", "cuda:99"], "device 'cuda:99' is not available.*cpu"),
        (["--config", "nowhere.yaml"], "'nowhere.yaml'"),
        (["--resume", "run1"], "cannot resume 'run1'"),
        (["--start_from", "run1"], "there is no checkpoint at .*run1"),
        (["--run", "../elsewhere"], "run must be .*'../elsewhere'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_is_said_in_one_line_and_nothing_is_made(tmp_path, in_process, flags, words):
    code, out, err = in_process(tmp_path, "train", *flags)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and err.endswith("\n") and err.count("\n") == 1
    assert re.search(words, err), err
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_exists_is_not_trained_over(tmp_path, in_process):
    run = tmp_path / "checkpoints" / "mine"
    run.mkdir(parents=True)
    (run / "notes.txt").write_text("do not touch")
    code, _, err = in_process(tmp_path, "train", *SMALL, "--run", "mine")
    assert code == 2 and err.count("\n") == 1
    assert re.search("run 'mine' exists.*--resume mine", err)
    assert [path.name for path in run.iterdir()] == ["notes.txt"] and (
        run / "notes.txt"
    ).read_text() == "do not touch"
    assert [path.name for path in run.parent.iterdir()] == ["mine"]


def test_a_process_ends_like_that_too(tmp_path):
    code, out, err = train(tmp_path, "--stepz", "10")
    assert (
        (code, out) == (2, "")
        and err
        == "error: unknown option 'stepz'; did you mean steps? python train.py --help-all lists all\n"
    )


def test_help_lists_the_options(tmp_path):
    code, out, err = train(tmp_path, "--help")
    assert (code, err) == (0, "")
    for option in ("--robot", "--task", "--resume", "--swift", "--td3.gamma", "--evaluation.every"):
        assert option in out
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_leaves_does_not_cost_the_training(tmp_path):
    process = start(
        tmp_path, "--steps", "7_680", "--evaluation.every", "2_560", "--evaluation.episodes", "5"
    )
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    assert drop_progress(process.stderr.read()) == ""
    assert read_metrics(tmp_path / "checkpoints/run1")[-1]["env_steps"] == 7_680
    assert (tmp_path / "checkpoints/run1/summary.json").exists() and (
        tmp_path / "checkpoints/run1/last"
    ).exists()
    process.stderr.close()


def test_a_run_that_fails_before_it_begins_gives_its_name_back(tmp_path, in_process):
    code, _, err = in_process(tmp_path, "train", "--replay.capacity", "1e12", "--run", "big")
    assert (
        code == 2 and err.startswith("error: capacity 1000000000000 needs") and err.count("\n") == 1
    )
    assert not (tmp_path / "checkpoints/big").exists()
