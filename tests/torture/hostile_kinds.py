"""What hostile_files.py reads, and how it is spoilt: for each kind a file that is good, and a reader."""

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
import yaml
from attempts import ROOT

import envs
from envs.command_line import EvaluateFlags, TrainFlags
from envs.options import EnvOptions
from td3_robot import TD3, Batch, checkpoint
from td3_robot.arguments import config_of, parse_evaluate, parse_train
from td3_robot.checkpoint import ABOUT
from td3_robot.datasets import load_dataset
from td3_robot.fields import leaves
from td3_robot.provenance import write_provenance
from td3_robot.resume_point import LAST, read_resume_point
from td3_robot.summary import write_summary
from td3_robot.tracking import CsvLog
from td3_robot.verify import verify

MARK = Path(f"/tmp/hostile_code_has_run_{os.getpid()}")  # what the code in a file would make
RUN = f"__import__('pathlib').Path({str(MARK)!r}).touch()"
WORDS = ["nan", "-inf", "1e309", "1e-30", "-1", "0", "9" * 400, "null", "true", "[]", "{}", "[[1]]", "&a [*a]", "*a"]
WORDS += ["!!python/object/apply:os.system [touch x]", f'!!python/object/apply:eval ["{RUN}"]', "<<: *a", "../..", "/"]
WORDS += ["\0", "\udcff", "\x85", "é" * 300, "a" * 5000, "${" + RUN + "}", "$(eval " + RUN + ")", "$(find rviz)", "%s"]
WORDS += ["<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]>", "&b;", "package://a/b.stl", "<a>" * 200]
SPOIL_AS_TEXT = ("config", "urdf", "xacro", "records")
_good: dict[str, dict[str, bytes]] = {}  # the files of each kind, by name


def prepare(kinds: list[str]) -> None:
    """Make the good files and import what reads them."""
    torch.set_num_threads(1)
    for kind in kinds:
        _good[kind] = MAKE[kind]() if kind in MAKE else {}


def remove(folder: str) -> None:
    """A folder of attempts, unless it is what the process is in no more."""
    os.chdir("/")
    shutil.rmtree(folder, ignore_errors=True)


# Good files -------------------------------------------------------------------------------------------------


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _run() -> dict[str, bytes]:
    folder = Path("good_run").absolute()
    agent = TD3(3, 1, hidden=(8,), policy_delay=1, normalize_observations=True)
    agent.update(Batch(torch.rand(4, 3), torch.rand(4, 1), torch.rand(4, 1), torch.rand(4, 3), torch.zeros(4, 1)))
    agent.save(folder, {"trained_on": {"env": "Pendulum-v1"}, "score": {"episode_return": -1.0}, "rewards": None})
    generator = torch.Generator().get_state()
    trainer = {"gradient_steps": 1, "best": [0.0, -1.0], "solved_at_s": None, "wall_s": 1.0}
    trainer |= {"target_generator": generator, "source": {"env_steps": 4, "replay": {"rows": torch.rand(4, 9)}}}
    checkpoint.write(folder / LAST, {**agent.state_dicts(), "trainer_state": trainer}, {"agent": agent.about()})
    metrics = {"env_steps": 4, "gradient_steps": 1, "episode_return": -1.0, "wall_s": 1.0}
    CsvLog(folder).log(metrics)
    write_summary(folder, {**metrics, "finished": True})
    write_provenance(folder, "train.py", ["--run", "a"], {"task": {"tolerance": 0.1, "pair": [1.0, 2.0]}})
    text = "env: Pendulum-v1\nsteps: 1000\ntd3:\n  hidden: [8]\n  normalize_observations: true\nthreads: 1\n"
    (folder / "config.yaml").write_text(text)
    found = _contents(folder)
    shutil.rmtree(folder)
    return found


def _configs() -> dict[str, bytes]:
    paths = [*(ROOT / "configs").glob("*.yaml"), *(ROOT / "configs/gymnasium").glob("*.yaml")]
    found = {f"{number}.yaml": path.read_bytes() for number, path in enumerate(paths)}
    return found | {"config.yaml": yaml.dump({name: str(item.default) for name, item in leaves(EnvOptions)}).encode()}


def _urdf() -> dict[str, bytes]:
    return {"arm.urdf": (ROOT / "tests/envs/data/gantry.urdf").read_bytes()}


def _xacro() -> dict[str, bytes]:
    text = (ROOT / "tests/envs/data/gantry.urdf").read_text()
    begin = text.index("<robot")
    end = text.index(">", begin) + 1
    head = '<robot name="gantry" xmlns:xacro="http://www.ros.org/wiki/xacro"><xacro:property name="long" value="0.5"/>'
    macro = '<xacro:macro name="nothing" params="a:=1"/><xacro:nothing a="${long*2}"/>'
    return {"arm.xacro": (text[:begin] + head + macro + text[end:]).encode()}


def _dataset() -> dict[str, bytes]:
    file, numbers = io.BytesIO(), np.random.default_rng(0)
    columns = {"observations": (20, 3), "actions": (20, 2), "next_observations": (20, 3), "rewards": (20,)}
    arrays = {name: numbers.random(shape).astype(np.float32) for name, shape in columns.items()}
    np.savez(file, **arrays, terminals=np.zeros(20, bool))
    return {"data.npz": file.getvalue()}


def _onnx() -> dict[str, bytes]:
    from attempts import script

    assert script("export").main(["--checkpoint", str(ROOT / "checkpoints/run1"), "--onnx", "good.onnx"]) in (0, None)
    found = {"policy.onnx": Path("good.onnx").read_bytes()}
    Path("good.onnx").unlink()
    return found


MAKE: dict[str, Callable[[], dict[str, bytes]]] = {
    "checkpoint": _run,
    "records": _run,
    "config": _configs,
    "urdf": _urdf,
    "xacro": _xacro,
    "dataset": _dataset,
    "onnx": _onnx,
}


# Spoiling ---------------------------------------------------------------------------------------------------


def spoilt(random: Random, content: bytes, as_text: bool) -> bytes:
    """Some changes of random kinds at random places."""
    data = bytearray(content)
    for _ in range(random.choice([1, 1, 1, 2, 4, 16])):
        at, size = random.randrange(len(data) + 1), random.choice([1, 1, 2, 4, 8, 64])
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
            data[at : at + 4] = random.choice([b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x80", b"\xff\xff\xff\x7f"])
    return bytes(data)


def _put_word(random: Random, data: bytearray) -> None:
    """One of WORDS in the place of a word, or between two lines."""
    word = random.choice(WORDS).encode(errors="surrogatepass")
    marks = [number for number, byte in enumerate(data) if byte in b' ":\n<>=,']
    at = random.choice(marks) + 1 if marks else 0
    end = next((mark for mark in marks if mark >= at), len(data)) if random.random() < 0.7 else at
    data[at:end] = word


def _write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


def _spoil_one(random: Random, folder: Path, kind: str, names: list[str] | None = None) -> str:
    """Write the good files, one of them spoilt; returns which."""
    files = dict(_good[kind])
    name = random.choice(names or sorted(files))
    files[name] = spoilt(random, files[name], kind in SPOIL_AS_TEXT)
    _write(folder, files)
    return name


# Kinds: each writes what is to be read, and returns what reads it ---------------------------------------------


class _Payload:
    def __reduce__(self):
        return eval, (RUN,)


def _of_checkpoint(random: Random, folder: Path) -> Callable[[], object]:
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir()
    states = [name for name in _good["checkpoint"] if Path(name).name in checkpoint.NAMES]
    if random.random() < 0.5:
        name = _spoil_one(random, run, "checkpoint", [*states, ABOUT])
    else:
        _write(run, _good["checkpoint"])
        name = random.choice(states)
        _change_state(random, run / name)
    if random.random() < 0.8 and not name.endswith(ABOUT):
        (run / name).with_name(ABOUT).unlink()  # a stranger can leave it out, so that only the values speak

    def read() -> None:
        if name.startswith(LAST):
            read_resume_point(run)
            TD3.from_checkpoint(run / LAST)
        TD3.from_checkpoint(run).select_action(torch.zeros(3))

    return read


def _change_state(random: Random, path: Path) -> None:
    """Another value, shape, type or name in a state dict, or code in its place."""
    if random.random() < 0.1:
        with zipfile.ZipFile(path) as old:
            parts = {item: old.read(item) for item in old.namelist()}
        with zipfile.ZipFile(path, "w") as new:
            for item, content in parts.items():
                new.writestr(item, pickle.dumps(_Payload()) if item.endswith("data.pkl") else content)
        return
    state = torch.load(path, weights_only=True)
    where, key = state, random.choice(list(state))
    while isinstance(where[key], dict) and where[key] and random.random() < 0.9:
        where = where[key]
        key = random.choice(list(where))
    old, others = where[key], [None, -1, 1e309, "text", [], {}, {"a": 1}, 10**30, True, float("nan")]
    if isinstance(old, torch.Tensor) and random.random() < 0.7:
        poison = random.choice([torch.nan, torch.inf, 1e38, -1e7])
        changes = [
            old.double(),
            old.long(),
            old.flatten()[:-1],
            old.new_zeros(0),
            old.new_zeros(1, 1, 1).expand(9, 9, 9),
        ]
        changes += [torch.full_like(old, 1).mul(poison) if old.is_floating_point() else old - 10**9, old.to_sparse()]
        changes += [torch.zeros(1).as_strided((1,) * old.ndim, (1,) * old.ndim), old[..., None], old.bool()]
        where[key] = random.choice(changes)
    elif random.random() < 0.3:
        del where[key]
    elif random.random() < 0.3:
        where[random.choice(["", "x" * 999, 7, "layers.9.weight"])] = old
    else:
        where[key] = random.choice(others)
    torch.save(state, path)


def _of_records(random: Random, folder: Path) -> Callable[[], object]:
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir()
    _spoil_one(random, run, "records", ["config.yaml", "metrics.csv", "summary.json", "provenance.json", ABOUT])
    constants = {"task": {"tolerance": 0.1, "pair": [1.0, 2.0]}}

    def environment():
        config_of(run, EnvOptions)
        return 3, 1, constants

    return lambda: verify(run, environment)


def _of_config(random: Random, folder: Path) -> Callable[[], object]:
    name = random.choice(sorted(_good["config"]))
    (folder / "config.yaml").write_bytes(spoilt(random, _good["config"][name], as_text=True))

    def read() -> None:
        if random.random() < 0.5:
            parse_train(["--config", "config.yaml"], EnvOptions, TrainFlags)
        else:
            config_of(folder, EnvOptions)

    return read


NAMES = sorted({name for cls in (EnvOptions, TrainFlags, EvaluateFlags) for name, _ in leaves(cls)})


def _of_command_line(random: Random, folder: Path) -> Callable[[], object]:
    from td3_robot.config import Config

    names = [*NAMES, *(name for name, _ in leaves(Config))]
    words = []
    for _ in range(random.randint(1, 5)):
        value = random.choice([*WORDS, "1", "0.5", "reach", "panda", "8,8", "cpu", "Pendulum-v1", "future", "linear"])
        name = random.choice(names)
        words += random.choice([[f"--{name}", value], [f"--{name}={value}"], [value], [f"--{name}"]])
    words = [word.replace("\0", "\\0") if random.random() < 0.5 else word for word in words]
    if random.random() < 0.5:
        return lambda: parse_train(words, EnvOptions, TrainFlags)
    return lambda: parse_evaluate(words, EvaluateFlags)


def _of_robot(kind: str, name: str) -> Callable[[Random, Path], Callable[[], object]]:
    def make(random: Random, folder: Path) -> Callable[[], object]:
        _spoil_one(random, folder, kind)
        return lambda: envs.make(str(folder / name), "reach")

    return make


def _of_dataset(random: Random, folder: Path) -> Callable[[], object]:
    if random.random() < 0.5:
        _spoil_one(random, folder, "dataset")
    else:
        arrays = dict(np.load(io.BytesIO(_good["dataset"]["data.npz"])))
        name = random.choice(list(arrays))
        old = arrays[name]
        changes = [old[:-1], old.astype(complex), old.astype("U9"), old * np.nan, old[..., None], np.array(3), old[:0]]
        changes += [np.array([_Payload()], object), old.astype("M8[s]"), old.astype(np.int8), np.zeros((20, 10**5))]
        arrays[random.choice([name, "x"])] = random.choice(changes)
        np.savez(folder / "data.npz", **arrays)
    return lambda: load_dataset(folder / "data.npz")


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
