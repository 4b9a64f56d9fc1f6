"""What torchrun starts, and starts anew: each process has its GPU, and a job goes on with its own
run alone.
"""

import dataclasses

import pytest
import torch
import torch.distributed as dist

from envs.command_line import TrainFlags
from envs.config.env_options import EnvOptions
from td3_robot.cli.arguments import TrainArguments, parse_train
from td3_robot.distributed.communicator import TorchCommunicator
from td3_robot.distributed.launch import add_process_flags, open_run_folder
from td3_robot.errors import ConfigError


def told(line: str) -> TrainArguments:
    return parse_train(line.split(), EnvOptions, TrainFlags)


@pytest.fixture
def second_of_two(monkeypatch):
    """The environment in which torchrun starts the second process of a machine, which has one
    GPU.
    """
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    return monkeypatch


def test_each_process_has_a_gpu_of_its_own_or_is_refused(second_of_two):
    arguments = told("--run a")
    config = dataclasses.replace(arguments.config, device="cuda")  # as where there are GPUs
    arguments = dataclasses.replace(arguments, config=config)
    with pytest.raises(ConfigError, match="process 1 of this machine has no GPU: it has 1"):
        add_process_flags(["--run=a"], arguments, dist.HashStore())
    second_of_two.setattr(torch.cuda, "device_count", lambda: 2)
    assert add_process_flags(["--run=a"], arguments, dist.HashStore()) == [
        "--run=a",
        "--device=cuda:1",
    ]


def start(store: dist.Store, restarts: int) -> tuple[dist.Store, TorchCommunicator]:
    """The store of one start of a job, and a process that meets nobody there."""
    own = dist.PrefixStore(f"start {restarts}", store)
    return own, TorchCommunicator(own, 0, 1, 60.0)


def test_what_torchrun_starts_anew_knows_its_run(second_of_two, tmp_path):
    job = dist.HashStore()
    second_of_two.chdir(tmp_path)
    second_of_two.setenv("TORCHELASTIC_MAX_RESTARTS", "2")
    first, process = start(job, 0)
    with pytest.raises(ConfigError, match="torchrun --max-restarts needs --run NAME"):
        add_process_flags([], told(""), first)
    assert add_process_flags(["--run=a"], told("--run a"), first) == ["--run=a"]
    with open_run_folder(told("--run a"), process) as folder:
        (folder / "actor").touch()
    second_of_two.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    again, process = start(job, 1)
    # it had no resume point yet
    assert add_process_flags(["--run=a"], told("--run a"), again) == ["--run=a"]
    with open_run_folder(told("--run a"), process) as folder:
        assert not (folder / "actor").exists()
        (folder / "last").mkdir()
    assert add_process_flags(["--run=a"], told("--run a"), again) == [
        "--run=a",
        "--run=null",
        "--resume=a",
    ]
    with pytest.raises(ConfigError, match="seeds and torchrun exclude each other"):
        add_process_flags([], told("--seeds 0 1"), again)


@pytest.mark.parametrize("name", ["actor", "last"])
def test_a_restart_leaves_a_run_that_its_job_has_not_made_alone(second_of_two, tmp_path, name):
    """The first start refused its name; the next one removed it, or trained it further."""
    second_of_two.chdir(tmp_path)
    kept = tmp_path / "checkpoints/a" / name
    kept.mkdir(parents=True)
    job = dist.HashStore()
    for restarts in (0, 1):
        second_of_two.setenv("TORCHELASTIC_RESTART_COUNT", str(restarts))
        store, process = start(job, restarts)
        assert add_process_flags(["--run=a"], told("--run a"), store) == ["--run=a"]
        with pytest.raises(ConfigError, match="run 'a' exists already"):
            with open_run_folder(told("--run a"), process):
                pass
        assert kept.exists()
