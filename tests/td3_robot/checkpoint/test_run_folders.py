"""Run folders by name: each run has its own, and none is ever taken over."""

import multiprocessing
import os
import shutil
import signal
import socket
from pathlib import Path

import pytest

from td3_robot import TD3
from td3_robot.checkpoint import claim_run, find, lock_new_run, lock_run, make_next_run
from td3_robot.checkpoint.resume_point import read_resume_point
from td3_robot.checkpoint.run_folders import RUNS
from td3_robot.errors import CheckpointError, ConfigError


def reserve(root: Path, gate, queue) -> None:
    gate.wait()
    queue.put([make_next_run(root).name for _ in range(20)])


def claim(root: Path, gate, queue) -> None:
    gate.wait()
    got = []
    for number in range(20):
        try:
            got.append(claim_run(root, f"name{number}").name)
        except ConfigError:
            pass
    queue.put(got)


@pytest.mark.skipif(os.name == "nt", reason="needs fork")
@pytest.mark.parametrize("take, total", [(reserve, 80), (claim, 20)])
def test_trainings_that_start_together_get_different_folders(tmp_path, take, total):
    context = multiprocessing.get_context("fork")
    gate = context.Event()
    queue = context.Queue()
    processes = [
        context.Process(target=take, args=(tmp_path / "checkpoints", gate, queue), daemon=True)
        for _ in range(4)
    ]
    for process in processes:
        process.start()
    gate.set()
    names = [name for _ in processes for name in queue.get(timeout=20)]
    for process in processes:
        process.join()
    assert len(names) == len(set(names)) == total
    assert sorted(names) == sorted(os.listdir(tmp_path / "checkpoints"))


def test_the_next_run_follows_the_last(tmp_path):
    for name in ("run1", "run10", "run007x", "mine", ".run99.new"):
        (tmp_path / name).mkdir()
    assert make_next_run(tmp_path) == tmp_path / "run11"
    assert make_next_run(tmp_path / "new") == tmp_path / "new" / "run1"
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="cannot make"):
        make_next_run(tmp_path / "file")


def test_a_run_is_never_taken_over(tmp_path):
    assert claim_run(tmp_path, "mine") == tmp_path / "mine"
    with pytest.raises(ConfigError, match="'mine' exists already; .*--resume mine .*--run"):
        claim_run(tmp_path, "mine")


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".x",
        "a/b/c",
        "a/..",
        "a/",
        "a\\b",
        "/a",
        "-x",
        "a\nb",
        "a\0b",
        "a b",
        "x" * 300,
    ],
)
def test_a_name_that_is_no_folders_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="run must be") as caught:
        claim_run(tmp_path, name)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["last", "replay", "mine"])
def test_a_run_inside_another_one_is_refused(tmp_path, name):
    """The advice was to resume outer/last, which is no run; a new one could be made in replay, which
    the outer run empties.
    """
    TD3(2, 1, hidden=(4,)).save(tmp_path / "outer")
    TD3(2, 1, hidden=(4,)).save(tmp_path / "outer/last")
    with pytest.raises(ConfigError, match=f"'outer/{name}' would be inside .* run 'outer'; choose"):
        claim_run(tmp_path, f"outer/{name}")
    assert not (tmp_path / "outer/replay").exists()
    (tmp_path / "seeds").mkdir()  # a folder of runs
    assert claim_run(tmp_path, f"seeds/{name}").is_dir()


def test_a_name_with_the_folder_of_all_runs_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="'checkpoints/mine': leave checkpoints/ out"):
        claim_run("checkpoints", "checkpoints/mine")
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_a_checkpoint_leads_to_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # long paths are shortened in messages
    TD3(2, 1, hidden=(4,)).save("mine")
    TD3(2, 1, hidden=(4,)).save("mine/last")
    for name in ("actor", "policy.onnx"):
        with pytest.raises(CheckpointError) as caught:
            find(f"mine/{name}")
        choices = str(caught.value).split("valid choices: ")[1].split(", ")
        assert choices == [str(Path("mine")), str(Path("mine/last"))]


def hold(folder: Path, gate) -> None:
    with lock_run(folder):
        gate.set()
        signal.pause()


@pytest.mark.skipif(os.name == "nt", reason="needs fork and SIGKILL")
def test_a_run_is_of_one_process_until_it_dies(tmp_path):
    context = multiprocessing.get_context("fork")
    gate = context.Event()
    holder = context.Process(target=hold, args=(tmp_path, gate), daemon=True)
    holder.start()
    assert gate.wait(20)
    who = f"process {holder.pid} on {socket.gethostname()}"
    with pytest.raises(ConfigError, match=f"^run {tmp_path.name!r} is being trained by {who!r}$"):
        lock_run(tmp_path).__enter__()
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    strays = (
        "last/.next",
        "last/.x.new",
        ".last.new",
        f".{holder.pid}-metrics.csv",
        f".{os.getpid()}-config.yaml",
    )
    for name in strays:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch() if "-" in name else path.mkdir()
    (tmp_path / "last" / "actor").touch()  # a checkpoint
    (tmp_path / "mine").touch()
    with lock_run(tmp_path):
        # this one lives
        assert {path.name for path in tmp_path.iterdir()} == {".lock", "last", "mine", strays[-1]}
        assert [path.name for path in (tmp_path / "last").iterdir()] == ["actor"]
    assert not (tmp_path / ".lock").exists()


@pytest.mark.parametrize("left", [".commit", ".next"])
@pytest.mark.parametrize("place", ["", "last"])
def test_what_died_on_the_way_into_the_folder_is_finished_or_removed(tmp_path, left, place):
    run = tmp_path / "run1"
    for folder in {run, run / place}:
        TD3(3, 1, hidden=(8,)).save(folder)
    (run / place / left).mkdir()
    (run / place / "actor").rename(run / place / left / "actor")
    if left == ".next":  # not committed: the folder was whole
        shutil.copy(run / place / left / "actor", run / place / "actor")
    with lock_run(run):
        assert not (run / place / left).exists() and (run / place / "actor").exists()


def test_a_folder_that_cannot_be_held_is_one_line(tmp_path):
    with pytest.raises(
        CheckpointError, match="^cannot write in '[^']*gone': No such file or directory$"
    ):
        lock_run(tmp_path / "gone").__enter__()


def test_a_new_run_that_finds_a_full_disk_leaves_no_folder(tmp_path):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    folder = claim_run(tmp_path, "mine")
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))  # no file may have a byte
    try:
        with pytest.raises(CheckpointError, match="^cannot write in "), lock_new_run(folder):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not folder.exists() and claim_run(tmp_path, "mine") == folder


def test_what_to_do_without_a_resume_point_names_the_run_as_start_from_finds_it(
    tmp_path, monkeypatch
):
    """That of a seed, too, whose folder's own name is no run's."""
    monkeypatch.chdir(tmp_path)
    (RUNS / "three" / "seed0").mkdir(parents=True)
    (RUNS / "three" / "seed0" / "actor").touch()
    with pytest.raises(CheckpointError, match="no resume point .*: --start_from three/seed0$"):
        read_resume_point(RUNS / "three" / "seed0")


def test_a_run_that_ended_before_its_first_checkpoint_has_no_policy_to_start_from(
    tmp_path, monkeypatch
):
    """As one whose disk was full by then."""
    monkeypatch.chdir(tmp_path)
    (RUNS / "mine").mkdir(parents=True)
    (RUNS / "mine" / "config.yaml").touch()
    with pytest.raises(CheckpointError, match="nothing to resume; remove 'checkpoints/mine' and"):
        read_resume_point(RUNS / "mine")
