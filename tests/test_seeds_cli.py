"""train.py --seeds as its user meets it: real trainings beside each other."""

import json
import subprocess
from pathlib import Path

from td3_robot.cli.arguments import load_config
from tests.support import drop_progress, run_script

SMALL = (
    *("--env", "Pendulum-v1", "--num_envs", "4", "--steps", "400", "--evaluation.every", "200"),
    *("--evaluation.episodes", "3", "--exploration.start_steps", "100", "--td3.hidden", "8"),
    *("--replay.batch_size", "8"),
)


def train(cwd: Path, *flags: str) -> subprocess.CompletedProcess:
    return run_script(cwd, "train", *SMALL, *flags, timeout=500)


def test_seeds_train_beside_each_other(tmp_path):
    done = train(tmp_path, "--seeds", "0", "1", "--run", "two")
    assert (done.returncode, drop_progress(done.stderr)) == (0, "")
    assert done.stdout.splitlines()[-1] == "the curve is in checkpoints/two"
    summary = json.loads((tmp_path / "checkpoints/two/summary.json").read_text())
    assert summary["finished"] and summary["env_steps"] == {
        "mean": 400,
        "std": 0,
        "min": 400,
        "max": 400,
    }
    assert (tmp_path / "checkpoints/two/learning_curve.png").exists()
    for seed in (0, 1):
        folder = tmp_path / f"checkpoints/two/seed{seed}"
        assert {"actor", "last", "metrics.csv"} < {path.name for path in folder.iterdir()}
        assert load_config(folder / "config.yaml").seed == seed


def test_the_browser_view_is_of_one_training(tmp_path, in_process):
    code, out, err = in_process(tmp_path, "train", "--seeds", "0", "1", "--swift")
    assert (code, out) == (2, "") and err.startswith(
        "error: --swift cannot be combined with --seeds or torchrun"
    )
    assert list(tmp_path.iterdir()) == []
