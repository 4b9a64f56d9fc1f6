"""A device that is not there: PyTorch's `meta`, whose tensors have shapes and no numbers.

What needs a number on the host, or a shape that depends on numbers, has nowhere to get it from and
raises. `Watched` beside it refuses what meta lets pass and what on a real device would be waited
for as well: copies between host and device, masks as indices, and the check of what a solver
returned.
"""

import copy
from contextlib import ExitStack, contextmanager
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

DEVICE = torch.device("meta")
WAITS = (
    "_linalg_check_errors",
    "_assert_async",
    "unique_dim",
    "_unique2",
    "equal",
    "nonzero",
    "masked_select",
    "lift_fresh",
)


class Waits(Exception):
    """An operation that the host would have to wait for."""


class Generator(torch.Generator):
    """Of a device that is not there."""

    device = DEVICE


class Watched(TorchDispatchMode):
    """Refuses, in its block, what would wait for a device."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name = operation.overloadpacket.__name__
        kwargs = kwargs or {}
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        indices = tree_leaves(args[1]) if name in ("index", "index_put", "index_put_") else ()
        masks = any(isinstance(x, torch.Tensor) and x.dtype == torch.bool for x in indices)
        if name in WAITS or masks:
            raise Waits(name)
        found = operation(*args, **kwargs)
        made = [x for x in tree_leaves(found) if isinstance(x, torch.Tensor)]
        if len({x.device.type for x in (*given, *made) if x.ndim or "copy" in name}) > 1:
            raise Waits(
                f"{name} from {[x.device.type for x in given]} to {[x.device.type for x in made]}"
            )
        return found


@contextmanager
def moved(*things):
    """Inside, copies of these objects, all of whose tensors are on the device, and nothing may wait
    for that.
    """
    atomic = {
        torch.device: lambda device, memo: DEVICE,
        torch.Generator: lambda generator, memo: Generator(),
    }
    with ExitStack() as patched:
        for patch in (
            mock.patch.object(torch.Tensor, "__deepcopy__", _moved),
            mock.patch.object(torch.nn.Parameter, "__deepcopy__", _moved),
            mock.patch.dict(copy._deepcopy_dispatch, atomic),
        ):
            patched.enter_context(patch)
        copies = copy.deepcopy(things)
    with (
        Watched(),
        mock.patch("torch.tensor", _copied),
        mock.patch("torch.Tensor.new_tensor", _copied),
    ):
        yield copies


def _copied(*_, **__):
    raise Waits("numbers of the host are copied to the device")


def _moved(tensor, memo):
    if id(tensor) not in memo:
        new = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=DEVICE)
        learns = isinstance(tensor, torch.nn.Parameter)
        memo[id(tensor)] = torch.nn.Parameter(new, tensor.requires_grad) if learns else new
    return memo[id(tensor)]
