"""A checkpoint of a stranger, as the scripts meet it: nothing of it runs, and what is wrong is one
line.
"""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

import envs
from envs.arm_env.fingerprint import env_fingerprint
from envs.config.env_options import EnvOptions
from td3_robot import TD3, Batch
from td3_robot.checkpoint import MANIFEST, lock_run
from td3_robot.checkpoint.provenance import write_provenance
from td3_robot.cli.arguments import save_config
from td3_robot.config.run import Config, TD3Config
from tests.support import run_script

ROOT = Path(__file__).resolve().parent.parent
PAYLOAD = """
from pathlib import Path
import gymnasium
Path("ran").touch()
gymnasium.register("Thing-v0", "gymnasium.envs.classic_control:PendulumEnv", max_episode_steps=5)
"""


def script(cwd: Path, name: str, *flags: str) -> tuple[int, str]:
    """Return exit code and stderr."""
    result = run_script(cwd, name, *flags, PYTHONPATH=str(cwd))
    return result.returncode, result.stderr


@pytest.fixture
def strange(tmp_path):
    """A working directory with a run whose configuration asks for a module, which is there and can
    be imported.
    """
    (tmp_path / "payload.py").write_text(PAYLOAD)
    run = tmp_path / "checkpoints" / "strange"
    TD3(3, 1, hidden=(8,)).save(run)
    save_config(
        Config(td3=TD3Config(hidden=(8,))), run / "config.yaml", EnvOptions(env="payload:Thing-v0")
    )
    return tmp_path


@pytest.mark.parametrize(
    "line", ["evaluate --checkpoint strange", "train --resume strange --steps 2000000"]
)
def test_a_module_that_a_checkpoint_names_does_not_run(strange, line):
    code, error = script(strange, *line.split())
    assert code == 2 and error.count("\n") == 1
    assert error == (
        "error: env 'payload:Thing-v0' comes from a file and is no plain id; if you trust it, say so: "
        "--env 'payload:Thing-v0'\n"
    )
    assert not (strange / "ran").exists()


def test_a_module_that_the_user_names_does(strange):
    line = ("evaluate", "--checkpoint", "strange", "--episodes", "1", "--env")
    code, error = script(strange, *line, "payload:Other-v0")
    assert code == 2 and "is 'payload:Thing-v0', not 'payload:Other-v0'" in error
    assert not (strange / "ran").exists()
    assert script(strange, *line, "payload:Thing-v0") == (0, "")
    assert (strange / "ran").exists()


def rewrite(path: Path, change) -> None:
    state = torch.load(path, weights_only=True)
    change(state)
    torch.save(state, path)


@pytest.fixture
def damaged(tmp_path):
    """A working directory with a run on Pendulum whose files a test may spoil, and its
    configuration.
    """
    agent = TD3(3, 1, hidden=(8,), policy_delay=1)
    agent.update(
        Batch(
            torch.rand(4, 3),
            torch.rand(4, 1),
            torch.rand(4, 1),
            torch.rand(4, 3),
            torch.zeros(4, 1),
        )
    )
    run = tmp_path / "checkpoints" / "run1"
    agent.save(run)
    (run / MANIFEST).unlink()  # a stranger can leave it out
    save_config(
        Config(td3=TD3Config(hidden=(8,))), run / "config.yaml", EnvOptions(env="Pendulum-v1")
    )
    return tmp_path


@pytest.mark.parametrize("name, value", [("Q1", torch.nan), ("actor", 1e38)])
def test_a_policy_of_no_sense_is_not_measured(damaged, name, value):
    rewrite(
        damaged / "checkpoints" / "run1" / name, lambda state: state["layers.0.weight"].fill_(value)
    )
    code, error = script(damaged, "evaluate", "--checkpoint", "run1", "--episodes", "1")
    assert (
        code == 2 and error.startswith("error: ") and error.count("\n") == 1 and f"{name}" in error
    )


def test_the_optimizer_of_another_network_ends_in_a_message_not_in_a_broken_heap(damaged):
    run = damaged / "checkpoints" / "run1"
    shutil.copy(run / "actor_optimizer", run / "Q1_optimizer")
    line = "--env Pendulum-v1 --td3.hidden 8 --start_from run1 --steps 600 --exploration.start_steps 100"
    code, error = script(damaged, "train", *line.split())
    assert (
        code == 2
        and error.startswith("error: ")
        and error.count("\n") == 1
        and "Q1_optimizer" in error
    )


def test_two_processes_do_not_train_one_run(damaged):
    with lock_run(damaged / "checkpoints" / "run1"):
        code, error = script(damaged, "train", "--resume", "run1")
    assert code == 2 and error.count("\n") == 1
    assert error.startswith(f"error: run 'run1' is being trained by 'process {os.getpid()} on ")


def test_a_whole_checkpoint_is_verified_in_one_table_and_a_damaged_one_refused(damaged, in_process):
    code, out, err = in_process(damaged, "evaluate", "--checkpoint", "run1", "--verify")
    assert (code, err) == (0, "") and "checkpoints/run1" in out and " wrong " not in out
    rewrite(
        damaged / "checkpoints/run1/Q2", lambda state: state["layers.0.weight"].fill_(torch.nan)
    )
    code, out, err = in_process(damaged, "evaluate", "--checkpoint", "run1", "--verify")
    assert (code, err) == (2, "") and " wrong " in out and "Q2" in out


def test_a_verification_measures_nothing(damaged, in_process):
    code, _, err = in_process(
        damaged, "evaluate", "--checkpoint", "run1", "--verify", "--json", "out.json"
    )
    assert (code, err) == (
        2,
        "error: verify and json exclude each other: verify measures nothing\n",
    )


def test_a_policy_that_was_trained_with_other_constants_says_so(tmp_path, in_process):
    shutil.copytree(ROOT / "checkpoints/run1", tmp_path / "checkpoints/old")
    env = envs.make("panda", "reach")
    then = env_fingerprint(env)
    then["task"] |= {"tolerance": 0.123}
    (tmp_path / "checkpoints/old/provenance.json").unlink(missing_ok=True)
    write_provenance(tmp_path / "checkpoints/old", "train.py", [], then)
    line = (
        "evaluate",
        "--checkpoint",
        "old",
        "--episodes",
        "2",
        "--json",
        "out.json",
        "--baseline=",
    )
    code, _, err = in_process(tmp_path, *line)
    warning = (
        f"it was trained with other constants: task.tolerance was 0.123 and is {env.task.tolerance}"
    )
    assert (code, err) == (0, f"warning: {warning}\n")
    assert json.loads((tmp_path / "out.json").read_text())["warning"] == warning
