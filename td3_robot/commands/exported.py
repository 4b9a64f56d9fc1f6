"""Exported policies: which one a name means, and what belongs to it in the run's folder."""

import os
import warnings
from pathlib import Path
from typing import Any

from td3_robot.checkpoint import find
from td3_robot.deploy import Policy
from td3_robot.deploy.errors import OldExport
from td3_robot.deploy.policy import FILE
from td3_robot.errors import ConfigError
from td3_robot.utils.console import get_command_line


def find_policy(name: Path) -> Path:
    """Find an exported policy by its file, or by the checkpoint that it was exported from.

    Raises:
        ConfigError, CheckpointError: there is none.
    """
    if os.path.isfile(name):
        return name
    if name.suffix == ".onnx":
        export = get_command_line("export")
        raise ConfigError(f"there is no file {str(name)!r}; see how to write one: {export} --help")
    if os.path.isfile(name / FILE):
        return name / FILE
    checkpoint = find(name)
    path = get_export_path(checkpoint)
    if not os.path.isfile(path):
        raise ConfigError(
            f"{checkpoint} is not exported yet; write its policy with: "
            f"{get_command_line('export', '--checkpoint', checkpoint)}"
        )
    return path


def get_export_path(checkpoint: Path) -> Path:
    """Return the file that a checkpoint is exported to unless another one is named."""
    return (checkpoint if checkpoint.is_dir() else checkpoint.parent) / FILE


def load_policy(path: Path) -> Policy:
    """Load a policy, unless its checkpoint, next to its file, was trained on since the export.

    Raises:
        ConfigError: it was; the message has the command that exports it again.
        DeployError: as `Policy.load`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", OldExport)
        try:
            return Policy.load(path)
        except OldExport as warning:
            file = () if path.name == FILE else ("--onnx", path)
            command = get_command_line("export", "--checkpoint", warning.checkpoint, *file)
            raise ConfigError(f"{warning}: {command}") from None


def describe_simulated(policy: Policy, path: Path, xacro: tuple[str, ...]) -> dict[str, Any]:
    """Describe what a policy's simulated robot is made from.

    Args:
        path: of the policy, from whose folder on upwards the robot's file is looked for.
        xacro: arguments of that file, instead of the training's; empty for these.
    """
    from envs.config.env_options import EnvOptions  # here: a real arm does without a simulator

    named = policy.metadata.get("simulator", {"robot": policy.robot.name})
    named = {**named, "xacro": xacro} if xacro else named
    return EnvOptions.find_files(named, Path(os.path.abspath(path.parent)))
