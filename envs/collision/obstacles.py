"""Obstacles around an arm: spheres, boxes and walls, different ones in every environment."""

from dataclasses import dataclass

import torch
from torch import Tensor

from td3_robot.errors import not_none
from td3_robot.utils.legacy import keep_old_names

FAR = 1e3  # [m] where to park the spare obstacles of an environment that has fewer than the others


@keep_old_names(rows="select_rows")
@dataclass(frozen=True)
class Obstacles:
    """Solid shapes in the base frame of B environments; a leading 1 instead of B is shared by all.

    Every environment has the same number of each kind. One that is to have fewer gets the rest
    where nothing reaches: centres at a coordinate of `FAR`, a wall's offset at -`FAR`.

    Attributes:
        spheres: (B, S, 4) centre and radius [m].
        boxes: (B, N, 10) centre, half of each side [m], and orientation as a unit quaternion, wxyz.
        walls: (B, W, 4) unit normal, and the surface's offset along it [m]: solid where normal . x
            <= offset.
    """

    spheres: Tensor | None = None
    boxes: Tensor | None = None
    walls: Tensor | None = None

    def __post_init__(self):
        for name, size in (("spheres", 4), ("boxes", 10), ("walls", 4)):
            value = getattr(self, name)
            if value is not None and (value.ndim != 3 or value.shape[2] != size):
                raise ValueError(
                    f"{name} must have shape (B, count, {size}), got {tuple(value.shape)}"
                )

    @property
    def kinds(self) -> tuple[Tensor, Tensor, Tensor]:
        """Spheres, boxes and walls, if there are all three."""
        return not_none(self.spheres), not_none(self.boxes), not_none(self.walls)

    def select_rows(self, rows: slice | Tensor) -> "Obstacles":
        """Select the obstacles of some environments.

        A mask of one row is of one environment, not of all that share it.
        """
        masked = isinstance(rows, Tensor) and rows.dtype == torch.bool and len(rows) == 1

        def select(value: Tensor | None) -> Tensor | None:
            return value if value is None or len(value) == 1 and not masked else value[rows]

        return Obstacles(select(self.spheres), select(self.boxes), select(self.walls))


def move_components_first(shapes: Tensor) -> Tensor:
    """Permute (B, count, size) to (size, 1, count, B), with the batch contiguous for speed."""
    return shapes.permute(2, 1, 0).contiguous()[:, None]
