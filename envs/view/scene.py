"""Frames drawn in Swift's page: light, camera and label, the arms, and what is around them."""

import html
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import spatialgeometry as sg
from spatialmath import SE3
from spatialmath.base import r2q
from swift import DirectionalLight, HemisphereLight, Label

from envs.robots import Robot
from envs.tasks.shapes import Shape
from envs.view.camera import CORNER, Camera, placed
from envs.view.handles import Handle
from envs.view.server import LocalSwift
from td3_robot.errors import ViewerError, get_first_line, not_none

GHOST = 0.3  # opacity of all that is another controller's


class Arm(NamedTuple):
    """Where an arm is."""

    q: np.ndarray  # (n,) [rad or m]
    gripper: float = 0.0  # driver coordinate [rad or m]; ignored without a gripper
    place: tuple[float, float, float] = (
        0.0,
        0.0,
        0.0,
    )  # of its base, from that of the first arm [m]
    solid: bool = False  # not see-through


class Frame(NamedTuple):
    """One picture: the arguments of `SwiftViewer.show`."""

    q: np.ndarray  # (n,) [rad or m]
    gripper: float = 0.0  # driver coordinate [rad or m]
    text: str = ""
    dt: float = 0.05  # [s] until the next picture
    shapes: tuple[Shape, ...] = ()  # what is around the arm
    ghosts: tuple[Arm, ...] = ()  # the same arm elsewhere, see-through unless they are solid
    handles: tuple[Handle, ...] = ()  # of what can be moved by hand
    ways: tuple[
        tuple[tuple[float, ...], ...], ...
    ] = ()  # lines through positions in the base frame [m]
    touches: tuple[tuple[float, ...], ...] = ()  # positions of contact in the base frame [m]


def elsewhere(shapes: Sequence[Shape], own: Sequence[Shape]) -> tuple[Shape, ...]:
    """What of another controller's shapes is not where the arm's own are, or looks another way;
    see-through.
    """
    return tuple(
        shape.see_through(GHOST) for shape, mine in zip(shapes, own) if not shape.same(mine)
    )


class Drawing:
    """A robot in a connected page.

    Args:
        swift: the page.
        robot: what to draw.
        wide, camera: see `camera.placed`.

    Raises:
        ViewerError: the page could not load the robot's meshes.
        TimeoutError: as all methods, where the page has gone.
    """

    def __init__(self, swift: LocalSwift, robot: Robot, wide: float = 0.0, camera: Camera = CORNER):
        self._swift, self._robot = swift, robot
        swift.set_lights(
            [
                HemisphereLight(
                    sky_color=(1.0, 1.0, 1.0), ground_color=(0.45, 0.45, 0.5), intensity=1.25
                ),
                DirectionalLight(position=(1.2, -0.6, 2.2), target=(0.3, 0.0, 0.2), intensity=2.1),
            ]
        )
        swift.set_camera_pose(*placed(camera, robot.workspace, wide))
        self._label: Any = swift.add_ui(Label())
        self._arms = [_DrawnArm(swift, robot, opacity=1.0)]
        self._offered: list[dict] = []
        self._marked: list[list] = [[], [], []]
        self._shapes: list[
            tuple[tuple, sg.Shape]
        ] = []  # what each thing around the arm looks like, and the thing

    def draw(self, frame: Frame) -> None:
        """Show a frame: what it shares with the last one moves, the rest is made anew."""
        while len(self._arms) < 1 + len(frame.ghosts):
            opacity = 1.0 if frame.ghosts[len(self._arms) - 1].solid else GHOST
            self._arms.append(_DrawnArm(self._swift, self._robot, opacity))
        while len(self._arms) > 1 + len(frame.ghosts):
            self._swift.remove(self._arms.pop().handle)
        for drawn, arm in zip(self._arms, (Arm(frame.q, frame.gripper), *frame.ghosts)):
            drawn.place(arm)
        self._place(frame.shapes)
        self._offer(frame.handles)
        self._mark(frame)
        self._label.label = html.escape(frame.text)
        self._swift.step(frame.dt)

    def _offer(self, handles: Sequence[Handle]) -> None:
        """Tell the page what can be moved, where it has changed."""
        told = []
        for name, T_bh, size, turns in handles:
            T = self._robot.rtb.base.A @ T_bh
            told.append(
                {
                    "name": name,
                    "t": T[:3, 3].tolist(),
                    "q": quaternion(T).tolist(),
                    "size": size,
                    "turns": turns,
                }
            )
        if told != self._offered:
            self._swift.offer(told)
            self._offered = told

    def _mark(self, frame: Frame) -> None:
        """Tell the page where goals are in the air, where tools have been and arms touch, where
        there are any.
        """

        def there(points):
            return (self._robot.rtb.base * np.transpose(points)).T.tolist() if len(points) else []

        drops = there([shape.T_bs[:3, 3] for shape in frame.shapes if shape.is_goal])
        marks = [drops, [there(way) for way in frame.ways if way], there(frame.touches)]
        if marks != self._marked:
            self._swift.mark(*marks)
            self._marked = marks

    def _place(self, shapes: Sequence[Shape]) -> None:
        """Move what is drawn to where it is now; what looks another way is drawn anew, what is gone
        is removed.
        """
        kept = []
        for i, shape in enumerate(shapes):
            pose = SE3(self._robot.rtb.base.A @ shape.T_bs, check=False)
            if i < len(self._shapes) and self._shapes[i][0] == shape.look:
                self._shapes[i][1].T = pose
                kept.append(self._shapes[i])
            else:
                kept.append((shape.look, _drawable(shape, pose)))
                self._swift.add_shape(kept[i][1])
        for pair in self._shapes:
            if not any(pair is other for other in kept):
                self._swift.remove(pair[1])
        self._shapes = kept


class _DrawnArm:
    """One of the arms in the page. All share the model, so a gripper's joints are set where its
    poses are asked for.
    """

    def __init__(self, swift: LocalSwift, robot: Robot, opacity: float):
        self._rtb, self._hand = robot.rtb, robot.gripper
        self._at = Arm(np.asarray(robot.home))
        parts = [
            part
            for holder in (self._rtb, *self._rtb.grippers)
            for link in holder.links
            for part in link.geometry
        ]
        for part in parts:
            part.opacity = opacity
        try:
            self.handle = swift.add_assembly(self._poses, parts, readonly=True)
        except RuntimeError as error:  # a mesh that is missing or cannot be read
            raise ViewerError(
                f"cannot show robot {robot.name!r}: {get_first_line(error)}"
            ) from None

    def place(self, arm: Arm) -> None:
        """Be there from the next picture on."""
        self._at = arm

    def _poses(self, q: Any) -> list[SE3]:
        for drawn in self._rtb.grippers if self._hand else ():
            drawn.q = not_none(self._hand).model_q(drawn, float(self._at.gripper))
        poses = self._rtb.fkine_geometry(self._at.q)
        return [SE3(*self._at.place) * pose for pose in poses] if any(self._at.place) else poses


def quaternion(T: np.ndarray) -> np.ndarray:
    """(4,) x, y, z, w, as three.js has it, of a pose (4, 4)."""
    return r2q(T[:3, :3], order="xyzs")


def _drawable(shape: Shape, pose: SE3) -> sg.Shape:
    """Swift's own description of a shape."""
    if shape.kind == "sphere":
        return sg.Sphere(shape.size[0], color=shape.colour, pose=pose)
    if shape.kind == "box":
        return sg.Cuboid(shape.size, color=shape.colour, pose=pose)
    if shape.kind == "axes":
        return sg.Axes(shape.size[0], arrows=True, radius=0.004, pose=pose)
    return sg.Polyline(
        np.transpose(shape.points), radius=shape.size[0], color=shape.colour, pose=pose
    )
