"""Modules as ONNX graphs, and where a checkpoint comes from."""

import hashlib
import logging
import platform
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from td3_robot.errors import ConfigError, missing_package

if TYPE_CHECKING:
    from onnx import ModelProto


def make_onnx(
    module: nn.Module, examples: Mapping[str, Tensor], outputs: Sequence[str]
) -> "ModelProto":
    """Trace a module into an ONNX graph with named inputs, less those that change no output.

    Args:
        module: on the CPU, in evaluation mode.
        examples: of the arguments of `forward`, by the names that the inputs get.
        outputs: names of what `forward` returns.

    Raises:
        ConfigError: a package of the extra `deploy` is missing, or an operation has no ONNX form.
    """
    try:
        import onnx
        from onnxscript import opset20
    except ImportError as error:
        raise missing_package("an export", error.name) from None

    def signbit(x: Any) -> Any:
        number: Any = 0.0
        zero: Any = opset20.CastLike(number, x)
        return opset20.Less(x, zero)

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # of torchvision, which is not needed
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch's own, about itself
        try:
            program = torch.onnx.export(
                module,
                tuple(examples.values()),
                input_names=list(examples),
                output_names=list(outputs),
                dynamo=True,
                external_data=False,
                optimize=False,
                verbose=False,
                custom_translation_table={torch.ops.prims.signbit.default: signbit},
            )
        except torch.onnx.errors.OnnxExporterError as error:
            cause = str(error.__cause__ or error).strip().splitlines()[0]
            raise ConfigError(f"this task cannot be written as an ONNX graph: {cause}") from error
    assert program is not None  # as it is with dynamo
    _simplify(program.model)
    model = program.model_proto
    used = {name for node in model.graph.node for name in node.input}
    for value in [value for value in model.graph.input if value.name not in used]:
        model.graph.input.remove(value)
    for node in model.graph.node:  # where each comes from in the source, with this machine's paths
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    onnx.checker.check_model(model, full_check=True)
    return model


def _simplify(model: Any) -> None:
    """Fold constants and drop what repeats or is not used, in place.

    Those of `torch.onnx.export(optimize=True)` without its patterns of layers: they take more than
    half of the time of an export and find next to nothing here.
    """
    from onnx_ir import passes
    from onnx_ir.passes import common
    from onnxscript.optimizer import fold_constants

    common.InlinePass()(model)
    fold_constants(model, onnx_shape_inference=True)
    passes.Sequential(
        common.RemoveUnusedNodesPass(),
        common.RemoveUnusedFunctionsPass(),
        common.RemoveUnusedOpsetsPass(),
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.DeduplicateInitializersPass(),
        common.CommonSubexpressionEliminationPass(),
        common.NameFixPass(),
    )(model)


def save_onnx(model: "ModelProto", properties: Mapping[str, str], path: Path) -> None:
    """Write a graph with metadata properties."""
    import onnx

    onnx.helper.set_model_props(model, dict(properties))
    onnx.save(model, path)


def describe_origin(checkpoint: Path, network: str) -> dict:
    """Return the checkpoint, the SHA-256 of the network that acts, the commit and the versions.

    Args:
        network: name of that network's file.
    """
    from td3_robot.checkpoint.provenance import find_commit, iter_versions
    from td3_robot.checkpoint.store import find_files

    file = find_files(checkpoint)[network]
    names = ("td3-robot", "torch", "onnx", "numpy")
    return {
        "checkpoint": {
            "name": checkpoint.name,
            f"{network}_sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        },
        "commit": find_commit(),
        "versions": {"python": platform.python_version(), **dict(iter_versions(names))},
    }
