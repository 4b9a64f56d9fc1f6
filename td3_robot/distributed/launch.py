"""Connect the processes that torchrun starts: they share the work and report errors once."""

import contextlib
import dataclasses
import datetime
import os
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from td3_robot.checkpoint import RUNS, claim_run, lock_new_run, lock_run, make_next_run, run_name
from td3_robot.checkpoint.resume_point import LAST
from td3_robot.cli.arguments import TrainArguments, merge_options
from td3_robot.config.field import flatten_options
from td3_robot.config.run import Config
from td3_robot.config.td3 import BATCHED
from td3_robot.distributed.communicator import PATIENCE, TorchCommunicator
from td3_robot.errors import ConfigError, FirstProcessError, RanksError
from td3_robot.utils.communicator import SINGLE_PROCESS, Communicator
from td3_robot.utils.console import get_command_line
from td3_robot.utils.seeding import derive_process_seed

_MADE = "made"  # key in the store of a job whose run it has made
_REPORT_SECONDS = 5.0  # process 0 closes its environments before it reports an error


def shard_config(config: Config, rank: int, size: int) -> Config:
    """Return one process's share of environments, batch, replay and evaluations.

    Raises:
        ConfigError: the training cannot be divided so.
    """
    if size == 1:
        return config
    replay = config.replay
    exploration = config.exploration
    episodes = config.evaluation.episodes
    for name, whole in (("replay.batch_size", replay.batch_size), ("num_envs", config.num_envs)):
        if whole % size and not (name == "num_envs" and config.dataset):
            raise ConfigError(f"{name} must be a multiple of the {size} processes, got {whole}")
    if 0 < episodes < size:
        raise ConfigError(
            f"evaluation.episodes must be 0, or one at least for each of {size} processes"
        )
    for name, value, alone in (
        ("norm", config.td3.norm, BATCHED),
        ("critic", config.td3.critic, ("crossq",)),
    ):
        if value in alone:
            why = "each would have statistics of its own part of the batch"
            raise ConfigError(f"td3.{name} {value} is for one process: {why}")
    if config.cuda_graph:
        raise ConfigError(
            "cuda_graph is for one process: several share gradients in the middle of each step"
        )
    return dataclasses.replace(
        config,
        seed=derive_process_seed(config.seed, rank),
        num_envs=max(1, config.num_envs // size),
        steps=-(-config.steps // size),
        replay=dataclasses.replace(
            replay, batch_size=replay.batch_size // size, capacity=max(1, replay.capacity // size)
        ),
        exploration=dataclasses.replace(
            exploration, start_steps=-(-exploration.start_steps // size)
        ),
        evaluation=dataclasses.replace(
            config.evaluation, episodes=episodes // size + (rank < episodes % size)
        ),
    )


@contextlib.contextmanager
def open_run_folder(arguments: TrainArguments, communicator: Communicator) -> Iterator[Path]:
    """Lock the run folder, for process 0; the others get a temporary folder."""
    if communicator.rank:
        try:
            temporary = tempfile.TemporaryDirectory()
        except OSError as error:
            raise ConfigError(f"there is no room for temporary files: {error.strerror}") from error
        with temporary as folder:
            yield Path(folder)
        return
    name = arguments.config.run
    together = isinstance(communicator, TorchCommunicator)
    if together and name is not None and _has_made_run(communicator.store):
        if (RUNS / name).is_dir():  # without a resume point, or it would be resumed
            with lock_run(RUNS / name):
                shutil.rmtree(RUNS / name)
    folder = arguments.resume or (
        claim_run(RUNS, name) if name is not None else make_next_run(RUNS)
    )
    if together:
        communicator.store.set("run", run_name(folder))
        if name is not None:
            _get_job_store(communicator.store).set(_MADE, "")
    with lock_new_run(folder):
        yield folder


def format_command(communicator: Communicator) -> str:
    """Return the command that starts a training by as many processes."""
    return get_command_line("train") if communicator.size == 1 else _format_torchrun()


def _format_torchrun() -> str:
    machines = int(os.environ["GROUP_WORLD_SIZE"])
    place = "--rdzv_backend c10d --rdzv_endpoint HOST:PORT "
    many = f"--nnodes {machines} {place}" if machines > 1 else ""
    return f"torchrun {many}--nproc_per_node {os.environ['LOCAL_WORLD_SIZE']} -- train.py"


@contextlib.contextmanager
def error_relay() -> Iterator[dist.Store]:
    """Meet the other processes; an error in any of them ends all, and is printed by one.

    Process 0 alone writes to stdout.

    Raises:
        RanksError: the others do not come, or one is lost; it has the command to go on with.
    """
    rank = int(os.environ["RANK"])
    if rank:
        sys.stdout = open(os.devnull, "w")
    try:
        store, *_ = next(dist.rendezvous("env://", timeout=datetime.timedelta(seconds=PATIENCE)))
    except RuntimeError as error:
        raise RanksError(f"process {rank} does not find the others: {error}") from error
    # the store still holds what was written before a restart
    store = dist.PrefixStore(f"start {_count_restarts()}", store)
    try:
        yield store
    except BaseException as error:
        run = _read_run_name(store)
        if isinstance(error, FirstProcessError):
            _await_report(store)
        if not _claim_error(store):
            sys.stderr = open(os.devnull, "w")
        if isinstance(error, RanksError) and run:
            command = f"{_format_torchrun()} --resume {shlex.quote(run)}"
            raise RanksError(f"{error}; continue with: {command}") from error
        raise


def _read_run_name(store: dist.Store) -> str | None:
    """Return the name of the run, None where process 0 has not written it or is lost."""
    try:
        return store.get("run").decode() if store.check(["run"]) else None
    except RuntimeError:
        return None


def _get_job_store(store: dist.Store) -> dist.Store:
    """Return the store that all starts of a job share."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return store


def _has_made_run(store: dist.Store) -> bool:
    """Return whether an earlier start of this job has made the run; else it is another one's."""
    try:
        return _get_job_store(store).check([_MADE])
    except RuntimeError:  # the store is lost, which the next message reports
        return False


def _await_report(store: dist.Store) -> None:
    """Wait until process 0 reports its error, at most as long as a process takes to end."""
    with contextlib.suppress(RuntimeError):  # killed, it reports nothing
        store.wait(["told"], datetime.timedelta(seconds=_REPORT_SECONDS))


def _claim_error(store: dist.Store) -> bool:
    """Return whether this process is the first to report an error; True where the store is lost."""
    try:
        return store.add("told", 1) == 1
    except RuntimeError:
        return True


def connect(arguments: TrainArguments, store: dist.Store | None) -> Communicator:
    """Return the communicator of all processes that torchrun started; of one without a store.

    Raises:
        ConfigError: the processes have other arguments, or share a GPU.
    """
    if store is None:
        return SINGLE_PROCESS
    rank = int(os.environ["RANK"])
    size = int(os.environ["WORLD_SIZE"])
    communicator = TorchCommunicator(store, rank, size, PATIENCE, arguments.config.device)
    require_same_arguments(communicator, arguments)
    return communicator


def require_same_arguments(communicator: Communicator, arguments: TrainArguments) -> None:
    """Check that all processes have one configuration, and a GPU each.

    Raises:
        ConfigError: they do not.
    """
    device = torch.device(arguments.config.device).type
    config = dataclasses.replace(arguments.config, device=device)
    options = flatten_options(merge_options(arguments.environment, config))
    values = {name: str(value) for name, value in options}
    place = f"{arguments.config.device} of {socket.gethostname()}"
    everywhere = communicator.all_gather_object([values, place])
    for rank, (other, _) in enumerate(everywhere):
        for name, value in everywhere[0][0].items():
            if other[name] != value:
                raise ConfigError(
                    f"{name} is {value} in process 0 and {other[name]} in process {rank}"
                )
    places = [place for _, place in everywhere]
    if device == "cuda" and len(set(places)) < len(places):
        twice = next(place for place in places if places.count(place) > 1)
        raise ConfigError(f"two processes have {twice}; --device cuda gives each its own")


def add_process_flags(words: list[str], arguments: TrainArguments, store: dist.Store) -> list[str]:
    """Return the command line of one process: with its GPU and, after a restart, with its run.

    Raises:
        ConfigError: there is no such GPU, or a restart could not know which run to go on with.
    """
    config = arguments.config
    if config.seeds:
        raise ConfigError(
            "seeds and torchrun exclude each other: --seeds starts processes of its own"
        )
    allowed = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", 0))
    if allowed and config.run is None and arguments.resume is None:
        raise ConfigError(
            "torchrun --max-restarts needs --run NAME, the run that a restart continues"
        )
    run = config.run
    if run is not None and _has_made_run(store) and (RUNS / run / LAST).is_dir():
        words = [*words, "--run=null", f"--resume={run}"]
    if config.device == "cuda":
        number = int(os.environ["LOCAL_RANK"])
        available = torch.cuda.device_count()
        if number >= available:
            raise ConfigError(f"process {number} of this machine has no GPU: it has {available}")
        words = [*words, f"--device=cuda:{number}"]
    return words


def _count_restarts() -> int:
    """Return how many times torchrun has restarted this job."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
