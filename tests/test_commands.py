"""td3-robot and its commands: the same as the scripts at the root."""

import os
import shutil
import subprocess
import sys

import pytest

from td3_robot.commands.main import COMMANDS
from td3_robot.utils.console import SCRIPTS
from tests.support import ROOT


def start(cwd, *words):
    """Run `python -m td3_robot` in a folder."""
    command = [sys.executable, "-m", "td3_robot", *words]
    variables = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True)


def test_every_command_has_a_script_and_a_module():
    assert SCRIPTS.keys() == COMMANDS.keys()
    for command, script in SCRIPTS.items():
        assert (ROOT / script).is_file()
        assert (ROOT / "td3_robot" / "commands" / f"{command}.py").is_file()


def test_without_a_command_the_commands_are_listed(tmp_path):
    done = start(tmp_path)
    assert done.returncode == 0 and all(f"  {name} " in done.stdout for name in COMMANDS)


def test_a_command_that_does_not_exist_is_one_line(tmp_path):
    done = start(tmp_path, "traim")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown command 'traim'; did you mean 'train'?")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_the_command_as_it_was_started(tmp_path, command):
    done = start(tmp_path, command, "--help")
    assert done.returncode == 0 and done.stdout.startswith(f"usage: td3-robot {command}")


def test_a_folder_with_an_envs_of_its_own_is_named(tmp_path):
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "__init__.py").touch()
    done = start(tmp_path, "train", "--list", "tasks")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"error: {tmp_path}/envs hides the simulator's package")


def test_installed_trainings_of_several_seeds_start_their_processes(tmp_path):
    """Packages without the scripts beside them, as pip installs them."""
    for package in ("td3_robot", "envs", "configs"):
        shutil.copytree(ROOT / package, tmp_path / "site" / package)
    words = """train --env Pendulum-v1 --seeds 1,2 --steps 96 --num_envs 2 --run s
        --exploration.start_steps 32 --evaluation.every 32 --evaluation.episodes 2"""
    command = [sys.executable, "-m", "td3_robot", *words.split()]
    variables = {"PYTHONPATH": str(tmp_path / "site"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for seed in (1, 2):
        assert (tmp_path / "checkpoints" / "s" / f"seed{seed}" / "summary.json").is_file()
