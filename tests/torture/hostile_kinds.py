"""What hostile_files.py reads, and how it is spoilt: for each kind what spoils a good file, and a
reader.
"""

import io
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import torch
from hostile_good import GOOD, training, world
from shortcuts import take_shortcuts

import envs
from envs.command_line import EvaluateFlags, TrainFlags
from envs.config.env_options import EnvOptions
from td3_robot import TD3, checkpoint
from td3_robot.checkpoint import CHUNKS, MANIFEST
from td3_robot.checkpoint.resume_point import LAST
from td3_robot.cli.arguments import load_run_config, parse_evaluate, parse_train
from td3_robot.config.field import iter_options
from td3_robot.data.dataset_file import load_dataset
from td3_robot.training.verify import verify

MARK = Path(f"/tmp/hostile_code_has_run_{os.getpid()}")  # what the code in a file would make
RUN = f"__import__('pathlib').Path({str(MARK)!r}).touch()"
WORDS = [
    "nan",
    "-inf",
    "1e309",
    "1e-30",
    "-1",
    "0",
    "9" * 400,
    "null",
    "true",
    "[]",
    "{}",
    "[[1]]",
    "&a [*a]",
    "*a",
]
WORDS += [
    "!!python/object/apply:os.system [touch x]",
    f'!!python/object/apply:eval ["{RUN}"]',
    "<<: *a",
    "../..",
    "/",
]
WORDS += [
    "\0",
    "\udcff",
    "\x85",
    "é" * 300,
    "a" * 5000,
    "${" + RUN + "}",
    "$(eval " + RUN + ")",
    "$(find rviz)",
    "%s",
]
WORDS += [
    "<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]>",
    "&b;",
    "package://a/b.stl",
    "<a>" * 200,
]
SPOIL_AS_TEXT = ("config", "urdf", "xacro", "records")
_good: dict[str, dict[str, bytes]] = {}  # the files of each kind, by name
_there: dict[Path, bytes] = {}  # what this process has put where


def prepare(kinds: list[str]) -> None:
    """Make the good files and import what reads them."""
    import matplotlib.font_manager  # noqa: F401  # it reads a list of fonts when it is imported, whatever is read then

    torch.set_num_threads(1)
    for kind in kinds:
        _good[kind] = GOOD[kind]()
    take_shortcuts(_good.get("checkpoint", {}), _there)


def remove(folder: str) -> None:
    """A folder of attempts, unless it is what the process is in no more."""
    os.chdir("/")
    shutil.rmtree(folder, ignore_errors=True)


# Spoiling


def spoilt(random: Random, content: bytes, as_text: bool) -> bytes:
    """Some changes of random kinds at random places."""
    data = bytearray(content)
    for _ in range(random.choice([1, 1, 1, 2, 4, 16])):
        at = random.randrange(len(data) + 1)
        size = random.choice([1, 1, 2, 4, 8, 64])
        change = random.randrange(7)
        if change == 0 and at < len(data):
            data[at] ^= 1 << random.randrange(8)
        elif change == 1:
            data[at : at + size] = random.randbytes(size)
        elif change == 2:
            del data[at : at + size]
        elif change == 3:
            del data[at:]
        elif change == 4:
            data[at:at] = data[random.randrange(len(data) + 1) :][: size * 8]
        elif as_text:
            _put_word(random, data)
        else:
            data[at : at + 4] = random.choice(
                [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x80", b"\xff\xff\xff\x7f"]
            )
    return bytes(data)


def _put_word(random: Random, data: bytearray) -> None:
    """One of WORDS in the place of a word, or between two lines."""
    word = random.choice(WORDS).encode(errors="surrogatepass")
    marks = [number for number, byte in enumerate(data) if byte in b' ":\n<>=,']
    at = random.choice(marks) + 1 if marks else 0
    end = next((mark for mark in marks if mark >= at), len(data)) if random.random() < 0.7 else at
    data[at:end] = word


def _put(folder: Path, files: dict[str, bytes]) -> None:
    """Have just these files in a folder; what this process has put there before is not written
    again.
    """
    wanted = {folder / name: content for name, content in files.items()}
    for path in _there.keys() - wanted.keys():
        path.unlink()
        del _there[path]
    for path, content in wanted.items():
        if _there.get(path) is not content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            _there[path] = content


def _spoil_one(random: Random, folder: Path, kind: str, names: list[str] | None = None) -> None:
    """Have the good files in a folder, one of them spoilt."""
    files = dict(_good[kind])
    name = random.choice(names or sorted(files))
    files[name] = spoilt(random, files[name], kind in SPOIL_AS_TEXT)
    _put(folder, files)


# Kinds: each writes what is to be read, and returns what reads it


class _Payload:
    def __reduce__(self):
        return eval, (RUN,)


def _of_checkpoint(random: Random, folder: Path) -> Callable[[], object]:
    run = folder / "run"
    files = dict(_good["checkpoint"])
    states = [
        name for name in files if Path(name).name in checkpoint.NAMES or name.startswith(CHUNKS)
    ]
    if random.random() < 0.5:
        name = random.choice([*states, MANIFEST, f"{LAST}/{MANIFEST}"])
        files[name] = spoilt(random, files[name], as_text=False)
    else:
        name = random.choice([state for state in states if not state.startswith(CHUNKS)])
        files[name] = _with_change(random, files[name])
    if random.random() < 0.8 and not name.endswith(MANIFEST):
        # a stranger can leave it out: only the values speak then
        files.pop(str(Path(name).with_name(MANIFEST)), None)
    _put(run, files)

    def read() -> None:
        if name.startswith((LAST, CHUNKS)):
            training(run).resume()
        else:
            agent = TD3.from_checkpoint(run)
            agent.select_action(torch.zeros(agent.o_dim))

    return read


def _with_change(random: Random, content: bytes) -> bytes:
    """A state dict with another value, shape, type or name somewhere, or with code in its place."""
    if random.random() < 0.1:
        file = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w") as new:
            for item in old.namelist():
                new.writestr(
                    item, pickle.dumps(_Payload()) if item.endswith("data.pkl") else old.read(item)
                )
        return file.getvalue()
    state = torch.load(io.BytesIO(content), weights_only=True)
    where = state
    key = random.choice(list(state))
    while isinstance(where[key], dict | list) and where[key] and random.random() < 0.9:
        where = where[key]
        key = random.choice(list(where) if isinstance(where, dict) else range(len(where)))
    old = where[key]
    if isinstance(old, torch.Tensor) and random.random() < 0.7:
        where[key] = random.choice(_other_tensors(random, old))
    elif isinstance(where, dict) and random.random() < 0.3:
        del where[key]
    elif isinstance(where, dict) and random.random() < 0.3:
        where[random.choice(["", "x" * 999, 7, "layers.9.weight"])] = old
    else:
        where[key] = random.choice(
            [None, -1, 1e309, "text", [], {}, {"a": 1}, 10**30, True, float("nan"), 10**9]
        )
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def _other_tensors(random: Random, old: torch.Tensor) -> list[torch.Tensor]:
    """What a tensor may be exchanged for."""
    poison = random.choice([torch.nan, torch.inf, 1e38, -1e7])
    spoilt = torch.full_like(old, 1).mul(poison) if old.is_floating_point() else old.long() - 10**9
    others = [
        old.double(),
        old.long(),
        old.flatten()[:-1],
        old.new_zeros(0),
        spoilt,
        old[..., None],
        old.bool(),
    ]
    others += [
        old.new_zeros(1, 1, 1).expand(9, 9, 9),
        torch.zeros(1).as_strided((1,) * old.ndim, (1,) * old.ndim),
    ]
    return [
        *others,
        old.to_sparse(),
        old[:0] if old.ndim else old[None],
        torch.cat((old, old)) if old.ndim else old,
    ]


def _of_records(random: Random, folder: Path) -> Callable[[], object]:
    run = folder / "run"
    _spoil_one(
        random,
        run,
        "records",
        ["config.yaml", "metrics.csv", "summary.json", "provenance.json", MANIFEST],
    )
    constants = {"task": {"tolerance": 0.1, "pair": [1.0, 2.0]}}

    def environment():
        load_run_config(run, EnvOptions)
        return world().o_dim, world().a_dim, constants

    return lambda: verify(run, environment)


def _of_config(random: Random, folder: Path) -> Callable[[], object]:
    name = random.choice(sorted(_good["config"]))
    (folder / "config.yaml").write_bytes(spoilt(random, _good["config"][name], as_text=True))

    def read() -> None:
        if random.random() < 0.5:
            parse_train(["--config", "config.yaml"], EnvOptions, TrainFlags)
        else:
            load_run_config(folder, EnvOptions)

    return read


NAMES = sorted(
    {name for cls in (EnvOptions, TrainFlags, EvaluateFlags) for name, _ in iter_options(cls)}
)


def _of_command_line(random: Random, folder: Path) -> Callable[[], object]:
    from td3_robot.config.run import Config

    names = [*NAMES, *(name for name, _ in iter_options(Config))]
    words = []
    for _ in range(random.randint(1, 5)):
        value = random.choice(
            [*WORDS, "1", "0.5", "reach", "panda", "8,8", "cpu", "Pendulum-v1", "future", "linear"]
        )
        name = random.choice(names)
        words += random.choice(
            [[f"--{name}", value], [f"--{name}={value}"], [value], [f"--{name}"]]
        )
    words = [word.replace("\0", "\\0") if random.random() < 0.5 else word for word in words]
    return command_line(words, trains=random.random() < 0.5)


def command_line(words: list[str], trains: bool) -> Callable[[], object]:
    """What reads the words of a command line."""
    return lambda: (
        parse_train(words, EnvOptions, TrainFlags)
        if trains
        else parse_evaluate(words, EvaluateFlags)
    )


def _of_robot(kind: str, name: str) -> Callable[[Random, Path], Callable[[], object]]:
    def make(random: Random, folder: Path) -> Callable[[], object]:
        _spoil_one(random, folder, kind)
        return lambda: envs.make(str(folder / name), "reach")

    return make


def _of_dataset(random: Random, folder: Path) -> Callable[[], object]:
    if random.random() < 0.5:
        _spoil_one(random, folder, "dataset")
    else:
        _put(folder, {"data.npz": _with_other_array(random, _good["dataset"]["data.npz"])})
    return lambda: load_dataset(folder / "data.npz")


def _with_other_array(random: Random, content: bytes) -> bytes:
    """A dataset in which an array is another, or is one more."""
    arrays = dict(np.load(io.BytesIO(content)))
    file = io.BytesIO()
    name = random.choice(list(arrays))
    old = arrays[name]
    changes = [
        old[:-1],
        old.astype(complex),
        old.astype("U9"),
        old * np.nan,
        old[..., None],
        np.array(3),
        old[:0],
    ]
    changes += [
        np.array([_Payload()], object),
        old.astype("M8[s]"),
        old.astype(np.int8),
        np.zeros((20, 10**4)),
    ]
    arrays[random.choice([name, "x"])] = random.choice(changes)
    np.savez(file, **arrays)
    return file.getvalue()


def _of_onnx(random: Random, folder: Path) -> Callable[[], object]:
    from td3_robot.deploy import Policy

    _spoil_one(random, folder, "onnx")

    def read() -> None:
        policy = Policy.load(folder / "policy.onnx")
        policy(policy.robot.home, np.zeros(7), 0.0, np.array([0.5, 0.0, 0.5]))

    return read


KINDS: dict[str, Callable[[Random, Path], Callable[[], object]]] = {
    "checkpoint": _of_checkpoint,
    "records": _of_records,
    "config": _of_config,
    "command_line": _of_command_line,
    "urdf": _of_robot("urdf", "arm.urdf"),
    "xacro": _of_robot("xacro", "arm.xacro"),
    "dataset": _of_dataset,
    "onnx": _of_onnx,
}
