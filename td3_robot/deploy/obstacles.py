"""What stands around an arm, in its base frame."""

from dataclasses import dataclass, field

import numpy as np

from td3_robot.deploy.errors import DeployError


@dataclass(frozen=True)
class Obstacles:
    """Solid shapes in the base frame; give only those there are.

    Attributes:
        spheres: (S, 4) centre and radius [m].
        boxes: (N, 10) centre, half of each side [m], and orientation as a unit quaternion, wxyz.
        walls: (W, 4) unit normal, and the surface's offset along it [m]: solid where normal . x <= offset.
        ground: height of a horizontal plane [m], or None; links that stand on it do not count.
    """

    spheres: np.ndarray = field(default_factory=lambda: np.zeros((0, 4)))
    boxes: np.ndarray = field(default_factory=lambda: np.zeros((0, 10)))
    walls: np.ndarray = field(default_factory=lambda: np.zeros((0, 4)))
    ground: float | None = None

    def __post_init__(self):
        for name, size in (("spheres", 4), ("boxes", 10), ("walls", 4)):
            value = np.asarray(getattr(self, name), float)
            if value.ndim != 2 or value.shape[1] != size or not np.isfinite(value).all():
                raise DeployError(f"{name} must be finite with shape (count, {size}), got shape {value.shape}")
            object.__setattr__(self, name, value)
        for name, part in (("boxes", self.boxes[:, 6:]), ("walls", self.walls[:, :3])):
            if len(part) and not np.allclose(np.linalg.norm(part, axis=1), 1.0, atol=1e-6):
                raise DeployError(f"{name} need unit quaternions or normals")
