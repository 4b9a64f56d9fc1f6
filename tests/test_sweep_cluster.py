"""Sweeps on a cluster of two machines, which are processes here, with a stand-in for train.py:
schedulers, failures.
"""

import functools
import os
from pathlib import Path

import pytest

from envs.command_line import TrainFlags
from envs.config.env_options import EnvOptions
from td3_robot.cli import arguments
from td3_robot.errors import ConfigError
from td3_robot.loggers.csv import read_metrics
from td3_robot.sweep.runner import require_ray, resume_sweep, start_sweep

parse_train = functools.partial(arguments.parse_train, environment=EnvOptions, flags=TrainFlags)

# Stands in for train.py: success is tau after 9 rows of 100 steps; it writes its resume point when
# it is stopped.
SCRIPT = """
import json, os, signal, sys, time
from pathlib import Path
import yaml

words = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
folder = Path(words["resume"] if "resume" in words else f"checkpoints/{words['run']}")
(folder / "last").mkdir(parents=True, exist_ok=True)
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
tau = float(words["td3.tau"])
config = {"steps": 900, "exploration": {"start_steps": 10}, "td3": {"tau": tau}}
config["seed"] = int(words.get("seed", 0))
(folder / "config.yaml").write_text(yaml.safe_dump(config))
with open(folder / "sittings", "a") as file:
    file.write(f"{tau}\\n")
if tau == 0.9:
    print("error: no luck", file=sys.stderr)
    sys.exit(2)
csv = folder / "metrics.csv"
if not csv.exists():
    csv.write_text("env_steps,gradient_steps,success_rate\\n")
for row in range(len(csv.read_text().splitlines()), 10):
    time.sleep(0.3)
    if stopped:
        sys.exit(130)
    with open(csv, "a") as file:
        file.write(f"{100 * row},0,{row / 9 * tau}\\n")
(folder / "summary.json").write_text(json.dumps({"finished": True, "success_rate": tau}))
"""
PLAN = "options: {{steps: 900, exploration.start_steps: 10, td3.tau: {}}}\n{}\n"


@pytest.fixture(scope="module")
def cluster():
    """Ray on two machines of one core each."""
    pytest.importorskip("ray")
    require_ray()
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "object_store_memory": 100_000_000}
    made = Cluster(initialize_head=True, head_node_args=size | {"include_dashboard": False})
    made.add_node(**size)
    os.environ["RAY_ADDRESS"] = made.address
    yield made
    del os.environ["RAY_ADDRESS"]
    made.shutdown()


@pytest.fixture
def sweep(cluster, tmp_path, monkeypatch, capsys):
    """A sweep over tau: its exit code, what it printed, and its folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)

    def sweep(taus: list[float], settings: str = "") -> tuple[int, str, Path]:
        (tmp_path / "plan.yaml").write_text(PLAN.format(taus, settings))
        code = start_sweep(tmp_path / "plan.yaml", "s", parse_train, tmp_path / "script.py")
        return code, capsys.readouterr().out, tmp_path / "checkpoints/s"

    return sweep


pytestmark = pytest.mark.slow


def test_asha_ends_those_behind_and_a_resume_leaves_them_so(sweep, monkeypatch, tmp_path):
    code, out, folder = sweep([0.8, 0.7, 0.1, 0.2], "scheduler: asha\ngrace: 0.3\nfactor: 2")
    assert code == 0 and "trial0: finished" in out
    behind = [f"trial{i}" for i in (2, 3) if (folder / f"trial{i}.ended").exists()]
    assert behind and all(len(read_metrics(folder / name)) < 9 for name in behind)
    assert "best options" in out and "tau: 0.8" in (folder / "best.yaml").read_text()
    sittings = {path: path.read_text() for path in folder.glob("*/sittings")}
    assert resume_sweep("s", parse_train, tmp_path / "script.py") == 0
    assert {path: path.read_text() for path in folder.glob("*/sittings")} == sittings


def test_pbt_has_those_behind_go_on_from_one_ahead(sweep):
    code, out, folder = sweep([0.8, 0.7, 0.1, 0.2], "scheduler: pbt\ngrace: 0.3")
    assert code == 0, out
    taus = {path.parent.name: path.read_text().split() for path in folder.glob("*/sittings")}
    assert any(float(tau) > 0.3 for name in ("trial2", "trial3") for tau in taus[name])
    for name in taus:
        assert [row["env_steps"] for row in read_metrics(folder / name)] == [
            100 * (i + 1) for i in range(9)
        ]


def test_one_that_fails_costs_the_others_nothing(sweep):
    code, out, folder = sweep([0.5, 0.9])
    assert (
        code == 1
        and "trial1 failed: no luck" in out
        and "continue with: python sweep.py --resume s" in out
    )
    assert (folder / "trial0/summary.json").exists()


def test_a_metric_that_never_comes_ends_the_sweep(sweep):
    with pytest.raises(
        ConfigError, match="metric 'reward' never comes: an evaluation of trial[01] has env_steps"
    ):
        sweep([0.5, 0.6], "metric: reward")


def test_more_than_a_machine_has_is_refused(sweep):
    with pytest.raises(
        ConfigError, match="resources.cpus of a trial is 2, and no machine has more than 1"
    ):
        sweep([0.5], "resources: {cpus: 2}")
    with pytest.raises(
        ConfigError, match="resources.gpus of a trial is 1, and no machine has more than 0"
    ):
        sweep([0.5], "resources: {gpus: 1}")
    assert not list(Path("checkpoints").iterdir())


def test_no_cluster_at_the_address_is_said(sweep, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ConfigError, match="cannot reach Ray at RAY_ADDRESS '127.0.0.1:1'"):
        sweep([0.5])
