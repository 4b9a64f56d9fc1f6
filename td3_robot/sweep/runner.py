"""A sweep from its plan to its table: start or join Ray, train the trials, write the results."""

import contextlib
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from td3_robot.checkpoint import RUNS, claim_run, lock_new_run, lock_run, make_next_run, run_name
from td3_robot.cli.arguments import TrainArguments
from td3_robot.config.field import get_spellings, iter_options
from td3_robot.errors import ConfigError, missing_package
from td3_robot.loggers.base import Trackers
from td3_robot.sweep.multi_seed import count_cores
from td3_robot.sweep.parallel_coordinates import plot_settings
from td3_robot.sweep.relaunch import require_place
from td3_robot.sweep.results import (
    BEST,
    align_rows,
    make_rows,
    rank_settings,
    read_options,
    read_result,
    write_best,
    write_table,
)
from td3_robot.sweep.search_space import (
    Resources,
    SearchSpace,
    Trial,
    find_trusted,
    read_search_space,
)
from td3_robot.sweep.status_table import TrialTable
from td3_robot.sweep.trial_process import STOP, get_end_mark
from td3_robot.utils.console import STOPPED, get_command_line, say
from td3_robot.utils.output import UNWRITTEN
from td3_robot.utils.signals import stop_on_signal

PLAN = "sweep.yaml"  # in the folder of a sweep
_ENVIRONMENT = {  # Ray prints, sends and writes nothing of its own
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # signals are ours
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # the last result of a trial is no evaluation
}
# Ray from 2.54 on takes a loopback address for the machine's own and binds every interface, unless
# clusters are off. It reads the variable when it is imported.
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
_OBJECT_STORE = 100_000_000  # [bytes] nearly all of a trial stays in files
_PATIENCE = 10.0  # [s] that a cluster has to answer
Parse = Callable[[list[str]], TrainArguments]  # a command line of train.py


def start_sweep(path: Path, name: str | None, parse: Parse, script: Path) -> int:
    """Make a new sweep and train its trials.

    Args:
        path: its YAML file, of which the folder keeps a copy.
        name: name of the folder in `RUNS`; None takes the next free one.
        parse: parses a command line of `train.py`, to find mistakes before a training starts.
        script: `train.py`.

    Returns:
        The exit code: 0 if all trials have finished or were ended early.

    Raises:
        ConfigError, CheckpointError: the plan is wrong, or the folder cannot be made.
    """
    if name is not None and "/" in name:
        raise ConfigError(f"run {name!r} of a sweep is a folder of runs: its name has no /")
    space, total = _check_space(read_search_space(path), parse)
    require_ray()
    with lock_new_run(claim_run(RUNS, name) if name is not None else make_next_run(RUNS)) as folder:
        with _start_ray(space.config.resources):
            _copy_plan(path, folder / PLAN)
            return _train(space, total, folder, script)


def resume_sweep(name: str, parse: Parse, script: Path) -> int:
    """Continue a sweep that was stopped or killed; arguments and result as for `start_sweep`.

    Only its folder is needed, without Ray's own files: the scheduler gets the evaluations of the
    trials that are there again, and they continue from their resume points.
    """
    folder = next((path for path in (RUNS / name, Path(name)) if os.path.isfile(path / PLAN)), None)
    if folder is None:
        raise ConfigError(f"there is no sweep {name!r}: {RUNS / name / PLAN} does not exist")
    space, total = _check_space(read_search_space(folder / PLAN), parse)
    for run in (folder / trial.name for trial in space.make_trials()):
        if not get_end_mark(run).exists():
            require_place(run)
    require_ray()
    with lock_run(folder), _start_ray(space.config.resources):
        (folder / STOP).unlink(missing_ok=True)
        return _train(space, total, folder, script)


def _check_space(space: SearchSpace, parse: Parse) -> tuple[SearchSpace, int]:
    """Check that `train.py` accepts every trial.

    Returns:
        The space with today's names of the options, which their run folders have, and the steps of
        the longest trial.

    Raises:
        ConfigError: names the trial and what is wrong with it.
    """
    total = 0
    for trial in space.make_trials():
        try:
            arguments = parse(trial.words)
        except ConfigError as error:
            raise ConfigError(f"{trial.name} of the sweep: {error}") from error
        total = max(total, arguments.config.steps)
    options = [*iter_options(type(arguments.config)), *iter_options(type(arguments.environment))]
    space = space.rename({old: name for name, item in options for old in get_spellings(name, item)})
    if space.config.scheduler == "pbt":
        fixed = {name for name, item in options if item.metadata.get("fixed")}
        if wrong := sorted(fixed & space.varied.keys()):
            raise ConfigError(
                "scheduler pbt changes options in the middle of a run, "
                f"where {wrong[0]} cannot change"
            )
    return space, total


def require_ray() -> None:
    """Check that Ray, an optional package, can be imported."""
    os.environ.update(_ENVIRONMENT)
    if "RAY_ADDRESS" not in os.environ:
        os.environ.update(_LOOPBACK)
    try:
        import ray.tune  # noqa: F401
    except ImportError as error:
        raise missing_package("a sweep", error.name) from error


def _copy_plan(path: Path, copy: Path) -> None:
    try:
        shutil.copyfile(path, copy)
    except OSError as error:
        raise ConfigError(f"cannot write {str(copy)!r}: {error.strerror}") from error


def _train(space: SearchSpace, total: int, folder: Path, script: Path) -> int:
    from td3_robot.sweep.ray_backend import run_trials

    trials = [_update_trial(folder, trial, space) for trial in space.make_trials()]
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, folder / ".ray", ignore_errors=True)
        say(f"{len(trials)} trials in {folder}")
        cleanup.enter_context(stop_on_signal((folder / STOP).touch))
        table = cleanup.enter_context(TrialTable(trials, space.varied, space.config.metric))
        ended = run_trials(space, trials, total, folder, script, table)
    if ended.unknown:
        raise ConfigError(ended.unknown)
    for name, why in ended.failed.items():
        say(f"{name} failed: {why}")
    unwritten = _write_results(space, folder, trials)
    stopped = (folder / STOP).exists()
    if stopped or ended.failed:
        say(f"continue with: {get_command_line('sweep', '--resume', run_name(folder))}")
    if stopped:
        return STOPPED
    if ended.failed:
        return 1
    return UNWRITTEN if unwritten else 0


def _update_trial(folder: Path, trial: Trial, space: SearchSpace) -> Trial:
    """Return a trial with its current options, which pbt may have changed."""
    return Trial(trial.name, trial.options | read_options(folder / trial.name, trial, space.varied))


@contextlib.contextmanager
def _start_ray(needed: Resources) -> Iterator[None]:
    """Start Ray for this process alone, bound to loopback, or connect to RAY_ADDRESS.

    Raises:
        ConfigError: no Ray answers, or no machine has what a trial needs.
    """
    import ray

    address = os.environ.get("RAY_ADDRESS")
    with contextlib.ExitStack() as cleanup:
        options = {} if address else _make_local_options(cleanup)
        cleanup.callback(ray.shutdown)
        try:
            _require_answer(address)
            with _silence_stderr():
                ray.init(**options, log_to_driver=False, logging_level=logging.CRITICAL)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            where = f"at RAY_ADDRESS {address!r}" if address else "on this machine"
            raise ConfigError(f"cannot reach Ray {where}: {error}") from error
        _require_room(needed)
        yield


def _make_local_options(cleanup: contextlib.ExitStack) -> dict[str, Any]:
    """Return options of `ray.init` for one sweep: temporary files, loopback alone."""
    place = cleanup.enter_context(
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
    )
    return {
        "address": "local",
        "include_dashboard": False,
        "_node_ip_address": "127.0.0.1",
        "_temp_dir": place,
        "num_cpus": count_cores(),
        "object_store_memory": _OBJECT_STORE,
    }


def _require_answer(address: str | None) -> None:
    """Check that something listens at an address: Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()


@contextlib.contextmanager
def _silence_stderr() -> Iterator[None]:
    """Silence stderr, where Ray's native code describes its log; errors are raised anyway."""
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _require_room(needed: Resources) -> None:
    """Check that a machine has the resources of a trial: Ray would wait for more.

    Raises:
        ConfigError: no machine has them.
    """
    import ray

    for name, count in (("cpus", needed.cpus), ("gpus", needed.gpus)):
        found = (node["Resources"].get(name[:-1].upper(), 0.0) for node in ray.nodes())
        most = max(found, default=0.0)
        if count > most:
            raise ConfigError(
                f"resources.{name} of a trial is {count:g}, and no machine has more than {most:g}"
            )


def _write_results(space: SearchSpace, folder: Path, trials: Sequence[Trial]) -> bool:
    """Write table, picture and best options. Return True if one could not be written."""
    found = [read_result(folder, trial, space) for trial in trials]
    results = [result for result in found if result is not None]
    if not any(result.steps for result in results):
        return False
    settings = rank_settings(results, space.config.goal)
    rows = list(make_rows(settings, space))
    say("\n".join(align_rows(rows)))
    trackers = Trackers()
    trackers.try_write("the table", write_table, folder, rows)
    trackers.try_write("the picture", plot_settings, folder, settings, space)
    trackers.try_write("the best options", write_best, folder, settings[0], space)
    best = space.fixed | settings[0].options
    trusted = Trial("", {name: best[name] for name in find_trusted(best)}).words
    command = get_command_line("train", "--config", folder / BEST, *trusted)
    say(f"the best options: {command}")
    return bool(trackers.failed)
