"""Make a policy ready for a robot: `python export.py --checkpoint checkpoints/run1`. See `python
export.py --help`.
"""

import base64
import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from envs.command_line import import_plugins
from envs.config.assignments import parse_assignments
from envs.config.disturbance_options import DISTURBANCES
from envs.config.env_options import ACCELERATION, NOTHING, EnvOptions
from td3_robot.checkpoint import find
from td3_robot.cli.arguments import load_run_config
from td3_robot.config.field import Range, check, option
from td3_robot.config.schema import build, make_schema
from td3_robot.errors import ConfigError, require_packages
from td3_robot.utils.atomic_files import check_writable, replace_file, write_text
from td3_robot.utils.console import get_program
from td3_robot.utils.torch_import import import_torch

VECTORS = 10  # test vectors in a file


@dataclass(frozen=True)
class Arguments:
    """Export.

    Which policy is written, and to which file.

    Attributes:
        checkpoint: Required: run name, checkpoint folder, or common prefix of the older checkpoint
            files.
        onnx: File to write, or the folder for policy.onnx; by default policy.onnx in the
            checkpoint's folder.
        acceleration: Limit of every joint in rad/s2, for a robot whose own file has none.
        xacro: Arguments of the robot's xacro file, KEY=VALUE ..., instead of the training's.
        plugins: Modules to import first, separated by commas, for example to register your own
            tasks; they are found on PYTHONPATH.
        robot: Write this robot's description to td3_robot/deploy/robot/robots/ instead of a policy.
    """

    EXAMPLES: ClassVar = (
        ("--checkpoint run1", "write checkpoints/run1/policy.onnx"),
        ("--checkpoint run1 --onnx reach.onnx", "write another file"),
        ("--checkpoint mine --acceleration 5", "the arm's own file has no acceleration limits"),
    )

    checkpoint: Path | None = None
    onnx: Path | None = None
    acceleration: float | None = option(None, Range(*ACCELERATION))
    xacro: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    robot: str | None = None

    def __post_init__(self):
        check(self)


def main(argv: list[str]) -> int:
    """Parse, build, export. Returns the exit code."""
    options = build(
        Arguments,
        make_schema(
            get_program("export"), "Make a policy ready for a robot.", Arguments
        ).read_flags(argv),
    )
    import_plugins(options.plugins)
    if options.robot is not None and (options.checkpoint or options.onnx):
        raise ConfigError(
            "--robot writes a robot's description, not a policy: leave it out, or leave out "
            "--checkpoint and --onnx"
        )
    if options.robot is not None:
        return _describe(options.robot, options.acceleration, options.xacro)
    if options.checkpoint is None:
        raise ConfigError("--checkpoint is missing: name a run, a folder or a file prefix")
    require_packages("an export", "onnx", "onnxscript", "onnxruntime")
    checkpoint = find(options.checkpoint)
    _, made_of = load_run_config(checkpoint, EnvOptions, trusted=True)
    made_of = dataclasses.replace(made_of, xacro=options.xacro or made_of.xacro)
    if made_of.env is not None:  # which is only named, not imported
        raise ConfigError(
            f"{str(checkpoint)!r} was trained on the Gymnasium environment {made_of.env!r}; only "
            "policies of robots are exported"
        )

    import_torch()
    import envs
    from td3_robot.commands.exported import get_export_path
    from td3_robot.deploy.policy import FILE
    from td3_robot.td3.agent import TD3
    from td3_robot.td3.onnx_export import describe_origin

    path = options.onnx or get_export_path(checkpoint)
    path = path / FILE if os.path.isdir(path) else path
    if path.suffix != ".onnx":  # a slip of the hand must not cost another file
        raise ConfigError(f"--onnx must be a folder or end in .onnx, got {str(path)!r}")
    check_writable(path)
    agent = TD3.from_checkpoint(checkpoint)
    # test vectors are of what is measured without noise
    undisturbed = dataclasses.replace(made_of, randomize=NOTHING, **dict.fromkeys(DISTURBANCES))
    env: Any = envs.make_from_config(undisturbed, VECTORS, seed=0)
    agent.require(env.o_dim, env.a_dim, f"checkpoint {str(checkpoint)!r}")
    write_policy(
        path,
        env,
        made_of.task,
        agent.policy,
        acceleration=options.acceleration,
        **describe_origin(checkpoint, agent.config.policy),
        simulator={
            name: getattr(made_of, name)
            for name in ("robot", "gripper", "tcp", "xacro", "base", "velocity", "acceleration")
        },
    )
    size = path.stat().st_size / 1024
    print(f"{path}: {made_of.robot}, {made_of.task}, {size:.0f} KiB; its test vectors are met")
    return 0


def write_policy(
    path: Path, env: Any, task: str, network: Any, acceleration: float | None = None, **more: Any
) -> None:
    """Write a policy as one graph, from what an arm measures to what it is commanded.

    Args:
        env: an `ArmEnv` of the task, without disturbances; each of its arms gives a test vector.
        network: observations (B, o_dim) -> actions (B, a_dim), a module on the CPU.
        acceleration: limit of every joint of a robot whose file has none [rad/s2].
        more: further metadata.

    Raises:
        ConfigError: the task cannot be traced, the robot lacks a limit, or the file does not
            reproduce what the simulator gives.
    """
    import torch

    from envs.export.controller import Carry, Controller, Memory
    from envs.export.robot_description import (
        describe,
        describe_graph,
        describe_task,
        sample_vectors,
    )
    from td3_robot.deploy import DeployError
    from td3_robot.deploy.policy import FORMAT, KEY, Policy
    from td3_robot.td3.onnx_export import make_onnx, save_onnx

    metadata = {"format": FORMAT, "robot": describe(env.robot, acceleration)}
    metadata |= describe_task(task, env) | more
    controller = Controller(env, network).eval()
    model = make_onnx(controller, controller.examples, controller.outputs)
    inputs = [value.name for value in model.graph.input]
    metadata |= describe_graph(inputs, controller.outputs)
    # for latency: what becomes of the cube meanwhile, and of what the task remembers of the TCP
    further = {"carry": Carry} if env.task.moves_gripper else {}
    further |= {"memory": Memory} if env.task.tcp_keys else {}
    for key, kind in further.items():
        part = kind(env)
        graph = make_onnx(part, part.examples, part.outputs)
        needed = {value.name for value in graph.graph.input} - {"q_next", "gripper_next"}
        needed |= {name.removesuffix("_then") for name in part.outputs}
        if needed <= set(inputs):  # what a policy is not told cannot be predicted
            metadata[key] = base64.b64encode(graph.SerializeToString()).decode()
    with torch.no_grad():
        metadata["test_vectors"] = sample_vectors(env, controller, inputs)
    try:
        with replace_file(path) as beside:  # an older file stays until the new one is good
            save_onnx(model, {KEY: json.dumps(metadata)}, beside)
            Policy.load(beside)
    except DeployError as error:
        raise ConfigError(str(error)) from None


def _describe(name: str, acceleration: float | None, xacro: tuple[str, ...]) -> int:
    """Write the description of a robot for td3_robot.deploy."""
    import envs
    from envs.export.robot_description import describe
    from td3_robot.deploy.robot.description import ROBOTS

    robot = envs.make_robot(name, xacro=parse_assignments("xacro", xacro))
    values = describe(robot, acceleration)
    path = ROBOTS / f"{values['name']}.json"
    write_text(path, json.dumps(values, separators=(",", ":")) + "\n")
    capsules = "no" if values["capsules"] is None else "its"
    print(f"{path}: {len(values['joints'])} joints, {capsules} capsules")
    return 0
