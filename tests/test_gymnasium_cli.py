"""train.py and evaluate.py on Gymnasium environments and on datasets, as their user meets them."""

import json

import numpy as np
import pytest

from td3_robot.loggers.csv import read_metrics
from tests.support import ROOT, drop_progress, needs_fetch, run_script

SMALL = "--td3.hidden 16 --replay.batch_size 32 --evaluation.episodes 3"


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory):
    """A working directory with a short run on Pendulum, several environments at once."""
    folder = tmp_path_factory.mktemp("gymnasium")
    line = "--env Pendulum-v1 --num_envs 4 --steps 1200 --exploration.start_steps 400"
    line += f" --evaluation.every 400 {SMALL}"
    result = run_script(folder, "train", *line.split(), "--run", "swing")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("learning Pendulum-v1 (seed 0) in checkpoints/swing\n")
    return folder


def test_a_run_on_a_gymnasium_environment_is_a_run_like_any_other(pendulum):
    summary = json.loads((pendulum / "checkpoints/swing/summary.json").read_text())
    assert (summary["env"], summary["env_steps"], summary["gradient_steps"]) == (
        "Pendulum-v1",
        1200,
        200,
    )
    assert summary.keys().isdisjoint({"robot", "task", "success_rate"})  # Pendulum knows no success
    assert -2000 < summary["episode_return"] < 0
    assert [row["env_steps"] for row in read_metrics(pendulum / "checkpoints/swing")] == [
        400,
        800,
        1200,
    ]
    assert (pendulum / "checkpoints/swing/learning_curve.png").stat().st_size > 10_000


def test_it_is_resumed_and_measured_beside_random_actions(pendulum):
    result = run_script(pendulum, "train", *"--resume swing --steps 1600".split())
    assert result.returncode == 0, result.stderr
    rows = read_metrics(pendulum / "checkpoints/swing")
    # 160 of 400 env steps fill the replay again
    assert [row["gradient_steps"] for row in rows] == [0, 100, 200, 260]
    result = run_script(
        pendulum,
        "evaluate",
        *"--checkpoint swing --episodes 5 --json out.json --plot rollout.png".split(),
    )
    assert result.returncode == 0 and drop_progress(result.stderr) == ""
    assert result.stdout.startswith("checkpoints/swing: Pendulum-v1, 5 episodes, seed 12345\n")
    out = json.loads((pendulum / "out.json").read_text())
    for summary in (out, out["baselines"]["random"]):
        assert summary["episode_length"]["mean"] == 200 and summary["episode_return"]["mean"] < 0
    assert (pendulum / "rollout.png").stat().st_size > 10_000


def test_what_a_policy_did_can_be_learnt_from_offline(pendulum):
    result = run_script(
        pendulum,
        "evaluate",
        *"--checkpoint swing --episodes 1 --dataset d.npz".split(),
        *"--transitions 300 --dataset_noise 0.2".split(),
    )
    assert result.returncode == 0, result.stderr
    line = f"--env Pendulum-v1 --dataset d.npz --config {ROOT}/configs/td3_bc.yaml --steps 60"
    line += " --evaluation.every 30"
    result = run_script(pendulum, "train", *f"{line} {SMALL} --run offline".split())
    assert result.returncode == 0, result.stderr
    summary = json.loads((pendulum / "checkpoints/offline/summary.json").read_text())
    assert (summary["env_steps"], summary["gradient_steps"]) == (0, 60)
    assert [row["gradient_steps"] for row in read_metrics(pendulum / "checkpoints/offline")] == [
        30,
        60,
    ]


@needs_fetch
def test_goals_are_relabelled_by_preset_and_success_is_counted(tmp_path):
    line = "--env FetchReach-v4 --steps 200 --exploration.start_steps 60 --evaluation.every 100"
    line += f" {SMALL} --run reach"
    result = run_script(tmp_path, "train", *line.split())
    assert result.returncode == 0, result.stderr
    assert "hindsight: future" in (tmp_path / "checkpoints/reach/config.yaml").read_text()
    assert (
        0
        <= json.loads((tmp_path / "checkpoints/reach/summary.json").read_text())["success_rate"]
        <= 1
    )


@pytest.mark.parametrize(
    "line, message",
    [
        ("--env HalfCheeta-v5", "env 'HalfCheeta-v5'"),
        (
            "--env Pendulum-v1 --replay.hindsight future",
            "replay.hindsight future needs an environment with goals",
        ),
        ("--env Pendulum-v1 --robot ur5e", "env and robot exclude each other"),
        ("--env Pendulum-v1 --dataset none.npz", "dataset 'none.npz': cannot be read"),
        (
            "--env Pendulum-v1 --steps 900 --exploration.start_steps 900",
            "steps must be above exploration.start_steps",
        ),
        (
            "--env Pendulum-v1 --td3.atoms 51",
            "td3.atoms must be 0, or 2 and more with v_min below v_max",
        ),
        (
            "--env Pendulum-v1 --dataset wrong.npz",
            "dataset 'wrong.npz': observations must have width 3, got 2",
        ),
    ],
)
def test_what_is_wrong_is_one_line_and_leaves_nothing_behind(tmp_path, in_process, line, message):
    ones = np.ones((3, 2))
    arrays = {"observations": ones, "next_observations": ones, "actions": ones[:, :1]}
    arrays |= {"rewards": ones[:, 0], "terminals": 0 * ones[:, 0]}
    np.savez(tmp_path / "wrong.npz", **arrays)
    code, out, err = in_process(tmp_path, "train", *line.split())
    assert code == 2 and out == ""
    assert message in err and err.startswith("error: ") and err.count("\n") == 1
    assert not list(tmp_path.glob("checkpoints/*"))
