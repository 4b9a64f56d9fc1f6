"""Obstacles around an arm, in its base frame."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from td3_robot.deploy.errors import DeployError
from td3_robot.deploy.numbers import UNREADABLE
from td3_robot.deploy.robot.json_file import read_json

KINDS = {"spheres": 4, "boxes": 10, "walls": 4}  # of obstacles, and how many numbers each has
# Velocities of kinds that may move, and of which kind each is.
VELOCITIES = {"sphere_velocities": "spheres", "box_velocities": "boxes"}
FAR = 1e3  # [m] where the spare obstacles of a policy are parked, as in envs/collision/obstacles.py


@dataclass(frozen=True)
class Obstacles:
    """Solid shapes in the base frame; give only those there are.

    Attributes:
        spheres: (S, 4) centre and radius [m], which is positive, as are half sides.
        boxes: (N, 10) centre, half of each side [m], and orientation as a unit quaternion, wxyz.
        walls: (W, 4) unit normal, and the surface's offset along it [m]: solid where normal . x <=
            offset.
        ground: height of a horizontal plane [m], or None; links that stand on it do not count.
        sphere_velocities, box_velocities: (S, 3), (N, 3) [m/s]; left out, they stand.
    """

    spheres: np.ndarray = field(default_factory=lambda: np.zeros((0, 4)))
    boxes: np.ndarray = field(default_factory=lambda: np.zeros((0, 10)))
    walls: np.ndarray = field(default_factory=lambda: np.zeros((0, 4)))
    ground: float | None = None
    sphere_velocities: np.ndarray | None = None
    box_velocities: np.ndarray | None = None

    def __post_init__(self):
        for name, size in KINDS.items():
            object.__setattr__(self, name, _read_rows(name, getattr(self, name), size))
        for name, kind in VELOCITIES.items():
            count = len(getattr(self, kind))
            given = getattr(self, name)
            value = np.zeros((count, 3)) if given is None else _read_rows(name, given, 3, count)
            object.__setattr__(self, name, value)
        for name, part in (("boxes", self.boxes[:, 6:]), ("walls", self.walls[:, :3])):
            if len(part) and not np.allclose(np.linalg.norm(part, axis=1), 1.0, atol=1e-6):
                raise DeployError(f"{name} need unit quaternions or normals")
        for name, part in (("spheres", self.spheres[:, 3:]), ("boxes", self.boxes[:, 3:6])):
            if (part <= 0.0).any():
                raise DeployError(f"{name} need radii or half sides above 0, got {part.min():g}")

        number = isinstance(self.ground, Real) and np.isfinite(self.ground)
        if self.ground is not None and not number:
            raise DeployError(f"ground must be a finite height, got {self.ground!r}")

    @classmethod
    def load(cls, path: str | Path, ground: float | None = None) -> "Obstacles":
        """Load obstacles from a JSON object with any of `spheres`, `boxes` and `walls`.

        Raises:
            DeployError: it cannot be read, or is not one.
        """
        try:
            values = read_json(path)
            known = (*KINDS, *VELOCITIES)
            if unknown := values.keys() - set(known):
                raise ValueError(f"unknown key {min(unknown)!r}; valid choices: {', '.join(known)}")
            return cls(
                **{name: np.array(value, float) for name, value in values.items()}, ground=ground
            )
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise DeployError(
                f"{path} is no description of obstacles: {' '.join(str(error).split())}"
            ) from None

    def check_standing(self) -> "Obstacles":
        """Return the obstacles themselves, for a safety filter.

        Raises:
            DeployError: one of them has a velocity.
        """
        for name in VELOCITIES:
            if getattr(self, name).any():
                raise DeployError(
                    f"the safety filter keeps clear of obstacles that stand: {name} must be left "
                    "out, or zero"
                )
        return self

    def fill_slots(self, slots: Mapping[str, tuple[int, int]]) -> dict[str, np.ndarray]:
        """Return the obstacles in the slots of a policy, spare ones parked.

        Args:
            slots: of each kind, how many the policy knows and how many numbers each has.

        Raises:
            DeployError: there are more than it knows, a box is not upright, or the ground is
                elsewhere than at 0.
        """
        if self.ground not in (None, 0.0):
            raise DeployError(f"the policy takes the ground to be at height 0, got {self.ground:g}")
        if self.boxes[:, 7:9].any():
            raise DeployError(
                "the policy knows upright boxes alone: of their quaternions x and y have to be 0"
            )
        return {name: _park(name, getattr(self, name), *size) for name, size in slots.items()}


def move_obstacles(scene: Mapping[str, np.ndarray], seconds: float) -> dict[str, np.ndarray]:
    """Return the spheres and boxes of a scene as they will be, at their velocities."""
    moved = {}
    for name, kind in VELOCITIES.items():
        if name in scene:
            moved[kind] = scene[kind].copy()
            moved[kind][:, :3] += seconds * scene[name]
    return moved


def _read_rows(name: str, given, size: int, count: int | None = None) -> np.ndarray:
    """Return what was given as numbers (count, size); an empty list is of any shape.

    Raises:
        DeployError: it is of another shape, or not finite.
    """
    expected = f"{name} must be finite with shape ({'count' if count is None else count}, {size})"
    try:
        value = np.asarray(given, float)
    except UNREADABLE:
        raise DeployError(f"{expected}, got {given}") from None
    value = value if value.size else value.reshape(0, size)
    fits = value.ndim == 2 and value.shape[1] == size and count in (None, len(value))
    if not fits or not np.isfinite(value).all():
        raise DeployError(f"{expected}, got shape {value.shape}")
    return value


def _park(name: str, value: np.ndarray, count: int, size: int) -> np.ndarray:
    if len(value) > count:
        raise DeployError(f"the policy knows at most {count} {name}, got {len(value)}")
    spare = np.zeros((count - len(value), size))
    if name in KINDS:
        spare[:, 3 if name == "walls" else slice(0, 3)] = -FAR if name == "walls" else FAR
    spare[:, {"walls": 2, "boxes": 6}.get(name, slice(0))] = 1.0  # a direction is one
    return np.concatenate((value, spare))


def find_present(kind: str, value: np.ndarray) -> np.ndarray:
    """Return which obstacles of a kind are not parked."""
    return value[:, 3] > -FAR / 2 if kind == "walls" else value[:, 0] < FAR / 2


def spread_obstacles(
    scene: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    """Return a scene with its `obstacles`, if any, as the inputs that a policy has for them.

    Args:
        scene: by name; instead of obstacles, it may have the inputs.
        shapes: of the policy's inputs, by name; without any `KINDS` the scene stays as it is.

    Raises:
        DeployError: there are no obstacles where the policy has inputs for them.
    """
    kinds = set(KINDS) & set(shapes)
    if not kinds or kinds & set(scene):
        return dict(scene)
    obstacles = scene.get("obstacles")
    if not isinstance(obstacles, Obstacles):
        raise DeployError(
            "the policy observes what stands around the arm: obstacles must be a "
            f"td3_robot.deploy.Obstacles, got {type(obstacles).__name__}"
        )
    slots = {}
    for name in (*KINDS, *VELOCITIES):
        if name in shapes:
            count, width = shapes[name]
            slots[name] = (count, width)
    rest = {name: value for name, value in scene.items() if name != "obstacles"}
    return rest | obstacles.fill_slots(slots)
