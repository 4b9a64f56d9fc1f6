"""Shared by all tests: one thread, repeatable examples, and an environment to learn in that is no
robot.
"""

import gc
import os
import signal
from pathlib import Path
from unittest import mock

import filelock
import hypothesis
import pytest
import torch

from envs.controllers import BASELINES
from envs.tasks import registry
from td3_robot.errors import NotFiniteError
from td3_robot.utils.console import exit_code
from td3_robot.vec_env import Step, draw_uniform
from tests.support import ROOT, drop_progress, load_command

torch.set_num_threads(1)
gc.disable()  # while tests are collected, which makes much and drops little: a third of the time
if hasattr(signal, "SIGHUP"):
    # tests that were started by nohup, and their processes, heed it too
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("repeatable")


def pytest_collection_finish() -> None:
    """Leave what was imported out of all later searches for garbage, and search seldom: most of
    what tests make is freed without, and the searches took 2% of a run.
    """
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    gc.enable()


def pytest_unconfigure() -> None:
    """Let all be found at the end, or the binding of roboticstoolbox warns of leaks."""
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def _forget_registrations():
    """Leave the lists of tasks and controllers as a test file found them."""
    registry.list_tasks()
    with mock.patch.dict(registry._tasks), mock.patch.dict(BASELINES):
        yield


class PointEnv:
    """Points in the plane that are to come to the origin; B of them, each with its own age.

    The observation is (x, y, age). An action moves the point by a tenth of itself. An episode
    terminates where the point leaves the unit square, and is truncated at `horizon` steps; both may
    happen at once.
    """

    o_dim = 3
    a_dim = 2

    def __init__(self, num_envs: int = 4, seed: int = 0, horizon: int = 7):
        self.num_envs = num_envs
        self.horizon = horizon
        self.device = torch.device("cpu")
        self.generator = torch.Generator()
        self.calls = 0
        self.reset(seed)

    def reset(self, seed=None):
        if seed is not None:
            self.generator.manual_seed(seed)
        self.observation = self._fresh()
        return self.observation

    def _fresh(self):
        place = draw_uniform(self.generator, self.num_envs, 2) * 1.8 - 0.9
        return torch.cat((place, place.new_zeros(self.num_envs, 1)), 1)

    def step(self, action):
        if not torch.isfinite(action).all():
            raise NotFiniteError("action has a value that is NaN or infinite")
        assert action.shape == (self.num_envs, self.a_dim) and action.abs().max() <= 1
        self.calls += 1
        successor = self.observation + torch.cat(
            (0.1 * action, action.new_ones(self.num_envs, 1)), 1
        )
        distance = torch.linalg.vector_norm(successor[:, :2], dim=1)
        terminated = (successor[:, :2].abs() > 1).any(1)
        truncated = successor[:, 2] >= self.horizon
        done = (terminated | truncated)[:, None]
        self.observation = torch.where(done, self._fresh(), successor) if done.any() else successor
        return Step(
            self.observation,
            -distance,
            terminated,
            truncated,
            successor,
            {"success": distance < 0.3},
        )

    def state_dict(self):
        return {"observation": self.observation, "generator": self.generator.get_state()}

    def load_state_dict(self, state):
        self.observation = state["observation"]
        self.generator.set_state(state["generator"])
        return self.observation


@pytest.fixture(autouse=True)
def global_seed():
    """Every test draws the same random numbers, whichever ran before it."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def point_env():
    """The class above."""
    return PointEnv


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """Make a file once for all tests, those in other processes included: `once(name, make)`.

    `make(path)` writes it; the path is returned.
    """
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder

    def get(name: str, make) -> Path:
        path = folder / name
        with filelock.FileLock(f"{path}.lock"):
            if not path.exists():
                make(path)
        return path

    return get


@pytest.fixture(scope="session")
def exported(once):
    """Export a shipped checkpoint, once for all tests, since each export takes ten seconds:
    `exported("run1")` is the file. No test may change it.
    """

    def write(path: Path) -> None:
        export = load_command("export")
        checkpoint = ROOT / "checkpoints" / path.name.removesuffix(".onnx")
        assert export.main(["--checkpoint", str(checkpoint), "--onnx", str(path)]) == 0

    return lambda run: once(f"{run}.onnx", write)


@pytest.fixture(scope="session")
def straight_policy(once):
    """Export a policy without training, see tests/straight_policy.py, once for all tests."""

    def write(path: Path) -> None:
        from tests import straight_policy

        straight_policy.write(path)

    return once("straight.onnx", write)


@pytest.fixture
def in_process(monkeypatch, capsys):
    """A script in this process, which saves its imports: `in_process(folder, "train", *words)`, run
    in the folder.

    Returns its exit code, stdout and stderr without lines of progress. That a process of its own ends like that is held in
    test_train_cli.py.
    """

    # waiting for the disk is most of a short training's time
    monkeypatch.setattr("os.fsync", lambda handle: None)

    def run(folder: Path, name: str, *words: str) -> tuple[int, str, str]:
        monkeypatch.chdir(folder)
        script = load_command(name)
        capsys.readouterr()
        code = exit_code(script.main, list(words))
        out, err = capsys.readouterr()
        return code, out, drop_progress(err)

    yield run
    torch.set_num_threads(1)
