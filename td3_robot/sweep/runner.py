"""A sweep from its plan to its table: Ray is started or joined, trials are trained, and what came
of it is told.
"""

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
from td3_robot.sweep.multi_seed import cores
from td3_robot.sweep.parallel_coordinates import plot_settings
from td3_robot.sweep.results import (
    BEST,
    aligned,
    options_now,
    ranked,
    result_of,
    rows_of,
    write_best,
    write_table,
)
from td3_robot.sweep.search_space import Plan, Resources, Trial, read_plan
from td3_robot.sweep.status_table import Board
from td3_robot.sweep.trial_process import STOP
from td3_robot.utils.console import STOPPED, UNWRITTEN, say
from td3_robot.utils.signals import stop_on_signal

PLAN = "sweep.yaml"  # in the folder of a sweep
_QUIET = {  # what Ray would else print, send and write
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # signals are ours
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # the last that a trial says is no evaluation
}
_OBJECT_STORE = 100_000_000  # [bytes] nearly all of what trials tell stays in files
_PATIENCE = 10.0  # [s] that a cluster has to answer
Parse = Callable[[list[str]], TrainArguments]  # a command line of train.py


def begin(path: Path, name: str | None, parse: Parse, script: Path) -> int:
    """Make a new sweep and train its trials.

    Args:
        path: its YAML file, which is kept in its folder.
        name: of the folder in `RUNS`; None takes the next free one.
        parse: reads a command line of `train.py`, to find mistakes before anything begins.
        script: `train.py`.

    Returns:
        The exit code: 0 where all trials have finished or were ended early.

    Raises:
        ConfigError, CheckpointError: the plan is wrong, or the folder cannot be had.
    """
    plan = read_plan(path)
    total = _check(plan, parse)
    _require_ray()
    with lock_new_run(claim_run(RUNS, name) if name is not None else make_next_run(RUNS)) as folder:
        with _ray(plan.settings.resources):
            _keep(path, folder / PLAN)
            return _train(plan, total, folder, script)


def go_on(name: str, parse: Parse, script: Path) -> int:
    """Go on with a sweep that was stopped or killed; the rest is as for `begin`.

    Nothing but its folder is needed, none of Ray's own files among it: trials that are there tell
    their evaluations again, so that the scheduler knows what it knew, and are trained from their
    resume points.
    """
    folder = next((path for path in (RUNS / name, Path(name)) if (path / PLAN).is_file()), None)
    if folder is None:
        raise ConfigError(f"there is no sweep {name!r}: {RUNS / name / PLAN} does not exist")
    plan = read_plan(folder / PLAN)
    total = _check(plan, parse)
    _require_ray()
    with lock_run(folder), _ray(plan.settings.resources):
        (folder / STOP).unlink(missing_ok=True)
        return _train(plan, total, folder, script)


def _check(plan: Plan, parse: Parse) -> int:
    """Hold every trial to what `train.py` takes. Returns the steps of the longest.

    Raises:
        ConfigError: names the trial and what is wrong with it.
    """
    total = 0
    for trial in plan.trials():
        try:
            arguments = parse(trial.words)
        except ConfigError as error:
            raise ConfigError(f"{trial.name} of the sweep: {error}") from error
        total = max(total, arguments.config.steps)
    if plan.settings.scheduler == "pbt":
        parts = (type(arguments.config), type(arguments.environment))
        stay = {
            spelling
            for part in parts
            for name, item in iter_options(part)
            if item.metadata.get("fixed")
            for spelling in get_spellings(name, item)
        }
        if wrong := sorted(stay & plan.varied.keys()):
            raise ConfigError(
                f"scheduler pbt changes options in the middle of a run, where {wrong[0]} cannot change"
            )
    return total


def _require_ray() -> None:
    """Ray is an extra, and takes seconds to import."""
    os.environ.update(_QUIET)
    try:
        import ray.tune  # noqa: F401
    except ImportError as error:
        raise missing_package("a sweep", error.name) from error


def _keep(path: Path, copy: Path) -> None:
    try:
        shutil.copyfile(path, copy)
    except OSError as error:
        raise ConfigError(f"cannot write {str(copy)!r}: {error.strerror}") from error


def _train(plan: Plan, total: int, folder: Path, script: Path) -> int:
    from td3_robot.sweep.ray_backend import search

    trials = [_as_it_is(folder, trial, plan) for trial in plan.trials()]
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, folder / ".ray", ignore_errors=True)
        say(f"{len(trials)} trials in {folder}")
        cleanup.enter_context(stop_on_signal((folder / STOP).touch))
        board = cleanup.enter_context(Board(trials, plan.varied, plan.settings.metric))
        told = search(plan, trials, total, folder, script, board)
    if told.unknown:
        raise ConfigError(told.unknown)
    for name, why in told.failed.items():
        say(f"{name} failed: {why}")
    unwritten = _report(plan, folder, trials)
    if (folder / STOP).exists() or told.failed:
        say(f"go on with: python sweep.py --resume {run_name(folder)}")
    return (
        STOPPED if (folder / STOP).exists() else 1 if told.failed else UNWRITTEN if unwritten else 0
    )


def _as_it_is(folder: Path, trial: Trial, plan: Plan) -> Trial:
    """A trial with the options that pbt may have given it since."""
    return Trial(trial.name, trial.options | options_now(folder / trial.name, trial, plan))


@contextlib.contextmanager
def _ray(needed: Resources) -> Iterator[None]:
    """Ray, of this process alone and bound to loopback or, with RAY_ADDRESS, a cluster.

    Raises:
        ConfigError: there is none at that address, or no machine has what a trial needs.
    """
    import ray

    address = os.environ.get("RAY_ADDRESS")
    with contextlib.ExitStack() as cleanup:
        how = {} if address else _alone(cleanup)
        cleanup.callback(ray.shutdown)
        try:
            _require_answer(address)
            with _silent():
                ray.init(**how, log_to_driver=False, logging_level=logging.CRITICAL)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            where = f"at RAY_ADDRESS {address!r}" if address else "on this machine"
            raise ConfigError(f"cannot reach Ray {where}: {error}") from error
        _require_room(needed)
        yield


def _alone(cleanup: contextlib.ExitStack) -> dict[str, Any]:
    """How Ray is started for one sweep: its files go when it ends, and nothing is bound beyond
    loopback.
    """
    place = cleanup.enter_context(
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
    )
    size = {"num_cpus": cores(), "object_store_memory": _OBJECT_STORE}
    return {
        "address": "local",
        "include_dashboard": False,
        "_node_ip_address": "127.0.0.1",
        "_temp_dir": place,
        **size,
    }


def _require_answer(address: str | None) -> None:
    """Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Ray's part that is not Python tells stderr how its log is set; what goes wrong it raises."""
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _require_room(needed: Resources) -> None:
    """Hold a trial to what the machines have: Ray would wait for more.

    Raises:
        ConfigError: they have less.
    """
    import ray

    for name, asked in (("cpus", needed.cpus), ("gpus", needed.gpus)):
        most = max(
            (node["Resources"].get(name[:-1].upper(), 0.0) for node in ray.nodes()), default=0.0
        )
        if asked > most:
            raise ConfigError(
                f"resources.{name} of a trial is {asked:g}, and no machine has more than {most:g}"
            )


def _report(plan: Plan, folder: Path, trials: Sequence[Trial]) -> bool:
    """Table, best options and picture of what was evaluated. Returns whether something could not be
    written.
    """
    results = [result for trial in trials if (result := result_of(folder, trial, plan)) is not None]
    if not results:
        return False
    settings = ranked(results, plan.settings.goal)
    rows = list(rows_of(settings, plan))
    say("\n".join(aligned(rows)))
    trackers = Trackers()
    trackers.try_write("the table", write_table, folder, rows)
    trackers.try_write("the picture", plot_settings, folder, settings, plan)
    trackers.try_write("the best options", write_best, folder, settings[0], plan)
    say(f"the best options: python train.py --config {folder / BEST}")
    return bool(trackers.failed)
