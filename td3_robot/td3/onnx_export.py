"""A policy in one ONNX file: normalisation, actor, clamp and scaling to physical units, and what it
says of itself.
"""

import hashlib
import json
import logging
import platform
import warnings
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor, nn

from td3_robot.deploy.policy import KEY
from td3_robot.errors import missing_package
from td3_robot.utils.atomic_files import replace_file


class Commanded(nn.Module):
    """A policy whose actions leave in physical units.

    Args:
        policy: observations (B, o_dim) -> actions (B, a_dim).
        scale, offset: (a_dim,) of the actions, which are clamped to [-1, 1] before.
    """

    def __init__(self, policy: nn.Module, scale: Tensor, offset: Tensor):
        super().__init__()
        self.policy = policy
        self.register_buffer("scale", scale)
        self.register_buffer("offset", offset)

    def forward(self, observation: Tensor) -> Tensor:
        """(B, o_dim) -> (B, a_dim)."""
        return self.policy(observation).clamp(-1.0, 1.0) * self.scale + self.offset


def write_onnx(module: nn.Module, o_dim: int, metadata: dict, path: Path) -> None:
    """Write a module from `observation` (batch, o_dim) to `command`, whole or not at all.

    Args:
        module: on the CPU, in evaluation mode.
        metadata: what the file says of itself; values that JSON can hold.

    Raises:
        ConfigError: a package of the extra `deploy` is missing.
    """
    try:
        import onnx
        import onnxscript  # noqa: F401  torch.onnx needs it
    except ImportError as error:
        raise missing_package("an export", error.name) from None
    batch = torch.export.Dim("batch", min=1)
    logging.getLogger("torch.onnx").setLevel(
        logging.ERROR
    )  # what of torchvision it does without is no news
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about itself
        program = torch.onnx.export(
            module,
            (torch.zeros(2, o_dim),),
            input_names=["observation"],
            output_names=["command"],
            dynamic_shapes=({0: batch},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    assert program is not None  # as it is with dynamo
    model = program.model_proto
    onnx.helper.set_model_props(model, {KEY: json.dumps(metadata)})
    onnx.checker.check_model(model, full_check=True)
    with replace_file(path) as new:
        onnx.save(model, new)


def origin(checkpoint: Path, network: str) -> dict:
    """What a file says of where it comes from: checkpoint, the sum of the network that acts,
    commit, versions.
    """
    from td3_robot.checkpoint.provenance import find_commit

    file = (
        checkpoint / network
        if checkpoint.is_dir()
        else checkpoint.with_name(checkpoint.name + network)
    )
    names = ("td3-robot", "torch", "onnx", "numpy")
    return {
        "checkpoint": {
            "name": checkpoint.name,
            f"{network}_sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        },
        "commit": find_commit(),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in names},
        },
    }
