"""A checkpoint that cannot be written, as on a full disk: told once, the former one stays, the run
goes on.
"""

import errno
import os
import shutil

import pytest

from td3_robot import TD3, checkpoint
from td3_robot.checkpoint import store as checkpoint_folder
from td3_robot.checkpoint.resume_point import LAST
from td3_robot.errors import CheckpointError
from td3_robot.training.callbacks import Callback, KeepCheckpoints

pytestmark = pytest.mark.usefixtures("no_fsync")
BEST = ("actor", "Q1", "Q2")


class Disk(Callback):
    """Full while the run is between two steps: the third file of a checkpoint does not fit any
    more.
    """

    def __init__(self, monkeypatch, begin: int, end: int):
        self.begin = begin
        self.end = end
        self.full = False
        self._room = 2
        self._write = checkpoint_folder.write_state
        monkeypatch.setattr(checkpoint_folder, "write_state", self.write)

    def on_step(self, run):
        self.full = self.begin <= run.steps < self.end

    def write(self, path, state):
        if path.name == "actor" and self.full:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._write(path, state)


@pytest.fixture(scope="module")
def roomy(tmp_path_factory, train):
    """The same run on a disk that is never full, and its summary."""
    trainer = train(tmp_path_factory.mktemp("roomy"))
    return trainer, trainer.run()


def names_in(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_disk_that_was_full_for_a_while_costs_nothing(
    tmp_path, train, monkeypatch, capsys, roomy, assert_same
):
    disk = Disk(monkeypatch, 50, 300)
    trainer = train(tmp_path, callbacks=[disk], save_every=1e-9)
    summary = trainer.run()
    whole, expected = roomy
    assert summary["success_rate"] == expected["success_rate"] and summary["finished"]
    assert_same(checkpoint.read(tmp_path, BEST), checkpoint.read(whole.folder, BEST))
    assert_same(trainer.agent.state_dicts(), whole.agent.state_dicts())
    assert capsys.readouterr().err.splitlines() == [
        f"warning: {what} cannot be written (No space left on device); the run continues"
        for what in ("the resume point", "the best policy")
    ]
    assert trainer.trackers.failed and trainer.state.saved_steps == 400


def test_a_disk_that_stays_full_leaves_the_last_good_checkpoint_and_no_halves(
    tmp_path, train, monkeypatch, roomy, assert_same
):
    trainer = train(tmp_path, callbacks=[Disk(monkeypatch, 101, 1000)], save_every=1e-9)
    assert (
        trainer.run()["finished"] and trainer.trackers.failed and trainer.state.saved_steps == 100
    )
    whole = {*checkpoint.REQUIRED, "actor_target", "Q1_target", "Q2_target", checkpoint.MANIFEST}
    assert names_in(tmp_path) == {*whole, LAST, "summary.json"} and names_in(tmp_path / LAST) == {
        *whole,
        "trainer_state",
    }
    monkeypatch.undo()
    resumed = train(tmp_path, agent_seed=9)
    resumed.resume()
    assert resumed.env_steps == 100 and resumed.run()["finished"]
    assert_same(resumed.agent.state_dicts(), roomy[0].agent.state_dicts())


def test_the_best_policy_that_waits_for_room_is_the_one_of_its_evaluation(
    tmp_path, train, monkeypatch, scripted, assert_same
):
    """It is the second one, found while there was no room, and the agent has learnt on since."""
    rates = scripted([0.25, 0.75, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    trainer = train(
        tmp_path, evaluation_env=rates, callbacks=[Disk(monkeypatch, 70, 150)], save_every=1e-9
    )
    trainer.run()
    assert_same(checkpoint.read(tmp_path)["actor"], trainer.trackers[0].actors[1])
    assert checkpoint.load(tmp_path, names=()).metadata["score"]["success_rate"] == 0.75


def test_a_disk_that_is_full_from_the_start_ends_the_run_before_anything_is_learnt(
    tmp_path, train, monkeypatch
):
    disk = Disk(monkeypatch, 0, 1)
    disk.full = True
    with pytest.raises(
        CheckpointError, match="^cannot write checkpoint 'run': No space left on device$"
    ):
        train(tmp_path / "run").run()
    assert names_in(tmp_path) == set()


def test_kept_checkpoints_that_do_not_fit_are_told_too(tmp_path, train, monkeypatch, capsys):
    trainer = train(
        tmp_path, steps=120, callbacks=[Disk(monkeypatch, 100, 1000), KeepCheckpoints(1)]
    )
    assert trainer.run()["finished"]
    assert "warning: step_120 cannot be written (No space left" in capsys.readouterr().err
    assert (tmp_path / "step_60").is_dir() and not (tmp_path / "step_120").exists()
    assert not list(tmp_path.glob(".*"))


def test_a_run_folder_that_is_deleted_is_not_made_anew_by_halves(tmp_path, train, capsys):
    class Deleted(Callback):
        def on_step(self, run):
            if run.steps == 200:
                shutil.rmtree(run.folder)

    trainer = train(tmp_path / "run", callbacks=[Deleted()], save_every=1e-9)
    with pytest.raises(
        CheckpointError, match="there is no checkpoint at"
    ):  # whose score the summary would say
        trainer.run()
    assert not (tmp_path / "run").exists() and isinstance(trainer.agent, TD3)
    assert (
        "warning: the resume point cannot be written (there is no folder" in capsys.readouterr().err
    )
