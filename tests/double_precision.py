"""The simulator's dataclasses of tensors in double precision."""

import dataclasses

import torch


def exact_shape(model):
    """A robot's capsules in double precision."""
    if model is None:
        return None
    points = tuple((body, local.double()) for body, local in model.points)
    return dataclasses.replace(
        double(model), chain=model.chain.to(dtype=torch.float64), points=points
    )


def double(thing):
    """A dataclass of tensors in double precision."""

    def of(x):
        return x.double() if torch.is_tensor(x) and x.is_floating_point() else x

    return dataclasses.replace(
        thing, **{part.name: of(getattr(thing, part.name)) for part in dataclasses.fields(thing)}
    )
