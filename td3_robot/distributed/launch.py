"""How torchrun's processes come together to one training, and what each of them is to do."""

import contextlib
import dataclasses
import datetime
import os
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
from td3_robot.data.batch_source import BatchSource
from td3_robot.distributed.communicator import PATIENCE, Ranks
from td3_robot.distributed.trainer import SharedTD3, SharedTrainer
from td3_robot.errors import ConfigError, RanksError
from td3_robot.td3.agent import TD3
from td3_robot.training.trainer import Trainer
from td3_robot.utils.seeding import derive_seed


def shard_config(config: Config, rank: int, count: int) -> Config:
    """What one of several processes does of a training: its share of environments, batch, replay
    and evaluations.

    Raises:
        ConfigError: the training cannot be divided so.
    """
    replay, evaluation, exploration = config.replay, config.evaluation, config.exploration
    for name, whole in (("replay.batch_size", replay.batch_size), ("num_envs", config.num_envs)):
        if whole % count and not (name == "num_envs" and config.dataset):
            raise ConfigError(f"{name} must be a multiple of the {count} processes, got {whole}")
    if 0 < evaluation.episodes < count:
        raise ConfigError(
            f"evaluation.episodes must be 0, or one at least for each of {count} processes"
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
            "cuda_graph is for one process: several exchange gradients in the middle of each step"
        )
    episodes = evaluation.episodes // count + (rank < evaluation.episodes % count)
    return dataclasses.replace(
        config,
        seed=derive_seed(config.seed, f"process {rank}") if rank else config.seed,
        num_envs=max(1, config.num_envs // count),
        steps=-(-config.steps // count),
        replay=dataclasses.replace(
            replay, batch_size=replay.batch_size // count, capacity=max(1, replay.capacity // count)
        ),
        exploration=dataclasses.replace(
            exploration, start_steps=-(-exploration.start_steps // count)
        ),
        evaluation=dataclasses.replace(evaluation, episodes=episodes),
    )


class Team:
    """Who trains: this process alone or, with `ranks`, several of them together.

    Attributes:
        part: the configuration of what this process does.
        first: whether this is the process that logs, saves and speaks.
        told: how many they are, to be told of the run; empty of one.
        command: what starts such a training.
    """

    def __init__(self, config: Config, ranks: Ranks | None = None):
        self._ranks = ranks
        self.part = config if ranks is None else shard_config(config, ranks.rank, ranks.count)
        self.first = ranks is None or ranks.rank == 0
        self.told = "" if ranks is None else f", {ranks.count} processes"
        self.command = "python train.py" if ranks is None else _command()

    def agent(self, *shape, **options) -> TD3:
        """The agent, as `TD3` takes it."""
        return (
            TD3(*shape, **options)
            if self._ranks is None
            else SharedTD3(self._ranks, *shape, **options)
        )

    def trainer(self, agent: TD3, source: BatchSource, *others) -> Trainer:
        """The trainer, as `Trainer` takes it."""
        if self._ranks is None:
            return Trainer(agent, source, *others)
        return SharedTrainer(self._ranks, agent, source, *others, seed=self.part.seed)

    @contextlib.contextmanager
    def folder(self, arguments: TrainArguments) -> Iterator[Path]:
        """The run folder, for this process alone; of those that are not the first, one that is
        thrown away.
        """
        if not self.first:
            with _thrown_away() as folder:
                yield Path(folder)
            return
        name = arguments.config.run
        if (
            self._ranks is not None
            and name is not None
            and _restarts("COUNT")
            and (RUNS / name).is_dir()
        ):
            with lock_run(RUNS / name):  # it had no resume point, or it would be resumed
                shutil.rmtree(RUNS / name)
        folder = arguments.resume or (
            claim_run(RUNS, name) if name is not None else make_next_run(RUNS)
        )
        if self._ranks is not None:
            self._ranks.store.set("run", run_name(folder))
        with lock_new_run(folder):
            yield folder


def _thrown_away() -> tempfile.TemporaryDirectory:
    try:
        return tempfile.TemporaryDirectory()
    except OSError as error:
        raise ConfigError(f"there is no room for temporary files: {error.strerror}") from error


@contextlib.contextmanager
def error_relay() -> Iterator[dist.Store]:
    """Meet the other processes; what goes wrong in any of them ends all, and is said by whichever
    knew it first.

    Process 0 alone writes to stdout.

    Raises:
        RanksError: the others do not come, or one is lost; it says how to go on.
    """
    rank = int(os.environ["RANK"])
    if rank:
        sys.stdout = open(os.devnull, "w")
    try:
        store, *_ = next(dist.rendezvous("env://", timeout=datetime.timedelta(seconds=PATIENCE)))
    except RuntimeError as error:
        raise RanksError(f"process {rank} does not find the others: {error}") from error
    store = dist.PrefixStore(
        f"start {_restarts('COUNT')}", store
    )  # it still holds what those before a restart said
    try:
        yield store
    except BaseException as error:
        run = _said_of(store, "run")
        if not _is_first(store):
            sys.stderr = open(os.devnull, "w")
        if isinstance(error, RanksError) and run:
            raise RanksError(f"{error}; go on with: {_command()} --resume {run}") from error
        raise


def _command() -> str:
    machines = int(os.environ["GROUP_WORLD_SIZE"])
    many = (
        f"--nnodes {machines} --rdzv_backend c10d --rdzv_endpoint HOST:PORT "
        if machines > 1
        else ""
    )
    return f"torchrun {many}--nproc_per_node {os.environ['LOCAL_WORLD_SIZE']} -- train.py"


def _said_of(store: dist.Store, name: str) -> str | None:
    """What a process has told the others, None where that cannot be known."""
    try:
        return store.get(name).decode() if store.check([name]) else None
    except RuntimeError:
        return None


def _is_first(store: dist.Store) -> bool:
    """Whether no other process has said what is wrong; where that cannot be known, each says it."""
    try:
        return store.add("told", 1) == 1
    except RuntimeError:
        return True


def team_of(arguments: TrainArguments, store: dist.Store | None) -> Team:
    """This process alone or, with where they meet, all that torchrun started.

    Raises:
        ConfigError: the processes were not told the same, share a GPU, or cannot divide the
            training.
    """
    if store is None:
        return Team(arguments.config)
    rank, count = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
    ranks = Ranks(store, rank, count, PATIENCE, arguments.config.device)
    _require_same(ranks, arguments)
    return Team(arguments.config, ranks)


def _require_same(ranks: Ranks, arguments: TrainArguments) -> None:
    """Hold the processes to one configuration, and to a GPU each."""
    config = dataclasses.replace(
        arguments.config, device=torch.device(arguments.config.device).type
    )
    told = {
        name: str(value)
        for name, value in flatten_options(merge_options(arguments.environment, config))
    }
    place = f"{arguments.config.device} of {socket.gethostname()}"
    everywhere = ranks.gather([told, place])
    for rank, (other, _) in enumerate(everywhere):
        for name, value in everywhere[0][0].items():
            if other[name] != value:
                raise ConfigError(
                    f"{name} is {value} in process 0 and {other[name]} in process {rank}"
                )
    places = [place for _, place in everywhere]
    if config.device == "cuda" and len(set(places)) < len(places):
        twice = next(place for place in places if places.count(place) > 1)
        raise ConfigError(f"two processes have {twice}; --device cuda gives each its own")


def with_own(words: list[str], arguments: TrainArguments) -> list[str]:
    """The command line of a process: with its own GPU and, where torchrun has started the job anew,
    with its run.

    Raises:
        ConfigError: there is no such GPU, or a restart could not know which run to go on with.
    """
    config = arguments.config
    if config.seeds:
        raise ConfigError(
            "seeds and torchrun exclude each other: --seeds starts processes of its own"
        )
    if _restarts("MAX") and config.run is None and arguments.resume is None:
        raise ConfigError(
            "torchrun --max-restarts needs --run NAME, the run that a restart goes on with"
        )
    if _restarts("COUNT") and config.run is not None and (RUNS / config.run / LAST).is_dir():
        words = [*words, "--run=null", f"--resume={config.run}"]
    if config.device == "cuda":
        number, there = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if number >= there:
            raise ConfigError(f"process {number} of this machine has no GPU: it has {there}")
        words = [*words, f"--device=cuda:{number}"]
    return words


def _restarts(which: str) -> int:
    """How many times torchrun has started this job anew (COUNT), or may at most (MAX)."""
    name = {"COUNT": "TORCHELASTIC_RESTART_COUNT", "MAX": "TORCHELASTIC_MAX_RESTARTS"}[which]
    return int(os.environ.get(name, 0))
