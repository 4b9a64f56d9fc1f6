"""Make a policy ready for a robot: `python export.py --checkpoint checkpoints/run1`. See `python
export.py --help`.
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.command_line import import_plugins
from envs.config.disturbance_options import DISTURBANCES
from envs.config.env_options import NOTHING, EnvOptions
from td3_robot.checkpoint import find
from td3_robot.cli.arguments import load_run_config
from td3_robot.config.schema import build, make_schema
from td3_robot.errors import ConfigError
from td3_robot.utils.console import run_script

VECTORS = 10  # test vectors in a file


@dataclass(frozen=True)
class Arguments:
    """What to export.

    Attributes:
        checkpoint: Required: run name, checkpoint folder, or common prefix of the older checkpoint
            files.
        onnx: File to write, or the folder for policy.onnx; by default policy.onnx in the
            checkpoint's folder.
        acceleration: Limit of every joint in rad/s2, for a robot whose own file has none, as URDFs
            do.
        plugins: Modules to import first, separated by commas, as they register tasks of one's own;
            they are looked for on PYTHONPATH.
        robot: Write this robot's description to td3_robot/deploy/robot/robots/, in place of a
            policy.
    """

    checkpoint: Path | None = None
    onnx: Path | None = None
    acceleration: float | None = None
    plugins: tuple[str, ...] = ()
    robot: str | None = None


def main(argv: list[str]) -> int:
    """Parse, build, export. Returns the exit code."""
    asked = build(
        Arguments,
        make_schema("export.py", "Make a policy ready for a robot.", Arguments).read_flags(argv),
    )
    import_plugins(asked.plugins)
    if asked.robot is not None:
        return _describe(asked.robot, asked.acceleration)
    if asked.checkpoint is None:
        raise ConfigError("--checkpoint is missing: name a run, a folder or a file prefix")
    checkpoint = find(asked.checkpoint)
    _, options = load_run_config(checkpoint, EnvOptions)
    if options.env is not None:
        raise ConfigError(
            f"{str(checkpoint)!r} is of {options.env!r}; only policies of our own robots are exported"
        )

    import torch

    import envs
    from envs.export.robot_description import describe, describe_task, vectors
    from td3_robot import TD3
    from td3_robot.deploy import DeployError, Robot
    from td3_robot.deploy.observation.observation import Observation
    from td3_robot.deploy.policy import FILE, FORMAT, Policy
    from td3_robot.td3.onnx_export import Commanded, origin, write_onnx

    path = asked.onnx or (checkpoint if checkpoint.is_dir() else checkpoint.parent)
    path = path / FILE if path.is_dir() else path
    agent = TD3.from_checkpoint(checkpoint)
    undisturbed = dataclasses.replace(
        options, randomize=NOTHING, **dict.fromkeys(DISTURBANCES)
    )  # as it is measured
    env: Any = envs.make_from_config(undisturbed, VECTORS, seed=0)
    agent.require(env.o_dim, env.a_dim, f"checkpoint {str(checkpoint)!r}")
    grip = (
        env.a_dim - env.robot.n
    )  # 1 where the task moves the gripper: [-1, 1] becomes its opening in [0, 1]
    scale = torch.cat((env.model.qdlim, torch.full((grip,), 0.5)))
    module = Commanded(
        agent.policy, scale, torch.cat((torch.zeros(env.robot.n), torch.full((grip,), 0.5)))
    ).eval()
    metadata = {
        "format": FORMAT,
        "robot": describe(env.robot, asked.acceleration),
        **describe_task(options.task, env),
        **origin(checkpoint, agent.config.policy),
        "simulator": {name: getattr(options, name) for name in ("robot", "gripper", "tcp")},
    }
    beside = path.with_name(
        f".{path.name}"
    )  # an older file stays until the new one is known to be good
    try:
        see = Observation(Robot.of(metadata["robot"]), metadata)
        with torch.no_grad():
            metadata["test_vectors"] = vectors(env, see.scene, module)
        write_onnx(module, env.o_dim, metadata, beside)
        Policy.load(beside)
        beside.replace(path)
    except DeployError as error:
        raise ConfigError(str(error)) from None
    finally:
        beside.unlink(missing_ok=True)
    print(
        f"{path}: {options.robot}, {options.task}, {path.stat().st_size / 1024:.0f} KiB; its test vectors are met"
    )
    return 0


def _describe(name: str, acceleration: float | None) -> int:
    """Write what td3_robot.deploy knows of a robot."""
    import envs
    from envs.export.robot_description import describe
    from td3_robot.deploy.robot.description import ROBOTS
    from td3_robot.utils.atomic_files import write_text

    values = describe(envs.make_robot(name), acceleration)
    path = ROBOTS / f"{values['name']}.json"
    write_text(path, json.dumps(values, separators=(",", ":")) + "\n")
    print(
        f"{path}: {len(values['joints'])} joints, {'no' if values['capsules'] is None else 'its'} capsules"
    )
    return 0


if __name__ == "__main__":
    run_script(main)
