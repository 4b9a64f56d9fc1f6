"""A replay on disk: written piece by piece, each once; whenever the process dies, the old resume
point or the new.
"""

import os
import random
import time

import pytest
import torch

from td3_robot import TD3, checkpoint
from td3_robot.checkpoint import CHUNKS, load_chunks, save_chunks
from td3_robot.checkpoint import replay_chunks as rows
from td3_robot.checkpoint.resume_point import LAST, read_resume_point, write_resume_point
from td3_robot.errors import CheckpointError
from td3_robot.replay import ReplayBuffer
from td3_robot.training.verify import WRONG, verify
from tests.td3_robot.conftest import OnStep

ENVS = 2
WIDTH = 2 * 3 + 1 + 3  # columns of a transition with 3 observations and 1 action
SLOT = 4 * ENVS * WIDTH  # bytes of a time step


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Of five time steps."""
    monkeypatch.setattr(rows, "CHUNK_BYTES", 5 * SLOT + 3)


@pytest.fixture
def quick(no_fsync):
    """For what is not about power cuts."""


def ring(slots: int = 23) -> ReplayBuffer:
    return ReplayBuffer(slots * ENVS, ENVS, 3, 1, "cpu", torch.Generator().manual_seed(0))


def put(buffer: ReplayBuffer, count: int) -> None:
    for _ in range(count):
        rows = [torch.randn(ENVS, width) for width in (3, 1, 3)]
        buffer.add(rows[0], rows[1], torch.randn(ENVS), rows[2], *torch.rand(2, ENVS) < 0.1)


def whole(buffer: ReplayBuffer) -> torch.Tensor:
    return buffer.state_dict()["rows"]


def files(folder) -> dict[str, tuple[int, int]]:
    """What is there, and whether it is the very file that it was."""
    found = list((folder / CHUNKS).iterdir()) if (folder / CHUNKS).exists() else []
    return {path.name: (path.stat().st_ino, path.stat().st_size) for path in found}


def test_what_was_written_is_read_at_any_time_of_the_run(tmp_path, quick):
    buffer = ring()
    counts = random.Random(0)
    for _ in range(30):
        put(buffer, counts.randint(1, 9))
        if counts.random() < 0.3:
            buffer.end_episodes()  # changes the newest row that is there
        saved = save_chunks(tmp_path, {"replay": buffer.state_dict(), "env_steps": 7})
        checkpoint.prune_chunks(tmp_path, checkpoint.list_chunks(saved))
        back = load_chunks(tmp_path, saved)
        assert back["env_steps"] == 7 and back["replay"].keys() == buffer.state_dict().keys()
        assert torch.equal(back["replay"]["rows"], whole(buffer))
        restored = ring()
        restored.load_state_dict(back["replay"])
        assert torch.equal(whole(restored), whole(buffer))
        assert len(saved["replay"]["rows"]) < 2 * 5 and set(files(tmp_path)) == set(
            saved["replay"]["pieces"]
        )
        if counts.random() < 0.3:
            buffer = restored


def test_a_save_writes_what_is_new_and_removes_what_the_ring_has_gone_over(tmp_path, quick):
    buffer = ring(23)
    seen = []
    for _ in range(12):
        put(buffer, 5)
        saved = save_chunks(tmp_path, {"replay": buffer.state_dict()})
        checkpoint.prune_chunks(tmp_path, checkpoint.list_chunks(saved))
        seen.append(files(tmp_path))
    for before, after in zip(seen, seen[1:]):
        kept = before.keys() & after.keys()
        assert len(after) - len(kept) == 1 and all(before[name] == after[name] for name in kept)
    assert [len(names) for names in seen] == [1, 2, 3, 4, *[4] * 8]
    assert {size for _, size in seen[-1].values()} == {5 * SLOT}


def test_the_replays_of_several_processes_are_told_apart(tmp_path, quick):
    buffers = [ring(), ring()]
    for count, buffer in zip((11, 30), buffers):
        put(buffer, count)
    ranks = [
        {"source": {"replay": buffer.state_dict()}, "target_generator": 1} for buffer in buffers
    ]
    back = load_chunks(tmp_path, save_chunks(tmp_path, {"ranks": [*ranks, None]}))
    assert back["ranks"][2] is None
    for rank, buffer in zip(back["ranks"], buffers):
        assert torch.equal(rank["source"]["replay"]["rows"], whole(buffer))


def test_a_replay_of_ones_own_stays_as_it_is(tmp_path):
    for replay in (
        {"rows": [1, 2]},
        {"rows": torch.zeros(99, 2, 9), "first": None},
        {"anything": 1},
        None,
    ):
        assert (
            save_chunks(tmp_path, {"replay": replay}) == {"replay": replay}
            and not (tmp_path / CHUNKS).exists()
        )


def stopped(train, folder, steps: int, **options):
    """A training of the toy environment with many pieces, stopped on its way."""
    trainer = train(
        folder,
        callbacks=[OnStep(lambda made: trainer.stop() if made == steps else None)],
        **options,
    )
    return trainer


def test_stopped_and_resumed_a_training_ends_as_the_one_that_nobody_stopped(
    tmp_path, train, quick, assert_same
):
    one = train(tmp_path / "whole")
    one.run()
    for sitting, stop in enumerate((60, 64, 300, None)):
        trainer = stopped(
            train, tmp_path / "cut", stop, agent_seed=sitting or None, save_every=0.01
        )
        if sitting:
            assert trainer.resume() == []
        trainer.run()
        # of two steps each
        assert len(files(tmp_path / "cut")) == {60: 7, 64: 8, 300: 18, None: 0}[stop]
    assert_same(trainer.agent.state_dicts(), one.agent.state_dicts())
    assert not (tmp_path / "cut" / CHUNKS).exists()  # a run that is through needs none


def test_what_is_damaged_or_missing_is_one_line(tmp_path, train, quick):
    stopped(train, tmp_path, 300).run()
    piece = sorted((tmp_path / CHUNKS).iterdir())[3]
    content = piece.read_bytes()
    for spoilt in (
        content[:-1],
        content + b"\0",
        b"",
        bytes([content[0] ^ 1]) + content[1:],
        bytes(10**6),
    ):
        piece.write_bytes(spoilt)
        with pytest.raises(
            CheckpointError, match=f"{piece.name}' is damaged: it is not the file that was written"
        ):
            train(tmp_path).resume()
    piece.unlink()
    with pytest.raises(
        CheckpointError, match=f"cannot read '.*{piece.name}': No such file or directory"
    ):
        train(tmp_path).resume()
    assert [
        found.what for found in verify(tmp_path, lambda: (3, 2, {})) if found.state == WRONG
    ] == ["resume point"]


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "a" * 63, "", 3, None])
def test_a_name_of_a_stranger_leads_nowhere(tmp_path, train, quick, name):
    stopped(train, tmp_path, 300).run()
    states, metadata = checkpoint.load(tmp_path / LAST)
    states["trainer_state"]["source"]["replay"]["pieces"][0] = name
    checkpoint.write(tmp_path / LAST, states, metadata)
    with pytest.raises(CheckpointError):
        train(tmp_path).resume()


def resume_point(number: int) -> tuple[dict, TD3]:
    """Of a training with so many time steps."""
    torch.manual_seed(0)
    buffer = ring()
    agent = TD3(3, 1, hidden=(4,), seed=number)
    put(buffer, number)
    entries = dict.fromkeys(
        ("gradient_steps", "best", "solved_at_s", "wall_s", "target_generator"), number
    )
    return {
        **agent.state_dicts(),
        "trainer_state": {**entries, "source": {"replay": buffer.state_dict()}},
    }, agent


def kept_after(folder, die_at: int | None, error: OSError | None = None) -> int:
    """Write the second of two resume points; the process dies, or a full disk stops it, at a call
    of the system.
    """
    states, _ = resume_point(41)
    names = ("fsync", *(() if error else ("rename", "replace", "unlink", "rmdir", "mkdir")))
    count = 0

    def counted(call):
        def instead(*arguments, **options):
            nonlocal count
            count += 1
            if count == die_at:
                if error is None:
                    os._exit(9)
                raise error
            return call(*arguments, **options)

        return instead

    if error is None and (child := os.fork()):
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(os, name, counted(getattr(os, name)))
        try:
            write_resume_point(folder, states, {})
        finally:
            if error is None:
                os._exit(0)
    return 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_anywhere_the_old_resume_point_is_there_or_the_new(tmp_path, no_fsync):
    before = resume_point(33)[0]
    seen = []
    code = 9
    calls = 0
    after = resume_point(41)[0]
    wholes = {33: before, 41: after}
    while code == 9:
        calls += 2
        write_resume_point(tmp_path, before, {})
        assert len(files(tmp_path)) == len(
            checkpoint.list_chunks(checkpoint.read(tmp_path / LAST)["trainer_state"]["source"])
        )
        code = kept_after(tmp_path, calls)
        states, state = read_resume_point(tmp_path)
        number = state["gradient_steps"]
        assert torch.equal(
            state["source"]["replay"]["rows"],
            wholes[number]["trainer_state"]["source"]["replay"]["rows"],
        )
        assert torch.equal(
            states["actor"]["layers.0.weight"], wholes[number]["actor"]["layers.0.weight"]
        )
        seen.append(number)
    assert code == 0 and seen == sorted(seen) and set(seen[:-1]) == {33, 41} and calls > 20


def test_a_disk_that_is_full_keeps_the_old_rows_and_no_new_ones(tmp_path, no_fsync):
    before = resume_point(33)[0]
    write_resume_point(tmp_path, before, {})
    old = files(tmp_path)
    for calls in range(1, 12):
        with pytest.raises(CheckpointError, match="No space left on device"):
            kept_after(tmp_path, calls, OSError(28, "No space left on device"))
        assert files(tmp_path) == old
        state = read_resume_point(tmp_path)[1]
        assert torch.equal(
            state["source"]["replay"]["rows"], before["trainer_state"]["source"]["replay"]["rows"]
        )


def test_the_first_save_of_a_run_leaves_nothing_on_a_full_disk(tmp_path, no_fsync):
    with pytest.raises(CheckpointError, match="No space left on device"):
        kept_after(tmp_path, 6, OSError(28, "No space left on device"))
    assert files(tmp_path) == {}


def test_what_a_kill_left_of_a_save_is_cleared_away_when_the_run_goes_on(tmp_path, train, quick):
    stopped(train, tmp_path, 300).run()
    kept = files(tmp_path)
    for name in ("0" * 64, ".123456789-" + "0" * 64):
        (tmp_path / CHUNKS / name).write_bytes(b"half")
    read_resume_point(tmp_path)  # who only looks changes nothing
    assert len(files(tmp_path)) == len(kept) + 2
    train(tmp_path).resume()
    assert files(tmp_path) == kept


def test_where_a_save_comes_between_the_newer_resume_point_is_read(tmp_path, no_fsync, monkeypatch):
    write_resume_point(tmp_path, resume_point(33)[0], {})
    read = rows._read

    def late(*arguments):
        monkeypatch.setattr(rows, "_read", read)
        write_resume_point(tmp_path, resume_point(41)[0], {})
        return read(*arguments)

    monkeypatch.setattr(rows, "_read", late)
    assert read_resume_point(tmp_path)[1]["gradient_steps"] == 41


@pytest.mark.slow
def test_a_million_transitions_are_saved_in_two_seconds_and_once(tmp_path, monkeypatch):
    """reach on a Panda: 28 observations, 8 actions, 64 environments; 60 s of a training are about
    200,000 steps.
    """
    monkeypatch.undo()
    envs = 64
    o_dim = 28
    a_dim = 8
    buffer = ReplayBuffer(1_000_000, envs, o_dim, a_dim, "cpu", torch.Generator())

    def more(steps):
        return buffer.fill(
            *(torch.randn(steps, envs, width) for width in (o_dim, a_dim)),
            torch.randn(steps, envs),
            torch.randn(steps, envs, o_dim),
            *torch.rand(2, steps, envs) < 0.01,
        )

    states, _ = resume_point(1)
    more(20_000)
    for _ in range(3):
        more(200_000 // envs)
        states["trainer_state"]["source"]["replay"] = buffer.state_dict()
        began = time.monotonic()
        write_resume_point(tmp_path, states, {})
        seconds = time.monotonic() - began
    on_disk = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    print(f"{seconds:.2f} s, {on_disk / 1e6:.0f} MB of {buffer.rows.nbytes / 1e6:.0f} MB")
    assert seconds < 2.0 and on_disk < 1.1 * buffer.rows.nbytes
