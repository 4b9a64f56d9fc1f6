"""A CUDA graph's stand-in on a CPU: the operations of a step, with the very tensors that they were
given.

As in a capture nothing is computed while it is recorded: what comes out is NaN, what was there is
as it was, generators included. A replay does the same operations on the same tensors, and leaves
results where they were left before. What the step takes from the host in any other way stays as it
was when it was recorded, as in a graph.
"""

from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.no_device import WAITS


class Tape(TorchDispatchMode):
    """What was recorded of one step."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name = operation.overloadpacket.__name__
        kwargs = kwargs or {}
        if name in (*WAITS, "_local_scalar_dense"):
            raise RuntimeError(f"{name}: operation not permitted when stream is capturing")
        if operation.is_view:
            return operation(*args, **kwargs)  # of memory, which is there
        given = tree_leaves((args, kwargs))
        with _as_it_was(given):
            made = operation(*args, **kwargs)
        for result in _results(made, given):
            result.fill_(float("nan") if result.is_floating_point() else 0)
        self.operations.append((operation, args, kwargs, made))
        return made

    @torch.no_grad()
    def replay(self):
        for operation, args, kwargs, made in self.operations:
            again = operation(*args, **kwargs)
            given = tree_leaves((args, kwargs))
            for result, new in zip(_results(made, given), _results(again, given), strict=True):
                result.copy_(new)


@contextmanager
def _as_it_was(given):
    """Takes back, afterwards, what the block does to these tensors and generators."""
    memories = [x.untyped_storage() for x in given if isinstance(x, torch.Tensor)]
    generators = [x for x in given if isinstance(x, torch.Generator)]
    before = [x.clone() for x in memories]
    states = [x.get_state() for x in generators]
    yield
    for x, value in zip(memories, before):
        x.copy_(value)
    for x, state in zip(generators, states):
        x.set_state(state)


def _results(made, given):
    """What an operation has made, without what it was given to write to."""
    return [
        x
        for x in tree_leaves(made)
        if isinstance(x, torch.Tensor) and not any(x is y for y in given)
    ]


class Tapes:
    """A `GraphCapture` of tapes.

    Attributes:
        warmed, recorded, replayed: how many steps.
    """

    def __init__(self):
        self.warmed = self.recorded = self.replayed = 0

    def warm_up(self, step):
        self.warmed += 1
        return step()

    def capture(self, step, generator):
        self.recorded += 1
        tape = Tape()
        with tape:
            metrics = step()

        def replay():
            self.replayed += 1
            tape.replay()

        return replay, metrics
