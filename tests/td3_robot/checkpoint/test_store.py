"""The checkpoint folder: whole sets only, whenever the writer dies; nothing in a file ever runs."""

import multiprocessing
import os
import pickle
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import torch

from td3_robot import checkpoint
from td3_robot.checkpoint import MANIFEST, NAMES, OPTIONAL, REQUIRED, find, load, read, write
from td3_robot.errors import CheckpointError

ROOM = Path(checkpoint.__file__).parent
posix = pytest.mark.skipif(os.name == "nt", reason="needs fork and SIGKILL")


@pytest.fixture
def no_fsync(monkeypatch):
    """What a killed process wrote stays in the file system's memory; only a power cut needs fsync,
    which is slow.
    """
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def generation(number: int) -> dict[str, dict]:
    """A set whose every file says which one it is of; odd ones have the REQUIRED files only."""
    names = REQUIRED if number % 2 else NAMES
    return {
        name: {"generation": number, "weight": torch.full((50,), float(number))} for name in names
    }


def generation_in(folder: Path) -> int:
    """The number of the one generation in a folder; fails where there is a mixture."""
    states, metadata = load(folder)
    assert metadata in ({}, {"generation": states["actor"]["generation"]})
    numbers = {state["generation"] for state in states.values()}
    assert len(numbers) == 1, {name: state["generation"] for name, state in states.items()}
    assert set(states) == set(generation(*numbers))
    assert all((state["weight"] == state["generation"]).all() for state in states.values())
    return numbers.pop()


def start(target, *args):
    process = multiprocessing.get_context("fork").Process(target=target, args=args, daemon=True)
    process.start()
    return process


def write_on(folder: Path, number: int) -> None:
    while True:
        write(folder, generation(number), {"generation": number})
        number += 1


def write_and_die(folder: Path, number: int, lines: int) -> None:
    """Write a set in a process that is killed after so many lines of td3_robot/checkpoint, its
    first checks apart.
    """
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        if Path(frame.f_code.co_filename).parent != ROOM or frame.f_code.co_name == "check_plain":
            return None
        count += event == "line"
        if count >= lines:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    write(folder, generation(number), {"generation": number})


def test_round_trip_is_exact(tmp_path):
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-4)
    net(torch.randn(5, 3)).square().sum().backward()
    optimizer.step()
    states = {
        name: optimizer.state_dict() if "optimizer" in name else net.state_dict()
        for name in NAMES[:-1]
    }
    odd = torch.tensor([0.1, -0.0, torch.inf, torch.nan, 1e-45])
    plain = {
        "env_steps": 2**70,
        "python": random.getstate(),
        "none": None,
        "pair": (1, [True, "ü", 0.1]),
    }
    states["trainer_state"] = plain | {
        "torch": torch.get_rng_state(),
        "odd": odd,
        "half": odd.half(),
    }
    write(tmp_path / "run", states)
    back = read(tmp_path / "run")

    assert set(back) == set(NAMES)
    assert {key: back["trainer_state"][key] for key in plain} == plain
    assert torch.equal(back["trainer_state"]["torch"], torch.get_rng_state())
    # every bit
    assert torch.equal(back["trainer_state"]["odd"].view(torch.int32), odd.view(torch.int32))
    assert back["trainer_state"]["half"].dtype == torch.float16
    for name in REQUIRED[:3]:
        assert all(torch.equal(back[name][key], value) for key, value in net.state_dict().items())
    moments = optimizer.state_dict()
    again = back["actor_optimizer"]
    assert again["param_groups"] == moments["param_groups"]
    assert torch.equal(again["state"][0]["exp_avg_sq"], moments["state"][0]["exp_avg_sq"])


def test_only_the_names_asked_for_are_read(tmp_path):
    write(tmp_path / "run", generation(1))
    (tmp_path / "run" / "Q1").write_bytes(b"")
    assert set(read(tmp_path / "run", names=["actor", "actor_target"])) == {"actor"}


def test_a_new_set_leaves_nothing_of_the_old_and_everything_else(tmp_path):
    write(tmp_path, generation(2))
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    write(tmp_path / "last", generation(4))
    write(tmp_path, generation(5))
    assert generation_in(tmp_path) == 5
    assert generation_in(tmp_path / "last") == 4
    assert {path.name for path in tmp_path.iterdir()} == {
        *REQUIRED,
        MANIFEST,
        "config.yaml",
        "last",
    }
    assert (tmp_path / "config.yaml").read_text() == "seed: 1\n"


@pytest.mark.parametrize("exists", [False, True])
def test_every_file_is_on_the_disk_before_it_counts(tmp_path, monkeypatch, exists):
    """A power cut keeps what was synchronised; so that must have happened before the first
    rename.
    """
    if exists:
        write(tmp_path / "run", generation(2))
    synced = set()
    before = []
    fsync = os.fsync
    rename = os.rename
    monkeypatch.setattr(
        os, "fsync", lambda handle: (synced.add(os.fstat(handle).st_ino), fsync(handle))
    )
    monkeypatch.setattr(os, "rename", lambda *names: (before.append(set(synced)), rename(*names)))
    write(tmp_path / "run", generation(4))
    assert {(tmp_path / "run" / name).stat().st_ino for name in (*NAMES, MANIFEST)} <= before[0]
    assert generation_in(tmp_path / "run") == 4


@posix
def test_killed_anywhere_the_folder_holds_the_old_set_or_the_new(tmp_path, no_fsync):
    write(tmp_path / "run", generation(2))
    seen = []
    lines = 1
    code = -signal.SIGKILL
    while code == -signal.SIGKILL:
        process = start(write_and_die, tmp_path / "run", 3, lines)
        process.join()
        code = process.exitcode
        seen.append(generation_in(tmp_path / "run"))
        # a writer after the death is not disturbed by what it left
        write(tmp_path / "run", generation(2))
        assert generation_in(tmp_path / "run") == 2
        lines += 7
    assert code == 0
    # one commit point: old before it, new after
    assert seen == sorted(seen) and {2, 3} == set(seen[:-1])
    assert {path.name for path in (tmp_path / "run").iterdir()} == {*NAMES, MANIFEST}


@posix
def test_killed_anywhere_a_new_folder_is_complete_or_absent(tmp_path, no_fsync):
    seen = []
    lines = 1
    code = -signal.SIGKILL
    while code == -signal.SIGKILL:
        process = start(write_and_die, tmp_path / f"run{lines}", 2, lines)
        process.join()
        code = process.exitcode
        there = (tmp_path / f"run{lines}").exists()
        seen.append(there)
        if there:
            assert generation_in(tmp_path / f"run{lines}") == 2
        lines += 5
    assert code == 0
    assert seen == sorted(seen) and set(seen) == {False, True}


@posix
def test_killed_at_random_moments_every_set_is_whole_and_none_is_lost(tmp_path, no_fsync):
    moments = random.Random(0)
    latest = 0
    rounds = 0
    while rounds < 25 or latest < 20:
        process = start(write_on, tmp_path / "run", latest + 1)
        time.sleep(moments.uniform(0.0, 0.06))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        rounds += 1
        if (tmp_path / "run").exists():
            assert generation_in(tmp_path / "run") >= latest
            latest = generation_in(tmp_path / "run")


@posix
def test_a_reader_beside_a_writer_sees_whole_sets_only(tmp_path, no_fsync):
    write(tmp_path / "run", generation(0))
    process = start(write_on, tmp_path / "run", 1)
    seen = []
    while len(set(seen)) <= 20:
        assert process.is_alive()
        seen.append(generation_in(tmp_path / "run"))
    process.kill()
    process.join()
    assert seen == sorted(seen)


def write_some(folder: Path, number: int) -> None:
    for step in range(20):
        write(folder, generation(number + step), {"generation": number + step})


@posix
def test_two_writers_do_not_mix(tmp_path, no_fsync):
    processes = [start(write_some, tmp_path / "run", number) for number in (0, 100)]
    while any(process.is_alive() for process in processes):
        if (tmp_path / "run").exists():
            generation_in(tmp_path / "run")
    assert [process.exitcode for process in processes] == [0, 0]
    assert generation_in(tmp_path / "run") in (19, 119)


@posix
def test_a_disk_that_is_full_is_one_line_and_spoils_nothing(tmp_path):
    resource = pytest.importorskip("resource")
    write(tmp_path / "run", generation(2))
    queue = multiprocessing.get_context("fork").SimpleQueue()

    def fill():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            write(tmp_path / "run", generation(3))
        except CheckpointError as error:
            queue.put(str(error))

    process = start(fill)
    process.join(20)
    assert process.exitcode == 0
    # in the system's words, not torch's
    assert queue.get() == "cannot write checkpoint 'run': File too large"
    # no halves that go on filling it
    assert {path.name for path in (tmp_path / "run").iterdir()} == {*NAMES, MANIFEST}
    assert generation_in(tmp_path / "run") == 2


@pytest.mark.parametrize("name", ["old/policy_", "old/policy", "old/run7/"])
def test_the_older_form_is_a_prefix(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.makedirs("old/run7")
    for key, state in generation(3).items():
        torch.save(state, f"{name}{key}")
    assert generation_in(name) == 3
    assert generation_in(find(name)) == 3


def test_a_folder_that_is_no_checkpoint_does_not_hide_a_prefix(tmp_path):
    (tmp_path / "policy" / "logs").mkdir(parents=True)
    for key, state in generation(3).items():
        torch.save(state, tmp_path / f"policy{key}")
    assert generation_in(tmp_path / "policy") == 3


@pytest.mark.parametrize("form", ["{}/", "{}/policy_"])
@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_named_unless_it_can_be_done_without(tmp_path, name, form):
    prefix = form.format(tmp_path)
    for key, state in generation(2).items():
        torch.save(state, f"{prefix}{key}")
    os.remove(f"{prefix}{name}")
    if name in OPTIONAL:
        assert set(read(prefix)) == set(NAMES) - {name}
        return
    with pytest.raises(CheckpointError, match=f"{prefix}{name}'"):
        read(prefix)


def test_a_missing_checkpoint_names_those_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for run in ("checkpoints/run1", "checkpoints/run2/last"):
        write(run, generation(1))
    assert find("run1") == find("checkpoints/run1") == Path("checkpoints/run1")
    for call in (read, find):
        with pytest.raises(
            CheckpointError, match="'checkpoints/run9'; valid choices: checkpoints/run1$"
        ):
            call("checkpoints/run9")
        with pytest.raises(
            CheckpointError, match="'checkpoints/run2'; valid choices: checkpoints/run2/last$"
        ):
            call("checkpoints/run2")
        with pytest.raises(
            CheckpointError,
            match=f"no checkpoint at 'nowhere/run1', and none in '{tmp_path}/nowhere'",
        ):
            call("nowhere/run1")
    with pytest.raises(
        CheckpointError, match="'checkpoints/run9'; valid choices: checkpoints/run1$"
    ):
        find("run9")


def test_a_missing_checkpoint_of_a_run_names_those_of_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("checkpoints/pose", "checkpoints/pose/step_100", "here/run1"):
        write(folder, generation(1))
    choices = "valid choices: checkpoints/pose, checkpoints/pose/step_100$"
    with pytest.raises(CheckpointError, match=f"'checkpoints/pose/step_1'; {choices}"):
        find("pose/step_1")
    with pytest.raises(CheckpointError, match="'here/run2'; valid choices: here/run1$"):
        find("here/run2")


def damaged(content: bytes) -> dict[str, bytes]:
    flipped = bytearray(content)
    flipped[content.index(b"\x00\x00\x80?" * 4)] ^= 1  # in the weights
    cut = {f"cut to {part}%": content[: len(content) * part // 100] for part in (1, 30, 60, 90, 99)}
    noise = random.Random(0).randbytes(3000)
    # which torch would also warn about
    pickled = pickle.dumps({"generation": Path("x")}, protocol=4)
    # of an archive of two, as it says
    disks = content.replace(b"\x01\0\0\0PK\x05\x06", b"\x02\0\0\0PK\x05\x06")
    assert disks != content
    others = {"empty": b"", "text": b"hello world", "noise": noise, "pickle": pickled}
    return cut | others | {"bit": bytes(flipped), "disks": disks}


@pytest.mark.parametrize("older", [False, True])
def test_a_damaged_file_is_named_in_one_line(tmp_path, recwarn, older):
    write(tmp_path, generation(1))
    if older:
        (tmp_path / MANIFEST).unlink()
    file = tmp_path / "Q2"
    for kind, content in damaged(file.read_bytes()).items():
        file.write_bytes(content)
        with pytest.raises(CheckpointError, match="^[^\n]*Q2' is damaged[^\n]*$"):
            pytest.fail(f"{kind}: took {read(tmp_path)['Q2']}")
    assert not recwarn.list


class Malicious:
    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("legacy", [False, True, "plain pickle"])
@pytest.mark.filterwarnings("error")
def test_code_in_a_file_is_refused_and_not_run(tmp_path, legacy):
    write(tmp_path, generation(1))
    (tmp_path / MANIFEST).unlink()  # with it, the file is refused before anything looks into it
    state = {"generation": Malicious(tmp_path / "ran")}
    trap = tmp_path / "actor"
    if legacy == "plain pickle":
        trap.write_bytes(pickle.dumps(state, protocol=2))
    else:
        torch.save(state, trap, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(CheckpointError, match="refused.*actor.*mkdir") as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "ran").exists()
    torch.load(trap, weights_only=False) if legacy != "plain pickle" else pickle.loads(
        trap.read_bytes()
    )
    assert (tmp_path / "ran").exists()  # it would have


def test_a_file_that_is_not_the_one_that_was_written_is_refused(tmp_path):
    write(tmp_path / "run", generation(1), {"of": "one"})
    write(tmp_path / "other", generation(3))
    assert load(tmp_path / "run").metadata == {"of": "one"}
    shutil.copy(tmp_path / "other" / "Q2", tmp_path / "run" / "Q2")  # whole in itself
    with pytest.raises(
        CheckpointError, match="Q2' is damaged: it is not the file that was written, by its SHA-256"
    ):
        read(tmp_path / "run")
    # one that was not written at all
    shutil.copy(tmp_path / "other" / "Q2", tmp_path / "run" / "Q2_target")
    with pytest.raises(CheckpointError, match="Q2_target' is damaged"):
        read(tmp_path / "run", names=["Q2_target"])


@pytest.mark.parametrize(
    "content, reason",
    [
        ("", "is no JSON"),
        ("[1]", "does not give the SHA-256"),
        ('{"format": 1}', "does not give the SHA-256"),
        ('{"format": 1, "sha256": {}, "score": NaN}', "is no JSON"),
        ('{"format": 2, "sha256": {}}', "another version"),
        ("[" * 100_000, "is no JSON"),
        ("\udcff", "is no JSON"),
    ],
)
def test_a_damaged_description_is_one_line(tmp_path, content, reason):
    write(tmp_path, generation(1))
    (tmp_path / MANIFEST).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=f"^[^\n]*{MANIFEST}' is [^\n]*{reason}[^\n]*$"):
        read(tmp_path)


def test_what_is_no_state_dict_is_refused(tmp_path):
    write(tmp_path, generation(1))
    (tmp_path / MANIFEST).unlink()
    torch.save([1, 2], tmp_path / "Q1")
    with pytest.raises(CheckpointError, match="Q1' holds a list"):
        read(tmp_path)


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    numpy = pytest.importorskip("numpy")
    for value in (numpy.float64(1), numpy.zeros(2), {1, 2}, Path("x")):
        with pytest.raises(TypeError, match=r"trainer_state\['a'\]\[1\] is a"):
            write(tmp_path, generation(2) | {"trainer_state": {"a": [0, value]}})
    with pytest.raises(ValueError, match="'Q3'"):
        write(tmp_path, generation(2) | {"Q3": {}})
    with pytest.raises(ValueError, match="needs Q1"):
        write(tmp_path, {"Q2": {}})
    assert list(tmp_path.iterdir()) == []
