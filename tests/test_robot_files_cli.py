"""train.py and evaluate.py on a robot given by its file."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from envs.command_line import TrainFlags
from envs.config.env_options import EnvOptions
from td3_robot.cli.arguments import parse_train
from td3_robot.commands import train

ROOT = Path(__file__).resolve().parent.parent
GANTRY = ROOT / "tests/envs/data/gantry.urdf"
SMALL = "--num_envs 8 --steps 400 --exploration.start_steps 80 --evaluation.every 200 --evaluation.episodes 8 --run mine"


def test_it_is_trained_resumed_and_measured_like_a_registered_one(tmp_path, in_process):
    (tmp_path / "gantry.urdf").write_text(GANTRY.read_text())

    def script(name, line):
        return in_process(tmp_path, name, *line.split())

    code, out, err = script("train", f"--robot gantry.urdf --gripper robotiq_2f_85 {SMALL}")
    assert code == 0, err
    found, unchecked, begun = out.splitlines()[:3]
    assert found == "gantry.urdf: 3 joints, TCP tool0, no acceleration limits"
    assert unchecked.startswith("contact is not checked, as the robot has no collision capsules")
    assert begun == "gantry.urdf learns reach (seed 0) in checkpoints/mine"
    code, out, _ = script("train", "--resume mine --steps 800")
    assert code == 0
    assert "(seed 0) in checkpoints/mine, from 400 env steps on" in out
    code, _, err = script(
        "evaluate", "--checkpoint mine --episodes 10 --baseline rrmc --json out.json"
    )
    assert code == 0, err
    out = json.loads((tmp_path / "out.json").read_text())
    assert out["robot"] == "gantry.urdf" and not any(out["limit_violations"].values())
    code, _, err = script("train", "--resume mine --steps 900 --gripper none")
    assert code == 2 and "gripper of run 'mine' is 'robotiq_2f_85' and stays so" in err


def test_a_run_whose_robot_is_a_file_works_from_other_folders(tmp_path, in_process):
    here, there, elsewhere = (tmp_path / name for name in ("here", "there", "elsewhere"))
    here.mkdir()
    elsewhere.mkdir()
    (here / "gantry.urdf").write_text(GANTRY.read_text())
    assert in_process(here, "train", "--robot", "gantry.urdf", *SMALL.split())[0] == 0
    run = "../here/checkpoints/mine"
    code, _, err = in_process(elsewhere, "train", "--resume", run, "--steps", "800")
    assert code == 0, err
    here.rename(there)  # the whole project moves
    evaluate = ("--checkpoint", "../there/checkpoints/mine", "--episodes", "4", "--baseline", "")
    code, out, err = in_process(elsewhere, "evaluate", *evaluate)
    assert code == 0, err
    (there / "gantry.urdf").unlink()
    code, _, err = in_process(elsewhere, "evaluate", *evaluate)
    assert (code, err.count("\n")) == (2, 1) and "gantry.urdf: the robot's file is missing" in err
    (there / "gantry.urdf").write_text(GANTRY.read_text())
    shutil.move(there / "checkpoints/mine", elsewhere / "mine")
    code, _, err = in_process(elsewhere, "evaluate", "--checkpoint", "mine", *evaluate[2:])
    assert code == 2 and f"put it at {elsewhere}/mine/gantry.urdf" in err
    shutil.copy(GANTRY, elsewhere / "mine/gantry.urdf")
    code, _, err = in_process(elsewhere, "evaluate", "--checkpoint", "mine", *evaluate[2:])
    assert code == 0, err


def test_the_live_view_shows_the_robot_of_the_training(tmp_path, monkeypatch):
    """With what its file leaves open, without which it cannot be made."""
    file = tmp_path / "arm.urdf"
    file.write_text(re.sub(r' velocity="[^"]*"', "", GANTRY.read_text()))
    words = ["--robot", str(file), "--velocity", "0.5", "--acceleration", "2"]
    arguments = parse_train(words, EnvOptions, TrainFlags)
    monkeypatch.setattr("envs.view.live.LiveView", lambda make_robot, *_, **__: make_robot())
    shown = train.build_live_view(arguments, torch.nn.Linear(1, 1), in_browser=True)
    assert np.allclose(shown.qdlim, 0.5) and np.allclose(shown.qddlim, 2.0)


@pytest.mark.parametrize(
    "line, message",
    [
        ("--robot missing.urdf", "missing.urdf"),
        ("--robot half.urdf", "half.urdf"),
        (f"--robot {GANTRY} --tcp elbow_of_nobody", "elbow_of_nobody"),
        (f"--robot {GANTRY} --gripper hook", "unknown gripper 'hook'"),
        ("--robot panda --tcp panda_hand", "tcp is for URDF, xacro and MJCF files"),
    ],
)
def test_a_wrong_one_is_one_line_and_leaves_nothing_behind(tmp_path, in_process, line, message):
    (tmp_path / "half.urdf").write_text(GANTRY.read_text()[:300])
    code, out, err = in_process(tmp_path, "train", *line.split(), "--steps", "100")
    assert code == 2 and out == ""
    assert message in err and err.startswith("error: ") and err.count("\n") == 1
    assert not list(tmp_path.glob("checkpoints/*"))


def test_a_run_whose_randomization_is_a_file_says_where_a_missing_one_belongs(tmp_path, in_process):
    file = tmp_path / "mine.yaml"
    file.write_text("latency: 0.05\n")
    code, _, err = in_process(tmp_path, "train", "--randomize", "mine.yaml", *SMALL.split())
    assert code == 0, err
    file.rename(tmp_path / "moved.yaml")
    evaluate = ("evaluate", "--checkpoint", "mine", "--episodes", "4", "--baseline", "")
    code, _, err = in_process(tmp_path, *evaluate)
    there = tmp_path / "checkpoints/mine/mine.yaml"
    assert (code, err.count("\n")) == (2, 1)
    assert f"{there}: the randomization's file is missing; put it there" in err
    assert in_process(tmp_path, *evaluate, "--randomize", "none")[0] == 0  # which needs no file
    (tmp_path / "moved.yaml").rename(there)
    assert in_process(tmp_path, *evaluate)[0] == 0
