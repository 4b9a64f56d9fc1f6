"""Train a policy: `td3-robot train --robot panda`, or `--env HalfCheetah-v5`."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any, cast

from envs.command_line import (
    TrainFlags,
    check_shown,
    check_stops,
    describe_robot_file,
    import_plugins,
    list_choices,
    make_envs_with_plugins,
)
from envs.config.env_options import EnvOptions
from envs.view.browser import explain_opening, have_browser
from td3_robot.cli.arguments import TrainArguments, parse_train
from td3_robot.commands.main import STARTED
from td3_robot.distributed import is_launched_by_torchrun
from td3_robot.errors import ConfigError
from td3_robot.utils.console import find_script, say
from td3_robot.utils.progress import stage
from td3_robot.utils.seeding import seed_global_generators
from td3_robot.utils.signals import stop_on_signal
from td3_robot.utils.torch_import import import_torch


def main(argv: list[str]) -> int:
    """Train, alone or with the other processes that torchrun started; return the exit code."""
    if not is_launched_by_torchrun():
        return train(argv)
    # a lost process is one line of ours, and would be pages of PyTorch's
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from td3_robot.distributed.launch import error_relay

    with error_relay() as store:
        return train(argv, store)


def train(argv: list[str], store: Any = None) -> int:
    """Parse the command line and do what it asks for; return the exit code."""
    arguments = parse_train(argv, EnvOptions, TrainFlags)
    if store is not None:
        from td3_robot.distributed.launch import add_process_flags

        words = add_process_flags(argv, arguments, store)
        arguments = parse_train(words, EnvOptions, TrainFlags)
    flags = arguments.flags
    if flags.plugins:
        seed_global_generators(arguments.config.seed, "plugins")
    import_plugins(flags.plugins)
    if flags.list:
        print("\n".join(list_choices(flags.list)))
        return 0
    check_shown(flags, arguments.environment)
    check_stops(arguments.environment.guard_stops, arguments.environment, ())
    if flags.swift and (arguments.config.seeds or store is not None):
        raise ConfigError(
            "--swift cannot be combined with --seeds or torchrun: train one run, or view a "
            "checkpoint with evaluate.py --swift"
        )
    if arguments.config.seeds:
        from td3_robot.sweep.multi_seed import train_seeds

        for note in arguments.notes:
            print(note)
        trusted = format_trusted(flags.plugins, arguments.environment)
        return train_seeds(find_script("train"), argv, arguments, trusted)
    return train_one_run(argv, arguments, store)


def train_one_run(argv: list[str], arguments: TrainArguments, store: Any) -> int:
    """Build one run and train it; return the exit code."""
    import_torch()  # after parsing, so that a mistyped flag is answered at once
    from envs.arm_env.fingerprint import env_fingerprint
    from td3_robot.cli import train_run
    from td3_robot.distributed.launch import connect, format_command, open_run_folder, shard_config
    from td3_robot.training.trainer import Trainer

    config = arguments.config
    options = arguments.environment
    flags = arguments.flags
    in_browser = flags.swift and not flags.no_browser and have_browser()
    train_run.set_up_process(config)
    communicator = connect(arguments, store)
    part = shard_config(config, communicator.rank, communicator.size)
    env, evaluation_env = build_environments(options, part)
    print_notes(arguments, env)
    expert = build_expert(part.exploration.expert, env)
    config = dataclasses.replace(config, td3=train_run.resolve_columns(config, env))
    start_from = config.start_from if arguments.resume is None else None
    agent = train_run.build_agent(config, env, communicator, start_from, options.metadata)
    with contextlib.ExitStack() as cleanup:
        for each in (env, evaluation_env):
            cleanup.callback(getattr(each, "close", lambda: None))
        callbacks = train_run.build_callbacks(config)
        if flags.swift:  # before the run folder: where there is no browser, nothing is made
            view = build_live_view(arguments, agent.policy, in_browser)
            callbacks.append(train_run.Publish(cleanup.enter_context(view), agent.policy))
        folder = cleanup.enter_context(open_run_folder(arguments, communicator))
        source = train_run.build_source(agent, env, part, expert, start_from)
        trainer = Trainer(
            agent,
            source,
            evaluation_env,
            config,
            folder,
            started=STARTED,
            callbacks=callbacks,
            metadata=options.metadata,
        )
        if arguments.resume and train_run.resume(trainer):
            return 0
        train_run.add_stop(trainer, callbacks, flags.stop_at)
        # from here on there is something to resume
        cleanup.enter_context(stop_on_signal(trainer.stop))
        cleanup.callback(train_run.close_trackers, trainer)
        if communicator.rank == 0:
            fingerprint = env_fingerprint(env, options.randomize)
            train_run.build_trackers(trainer, callbacks, argv, options, fingerprint)
        processes = f", {communicator.size} processes" if store is not None else ""
        say(f"{describe_start(trainer, options)}{processes}")
        summary = trainer.run()
    engines = [getattr(each, "engine", None) for each in (env, evaluation_env)]
    if any(getattr(engine, "unstable", 0) for engine in engines):
        from envs.simulation.failures import describe_failures

        say(describe_failures(engines))
    words = format_trusted(flags.plugins, options)
    return train_run.report(trainer, summary, format_command(communicator), flags.stop_at, words)


def describe_start(trainer: Any, options: EnvOptions) -> str:
    """Describe what a run learns, where it is kept and, once resumed, from where it continues."""
    config = trainer.config
    what = f"{options.robot} learns {options.task}"
    if options.env:
        what = f"learning {options.env}"
    unit = "env steps" if config.dataset is None else "updates"
    made = f", from {trainer.steps:,} {unit} on" if trainer.steps else ""
    return f"{what} (seed {config.seed}) in {trainer.folder}{made}"


def format_trusted(plugins: Sequence[str], options: EnvOptions) -> list[str]:
    """Format the options that only a command line may give, as they name code to run."""
    words = ["--plugins", ",".join(plugins)] if plugins else []
    if options.env is not None and ":" in options.env:
        words += ["--env", options.env]
    return words


def build_environments(options: EnvOptions, part: Any) -> tuple[Any, Any]:
    """Build the environments of the training and those of the evaluations, None without any."""
    import envs
    from td3_robot.utils.memory import require_memory

    seed_global_generators(part.seed, "environments")
    episodes = part.evaluation.episodes
    for name, count in (("num_envs", part.num_envs), ("evaluation.episodes", episodes)):
        require_memory(f"{name} {count}", count * options.bytes_each, part.device)
    make_envs = functools.partial(
        envs.make_from_config, options, device=part.device, seed=part.seed
    )
    # processes are forked, which must not inherit the lock of a progress bar
    forks = options.vector == "async"
    with contextlib.nullcontext() if forks else stage("making the environments"):
        env = make_envs(part.num_envs, training=True)
        robot = getattr(env, "robot", None)
        return env, make_envs(episodes, robot=robot) if episodes else None


def print_notes(arguments: TrainArguments, env: Any) -> None:
    """Print what a user should know of the options and of the environment before it is trained."""
    from envs.tasks.registry import describe_engine
    from td3_robot.networks.residual import describe_residual

    options = arguments.environment
    notes = [*arguments.notes, *options.describe_cost(env.num_envs), *getattr(env, "notes", ())]
    notes += [] if options.env else describe_engine(options.task, options.engine)
    robot = getattr(env, "robot", None)
    notes += [] if robot is None or robot.file is None else describe_robot_file(robot)
    notes += describe_residual(arguments.config.td3, trained=False)
    for note in notes:
        print(note)


def build_expert(name: str | None, env: Any) -> Any:
    """Build the controller that the policy learns from, None without a name."""
    from envs.controllers.experts import make_expert

    return make_expert(name, env) if name else None


def build_live_view(arguments: TrainArguments, policy: Any, in_browser: bool) -> Any:
    """Build the browser view of a policy while it learns, a context manager."""
    import copy

    import envs
    from envs.registry import list_robot_keywords
    from envs.view.live import LiveView
    from envs.view.playback import play_live

    options = arguments.environment
    flags = arguments.flags
    seed = arguments.config.seed
    named = list_robot_keywords(options)
    make_robot = functools.partial(envs.make_robot, options.robot, **named)
    make_env = functools.partial(make_envs_with_plugins, flags.plugins, options, seed)
    shown = copy.deepcopy(policy).cpu()
    episodes = functools.partial(play_live, cast(Any, make_env), seed, shown)
    on_url = {} if in_browser else {"on_url": lambda url: say(explain_opening(url))}
    return LiveView(make_robot, episodes, policy, in_browser, port=flags.port, **on_url)


if __name__ == "__main__":  # trainings in processes of their own, see `console.find_script`
    from td3_robot.commands.main import run_command

    run_command("train")
