"""One training by several processes, here threads that speak by Gloo: one policy to the bit,
whatever happens.
"""

import dataclasses
import errno
import os
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from envs.command_line import TrainFlags
from envs.config.env_options import EnvOptions
from td3_robot import TD3, Batch, checkpoint
from td3_robot.checkpoint import store as checkpoint_folder
from td3_robot.cli.arguments import TrainArguments, parse_train
from td3_robot.config.run import (
    Config,
    EvaluationConfig,
    ExplorationConfig,
    ReplayConfig,
    RewardConfig,
    TD3Config,
)
from td3_robot.data.collector import Collector
from td3_robot.distributed.communicator import TorchCommunicator
from td3_robot.distributed.launch import require_same_arguments, shard_config
from td3_robot.errors import ConfigError, RanksError
from td3_robot.networks.normalization import RunningMoments, share_moments
from td3_robot.training.best_checkpoint import BestCheckpoint
from td3_robot.training.callbacks import Callback
from td3_robot.training.periodic_evaluation import PeriodicEvaluation
from td3_robot.training.trainer import Trainer

NETWORKS = ("actor", "Q1", "Q2", "actor_target", "Q1_target", "Q2_target")


def together(
    count: int, work: Callable[[TorchCommunicator], Any], patience: float = 60.0
) -> list[Any]:
    """What each of several processes makes of the same work; an error of any is raised, the first that
    is no loss.
    """
    store = dist.HashStore()
    results = [None] * count
    errors = []

    def run(rank: int) -> None:
        try:
            results[rank] = work(TorchCommunicator(store, rank, count, patience))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise min(errors, key=lambda error: isinstance(error, RanksError))
    return results


def weights(agent: TD3) -> list[torch.Tensor]:
    return [value for name in NETWORKS for value in getattr(agent, name).state_dict().values()]


def same(one: TD3, other: TD3) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


# What they tell each other


@pytest.mark.parametrize("count", [2, 3])
def test_each_knows_what_all_have(count):
    def work(comm: TorchCommunicator):
        tensors = [torch.full((2, 3), float(comm.rank)), torch.arange(4.0) * comm.rank]
        comm.all_reduce_mean(tensors)
        comm.all_reduce_mean([])
        value = {"rank": comm.rank, "many": torch.zeros(10 * comm.rank)}  # of different sizes
        firsts = comm.gather(value)
        mine = comm.scatter(
            [f"for {rank}" * rank for rank in range(count)] if comm.rank == 0 else None
        )
        wishes = comm.all_reduce_any(comm.rank == 1, False)
        return (
            tensors,
            comm.all_gather(torch.tensor([comm.rank, 7])),
            comm.all_gather_object(comm.rank),
            firsts,
            mine,
            wishes,
        )

    mean = (count - 1) / 2
    for rank, (tensors, rows, gathered, firsts, mine, wishes) in enumerate(together(count, work)):
        assert torch.equal(tensors[0], torch.full((2, 3), mean)) and torch.equal(
            tensors[1], torch.arange(4.0) * mean
        )
        assert rows.tolist() == [[other, 7] for other in range(count)] and gathered == list(
            range(count)
        )
        assert mine == f"for {rank}" * rank and wishes == [True, False]
        assert (firsts is None) == (rank > 0)
        if firsts is not None:
            assert [(value["rank"], len(value["many"])) for value in firsts] == [
                (n, 10 * n) for n in range(count)
            ]


def test_nobody_waits_for_ever():
    """One comes late by more than the others' patience; one leaves; one has nothing to hand out."""
    with pytest.raises(RanksError, match="process [01] of 2 has lost another one"):
        together(
            2,
            lambda comm: (
                comm.all_reduce_any(True) if comm.rank == 0 else threading.Event().wait(1.5)
            ),
            patience=0.5,
        )
    with pytest.raises(RanksError, match="process [12] of 3 has lost another one"):
        together(3, lambda comm: comm.all_reduce_any(True) if comm.rank else None, patience=1.0)
    with pytest.raises(RanksError, match="process 0 has failed"):
        together(2, lambda comm: comm.scatter(None))


# One policy


def doubled(agent: TD3) -> TD3:
    """An agent in float64, where rounding hides nothing."""
    for name in NETWORKS:
        getattr(agent, name).double()
    return agent


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize(
    "options", [{}, {"critic_grad_clip": 0.1, "actor_grad_clip": 0.01}, {"atoms": 5}]
)
def test_parts_of_a_batch_teach_what_the_whole_does(count, options):
    """TorchCommunicator with a part of each batch each: the same networks to the bit, those of one with the
    whole to rounding.
    """
    if "atoms" in options:
        options = options | {"v_min": -2.0, "v_max": 2.0}
    options = {"hidden": (8, 8), "policy_noise": 0.0, "tau": 0.1, **options}
    draw = torch.Generator().manual_seed(1)

    def rand(*shape):
        return torch.rand(shape, generator=draw, dtype=torch.float64) * 2 - 1

    batches = [
        Batch(rand(12, 3), rand(12, 2), rand(12, 1), rand(12, 3), (rand(12, 1) > 0.8).double())
        for _ in range(6)
    ]

    def work(comm: TorchCommunicator):
        agent = doubled(TD3(3, 2, seed=5, communicator=comm, **options))
        for batch in batches:
            agent.update(Batch(*(None if x is None else x.chunk(count)[comm.rank] for x in batch)))
        return agent

    alone = doubled(TD3(3, 2, seed=5, **options))
    for batch in batches:
        alone.update(batch)
    first, *others = together(count, work)
    assert all(same(first, other) for other in others)
    for one, whole in zip(weights(first), weights(alone), strict=True):
        torch.testing.assert_close(one, whole, rtol=0, atol=1e-9)
    assert not torch.equal(weights(first)[0], weights(doubled(TD3(3, 2, seed=5, **options)))[0])


@pytest.mark.parametrize("empty", [False, True])
def test_running_statistics_are_those_of_all_rows(empty):
    rows = torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(1)) * 3 + 100

    def work(comm: TorchCommunicator):
        moments = RunningMoments(2)
        share_moments(moments, comm)
        moments.update(rows[comm.rank])
        moments.update(rows[comm.rank][: 0 if empty and comm.rank == 1 else 2])
        return moments

    first, *others = together(3, work)
    again = [x[: 0 if empty and rank == 1 else 2] for rank, x in enumerate(rows)]
    seen = torch.cat((rows.flatten(0, 1), *again)).double()
    assert first.count == len(seen)
    torch.testing.assert_close(
        (first.mean, first.variance), (seen.mean(0), seen.var(0, correction=0))
    )
    for other in others:
        assert all(
            torch.equal(a, b)
            for a, b in zip(first.state_dict().values(), other.state_dict().values())
        )


# One training

CONFIG = Config(
    num_envs=6,
    steps=360,
    save_every=1e9,
    td3=TD3Config(hidden=(8,), normalize_observations=True),
    replay=ReplayConfig(batch_size=12, capacity=300),
    reward=RewardConfig(normalize=True),
    exploration=ExplorationConfig(start_steps=60),
    evaluation=EvaluationConfig(every=120, episodes=7),
)


class Log(Callback):
    """A tracker of the metrics, and a callback that may stop the run of one rank."""

    def __init__(self, stop_at: float):
        self.rows = []
        self._stop_at = stop_at

    def log(self, metrics):
        self.rows.append(metrics)

    def close(self):
        """Nothing is open."""

    def on_step(self, run):
        if run.steps >= self._stop_at:
            run.stop()


@pytest.fixture
def training(tmp_path, point_env):
    """Train with so many processes, each in a folder of its own: the trainers, what they logged, and
    the summaries.
    """

    def train(
        name: str,
        count: int,
        resume: bool = False,
        stop=lambda rank: float("inf"),
        patience: float = 60.0,
    ):
        def work(comm: TorchCommunicator):
            part = shard_config(CONFIG, comm.rank, comm.size)
            folder = tmp_path / (name if comm.rank == 0 else f"{name}-{comm.rank}-{resume}")
            folder.mkdir(exist_ok=resume)
            agent = TD3(3, 2, seed=CONFIG.seed, communicator=comm, **dataclasses.asdict(CONFIG.td3))
            source = Collector(agent, point_env(part.num_envs, seed=part.seed), part)
            log = Log(stop(comm.rank))
            judged_in = point_env(part.evaluation.episodes)
            trainer = Trainer(agent, source, judged_in, CONFIG, folder, None, [log])
            trainer.trackers.append(log)
            if resume:
                assert trainer.resume() == []
            return trainer, log.rows, trainer.run()

        return together(count, work, patience)

    return train


@pytest.mark.parametrize("count", [2, 3])
def test_all_train_one_policy_and_know_one_score(count, training):
    first, *others = training("run", count)
    trainer, rows, summary = first
    assert (
        summary["finished"]
        and summary["env_steps"] == 360
        and [row["env_steps"] for row in rows] == [120, 240, 360]
    )
    # of 60 steps of all environments those after the first 10
    assert summary["gradient_steps"] == 50
    for other, logged, told in others:
        assert same(other.agent, trainer.agent)
        assert torch.equal(
            other.agent.normalizer.moments.mean, trainer.agent.normalizer.moments.mean
        )
        shared = (
            "success_rate",
            "episode_return",
            "Q1_loss",
            "actor_loss",
            "train_return",
            "env_steps",
        )
        assert [[row[name] for name in shared] for row in logged] == [
            [row[name] for name in shared] for row in rows
        ]
        assert told["episode_return"] == summary["episode_return"]
        assert not torch.equal(other.source.observation, trainer.source.observation)
        assert not torch.equal(
            other.agent.generator.get_state(), trainer.agent.generator.get_state()
        )


def test_one_that_is_stopped_stops_all_and_the_job_goes_on_exactly(training):
    whole = training("whole", 2)
    cut = training("cut", 2, stop=lambda rank: 150 if rank else float("inf"))
    assert [summary["finished"] for _, _, summary in cut] == [False, False]
    assert {summary["env_steps"] for _, _, summary in cut} == {150}
    resumed = training("cut", 2, resume=True)
    for (trainer, _, summary), (cut_trainer, *_) in zip(whole, resumed):
        assert same(trainer.agent, cut_trainer.agent) and summary["finished"]
        assert torch.equal(trainer.source.observation, cut_trainer.source.observation)
    expected, found = (
        [{k: v for k, v in row.items() if not k.endswith("_s")} for row in log[0][1]]
        for log in (whole, resumed)
    )
    assert [repr(row) for row in found] == [repr(row) for row in expected[1:]]


def test_a_resume_point_is_for_as_many_as_it_was_written_by(training, tmp_path, point_env):
    training("run", 2, stop=lambda rank: 90)
    command = f"torchrun --nproc_per_node 2 -- train.py --resume {tmp_path / 'run'}"
    beside = "and with any --nnodes, --plugins and --env that it was started with"
    line = f"run 'run' is trained by 2 processes, not 3; continue with {command}, {beside}"
    with pytest.raises(ConfigError, match=f"^{re.escape(line)}$"):
        training("run", 3, resume=True)
    agent = TD3(3, 2, **dataclasses.asdict(CONFIG.td3))
    alone = Trainer(agent, Collector(agent, point_env(6), CONFIG), None, CONFIG, tmp_path / "run")
    with pytest.raises(ConfigError, match="run 'run' is trained by 2 processes, not 1"):
        alone.resume()
    training("single", 1, stop=lambda rank: 90)
    with pytest.raises(ConfigError, match="run 'single' is trained by one process, not 2; "):
        training("single", 2, resume=True)


def test_the_loss_of_one_ends_all(training, monkeypatch):
    """Its environments raise in the middle; the others are not left waiting."""
    collect = Collector.collect

    def fails(self, progress):
        if self._config.seed and self.env_steps > 60:
            raise ConfigError("no luck")
        collect(self, progress)

    monkeypatch.setattr(Collector, "collect", fails)
    with pytest.raises((ConfigError, RanksError)):
        training("run", 2, patience=2.0)


def test_where_only_process_0_has_a_full_disk_all_judge_the_policy_that_it_could_write(
    training, tmp_path, monkeypatch, capsys
):
    """It says what is missing once, and the job goes on to its end; in the end all play what is in
    its folder.
    """
    judged = []
    write = checkpoint_folder.write_state
    scores = PeriodicEvaluation.evaluate

    def full(path, state):
        if judged and path.is_relative_to(tmp_path / "run"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, state)

    def look(self, agent, use):
        judged.append((use, agent))
        return scores(self, agent, use)

    monkeypatch.setattr(checkpoint_folder, "write_state", full)
    monkeypatch.setattr(PeriodicEvaluation, "evaluate", look)
    monkeypatch.setattr(BestCheckpoint, "judge", lambda *_: True)
    (trainer, _, summary), (other, *_) = training("run", 2)
    assert summary["finished"] and trainer.trackers.failed and not other.trackers.failed
    written = checkpoint.read(tmp_path / "run", NETWORKS)
    for agent in (agent for use, agent in judged if use == "final evaluation"):
        assert not same(agent, trainer.agent)  # that is further on
        for name, state in written.items():
            torch.testing.assert_close(
                dict(getattr(agent, name).state_dict()), state, rtol=0, atol=0
            )
    assert capsys.readouterr().err.splitlines() == [
        f"warning: {what} cannot be written (No space left on device); the run continues"
        for what in ("the best policy", "the resume point")
    ]


# What can be divided


def test_the_parts_make_up_the_whole():
    parts = [shard_config(CONFIG, rank, 3) for rank in range(3)]
    assert [part.num_envs for part in parts] == [2, 2, 2] and [
        part.replay.batch_size for part in parts
    ] == [4, 4, 4]
    assert [part.evaluation.episodes for part in parts] == [3, 2, 2]
    assert parts[0].seed == CONFIG.seed and len({part.seed for part in parts}) == 3


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"num_envs": 7}, "num_envs must be a multiple of the 2 processes, got 7"),
        (
            {"replay": ReplayConfig(batch_size=9)},
            "replay.batch_size must be a multiple of the 2 processes, got 9",
        ),
        (
            {"evaluation": EvaluationConfig(episodes=1)},
            "evaluation.episodes must be 0, or one at least for each of 2",
        ),
        ({"td3": TD3Config(norm="batch")}, "td3.norm batch is for one process"),
        ({"td3": TD3Config(norm="renorm")}, "td3.norm renorm is for one process"),
        ({"td3": TD3Config(critic="crossq")}, "td3.critic crossq is for one process"),
        ({"device": "cuda", "cuda_graph": True}, "cuda_graph is for one process"),
    ],
)
def test_what_cannot_be_divided_is_refused(changed, words):
    with pytest.raises(ConfigError, match=words):
        shard_config(dataclasses.replace(CONFIG, **changed), 0, 2)


def told(line: str) -> TrainArguments:
    return parse_train(line.split(), EnvOptions, TrainFlags)


def test_processes_that_were_told_different_things_are_refused():
    lines = ("--td3.gamma 0.9 --run a", "--td3.gamma 0.8 --run a")
    with pytest.raises(ConfigError, match=r"td3.gamma is 0.9 in process 0 and 0.8 in process 1"):
        together(2, lambda comm: require_same_arguments(comm, told(lines[comm.rank])))


def on_gpu(line: str, device: str) -> TrainArguments:
    """As where there are GPUs, which this machine need not have."""
    arguments = told(line)
    return dataclasses.replace(
        arguments, config=dataclasses.replace(arguments.config, device=device)
    )


def test_two_processes_on_one_gpu_are_refused():
    for devices in (("cuda:0", "cuda:1"), ("cpu", "cpu")):
        together(
            2,
            lambda comm, devices=devices: require_same_arguments(
                comm, on_gpu("--run a", devices[comm.rank])
            ),
        )
    with pytest.raises(
        ConfigError, match=r"two processes have cuda:0 of .*; --device cuda gives each its own"
    ):
        together(2, lambda comm: require_same_arguments(comm, on_gpu("--run a", "cuda:0")))
