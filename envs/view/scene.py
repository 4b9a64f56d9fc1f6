"""What a scene looks like: its goal, obstacles, cube and path as plain descriptions of shapes to draw."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from envs.collision.obstacles import FAR
from envs.kinematics.rotations import to_matrix
from envs.tasks.task import Task
from envs.world import Moment, World

_GOAL = (1.0, 0.55, 0.1, 1.0)  # red, green, blue, opacity
_OBSTACLE = (0.75, 0.2, 0.25, 0.55)
_WALL = (0.75, 0.2, 0.25, 0.25)  # so large that all else is behind it
_CUBE = (0.15, 0.45, 0.85, 1.0)
_PATH = (1.0, 0.8, 0.45, 1.0)
_WALL_THICKNESS = 0.01  # [m] of the sheet that stands for a half space
_PATH_RADIUS = 0.002  # [m]


class Shape(NamedTuple):
    """One thing to draw.

    `kind` and `size` [m] are "sphere" and its radius, "box" and its three sides, "axes" and their length, or "line"
    and its radius.
    """

    kind: str
    size: tuple[float, ...]
    colour: tuple[float, float, float, float]  # red, green, blue, opacity in [0, 1]; axes have their own
    T_bs: np.ndarray  # (4, 4) pose in the base frame
    points: tuple[tuple[float, float, float], ...] = ()  # of a line, in the shape's frame [m]

    @property
    def look(self) -> tuple:
        """All but the pose: where it stays the same, a shape has only moved."""
        return self.kind, self.size, self.colour, self.points

    def see_through(self, opacity: float) -> "Shape":
        """The same with less opacity, a share in [0, 1] of what it has."""
        return self._replace(colour=(*self.colour[:3], opacity * self.colour[3]))

    def same(self, other: "Shape") -> bool:
        """Whether it looks like another and is where that is."""
        return self.look == other.look and np.array_equal(self.T_bs, other.T_bs)


def goal_shapes(T_bt: np.ndarray) -> list[Shape]:
    """A goal pose (4, 4) in the base frame."""
    return [Shape("axes", (0.12,), _GOAL, T_bt), Shape("sphere", (0.018,), _GOAL, T_bt)]


def scene_shapes(task: Task, world: World, moment: Moment) -> list[Shape]:
    """What is around the first arm of a moment, read by the names that tasks give it.

    `goal` (B, 3) or (B, 7) with a quaternion wxyz; `spheres`, `boxes` and `walls` as in `Obstacles`; `object` (B, 3),
    a cube with sides of `task.cube`; `path` (B, steps, 3).
    """
    scene = {name: value[0].detach().cpu() for name, value in moment.scene.items()}
    goal = _pose(scene["goal"][:3], scene["goal"][3:])
    shapes = goal_shapes(goal) if len(scene["goal"]) == 7 else [goal_shapes(goal)[-1]]
    for sphere in scene.get("spheres", ()):
        if _near(sphere[:3]):
            shapes.append(Shape("sphere", (sphere[3].item(),), _OBSTACLE, _pose(sphere[:3])))
    for box in scene.get("boxes", ()):
        if _near(box[:3]):
            shapes.append(Shape("box", tuple((2.0 * box[3:6]).tolist()), _OBSTACLE, _pose(box[:3], box[6:])))
    for wall in scene.get("walls", ()):
        if _near(wall[3:]):
            shapes.append(_wall(wall[:3].double().numpy(), wall[3].item(), world.workspace.double().cpu().numpy()))
    if "object" in scene:
        shapes.append(Shape("box", (task.cube,) * 3, _CUBE, _pose(scene["object"])))
    if "path" in scene:
        shapes.append(Shape("line", (_PATH_RADIUS,), _PATH, np.eye(4), tuple(map(tuple, scene["path"].tolist()))))
    return shapes


def _near(coordinates: Tensor) -> bool:
    """Whether an obstacle is not one of the spare ones, which are parked at `FAR`."""
    return coordinates.abs().max().item() < FAR / 2


def _pose(position: Tensor, quaternion: Tensor = ()) -> np.ndarray:
    T = torch.eye(4, dtype=torch.float64)
    T[:3, 3] = position
    if len(quaternion):
        T[:3, :3] = to_matrix(quaternion[None].double())[0]
    return T.numpy()


def _wall(normal: np.ndarray, offset: float, workspace: np.ndarray) -> Shape:
    """A thin square sheet on the surface of a half space, as large as the workspace is wide, beside its middle."""
    middle, side = workspace.mean(0), float(np.linalg.norm(workspace[1] - workspace[0]))
    T = np.eye(4)
    across = np.cross(normal, np.eye(3)[np.abs(normal).argmin()])
    across /= np.linalg.norm(across)
    T[:3, :3] = np.stack((across, np.cross(normal, across), normal), 1)
    T[:3, 3] = middle - (normal @ middle - offset + _WALL_THICKNESS / 2) * normal  # its outer face is the surface
    return Shape("box", (side, side, _WALL_THICKNESS), _WALL, T)
