"""Shapes to draw: plain descriptions of goals, obstacles, cubes and paths."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from envs.collision import Obstacles
from envs.collision.obstacles import FAR
from envs.kinematics.rotations import to_matrix
from envs.simulation.bodies import FREE, HELD, JOINTED, PhysicsSpec, get_body_poses
from envs.simulation.engine import OBJECT, make_cube_key
from envs.world import Moment
from td3_robot.utils.legacy import find_old_names, keep_old_names

Colour = tuple[float, float, float, float]  # red, green, blue, opacity in [0, 1]

PLACES = (3, 7)  # sizes of goals: positions, and poses
GOAL = (0.69, 0.15, 0.85, 1.0)  # no arm, hand, cube or obstacle looks like it
OBSTACLE = (0.75, 0.2, 0.25, 0.55)
WALL = (0.75, 0.2, 0.25, 0.25)  # so large that all else is behind it
CUBE = (0.15, 0.45, 0.85, 1.0)
SUPPORT = (0.95, 0.7, 0.15, 1.0)
FIXTURE = (0.55, 0.58, 0.62, 1.0)
PATH = (0.85, 0.62, 0.92, 1.0)
_WALL_THICKNESS = 0.01  # [m] of the sheet that stands for a half space
_PATH_RADIUS = 0.002  # [m]


@keep_old_names(same="is_same", see_through="scale_opacity")
class Shape(NamedTuple):
    """A shape to draw.

    `kind` and `size` [m] are "sphere" and its radius, "box" and its three sides, "cylinder" and its
    radius and length along z, "axes" and their length, or "line" and its radius.
    """

    kind: str
    size: tuple[float, ...]
    colour: Colour  # axes have their own
    T_bs: np.ndarray  # (4, 4) pose in the base frame
    points: tuple[tuple[float, float, float], ...] = ()  # of a line, in the shape's frame [m]

    @property
    def look(self) -> tuple:
        """Everything but the pose, to tell whether a shape has only moved."""
        return self.kind, self.size, self.colour, self.points

    @property
    def is_goal(self) -> bool:
        """True for the ball at a goal."""
        return self.kind == "sphere" and self.colour[:3] == GOAL[:3]

    def scale_opacity(self, opacity: float) -> "Shape":
        """Return the shape with its opacity multiplied by a factor in [0, 1]."""
        return self._replace(colour=(*self.colour[:3], opacity * self.colour[3]))

    def is_same(self, other: "Shape") -> bool:
        """Tell whether another shape has the same look and pose."""
        return self.look == other.look and np.array_equal(self.T_bs, other.T_bs)


def make_goal_shapes(goal: Tensor) -> list[Shape]:
    """Make the shapes of a goal in the base frame: a position (3,) [m], or a pose (7,) of position
    and quaternion wxyz; none of another size.
    """
    if len(goal) not in PLACES:
        return []
    return make_pose_shapes(make_pose(goal[:3], goal[3:]))[0 if len(goal) == 7 else 1 :]


def make_pose_shapes(T_bt: np.ndarray) -> list[Shape]:
    """Make the shapes of a goal pose (4, 4) in the base frame: its axes and a ball."""
    return [Shape("axes", (0.12,), GOAL, T_bt), Shape("sphere", (0.018,), GOAL, T_bt)]


def make_goal_ball(position: Tensor, side: float) -> Shape:
    """Make a translucent ball at a goal (3,) [m], large enough for a cube of this side [m]."""
    return Shape("sphere", (0.9 * side,), (*GOAL[:3], 0.45), make_pose(position))


def make_obstacle_shapes(obstacles: Obstacles, workspace: Tensor) -> list[Shape]:
    """Make the shapes of the obstacles of the first arm, without spare ones parked at `FAR`."""

    def select(rows, place):
        return [] if rows is None else [row for row in rows[0] if _is_near(row[place])]

    spheres = [
        Shape("sphere", (row[3].item(),), OBSTACLE, make_pose(row[:3]))
        for row in select(obstacles.spheres, slice(3))
    ]
    boxes = [
        Shape("box", tuple((2.0 * row[3:6]).tolist()), OBSTACLE, make_pose(row[:3], row[6:]))
        for row in select(obstacles.boxes, slice(3))
    ]
    corners = workspace.double().cpu().numpy()
    walls = select(obstacles.walls, slice(3, 4))
    return (
        spheres
        + boxes
        + [_make_wall(row[:3].double().cpu().numpy(), row[3].item(), corners) for row in walls]
    )


def make_cube_shape(
    scene: dict[str, Tensor], side: float, name: str = OBJECT, colour: Colour = CUBE
) -> Shape:
    """Make the shape of a cube of the first arm, with the orientation `turned` of the scene if the
    engine gives it.
    """
    turned = scene.get(make_cube_key(name, "turned"))
    return Shape(
        "box", (side,) * 3, colour, make_pose(scene[name][0], None if turned is None else turned[0])
    )


def make_body_shapes(needs: PhysicsSpec, moment: Moment) -> list[Shape]:
    """Make the shapes of a task's bodies around the first arm; a capsule is drawn as a cylinder."""
    shapes = []
    for body in needs.bodies:
        T_bo = get_body_poses(body, moment.scene, moment.T_be)[0].double().cpu().numpy()
        colour = CUBE if body.motion in (HELD, FREE, JOINTED) else FIXTURE
        for geom in body.geoms:
            position, quaternion = (torch.tensor(x) for x in (geom.position, geom.quaternion))
            T = T_bo @ make_pose(position, quaternion)
            kind = "cylinder" if geom.kind == "capsule" else geom.kind
            size = (geom.size[0], 2.0 * geom.size[1]) if kind == "cylinder" else geom.size
            size = tuple(2.0 * x for x in size) if kind == "box" else size
            shapes.append(Shape(kind, size, colour, T))
    return shapes


def make_path_shape(points: Iterable[Any]) -> Shape:
    """Make a line through positions (K, 3) in the base frame [m]."""
    return Shape("line", (_PATH_RADIUS,), PATH, np.eye(4), tuple(map(tuple, points)))


def make_pose(position: Tensor, quaternion: Tensor | None = None) -> np.ndarray:
    """Return the pose (4, 4) of a position (3,) [m] and a unit quaternion (4,), wxyz, or none."""
    T = torch.eye(4, dtype=torch.float64)
    T[:3, 3] = position
    if quaternion is not None and len(quaternion):
        T[:3, :3] = to_matrix(quaternion[None].double())[0]
    return T.numpy()


def _is_near(coordinates: Tensor) -> bool:
    return coordinates.abs().max().item() < FAR / 2


def _make_wall(normal: np.ndarray, offset: float, workspace: np.ndarray) -> Shape:
    """Make a thin square sheet on the surface of a half space, as large as the workspace's diagonal
    and next to its middle.
    """
    middle = workspace.mean(0)
    side = float(np.linalg.norm(workspace[1] - workspace[0]))
    T = np.eye(4)
    across = np.cross(normal, np.eye(3)[np.abs(normal).argmin()])
    across /= np.linalg.norm(across)
    T[:3, :3] = np.stack((across, np.cross(normal, across), normal), 1)
    # The outer face is the surface.
    T[:3, 3] = middle - (normal @ middle - offset + _WALL_THICKNESS / 2) * normal
    return Shape("box", (side, side, _WALL_THICKNESS), WALL, T)


__getattr__ = find_old_names(__name__)
