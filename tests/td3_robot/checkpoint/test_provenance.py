"""A run's record of code, machine and constants, and what is told where the constants have
changed.
"""

import json
import subprocess

import pytest

from td3_robot.checkpoint import provenance
from td3_robot.checkpoint.provenance import (
    PROVENANCE,
    describe_code,
    describe_differences,
    describe_other_constants,
    find_differences,
    read_provenance,
    write_provenance,
)
from td3_robot.errors import ConfigError

HERE = {"task": {"tolerance": 0.01, "horizon": 60}, "limits": {"fast": [1.0, 2.0]}}
THERE = {"task": {"tolerance": 0.02, "bonus": 1.0}, "limits": {"fast": [1.0, 3.0]}}


def test_constants_that_are_the_same_differ_in_nothing():
    assert find_differences(HERE, HERE) == [] and describe_differences([]) is None
    # as JSON keeps them
    assert find_differences({"task": {"pair": (1, 2)}}, {"task": {"pair": [1, 2]}}) == []


def test_each_constant_that_differs_is_named():
    assert find_differences(THERE, HERE) == [
        "limits.fast was [1.0, 3.0] and is [1.0, 2.0]",
        "task.bonus was 1.0 and is missing",
        "task.horizon was missing and is 60",
        "task.tolerance was 0.02 and is 0.01",
    ]
    assert find_differences({"f": {"a": "x" * 64}}, {"f": {"a": "y" * 64}}) == ["f.a is another"]
    # what weighs nothing is not there
    assert find_differences({"task": {"gone": 0.0}}, {"task": {"new_weight": 0.0}}) == []


def test_what_one_of_them_knows_nothing_of_is_not_compared():
    randomized = {**HERE, "randomization lab": {"noise": 0.1}}
    assert find_differences(randomized, HERE) == find_differences(HERE, randomized) == []
    assert find_differences(randomized, {"randomization lab": {"noise": 0.2}}) == [
        "randomization lab.noise was 0.1 and is 0.2"
    ]


def test_a_run_keeps_the_constants_it_began_with_and_a_sitting_for_each_command(tmp_path):
    assert write_provenance(tmp_path, "train.py", ["--run", "a b"], THERE) == []
    assert len(write_provenance(tmp_path, "train.py", ["--resume", "a b"], HERE)) == 4
    record = read_provenance(tmp_path)
    assert record["constants"] == THERE
    first, second = record["sittings"]
    assert (first["command"], first["other_constants"]) == ("python train.py --run 'a b'", [])
    assert second["other_constants"] == find_differences(THERE, HERE)
    assert {"python", "torch", "numpy"} <= first["versions"].keys() and first["hardware"]["cores"]


def test_an_evaluation_with_other_constants_says_so_in_one_sentence(tmp_path):
    assert describe_other_constants(tmp_path, HERE) is None  # older runs have no record
    write_provenance(tmp_path, "train.py", [], HERE)
    assert describe_other_constants(tmp_path, HERE) is None
    assert describe_other_constants(tmp_path, {}) is None  # nothing is known of this environment
    sentence = "it was trained with other constants: "
    sentence += "limits.fast was [1.0, 2.0] and is [1.0, 3.0], task.bonus"
    for folder in (tmp_path, tmp_path / "last"):
        assert (describe_other_constants(folder, THERE) or "").startswith(sentence)
    assert (describe_differences(["a", "b", "c", "d", "e", "f"]) or "").endswith(
        "a, b, c, d and 2 more"
    )


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[1]",
        b'{"constants": {}}',
        b'{"constants": {"a": 1}, "sittings": []}',
        b"\xff",
        b"[" * 100_000,
    ]
    + [b'{"sittings": [], "constants": {"a": {"b": ' + 50 * b"[" + 50 * b"]" + b"}}}"]
    + [json.dumps({"constants": [], "sittings": []}).encode()],
)
def test_a_damaged_record_is_one_line(tmp_path, content):
    (tmp_path / PROVENANCE).write_bytes(content)
    with pytest.raises(ConfigError, match="provenance.json' is damaged: it "):
        read_provenance(tmp_path)


def test_code_says_whether_it_is_still_that_of_its_commit(monkeypatch):
    git = {"ls-files": "provenance.py", "rev-parse": 20 * "ab", "status": ""}
    monkeypatch.setattr(provenance, "_run_git", lambda asked, *_: git[asked])
    assert describe_code().endswith("commit abababababab")
    git["status"] = " M train.py"
    assert describe_code().endswith("commit abababababab with uncommitted changes")


def test_the_commit_is_that_of_a_repository_that_tracks_the_package(tmp_path, monkeypatch):
    """Not of one that a virtual environment happens to lie in."""

    def git(*words):
        who = ("-c", "user.name=me", "-c", "user.email=me@here")
        command = ["git", "-C", str(tmp_path), *who, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    installed = tmp_path / "venv" / "provenance.py"
    installed.parent.mkdir()
    installed.touch()
    (tmp_path / "own.py").touch()
    monkeypatch.setattr(provenance, "__file__", str(installed))
    assert provenance.find_commit() is None
    git("init")
    git("add", "own.py")
    git("commit", "-m", "not of this package")
    (tmp_path / "own.py").write_text("edited")
    assert provenance.find_commit() is None and " with " not in describe_code()
    write_provenance(tmp_path, "train.py", [], HERE)
    assert not read_provenance(tmp_path)["sittings"][0]["uncommitted_changes"]
    git("add", "venv")
    git("commit", "-m", "of this package")
    assert provenance.find_commit() == git("rev-parse", "HEAD")
