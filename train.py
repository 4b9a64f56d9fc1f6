"""Train a policy: `python train.py --robot panda`, or `--env HalfCheetah-v5`. See `python train.py
--help`.
"""

import time

STARTED = time.perf_counter()  # before the imports, which are part of what the user waits for

from td3_robot.utils.signals import exit_on_signal, stop_on_signal  # noqa: E402

if __name__ == "__main__":
    exit_on_signal()  # until `run_script` takes over

import contextlib  # noqa: E402
import copy  # noqa: E402
import dataclasses  # noqa: E402
import functools  # noqa: E402
import os  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import TYPE_CHECKING, Any, cast  # noqa: E402

from envs.command_line import (  # noqa: E402
    TrainFlags,
    check_shown,
    import_plugins,
    list_choices,
    make_envs_with_plugins,
)
from envs.config.env_options import EnvOptions  # noqa: E402
from envs.view.browser import explain_opening, have_browser  # noqa: E402
from td3_robot.checkpoint import load, run_name  # noqa: E402
from td3_robot.cli.arguments import TrainArguments, merge_options, parse_train, save_config  # noqa: E402
from td3_robot.distributed import launched  # noqa: E402
from td3_robot.errors import ConfigError  # noqa: E402
from td3_robot.utils.console import STOPPED, UNWRITTEN, run_script, say, warn  # noqa: E402

if TYPE_CHECKING:  # they import torch
    from td3_robot.config.run import Config
    from td3_robot.loggers.base import Tracker
    from td3_robot.training.trainer import Trainer


def main(argv: list[str]) -> int:
    """Train, alone or with the other processes that torchrun has started. Returns the exit code."""
    if not launched():
        return train(argv)
    os.environ.setdefault(
        "TORCH_CPP_LOG_LEVEL", "ERROR"
    )  # who was lost we say in a line, PyTorch would in pages
    from td3_robot.distributed.launch import error_relay

    with error_relay() as store:
        return train(argv, store)


def train(argv: list[str], store: Any = None) -> int:
    """Parse, build, train. Returns the exit code."""
    arguments = parse_train(argv, EnvOptions, TrainFlags)
    if store is not None:
        from td3_robot.distributed.launch import with_own

        arguments = parse_train(with_own(argv, arguments), EnvOptions, TrainFlags)
    config, options, flags = arguments.config, arguments.environment, arguments.flags
    import_plugins(flags.plugins)
    if flags.list:
        print("\n".join(list_choices(flags.list)))
        return 0
    check_shown(flags, options)
    if flags.swift and (config.seeds or store is not None):
        raise ConfigError("swift is for a training by one process: the view is of its policy")
    if config.seeds:
        return _train_seeds(argv, arguments)
    return _train(argv, arguments, store)


def _train(argv: list[str], arguments: TrainArguments, store: Any) -> int:
    """Train one run. Returns the exit code."""
    config, options, flags = arguments.config, arguments.environment, arguments.flags
    in_browser = flags.swift and not flags.no_browser and have_browser()
    import torch  # after parsing, so that a mistyped flag is answered at once

    import envs
    from envs.controllers.experts import make_expert
    from td3_robot.cli.progress import Display
    from td3_robot.data.collector import Collector
    from td3_robot.data.mixed import make_source
    from td3_robot.distributed.launch import team_of
    from td3_robot.loggers.learning_curve import plot_learning_curve
    from td3_robot.loggers.mlflow import open_store
    from td3_robot.networks.residual import resolve_residual_column
    from td3_robot.training.callbacks import StopAt, make_callbacks
    from td3_robot.utils.memory import keep_freed_memory, require_memory

    if config.mlflow:
        open_store()  # takes seconds, and where it cannot be opened, nothing else happens
    keep_freed_memory()
    torch.set_num_threads(config.threads)
    torch.set_float32_matmul_precision(config.matmul_precision)
    team = team_of(arguments, store)
    part = team.part
    for name, count in (
        ("num_envs", part.num_envs),
        ("evaluation.episodes", part.evaluation.episodes),
    ):
        require_memory(f"{name} {count}", count * options.bytes_each, config.device)
    make_envs = functools.partial(
        envs.make_from_config, options, device=config.device, seed=part.seed
    )
    env: Any = make_envs(part.num_envs, training=True)
    evaluation_env = make_envs(part.evaluation.episodes) if part.evaluation.episodes else None
    for note in (*arguments.notes, *options.describe_cost(part.num_envs)):
        print(note)
    guide = make_expert(part.exploration.expert, env) if part.exploration.expert else None
    config = dataclasses.replace(config, td3=resolve_residual_column(config.td3, env))
    agent = team.agent(
        env.o_dim, env.a_dim, device=config.device, seed=config.seed, config=config.td3
    )
    if config.start_from is not None and arguments.resume is None:
        agent.load(config.start_from)

    with contextlib.ExitStack() as cleanup:
        for environments in (env, evaluation_env):
            cleanup.callback(getattr(environments, "close", lambda: None))
        display = Display(config.steps)
        callbacks = [display, *make_callbacks(config)]
        if (
            flags.swift
        ):  # before the run folder is made: where there is no browser, nothing else happens
            callbacks.append(
                _live_view(flags, options, config.seed, agent.policy, cleanup, in_browser)
            )
        folder = cleanup.enter_context(team.folder(arguments))
        source = make_source(agent, env, part, guide)
        if (
            isinstance(source, Collector)
            and config.start_from is not None
            and arguments.resume is None
        ):
            source.take_reward_statistics(load(config.start_from, names=()).metadata.get("rewards"))
        learnt = (
            agent,
            source,
            evaluation_env,
            config,
            folder,
            STARTED,
            callbacks,
            options.metadata,
        )
        trainer = team.trainer(*learnt)
        if arguments.resume:
            lost = trainer.resume()
            if trainer.steps >= config.steps and trainer.summarised:
                say(
                    f"{run_name(folder)} is finished after {trainer.steps} steps; raise --steps to train on"
                )
                return 0
            for sentence in lost:
                say(sentence)
        if flags.stop_at is not None:
            callbacks.append(StopAt(flags.stop_at, trainer.steps, config.steps))
        cleanup.enter_context(
            stop_on_signal(trainer.stop)
        )  # from here on there is something to resume
        trackers = trainer.trackers
        if team.first:
            trackers += [display, *_begin_records(argv, config, options, env, trainer)]
        cleanup.callback(trackers.close)
        cleanup.callback(
            trackers.try_write, "the curve", plot_learning_curve, folder
        )  # first: MLflow takes it along
        what = (
            f"{options.robot} learns {options.task}"
            if options.env is None
            else f"learning {options.env}"
        )
        say(f"{what} (seed {config.seed}) in {folder}{team.told}")
        summary = trainer.run()
    if unstable := sum(
        getattr(getattr(one, "engine", None), "unstable", 0) for one in (env, evaluation_env)
    ):
        say(f"the physics failed {unstable} times: those arms were stopped where they were")
    if summary["finished"]:
        _report(summary, folder)
        return UNWRITTEN if trackers.failed else 0
    return _stopped(trainer, flags, team.command)


def _begin_records(
    argv: list[str], config: "Config", options: EnvOptions, env: Any, trainer: "Trainer"
) -> "list[Tracker]":
    """Write into the run folder what the run is, and give what its evaluations are logged to
    there.
    """
    from envs.arm_env.fingerprint import env_fingerprint
    from td3_robot.checkpoint.provenance import describe_differences, write_provenance
    from td3_robot.loggers.csv import CsvLog
    from td3_robot.loggers.mlflow import MLflowLog
    from td3_robot.loggers.tensorboard import TensorBoardLog

    folder = trainer.folder
    save_config(config, folder / "config.yaml", options)
    warn(
        describe_differences(
            write_provenance(folder, "train.py", argv, env_fingerprint(env, options.randomize))
        )
    )
    trackers: list[Tracker] = [
        CsvLog(folder, trainer.logged_steps),
        TensorBoardLog(folder, trainer.logged_steps),
    ]
    return trackers + (
        [MLflowLog(folder, merge_options(options, config), run_name(folder))]
        if config.mlflow
        else []
    )


def _stopped(trainer: "Trainer", flags: TrainFlags, command: str) -> int:
    """Say how a run that was stopped goes on. Returns the exit code."""
    saved = trainer.saved_steps == trainer.steps
    lost = "" if saved else f", of which {trainer.saved_steps} are saved"
    unit = "env steps" if trainer.config.dataset is None else "updates"
    say(
        f"stopped at {trainer.steps} {unit}{lost}; go on with: {command} --resume {run_name(trainer.folder)}"
    )
    asked = flags.stop_at is not None and trainer.steps >= flags.stop_at
    return UNWRITTEN if not saved else 0 if asked else STOPPED


def _train_seeds(argv: list[str], arguments: TrainArguments) -> int:
    """Train one run a seed, each in a process of its own."""
    from td3_robot.sweep.multi_seed import train_seeds

    for note in arguments.notes:
        print(note)
    return train_seeds(Path(__file__), argv, arguments)


def _live_view(
    flags: TrainFlags, options: EnvOptions, seed: int, policy, cleanup, in_browser: bool
):
    """Open the browser view; returns the callback that feeds it."""
    import envs
    from envs.view.live import LiveView
    from envs.view.playback import play_live
    from td3_robot.training.callbacks import Callback

    class Publish(Callback):
        def on_step(self, run) -> None:
            view.publish(policy)

    shown = copy.deepcopy(policy).cpu()
    make_robot = functools.partial(envs.make_robot, options.robot, options.gripper, options.tcp)
    make_env = functools.partial(make_envs_with_plugins, flags.plugins, options, seed)
    episodes = functools.partial(play_live, cast(Any, make_env), seed, shown)
    opened = {} if in_browser else {"on_url": lambda url: say(explain_opening(url))}
    view = cleanup.enter_context(
        LiveView(make_robot, episodes, policy, in_browser, port=flags.port, **opened)
    )
    return Publish()


def _report(summary: dict, folder: Path) -> None:
    """Say how good the policy is and what to do next."""
    from td3_robot.loggers.base import fill_scores

    scores = fill_scores(summary)
    success = f"success rate {scores['success_rate']:.1%}, " if "success_rate" in scores else ""
    outcome = (
        f"{success}return {scores['episode_return']:.2f}"
        if scores.get("episode_return") is not None
        else "done"
    )
    memory = (
        f", {summary['peak_memory_gb']:.1f} GB of memory" if "peak_memory_gb" in summary else ""
    )
    say(f"{outcome} after {summary['wall_s']:.1f} s{memory}; the curve is in {folder}")
    say(f"see how good it is: python evaluate.py --checkpoint {folder}")


if __name__ == "__main__":
    run_script(main)
