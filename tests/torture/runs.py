"""Small trainings for the scripts of this folder, and what must hold of their folders at every
moment.
"""

import functools
from collections.abc import Sequence
from pathlib import Path

import torch

from td3_robot import checkpoint
from td3_robot.checkpoint import replay_chunks as pieces
from td3_robot.checkpoint.resume_point import LAST, get_source_states, read_resume_point
from td3_robot.loggers.csv import read_metrics
from td3_robot.training.verify import WRONG, verify

NAMES = tuple(name for name in checkpoint.NAMES if name != "trainer_state")
_NATIVE = "--robot panda --num_envs 8"
_WHAT = {"native": _NATIVE, "ranks": _NATIVE, "gymnasium": "--env Pendulum-v1 --num_envs 4"}


def line(kind: str, steps: int = 960) -> list[str]:
    """The command line of a small training: of our own simulator, which resumes exactly, or of a
    Gymnasium one.

    Args:
        kind: native, gymnasium or ranks; the last is for several processes, and is of our own, too.
    """
    often = f"--run r --steps {steps} --save_every 0.03"
    often += f" --evaluation.every {steps // 3} --evaluation.episodes 2"
    small = (
        "--td3.hidden 16 --replay.batch_size 32 --exploration.start_steps 100 --schedule.lr linear"
    )
    return f"{_WHAT[kind]} {often} {small}".split()


def warm_up(robots: Sequence[str] = ("panda",)) -> None:
    """Import what a training imports, and make what it is made of."""
    import tensorboard.compat.proto.event_pb2  # noqa: F401
    import tensorboard.summary.writer.record_writer  # noqa: F401
    import torch.distributed  # noqa: F401
    from matplotlib.figure import Figure  # noqa: F401

    import envs
    import envs.from_gymnasium  # noqa: F401
    from envs.robots import make

    torch.set_num_threads(1)
    pieces.CHUNK_BYTES = 100_000  # so that small replays are in pieces, too
    # a robot takes longer than anything else before a first step
    make._make_registered = functools.cache(make._make_registered)
    for robot in robots:
        envs.make(robot, "reach", 2)


def weights(folder: Path) -> dict[str, object]:
    """All that a checkpoint holds, by its path, but for its trainer's state."""
    return tensors_of(checkpoint.read(folder, NAMES))


def tensors_of(state: object, but: tuple[str, ...] = (), path: str = "") -> dict[str, object]:
    """The tensors and plain values in nested states, by their path; entries of the names in `but`
    are left out.
    """
    if isinstance(state, list | tuple):
        state = dict(enumerate(state))
    if not isinstance(state, dict):
        return {path: state}
    kept = {key: item for key, item in state.items() if key not in but}
    return {
        name: leaf
        for key, item in kept.items()
        for name, leaf in tensors_of(item, but, f"{path}.{key}").items()
    }


def differing(left: dict[str, object], right: dict[str, object]) -> list[str]:
    """Where two checkpoints differ by a bit."""
    return [
        name for name in left.keys() | right.keys() if not _same(left.get(name), right.get(name))
    ]


def _same(left: object, right: object) -> bool:
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return left.dtype == right.dtype and left.numpy().tobytes() == right.numpy().tobytes()
    return repr(left) == repr(right)


def rows(folder: Path) -> list[str]:
    """The curve of a run in every digit, but for its clocks."""
    clocks = {"wall_s", "env_steps_per_s", "updates_per_s", "left_s"}
    return [
        repr({name: row[name] for name in row if name not in clocks})
        for row in read_metrics(folder)
    ]


def broken(run: Path, saved: int, processes: int = 1) -> tuple[str | None, int]:
    """What is wrong with a run folder whose process may have died at any moment, and the steps of
    its resume point.

    Args:
        run: the folder; it need not be there.
        saved: the steps that it had before.
        processes: that train it together.
    """
    if not run.exists() or not any((run / name).exists() for name in checkpoint.REQUIRED):
        return ("a checkpoint that was there is gone" if saved else None), 0
    found = [finding for finding in verify(run, lambda: (0, 0, {})) if finding.state == WRONG]
    if wrong := [finding for finding in found if finding.what not in ("environment", "leftovers")]:
        return f"{wrong[0].what}: {wrong[0].text}", saved
    if not (run / LAST).exists():
        return ("the resume point is gone" if saved else None), 0
    steps = sum(
        source["env_steps"] for source in get_source_states(read_resume_point(run, processes)[1])
    )
    return (f"the resume point went back from {saved} to {steps}" if steps < saved else None), steps
