"""A run in MLflow: its parameters, metrics and artifacts.

These go to MLflow's own default store, `mlflow.db` and `mlruns/` in the working directory (SQLite
since MLflow 3.7, https://mlflow.org/docs/latest/self-hosting/architecture/backend-store), unless
MLFLOW_TRACKING_URI names another.
"""

import contextlib
import logging
import math
import os
import re
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from td3_robot.checkpoint import MANIFEST, OPTIONAL, REQUIRED
from td3_robot.checkpoint.summary import SUMMARY_NAME, read_summary
from td3_robot.config.field import flatten_options
from td3_robot.errors import ConfigError, get_first_line, missing_package
from td3_robot.loggers.base import get_steps
from td3_robot.loggers.csv import CSV_NAME
from td3_robot.loggers.learning_curve import CURVE_NAME
from td3_robot.utils.atomic_files import lock_folder, replace_file

EXPERIMENT = "td3_robot"  # unless MLFLOW_EXPERIMENT_NAME names another
ID_NAME = "mlflow_run_id"  # file in the run folder
ARTIFACTS = (  # together a checkpoint that evaluate.py takes
    *("config.yaml", CSV_NAME, SUMMARY_NAME, CURVE_NAME),
    *(MANIFEST, *REQUIRED),
    *(name for name in OPTIONAL if name != "trainer_state"),
)
_CLOCKS = frozenset(("wall_s", "env_steps_per_s", "updates_per_s", "left_s"))
_ONE_TRY = {  # MLflow's own eight tries of two minutes each are silent
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",  # [s]
}


class MLflowLog:
    """Tracker that logs to MLflow; a resumed run folder continues its MLflow run.

    Parameters are the options, named with dots (`td3.gamma`). MLflow never changes one, so an
    option that a resumed run changes becomes the tag `resumed.<option>`. Metrics come with every
    evaluation, by the steps of `get_steps`; NaN and infinite ones are left out. At the end, the
    files of ARTIFACTS that exist are copied and the MLflow run becomes FINISHED or, stopped early,
    KILLED, as `summary.json` says; FAILED without a new summary.

    MLflow deletes no point: an evaluation that a run repeats, as it was killed after its resume
    point, is logged again only where it differs in more than its clocks.

    A failure of MLflow never ends a training: metrics that it does not accept are sent again at the
    next evaluation, but for names that MLflow refuses; the first failure is printed on stderr.

    Args:
        folder: the run folder.
        options: the configuration, nested.
        run_name: the name of the run in MLflow.
        steps: those of the newest evaluation in the resume point.

    Raises:
        ConfigError: MLflow is not installed, its store cannot be used, or the store lacks the
            folder's run.
    """

    def __init__(self, folder: Path, options: dict[str, object], run_name: str, steps: int = 0):
        self._folder = folder
        self._summary_before = _get_modified_time(folder / SUMMARY_NAME)
        self._pending: list = []  # metrics that MLflow did not accept yet
        self.failed = False
        self._client = open_store()
        with _raise_config_errors():
            self._run_id = _start_run(self._client, folder / ID_NAME, run_name)
            self._log_options({name: str(value) for name, value in flatten_options(options)})
            self._later = self._find_later_points(steps)

    def _find_later_points(self, steps: int) -> dict[int, dict[str, float]]:
        """Return the metrics of evaluations after `steps` that MLflow has, by their steps."""
        found: dict[int, dict[str, float]] = {}
        names = self._client.get_run(self._run_id).data.metrics
        for name in sorted(names, key=lambda name: name != "gradient_steps"):  # all have these
            for point in self._client.get_metric_history(self._run_id, name):
                if point.step > steps:
                    found.setdefault(point.step, {})[name] = point.value
            if not found:
                break
        return found

    def _log_options(self, options: dict[str, str]) -> None:
        from mlflow.entities import Param

        data = self._client.get_run(self._run_id).data
        new = [Param(*option) for option in options.items() if option[0] not in data.params]
        self._client.log_batch(self._run_id, params=new)
        for name in options.keys() & data.params.keys():
            tag = f"resumed.{name}"
            if options[name] != data.tags.get(tag, data.params[name]):
                self._client.set_tag(self._run_id, tag, options[name])

    def log(self, metrics: dict[str, float]) -> None:
        """Send every finite metric, unless MLflow has this evaluation already."""
        from mlflow.entities import Metric

        milliseconds = int(1000 * time.time())
        step = get_steps(metrics)
        finite = {
            name: float(value)
            for name, value in metrics.items()
            if name != "env_steps" and math.isfinite(value)
        }
        known = self._later.get(step, {})
        if not known or any(known.get(name) != finite[name] for name in finite.keys() - _CLOCKS):
            self._pending += [
                Metric(name, value, milliseconds, step) for name, value in finite.items()
            ]
        with self._warn_on_failure(), _try_once():
            self._send()

    def _send(self) -> None:
        from mlflow.exceptions import MlflowException

        try:
            self._client.log_batch(self._run_id, metrics=self._pending)
        except MlflowException as error:
            if error.error_code != "INVALID_PARAMETER_VALUE":
                raise
            for metric in self._pending:  # the one that is refused kept back all others
                with self._warn_on_failure():
                    self._client.log_batch(self._run_id, metrics=[metric])
        self._pending = []

    def close(self) -> None:
        """Copy the artifacts and end the MLflow run."""
        with self._warn_on_failure():
            self._send()
            for name in ARTIFACTS:
                if (self._folder / name).is_file():
                    self._client.log_artifact(self._run_id, str(self._folder / name))
            self._client.set_terminated(self._run_id, self._get_status())

    def _get_status(self) -> str:
        summary = self._folder / SUMMARY_NAME
        if _get_modified_time(summary) == self._summary_before:
            return "FAILED"
        return "FINISHED" if (read_summary(self._folder) or {}).get("finished") else "KILLED"

    @contextlib.contextmanager
    def _warn_on_failure(self) -> Iterator[None]:
        """Turn whatever MLflow raises into a warning, the first time."""
        try:
            yield
        except Exception as error:
            if not self.failed:
                self.failed = True
                reason = f"the metrics of {self._folder.name}: {get_first_line(error)}"
                print(f"warning: MLflow does not accept {reason}", file=sys.stderr)


def open_store():
    """Open MLflow's store, or make a new one, and return its client.

    Call it before the run folder is made, so that a mistake leaves none behind.

    Raises:
        ConfigError: MLflow is not installed, or its store cannot be used.
    """
    # read at import: else MLflow reports its use to its makers
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        import mlflow
    except ImportError as error:
        raise missing_package("--mlflow", error.name) from error
    # else it prints a line for each table that it makes
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    with _raise_config_errors():
        uri = mlflow.get_tracking_uri()
        if not uri.startswith("sqlite:"):
            client = mlflow.MlflowClient(uri)
            if uri.startswith("http"):
                _require_answer(client, uri)
            return client
        # two processes that both made the tables would break the store
        with lock_folder(_require_database(uri).parent, exclusive=True):
            return mlflow.MlflowClient(uri)


def _require_answer(client, uri: str) -> None:
    """Check that a server of MLflow answers, within ten seconds.

    Raises:
        ConfigError: it does not; the message names it.
    """
    try:
        with _try_once():
            client.search_experiments(max_results=1)
    except Exception as error:  # of MLflow, of the network
        cause: BaseException = error
        while following := cause.__cause__ or cause.__context__:
            cause = following
        reason = getattr(cause, "strerror", None) or get_first_line(cause)
        shown = re.sub("//[^/]*@", "//", uri)  # without a user's name and password
        raise ConfigError(
            f"MLflow's server {shown!r} cannot be used: {reason}; start it, or set "
            "MLFLOW_TRACKING_URI to another store"
        ) from error


@contextlib.contextmanager
def _try_once() -> Iterator[None]:
    """Ask a server once and for ten seconds at most, unless the user has set that otherwise."""
    added = {name: value for name, value in _ONE_TRY.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _require_database(uri: str) -> Path:
    """Return the file of a SQLite URI; MLflow itself would retry a bad one for minutes.

    Raises:
        ConfigError: it is no database and cannot be made one.
    """
    from sqlalchemy.engine import make_url

    path = Path(make_url(uri).database or ":memory:")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA schema_version")
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(
            f"MLflow's store {str(path)!r}: {getattr(error, 'strerror', None) or error}"
        ) from error
    return path


def _start_run(client, id_file: Path, run_name: str) -> str:
    """Return the id of the folder's earlier MLflow run, or of a new one.

    Raises:
        ConfigError: the store does not have the earlier run.
    """
    from mlflow.exceptions import MlflowException

    if not id_file.exists():
        run_id = client.create_run(_find_experiment(client), run_name=run_name).info.run_id
        with replace_file(id_file) as new:
            new.write_text(run_id + "\n", encoding="utf-8")
        return run_id
    run_id = id_file.read_text(encoding="utf-8").strip()
    try:
        client.update_run(run_id, status="RUNNING")
    except MlflowException as error:
        raise ConfigError(
            f"MLflow cannot continue run {run_id!r} ({get_first_line(error)}); "
            "set MLFLOW_TRACKING_URI to the store that has it, "
            f"or delete {str(id_file)!r} to begin a new one"
        ) from error
    return run_id


def _find_experiment(client) -> str:
    """Return the id of the experiment; make it if there is none."""
    from mlflow.exceptions import MlflowException

    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
    if found := client.get_experiment_by_name(name):
        return found.experiment_id
    try:
        return client.create_experiment(name)
    except MlflowException:
        if made_meanwhile := client.get_experiment_by_name(name):  # by another training
            return made_meanwhile.experiment_id
        raise


def _get_modified_time(path: Path) -> int | None:
    """Return the time of a file's last change [ns], or None if there is no such file."""
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns
    return None


@contextlib.contextmanager
def _raise_config_errors() -> Iterator[None]:
    """Turn any error of MLflow into a ConfigError."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # of MLflow, of the database below it, of the network
        raise ConfigError(f"MLflow: {get_first_line(error)}") from error
