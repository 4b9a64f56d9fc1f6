"""Check untrusted state dicts, tensor by tensor, before a module or optimizer loads them.

PyTorch checks the shapes of networks alone. The moments of an optimizer with other shapes, or with
strides that do not span them, would make the fused Adam write beyond their end.
"""

from collections.abc import Collection

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

LARGEST = 1e6  # magnitude of a weight; with larger ones a network of float32 gives infinities


class StateMismatch(ValueError):
    """A state does not fit its part; the message has the reason."""


def validate_state(part: nn.Module | Optimizer, state: object) -> dict:
    """Check a state against its part and return what `part.load_state_dict` may load.

    Names, shapes and kinds of numbers must match, and all values be finite. Of an optimizer's
    state only steps and moments are returned, as copies; it keeps its own learning rates.

    Raises:
        StateMismatch: names the entry, what was expected and what came.
    """
    if not isinstance(state, dict):
        raise StateMismatch(
            "it has no such file"
            if state is None
            else f"it is a {type(state).__name__}, not a state dict"
        )
    return (
        _validate_module(part, state)
        if isinstance(part, nn.Module)
        else _validate_optimizer(part, state)
    )


def _validate_module(part: nn.Module, state: dict) -> dict:
    own = part.state_dict()
    weights = dict(part.named_parameters())
    if own.keys() & state.keys() and (layers := get_widths(state)) and layers != get_widths(own):
        raise StateMismatch(f"its layers are {'-'.join(map(str, layers))}")
    _check_names(state, own, "entry", "; was it made with other networks, TD3(networks=...)?")
    unbounded = getattr(part, "unbounded", ())
    for name, value in own.items():
        _check_tensor(name, state[name], value, exact=name in weights, finite=name not in unbounded)
        if name in weights and value.numel() and state[name].abs().max() > LARGEST:
            raise StateMismatch(f"{name} has a weight beyond {LARGEST:.0e}")
    return state


def _validate_optimizer(part: Optimizer, state: dict) -> dict:
    _check_names(state, ("state", "param_groups"), "entry")
    weights = [(weight, group) for group in part.param_groups for weight in group["params"]]
    moments = state["state"]
    if not isinstance(moments, dict) or moments.keys() not in (set(), set(range(len(weights)))):
        raise StateMismatch(f"its moments are not of {len(weights)} weights")
    strict = isinstance(part, Adam)
    taken = {
        number: _copy_moments(f"state {number}", moments[number], *weights[number], strict=strict)
        for number in moments
    }
    return {"state": taken, "param_groups": part.state_dict()["param_groups"]}


def _copy_moments(
    name: str, entry: object, weight: Tensor, group: dict, strict: bool
) -> dict[str, object]:
    """Copy an optimizer's moments of one weight; `strict` for Adam, whose entries are known."""
    if not isinstance(entry, dict):
        raise StateMismatch(f"{name} is a {type(entry).__name__}, not a dict")
    if strict:
        more = ("max_exp_avg_sq",) if group["amsgrad"] else ()
        _check_names(entry, ("step", "exp_avg", "exp_avg_sq", *more), f"entry of {name}")
    for key, value in entry.items():
        if not strict and not isinstance(value, Tensor):
            continue
        # kernels that take lengths on trust; elsewhere any shape will do
        trusting = strict or group.get("fused")
        like = weight if trusting else value
        like = torch.zeros((), dtype=torch.float32) if key == "step" else like
        _check_tensor(f"{key} of {name}", value, like)
        if key in ("step", "exp_avg_sq") and (value < 0).any():
            raise StateMismatch(f"{key} of {name} is negative")

    def copy_value(value):
        return value.detach().clone(memory_format=torch.contiguous_format)

    return {
        key: copy_value(value) if isinstance(value, Tensor) else value
        for key, value in entry.items()
    }


def _check_names(state: dict, expected: Collection[str], what: str, hint: str = "") -> None:
    for name in expected:
        if name not in state:
            raise StateMismatch(f"{what} {name!r} is missing{hint}")
    for name in state:
        if name not in expected:
            raise StateMismatch(f"{what} {str(name)[:50]!r} is unknown{hint}")


def _check_tensor(
    name: str, value: object, like: Tensor, exact: bool = True, finite: bool = True
) -> None:
    """Check a value's shape and dtype; if not `exact`, any dtype of the same kind will do."""
    if (
        not isinstance(value, Tensor)
        or value.layout != torch.strided
        or value.is_meta
        or value.is_quantized
    ):
        raise StateMismatch(f"{name} is no plain tensor")
    if value.shape != like.shape:
        raise StateMismatch(f"{name} must be {list(like.shape)}, got {list(value.shape)}")
    same_kind = value.is_floating_point() == like.is_floating_point() and not value.is_complex()
    if value.dtype != like.dtype and (exact or not same_kind):
        raise StateMismatch(f"{name} must be {like.dtype}, got {value.dtype}")
    if not (value.isfinite().all() if finite else value.isnan().logical_not().all()):
        raise StateMismatch(f"{name} has a value that is NaN or infinite")


def get_widths(state: dict) -> list[int]:
    """Return the widths of an MLP's input and layers from its state; empty for other states."""
    matrices = [value for value in state.values() if isinstance(value, Tensor) and value.ndim == 2]
    return [matrices[0].shape[1], *map(len, matrices)] if matrices else []
