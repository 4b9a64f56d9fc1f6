"""What a verification finds in a run folder, whole and spoilt in every part."""

import json
import os
import socket

import pytest
import torch

from td3_robot import checkpoint
from td3_robot.checkpoint.provenance import write_provenance
from td3_robot.checkpoint.resume_point import LAST
from td3_robot.loggers.csv import CsvLog
from td3_robot.training.verify import GOOD, MISSING, OTHER, WRONG, verify
from tests.td3_robot.conftest import OnStep

pytestmark = pytest.mark.usefixtures("no_fsync")
CONSTANTS = {"task": {"tolerance": 0.3}}


def environment():
    return 3, 2, CONSTANTS


@pytest.fixture
def run(tmp_path, train):
    """A run that was stopped, with all that it may hold."""
    folder = tmp_path / "run"

    def stop(steps):
        if steps == 200:
            trainer.stop()

    trainer = train(folder, callbacks=[OnStep(stop)])
    folder.mkdir()
    trainer.trackers.append(CsvLog(folder))
    trainer.run()
    write_provenance(folder, "train.py", [], CONSTANTS)
    return folder


def states(folder, world=environment) -> dict[str, str]:
    return {finding.what: finding.state for finding in verify(folder, world)}


def test_all_is_well_with_a_run_that_was_stopped(run):
    assert set(states(run).values()) == {GOOD}
    texts = {finding.what: finding.text for finding in verify(run, environment)}
    assert texts["metrics"] == "3 rows, up to 180 steps"
    assert texts["summary"] == "stopped after 200 env steps, 40 updates"
    assert texts["resume point"].startswith(
        "after 200 env steps, 40 updates; replay of 0.0 MB, all finite"
    )


def test_a_policy_alone_lacks_the_rest(tmp_path, train):
    train(tmp_path).agent.save(tmp_path / "run")
    missing = dict.fromkeys(("constants", "metrics", "summary", "resume point"), MISSING)
    assert (
        states(tmp_path / "run")
        == dict.fromkeys(("state files", "networks", "environment", "leftovers"), GOOD) | missing
    )


def test_a_summary_of_an_earlier_sitting_is_told_and_is_nothing_wrong(run):
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | {"env_steps": 100}))
    found = {finding.what: finding for finding in verify(run, environment)}["summary"]
    assert (found.state, found.text) == (
        OTHER,
        "of an earlier session: stopped after 100 env steps, 40 updates",
    )


def test_a_run_by_several_processes_is_looked_at_whole(run):
    states_, metadata = checkpoint.load(run / LAST)
    source = states_["trainer_state"]["source"]
    both = [{"source": source, "target_generator": 0} for _ in range(2)]
    checkpoint.write(
        run / LAST,
        {**states_, "trainer_state": {**states_["trainer_state"], "source": {"ranks": both}}},
        metadata,
    )
    found = {finding.what: finding for finding in verify(run, environment)}["resume point"]
    assert found.state == GOOD and found.text.startswith(
        "after 400 env steps, 40 updates; replay of"
    )


def test_other_constants_are_told_and_are_nothing_wrong(run):
    found = {
        finding.what: finding
        for finding in verify(run, lambda: (3, 2, {"task": {"tolerance": 0.1}}))
    }
    assert (
        found["constants"].state == OTHER
        and "task.tolerance was 0.3 and is 0.1" in found["constants"].text
    )


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def poison_replay(run):
    found, metadata = checkpoint.load(run / LAST)
    rows = [
        leaf
        for leaf in found["trainer_state"]["source"]["replay"].values()
        if torch.is_tensor(leaf)
    ]
    next(leaf for leaf in rows if leaf.is_floating_point()).view(-1)[0] = torch.nan
    checkpoint.write(run / LAST, found, metadata)


SPOILT = {  # how, and what is then wrong
    "a bit of the actor": (
        lambda run: flip(run / "actor"),
        {"state files", "networks", "environment"},
    ),
    "no critic": (lambda run: (run / "Q1").unlink(), {"state files", "networks", "environment"}),
    "a bit of the resume point": (lambda run: flip(run / LAST / "trainer_state"), {"resume point"}),
    "a NaN in the replay": (poison_replay, {"resume point"}),
    "a torn row": (
        lambda run: (run / "metrics.csv").open("a").write("1,2\n"),
        {"metrics", "summary"},
    ),
    "doubled rows": (
        lambda run: (run / "metrics.csv").open("a").write(row(run) + "\n"),
        {"metrics"},
    ),
    "no rows": (lambda run: (run / "metrics.csv").write_text(""), {"metrics"}),
    "a summary that is none": (lambda run: (run / "summary.json").write_text("{"), {"summary"}),
    "a record that is none": (lambda run: (run / "provenance.json").write_text("{"), {"constants"}),
    "half a set": (lambda run: (run / ".next").mkdir(), {"leftovers"}),
}


def row(run) -> str:
    return (run / "metrics.csv").read_text().splitlines()[-1]


@pytest.mark.parametrize("how", SPOILT)
def test_what_is_wrong_is_found_where_it_is(run, how):
    spoil, expected = SPOILT[how]
    spoil(run)
    findings = verify(run, environment)
    assert {finding.what for finding in findings if finding.state == WRONG} == expected
    assert all("\n" not in finding.text for finding in findings)


def test_what_a_training_has_at_hand_is_no_leftover(run):
    with checkpoint.lock_run(run):
        (run / ".next").mkdir()
        found = {finding.what: finding for finding in verify(run, environment)}["leftovers"]
        assert (found.state, found.text) == (
            MISSING,
            f"process {os.getpid()} on {socket.gethostname()} is training it",
        )
    assert states(run)["leftovers"] == WRONG
    # one that is no more
    (run / ".lock").write_text(f"process 999999999 on {socket.gethostname()}\n")
    assert states(run)["leftovers"] == WRONG


def test_networks_of_another_width_do_not_fit_the_environment(run):
    assert states(run, lambda: (4, 2, CONSTANTS))["environment"] == WRONG
