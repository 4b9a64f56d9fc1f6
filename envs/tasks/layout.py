"""Columns of an observation: their names, widths and order."""

import functools
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from envs.world import World
from td3_robot.utils.legacy import find_old_names


class Column(NamedTuple):
    """A named part of the observation.

    Attributes:
        name: of the part.
        width: number of elements.
        tells_goal: whether it depends on the goal; such columns are left out of the observation of
            goal environments.
    """

    name: str
    width: int
    tells_goal: bool = False


class Layout:
    """Columns in their order.

    >>> Layout([Column("q", 7), Column("goal", 3)])["goal"]
    slice(7, 10, None)
    """

    def __init__(self, columns: Iterable[Column]):
        self.columns = tuple(columns)
        self.size = 0
        self._slices = {}
        for column in self.columns:
            self._slices[column.name] = slice(self.size, self.size + column.width)
            self.size += column.width

    def __getitem__(self, name: str) -> slice:
        return self._slices[name]

    def __iter__(self):
        return iter(self._slices)


def arm_columns(world: World) -> list[Column]:
    """List the columns that every task begins with: `envs.o`, then the joint velocities."""
    n = len(world.model.qdlim)
    return [Column("q", n), Column("drivers", len(world.model.driver_mimic)), Column("qd", n)]


def multiply_transpose(J: Tensor, x: Tensor) -> Tensor:
    """Compute J^T x (B, n) of J (B, m, n), x (B, m): the joint motion that shortens x fastest."""
    rows = (J[:, row] * x[:, row, None] for row in range(J.shape[1]))
    return functools.reduce(torch.add, rows)  # far faster than a strided sum


__getattr__ = find_old_names(__name__)
