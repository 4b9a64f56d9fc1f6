"""MLflow: what was logged is to be read back from its store by MLflow's own client."""

import contextlib
import io
import math
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient

from td3_robot import TD3, checkpoint
from td3_robot.errors import ConfigError
from td3_robot.loggers import mlflow as mlflow_log
from td3_robot.loggers.mlflow import MLflowLog, open_store
from tests.support import get_refusal

ROOT = Path(__file__).resolve().parents[3]
OPTIONS = {"task": "reach", "seed": 3, "run": None, "td3": {"gamma": 0.98, "hidden": (256, 128)}}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A working directory with a store that is made already, which takes seconds."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        told = io.StringIO()
        with contextlib.redirect_stderr(told):
            open_store()
    assert told.getvalue() == ""  # MLflow would tell of the tables that it makes
    return folder


@pytest.fixture(autouse=True)
def in_store(store, monkeypatch):
    monkeypatch.chdir(store)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "run7").mkdir()
    return tmp_path / "run7"


def run_id(folder: Path) -> str:
    return (folder / "mlflow_run_id").read_text().strip()


def run_of(folder: Path):
    return MlflowClient().get_run(run_id(folder))


def history(folder: Path, name: str) -> list[tuple[int, float]]:
    return [
        (point.step, point.value)
        for point in MlflowClient().get_metric_history(run_id(folder), name)
    ]


def test_the_default_store_lies_in_the_working_directory(store, folder):
    MLflowLog(folder, OPTIONS, "run7")
    assert (store / "mlflow.db").is_file()
    run = run_of(folder)
    assert run.info.run_name == "run7" and run.info.status == "RUNNING"
    assert str(store / "mlruns") in run.info.artifact_uri
    assert MlflowClient().get_experiment(run.info.experiment_id).name == "td3_robot"


def test_options_are_parameters_named_with_dots(folder):
    many = {f"option{number}": number for number in range(250)}  # more than the store takes at once
    MLflowLog(folder, OPTIONS | {"many": many}, "run7")
    expected = {
        "task": "reach",
        "seed": "3",
        "run": "None",
        "td3.gamma": "0.98",
        "td3.hidden": "(256, 128)",
    }
    assert run_of(folder).data.params == expected | {
        f"many.{name}": str(value) for name, value in many.items()
    }


def test_metrics_lie_over_env_steps_and_what_is_no_number_is_left_out(folder):
    log = MLflowLog(folder, OPTIONS, "run7")
    log.log(
        {
            "env_steps": 1000,
            "gradient_steps": 10,
            "episode_return": -2.5,
            "Q1_loss": math.nan,
            "Q1": math.inf,
        }
    )
    log.log(
        {
            "env_steps": 2000,
            "gradient_steps": 20,
            "episode_return": 1 / 3,
            "Q1_loss": 0.25,
            "Q1": -math.inf,
        }
    )
    assert history(folder, "episode_return") == [(1000, -2.5), (2000, 1 / 3)]
    assert history(folder, "gradient_steps") == [(1000, 10.0), (2000, 20.0)]
    assert history(folder, "Q1_loss") == [(2000, 0.25)]
    assert run_of(folder).data.metrics.keys() == {"gradient_steps", "episode_return", "Q1_loss"}


@pytest.mark.parametrize("name", ["reward (mean)", "a//b", "../b", "é" * 300, ""])
def test_a_name_that_mlflow_refuses_keeps_back_no_other_metric(folder, name, capsys):
    log = MLflowLog(folder, OPTIONS, "run7")
    for step in (1000, 2000):
        log.log({"env_steps": step, "gradient_steps": 10, name: 1.0, "episode_return": 2.0})
    log.close()
    assert history(folder, "episode_return") == [(1000, 2.0), (2000, 2.0)]
    assert run_of(folder).info.status == "FAILED"  # there is no summary: closing went through
    told = capsys.readouterr().err
    assert told.startswith("warning: MLflow does not accept the metrics of run7: ")
    assert told.count("\n") == 1 and log.failed


def test_offline_metrics_lie_over_gradient_steps(folder):
    log = MLflowLog(folder, OPTIONS, "run7")
    for step in (500, 1000):
        log.log({"env_steps": 0, "gradient_steps": step, "episode_return": 1.0})
    assert history(folder, "episode_return") == [(500, 1.0), (1000, 1.0)]


def test_the_artifacts_are_a_checkpoint_with_its_figures(folder, tmp_path, assert_same, no_fsync):
    log = MLflowLog(folder, OPTIONS, "run7")
    agent = TD3(3, 2, hidden=(4,))
    agent.save(folder)
    agent.save(folder / "last")
    for name in ("config.yaml", "metrics.csv", "summary.json", "learning_curve.png", "note.txt"):
        (folder / name).write_text('{"finished": true}')
    log.close()
    copy = Path(MlflowClient().download_artifacts(run_id(folder), "", str(tmp_path)))
    assert_same(checkpoint.read(copy), agent.state_dicts())
    networks = {checkpoint.MANIFEST, *checkpoint.REQUIRED, "actor_target", "Q1_target", "Q2_target"}
    figures = {"config.yaml", "metrics.csv", "summary.json", "learning_curve.png"}
    assert {path.name for path in copy.iterdir()} - {"run7"} == networks | figures


def test_what_the_folder_lacks_is_no_artifact(folder):
    MLflowLog(folder, OPTIONS, "run7").close()
    assert MlflowClient().list_artifacts(run_id(folder)) == []


@pytest.mark.parametrize(
    "before, after, status",
    [
        (None, '{"finished": true}', "FINISHED"),
        (None, '{"finished": false}', "KILLED"),
        (None, None, "FAILED"),
        ('{"finished": true}', None, "FAILED"),  # of an earlier sitting
        ('{"finished": false}', '{"finished": true}', "FINISHED"),
    ],
)
def test_the_status_is_how_the_run_ended(folder, before, after, status):
    if before:
        (folder / "summary.json").write_text(before)
        os.utime(folder / "summary.json", (1, 1))
    log = MLflowLog(folder, OPTIONS, "run7")
    if after:
        (folder / "summary.json").write_text(after)
    log.close()
    assert run_of(folder).info.status == status


def test_a_resumed_run_goes_on_in_its_mlflow_run(folder):
    first = MLflowLog(folder, OPTIONS, "run7")
    first.log({"env_steps": 1000, "gradient_steps": 10})
    first.close()
    before = run_id(folder)
    second = MLflowLog(folder, OPTIONS, "run7")
    assert run_of(folder).info.status == "RUNNING"
    second.log({"env_steps": 2000, "gradient_steps": 20})
    assert run_id(folder) == before
    assert history(folder, "gradient_steps") == [(1000, 10.0), (2000, 20.0)]
    assert not [name for name in run_of(folder).data.tags if name.startswith("resumed.")]


def test_an_evaluation_that_a_killed_run_repeats_is_one_point(folder):
    """It was killed after 3000 steps, and its resume point is of 1000."""
    first = MLflowLog(folder, OPTIONS, "run7")
    for steps in (1000, 2000, 3000):
        first.log({"env_steps": steps, "gradient_steps": steps, "Q1": steps / 3, "wall_s": 7.0})
    second = MLflowLog(folder, OPTIONS, "run7", steps=1000)
    second.log({"env_steps": 2000, "gradient_steps": 2000, "Q1": 2000 / 3, "wall_s": 8.0})
    second.log({"env_steps": 3000, "gradient_steps": 3000, "Q1": -1.0, "wall_s": 9.0})
    second.log({"env_steps": 4000, "gradient_steps": 4000, "Q1": 4.0, "wall_s": 9.5})
    found = [(1000, 1000 / 3), (2000, 2000 / 3), (3000, 1000.0), (3000, -1.0), (4000, 4.0)]
    assert history(folder, "Q1") == found  # the third one differs: both are to be seen
    assert [steps for steps, _ in history(folder, "wall_s")] == [steps for steps, _ in found]


def test_what_a_resumed_run_changes_is_a_tag(folder):
    for seed, gamma in ((3, 0.98), (3, 0.9), (3, 0.98)):
        MLflowLog(folder, OPTIONS | {"seed": seed, "td3": {"gamma": gamma}, "new": 1}, "run7")
        data = run_of(folder).data
        assert data.params["td3.gamma"] == "0.98" and data.params["new"] == "1"
        assert data.tags.get("resumed.td3.gamma", "0.98") == str(gamma)
        assert "resumed.seed" not in data.tags


def test_another_folder_is_another_run(folder, tmp_path):
    (tmp_path / "run8").mkdir()
    MLflowLog(folder, OPTIONS, "run7")
    MLflowLog(tmp_path / "run8", OPTIONS, "run8")
    assert run_id(folder) != run_id(tmp_path / "run8")


def test_the_environment_chooses_store_and_experiment(store, folder, tmp_path, monkeypatch):
    other = f"sqlite:///{tmp_path / 'deeper' / 'other.db'}"
    (tmp_path / "deeper").mkdir()
    shutil.copy(store / "mlflow.db", tmp_path / "deeper" / "other.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", other)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "arms")
    MLflowLog(folder, OPTIONS, "run7")
    assert MlflowClient(other).get_experiment(run_of(folder).info.experiment_id).name == "arms"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with pytest.raises(ConfigError, match="MLFLOW_TRACKING_URI.*mlflow_run_id") as error:
        MLflowLog(folder, OPTIONS, "run7")  # the default store never heard of it
    assert run_id(folder) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "uri, told",
    [
        ("sqlite:///{}/text.db", "not a database"),
        ("sqlite:///{}/text.db/x.db", "text.db"),
        ("gopher://x", "gopher"),
    ],
)
def test_a_store_that_cannot_be_used_is_one_line(folder, tmp_path, monkeypatch, uri, told):
    (tmp_path / "text.db").write_text(
        "no database at all, but a text that is longer than its header"
    )
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri.format(tmp_path))
    with pytest.raises(ConfigError, match=told) as error:
        MLflowLog(folder, OPTIONS, "run7")
    assert "\n" not in str(error.value)
    assert list(folder.iterdir()) == []


@pytest.fixture(params=["refuses", "is silent"])
def lost_server(request, monkeypatch):
    """The address of a server that refuses connections, or takes them and never answers."""
    monkeypatch.setitem(mlflow_log._ONE_TRY, "MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        if request.param == "refuses":
            server.close()
        yield address


def test_a_server_that_does_not_answer_is_named_at_once(lost_server, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", lost_server)
    before = dict(os.environ)
    began = time.monotonic()
    assert repr(lost_server) in get_refusal(open_store)
    assert time.monotonic() - began < 10
    assert dict(os.environ) == before  # what a training sends later may take longer


def test_a_refusal_does_not_show_the_password_of_an_address(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:9")
    refusal = get_refusal(open_store)
    assert "secret" not in refusal and "'http://127.0.0.1:9'" in refusal


def test_a_server_that_is_lost_in_a_training_does_not_hold_it_up(
    folder, lost_server, monkeypatch, capsys
):
    log = MLflowLog(folder, OPTIONS, "run7")
    monkeypatch.setattr(log, "_client", MlflowClient(lost_server))
    began = time.monotonic()
    for step in (1000, 2000):
        log.log({"env_steps": step, "gradient_steps": 10})
    assert time.monotonic() - began < 10
    assert "MLflow does not accept the metrics of run7" in capsys.readouterr().err


@pytest.mark.parametrize("seeds", [(), ("--seeds", "0", "1")])
def test_a_store_that_cannot_be_used_leaves_no_run_folder(tmp_path, monkeypatch, in_process, seeds):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # RFC 863: nobody listens
    code, out, err = in_process(tmp_path, "train", "--robot", "panda", "--mlflow", *seeds)
    assert code == 2 and err.count("\n") == 1 and "'http://127.0.0.1:9'" in err
    assert list(tmp_path.iterdir()) == []


def test_a_new_store_is_made_by_one_of_those_that_begin_at_once(tmp_path):
    code = """from td3_robot.loggers.mlflow import open_store
print(len(open_store().search_experiments()))"""

    def begin():
        return subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    ends = [process.communicate() for process in [begin() for _ in range(2)]]
    assert ends == [("1\n", "")] * 2, ends


def test_without_mlflow_the_message_says_how_to_get_it(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ConfigError, match=r"pip install 'td3-robot\[mlflow\]'") as error:
        MLflowLog(folder, OPTIONS, "run7")
    assert "\n" not in str(error.value)
    assert list(folder.iterdir()) == []


def test_a_store_that_fails_later_costs_no_training_and_no_figures(folder, monkeypatch, capsys):
    log = MLflowLog(folder, OPTIONS, "run7")

    def fail(*_, **__):
        raise RuntimeError("database is locked\nand more")

    with monkeypatch.context() as broken:
        broken.setattr(log._client, "log_batch", fail)
        for env_steps in range(1, 151):
            log.log({"env_steps": env_steps, "gradient_steps": 5})
    assert (
        capsys.readouterr().err
        == "warning: MLflow does not accept the metrics of run7: database is locked\n"
    )
    assert history(folder, "gradient_steps") == []
    log.log({"env_steps": 151, "gradient_steps": 5})
    assert history(folder, "gradient_steps") == [(env_steps, 5.0) for env_steps in range(1, 152)]
    assert capsys.readouterr().err == ""


ALONE = """
import socket, sys
import td3_robot.loggers.mlflow as mlflow_log
assert "mlflow" not in sys.modules and "torch" not in sys.modules
asked = []
def refuse(*where): asked.append(where); raise OSError("no network")
socket.socket.connect = socket.getaddrinfo = refuse
from pathlib import Path
log = mlflow_log.MLflowLog(Path("run9"), {}, "run9")
log.log({"env_steps": 1, "gradient_steps": 1})
log.close()
import threading
for thread in threading.enumerate():
    if thread is not threading.main_thread(): thread.join(5)
assert not asked, asked
"""


def test_nothing_is_imported_early_and_nobody_else_is_told(store, tmp_path):
    shutil.copy(store / "mlflow.db", tmp_path)
    (tmp_path / "run9").mkdir()
    # telemetry looks at them
    hidden = ("PYTEST", "CI", "MLFLOW", "GITHUB", "BUILDKITE", "DO_NOT_TRACK", "RUNBOT")
    env = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    env["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-c", ALONE], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
