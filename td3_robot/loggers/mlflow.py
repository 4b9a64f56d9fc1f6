"""A run in MLflow: its parameters, metrics and artifacts.

They go to MLflow's own default store, `mlflow.db` and `mlruns/` in the working directory (SQLite
since MLflow 3.7, https://mlflow.org/docs/latest/self-hosting/architecture/backend-store), unless
MLFLOW_TRACKING_URI names another.
"""

import contextlib
import logging
import math
import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from td3_robot.checkpoint import ABOUT, OPTIONAL, REQUIRED
from td3_robot.checkpoint.summary import SUMMARY_NAME, read_summary
from td3_robot.config.field import flatten_options
from td3_robot.errors import ConfigError, first_line, missing_package
from td3_robot.loggers.base import CSV_NAME, CURVE_NAME, steps_of
from td3_robot.utils.atomic_files import locked, replacing

EXPERIMENT = "td3_robot"  # unless MLFLOW_EXPERIMENT_NAME names another
ID_NAME = "mlflow_run_id"  # file in the run folder
ARTIFACTS = (  # together a checkpoint that evaluate.py takes
    *("config.yaml", CSV_NAME, SUMMARY_NAME, CURVE_NAME),
    *(ABOUT, *REQUIRED),
    *(name for name in OPTIONAL if name != "trainer_state"),
)


class MLflowLog:
    """Logs to MLflow what happens in a run folder; a folder that was logged before goes on in its
    MLflow run.

    Parameters are the options, named with dots (`td3.gamma`). MLflow never changes one, so an
    option that a resumed run changes becomes the tag `resumed.<option>`. Metrics come with every
    evaluation, over `tracking.steps_of`; those that are NaN or infinite are left out. At the end
    those of ARTIFACTS that the folder has are copied, and the run is FINISHED or, stopped early,
    KILLED, as `summary.json` has it; FAILED where no new one was written.

    Once begun, training never ends because of MLflow: what it does not take waits for the next
    evaluation, and the first such failure is told on stderr.

    Args:
        folder: the run folder.
        options: the configuration, nested.
        run_name: what MLflow calls the run.

    Raises:
        ConfigError: MLflow is not installed, its store cannot be used, or the store lacks the
            folder's run.
    """

    def __init__(self, folder: Path, options: dict[str, object], run_name: str):
        self._folder = folder
        self._summary_before = _modified(folder / SUMMARY_NAME)
        self._waiting: list = []  # metrics that MLflow did not take yet
        self.failed = False
        self._client = open_store()
        with _one_line():
            self._run_id = _begin(self._client, folder / ID_NAME, run_name)
            self._log_options({name: str(value) for name, value in flatten_options(options)})

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
        """Every metric that is a number, over the steps."""
        from mlflow.entities import Metric

        milliseconds, step = int(1000 * time.time()), steps_of(metrics)
        for name, value in metrics.items():
            if name != "env_steps" and math.isfinite(value):
                self._waiting.append(Metric(name, float(value), milliseconds, step))
        with self._tell_failure():
            self._send()

    def _send(self) -> None:
        self._client.log_batch(self._run_id, metrics=self._waiting)
        self._waiting = []

    def close(self) -> None:
        """Copy the artifacts and end the MLflow run."""
        with self._tell_failure():
            self._send()
            for name in ARTIFACTS:
                if (self._folder / name).is_file():
                    self._client.log_artifact(self._run_id, str(self._folder / name))
            self._client.set_terminated(self._run_id, self._status())

    def _status(self) -> str:
        summary = self._folder / SUMMARY_NAME
        if _modified(summary) == self._summary_before:
            return "FAILED"
        return "FINISHED" if (read_summary(self._folder) or {}).get("finished") else "KILLED"

    @contextlib.contextmanager
    def _tell_failure(self) -> Iterator[None]:
        """Go on after anything that MLflow raises."""
        try:
            yield
        except Exception as error:
            if not self.failed:
                self.failed = True
                print(
                    f"MLflow does not take the figures of {self._folder.name}: {first_line(error)}",
                    file=sys.stderr,
                )


def open_store():
    """MLflow's client, its store opened, and made where it is new. Before a run folder is made, it
    says what is wrong.

    Raises:
        ConfigError: MLflow is not installed, or its store cannot be used.
    """
    os.environ.setdefault(
        "MLFLOW_DISABLE_TELEMETRY", "true"
    )  # seen at import: else it reports its use to its makers
    try:
        import mlflow
    except ImportError as error:
        raise missing_package("--mlflow", error.name) from error
    logging.getLogger("mlflow.store.db.utils").setLevel(
        logging.WARNING
    )  # it tells of each table that it makes
    with _one_line():
        uri = mlflow.get_tracking_uri()
        if not uri.startswith("sqlite:"):
            return mlflow.MlflowClient(uri)
        with locked(
            _require_database(uri).parent, exclusive=True
        ):  # two that both made its tables would break it
            return mlflow.MlflowClient(uri)


def _require_database(uri: str) -> Path:
    """Hold a SQLite URI to a file that is a database or can be made one; MLflow itself would retry
    for minutes.

    Returns:
        The file.

    Raises:
        ConfigError: it is not.
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


def _begin(client, id_file: Path, run_name: str) -> str:
    """The id of the MLflow run that the folder was logged to before, or of a new one.

    Raises:
        ConfigError: the store does not have the one of before.
    """
    from mlflow.exceptions import MlflowException

    if not id_file.exists():
        run_id = client.create_run(_experiment(client), run_name=run_name).info.run_id
        with replacing(id_file) as new:
            new.write_text(run_id + "\n", encoding="utf-8")
        return run_id
    run_id = id_file.read_text(encoding="utf-8").strip()
    try:
        client.update_run(run_id, status="RUNNING")
    except MlflowException as error:
        raise ConfigError(
            f"MLflow cannot continue run {run_id!r} ({first_line(error)}); "
            f"set MLFLOW_TRACKING_URI to the store that has it, or delete {str(id_file)!r} to begin a new one"
        ) from error
    return run_id


def _experiment(client) -> str:
    """The id of the experiment, made where there is none."""
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


def _modified(path: Path) -> int | None:
    """When a file was written; None where there is none."""
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns
    return None


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    """Turn what MLflow raises into a ConfigError."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # of MLflow, of the database below it, of the network
        raise ConfigError(f"MLflow: {first_line(error)}") from error
