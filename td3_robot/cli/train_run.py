"""The parts of a training command that know nothing of what is learned in."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from td3_robot import checkpoint
from td3_robot.checkpoint import run_name
from td3_robot.checkpoint.provenance import describe_differences, write_provenance
from td3_robot.cli.arguments import CONFIG_NAME, merge_options, save_config
from td3_robot.cli.progress import Display
from td3_robot.config.run import Config
from td3_robot.config.td3 import TD3Config
from td3_robot.data.batch_source import BatchSource
from td3_robot.data.collector import Collector
from td3_robot.data.mixed import make_source
from td3_robot.errors import CheckpointError, ConfigError
from td3_robot.loggers.base import fill_scores
from td3_robot.loggers.csv import CsvLog
from td3_robot.loggers.learning_curve import plot_learning_curve
from td3_robot.loggers.mlflow import MLflowLog, open_store
from td3_robot.loggers.tensorboard import TensorBoardLog
from td3_robot.networks.residual import resolve_residual_column
from td3_robot.td3.agent import TD3
from td3_robot.training.callbacks import Callback, Run, StopAt, make_callbacks
from td3_robot.training.trainer import Trainer
from td3_robot.utils.communicator import Communicator
from td3_robot.utils.console import STOPPED, get_command_line, say, warn
from td3_robot.utils.memory import keep_freed_memory
from td3_robot.utils.output import UNWRITTEN
from td3_robot.vec_env import Policy, VecEnv


class Publish(Callback):
    """A callback that shows a view the policy after every step."""

    def __init__(self, view: Any, policy: torch.nn.Module):
        self._view = view
        self._policy = policy

    def on_step(self, run: Run) -> None:
        """Show the policy as it is now."""
        self._view.publish(self._policy)


def set_up_process(config: Config) -> None:
    """Set torch's threads and precision; open the MLflow store first, which may fail."""
    if config.mlflow:
        open_store()
    keep_freed_memory()
    torch.set_num_threads(config.threads)
    torch.set_float32_matmul_precision(config.matmul_precision)


def resolve_columns(config: Config, env: VecEnv) -> TD3Config:
    """Return the TD3 options with what they leave to the environment's columns.

    `privileged`, if null, is what the environment offers; the rest is of `resolve_residual_column`.

    Raises:
        ConfigError: `privileged` is neither what the environment offers nor 0; see
            `resolve_residual_column`.
    """
    offered = getattr(env, "privileged_dim", 0)
    replay = config.replay
    relabelled = replay.hindsight != "none"
    if config.dataset or replay.dataset or relabelled or config.td3.normalize_observations:
        offered = 0
    if config.td3.privileged not in (None, 0, offered):
        choices = f"0 or {offered}" if offered else "0: there is nothing that critics alone see"
        raise ConfigError(f"td3.privileged must be {choices}, got {config.td3.privileged}")
    chosen = offered if config.td3.privileged is None else config.td3.privileged
    td3 = dataclasses.replace(config.td3, privileged=chosen)
    return resolve_residual_column(td3, env)


def build_agent(
    config: Config,
    env: VecEnv,
    communicator: Communicator,
    start_from: Path | None,
    metadata: Mapping[str, object],
) -> TD3:
    """Build the agent for an environment, with the networks of a checkpoint if one is given.

    Raises:
        CheckpointError: they do not fit; it names what they learned, if not that of `metadata`.
    """
    agent = TD3(
        env.o_dim,
        env.a_dim,
        device=config.device,
        seed=config.seed,
        communicator=communicator,
        **dataclasses.asdict(config.td3),
    )
    if start_from is not None:
        try:
            agent.load(start_from)
        except CheckpointError as error:
            there = checkpoint.load(start_from, names=()).metadata.get("trained_on")
            if not isinstance(there, dict) or there == metadata:
                raise
            before, now = (
                ", ".join(f"{name} {value}" for name, value in each.items())
                for each in (there, metadata)
            )
            raise CheckpointError(
                f"start_from was trained on {before}, and this run is on {now}: {error}"
            ) from None
    return agent


def build_source(
    agent: TD3, env: VecEnv, config: Config, expert: Policy | None, start_from: Path | None
) -> BatchSource:
    """Build the source of batches, with the reward statistics of a checkpoint if one is given."""
    source = make_source(agent, env, config, expert)
    if isinstance(source, Collector) and start_from is not None:
        metadata = checkpoint.load(start_from, names=()).metadata
        source.take_reward_statistics(metadata.get("rewards"))
    return source


def build_callbacks(config: Config) -> list[Callback]:
    """Build the display, which comes first, and what the configuration asks for."""
    unit = "env steps" if config.dataset is None else "updates"
    return [Display(config.steps, unit), *make_callbacks(config)]


def resume(trainer: Trainer) -> bool:
    """Resume a run and say what is lost; return whether it is finished already.

    Raises:
        ConfigError: more steps are made already than it is to have.
    """
    config = trainer.config
    lost = trainer.resume()
    steps = trainer.steps
    solved = config.stop_when_solved and trainer.solved_at_s is not None
    if (solved or steps >= config.steps) and trainer.summarised:
        name = run_name(trainer.folder)
        how = "set stop_when_solved false" if solved else "raise --steps"
        say(f"{name} is finished after {steps} steps; {how} to train on")
        return True
    per_round = config.num_envs if config.dataset is None else 1  # the last one may end above
    if steps - per_round >= config.steps:
        raise ConfigError(f"steps must be at least {steps}, made already, got {config.steps}")
    for sentence in lost:
        say(sentence)
    return False


def add_stop(trainer: Trainer, callbacks: list[Callback], stop_at: int | None) -> None:
    """Add the callback that stops the run after so many steps, if any."""
    if stop_at is not None:
        callbacks.append(StopAt(stop_at, trainer.steps, trainer.config.steps))


def build_trackers(
    trainer: Trainer,
    callbacks: list[Callback],
    argv: list[str],
    environment: Any,
    fingerprint: dict[str, Any],
) -> None:
    """Write configuration and provenance into the run folder; add the trackers to the trainer."""
    config = trainer.config
    folder = trainer.folder
    logged = trainer.state.logged_steps
    save_config(config, folder / CONFIG_NAME, environment)
    warn(describe_differences(write_provenance(folder, "train.py", argv, fingerprint)))
    displays = [each for each in callbacks if isinstance(each, Display)]
    trainer.trackers += [*displays, CsvLog(folder, logged), TensorBoardLog(folder, logged)]
    if config.mlflow:
        options = merge_options(environment, config)
        trainer.trackers.append(MLflowLog(folder, options, run_name(folder), logged))


def close_trackers(trainer: Trainer) -> None:
    """Draw the learning curve, which MLflow takes along, and close the trackers."""
    trainer.trackers.try_write("the curve", plot_learning_curve, trainer.folder)
    trainer.trackers.close()


def report(
    trainer: Trainer,
    summary: dict[str, Any],
    command: str,
    stop_at: int | None,
    words: Sequence[str] = (),
) -> int:
    """Print how good the policy is, or how to continue a stopped run; return the exit code.

    Args:
        trainer: whose run has ended.
        summary: of the run.
        command: that starts such a training.
        stop_at: steps after which it was to stop; None without a limit.
        words: of a command line, which every command needs for this run.
    """
    if summary["finished"]:
        _print_scores(fill_scores(summary), trainer, words)
        return UNWRITTEN if trainer.trackers.failed else 0
    steps = trainer.steps
    saved_steps = trainer.state.saved_steps
    lost = "" if saved_steps == steps else f", of which {saved_steps} are saved"
    unit = "env steps" if trainer.config.dataset is None else "updates"
    again = f"{command} {shlex.join(['--resume', run_name(trainer.folder), *words])}"
    say(f"stopped at {steps} {unit}{lost}; continue with: {again}")
    if lost:
        return UNWRITTEN
    return 0 if stop_at is not None and steps >= stop_at else STOPPED


def _print_scores(summary: dict[str, Any], trainer: Trainer, words: Sequence[str]) -> None:
    folder = trainer.folder
    outcome = "done"
    if summary.get("episode_return") is not None:
        outcome = f"return {summary['episode_return']:.2f}"
        if "success_rate" in summary:
            outcome = f"success rate {summary['success_rate']:.1%}, {outcome}"
        if (best := summary["best_at_steps"]) not in (None, trainer.steps):
            unit = "env steps" if trainer.config.dataset is None else "updates"
            outcome = f"{outcome} (the best policy, of {best:,} {unit})"
    memory = ""
    if "peak_memory_gb" in summary:
        memory = f", {summary['peak_memory_gb']:.1f} GB of memory"
    say(f"{outcome} after {summary['wall_s']:.1f} s{memory}; the curve is in {folder}")
    again = get_command_line("evaluate", "--checkpoint", folder, *words)
    say(f"see how good it is: {again}")
