"""The good files that hostile_files.py spoils, by kind and name."""

import dataclasses
import functools
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import yaml
from attempts import ROOT, script

import envs
from envs.config.env_options import EnvOptions
from td3_robot import TD3
from td3_robot.checkpoint import replay_chunks as rows
from td3_robot.checkpoint.provenance import write_provenance
from td3_robot.checkpoint.summary import write_summary
from td3_robot.config.field import iter_options
from td3_robot.config.run import (
    Config,
    EvaluationConfig,
    ExplorationConfig,
    ReplayConfig,
    RewardConfig,
    TD3Config,
)
from td3_robot.data.mixed import make_source
from td3_robot.loggers.csv import CsvLog
from td3_robot.training.callbacks import StopAt
from td3_robot.training.trainer import Trainer

CONFIG = Config(
    num_envs=2,
    steps=200,
    save_every=1e9,
    td3=TD3Config(hidden=(8,), normalize_observations=True),
    replay=ReplayConfig(capacity=60, batch_size=4, prioritized=True),
    reward=RewardConfig(normalize=True),
    exploration=ExplorationConfig(start_steps=20, kind="ou", per_env=True, uncertainty=True),
    evaluation=EvaluationConfig(episodes=0),
)
PIECE = 4 * 2 * 100 * 4  # [bytes], some of which make the replay


@functools.cache
def world():
    """Two arms to train on."""
    return envs.make("panda", "reach", CONFIG.num_envs)


def training(folder: Path) -> Trainer:
    """A small training, to be run or resumed."""
    env = world()
    agent = TD3(env.o_dim, env.a_dim, **dataclasses.asdict(CONFIG.td3))
    return Trainer(agent, make_source(agent, env, CONFIG), None, CONFIG, folder)


def _run() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as place, mock.patch.object(rows, "CHUNK_BYTES", PIECE):
        folder = Path(place) / "run"
        trainer = training(folder)
        folder.mkdir()
        trainer.callbacks = [StopAt(70, 0, CONFIG.steps)]
        trainer.run()
        metrics = {
            "env_steps": 70,
            "gradient_steps": trainer.agent.gradient_steps,
            "episode_return": -1.0,
        }
        CsvLog(folder).log({**metrics, "wall_s": 1.0})
        write_summary(folder, {**metrics, "wall_s": 1.0, "finished": True})
        write_provenance(
            folder, "train.py", ["--run", "a"], {"task": {"tolerance": 0.1, "pair": [1.0, 2.0]}}
        )
        text = "env: Pendulum-v1\nsteps: 1000\nthreads: 1\n"
        text += "td3:\n  hidden: [8]\n  normalize_observations: true\n"
        (folder / "config.yaml").write_text(text)
        paths = [path for path in folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def _configs() -> dict[str, bytes]:
    paths = [
        path for place in ("", "gymnasium") for path in (ROOT / "configs" / place).glob("*.yaml")
    ]
    found = {f"{number}.yaml": path.read_bytes() for number, path in enumerate(paths)}
    return found | {
        "config.yaml": yaml.dump(
            {name: str(item.default) for name, item in iter_options(EnvOptions)}
        ).encode()
    }


def _urdf() -> dict[str, bytes]:
    return {"arm.urdf": (ROOT / "tests/envs/data/gantry.urdf").read_bytes()}


def _xacro() -> dict[str, bytes]:
    text = _urdf()["arm.urdf"].decode()
    begin = text.index("<robot")
    end = text.index(">", begin) + 1
    head = '<robot name="gantry" xmlns:xacro="http://www.ros.org/wiki/xacro">'
    head += '<xacro:property name="long" value="0.5"/>'
    macro = '<xacro:macro name="nothing" params="a:=1"/><xacro:nothing a="${long*2}"/>'
    return {"arm.xacro": (text[:begin] + head + macro + text[end:]).encode()}


def _dataset() -> dict[str, bytes]:
    file = io.BytesIO()
    numbers = np.random.default_rng(0)
    columns = {
        "observations": (20, 3),
        "actions": (20, 2),
        "next_observations": (20, 3),
        "rewards": (20,),
    }
    arrays = {name: numbers.random(shape).astype(np.float32) for name, shape in columns.items()}
    np.savez(file, **arrays, terminals=np.zeros(20, bool))
    return {"data.npz": file.getvalue()}


def _onnx() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "policy.onnx"
        code = script("export").main(
            ["--checkpoint", str(ROOT / "checkpoints/run1"), "--onnx", str(path)]
        )
        assert code in (0, None)
        return {"policy.onnx": path.read_bytes()}


GOOD: dict[str, Callable[[], dict[str, bytes]]] = {
    "checkpoint": _run,
    "records": _run,
    "config": _configs,
    "command_line": dict,
    "urdf": _urdf,
    "xacro": _xacro,
    "dataset": _dataset,
    "onnx": _onnx,
}
