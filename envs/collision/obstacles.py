"""Obstacles around an arm: spheres, boxes and walls, different ones in every environment."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from td3_robot.errors import not_none
from td3_robot.utils.legacy import keep_old_names

_SIZES = {"spheres": 4, "boxes": 10, "walls": 4, "sphere_velocities": 3, "box_velocities": 3}
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
        sphere_velocities: (B, S, 3) [m/s]; None where spheres stand, or it is not known.
        box_velocities: (B, N, 3) of boxes that do not turn [m/s]; None likewise.
    """

    spheres: Tensor | None = None
    boxes: Tensor | None = None
    walls: Tensor | None = None
    sphere_velocities: Tensor | None = None
    box_velocities: Tensor | None = None

    def __post_init__(self):
        for name, size in _SIZES.items():
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

        return Obstacles(**{name: select(getattr(self, name)) for name in _SIZES})

    @property
    def are_moving(self) -> bool:
        """True if the velocity of any kind is known."""
        return self.sphere_velocities is not None or self.box_velocities is not None

    def move(self, seconds: float | Tensor) -> "Obstacles":
        """Return the obstacles a while later, each with the velocity that it has now.

        Args:
            seconds: one time, or one for each environment (B, 1).
        """
        return replace(
            self,
            spheres=move_centres(self.spheres, self.sphere_velocities, seconds),
            boxes=move_centres(self.boxes, self.box_velocities, seconds),
        )


def move_centres(
    shapes: Tensor | None, velocities: Tensor | None, seconds: float | Tensor
) -> Tensor | None:
    """Return shapes (B, count, size), which begin with their centres, a while later.

    Args:
        velocities: (B, count, 3) [m/s]; None where they stand.
        seconds: one time, or one for each environment (B, 1).
    """
    if shapes is None or velocities is None:
        return shapes
    time = seconds[:, :, None] if isinstance(seconds, Tensor) else seconds
    centres = shapes[:, :, :3] + time * velocities
    return torch.cat((centres, shapes[:, :, 3:].expand(len(centres), -1, -1)), 2)


def move_components_first(shapes: Tensor) -> Tensor:
    """Permute (B, count, size) to (size, 1, count, B), with the batch contiguous for speed."""
    return shapes.permute(2, 1, 0).contiguous()[:, None]
