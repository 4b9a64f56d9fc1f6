"""Drawing of frames in Swift's page: light, camera, label, arms and shapes."""

import html
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import spatialgeometry as sg
from spatialmath import SE3
from spatialmath.base import r2q
from swift import DirectionalLight, HemisphereLight, Label

from envs.robots import Robot
from envs.robots.followers import move_followers
from envs.tasks.shapes import Shape
from envs.view.camera import CORNER, Camera, compute_camera_pose
from envs.view.handles import Handle
from envs.view.server import LocalSwift
from td3_robot.errors import ViewerError, get_first_line, not_none

GHOST = 0.3  # opacity of another controller's arm and shapes


class Arm(NamedTuple):
    """State of an arm to draw."""

    q: np.ndarray  # (n,) [rad or m]
    gripper: float = 0.0  # driver coordinate [rad or m]; ignored without a gripper
    base: tuple[float, float, float] = (0.0, 0.0, 0.0)  # position, from the first arm's base [m]
    solid: bool = False  # not see-through


class Frame(NamedTuple):
    """One picture: the arguments of `SwiftViewer.show`."""

    q: np.ndarray  # (n,) [rad or m]
    gripper: float = 0.0  # driver coordinate [rad or m]
    text: str = ""
    dt: float = 0.05  # [s] until the next picture
    shapes: tuple[Shape, ...] = ()  # what is around the arm
    ghosts: tuple[Arm, ...] = ()  # more arms of the same model, see-through unless solid
    handles: tuple[Handle, ...] = ()  # of what can be dragged
    paths: tuple[tuple[tuple[float, ...], ...], ...] = ()  # positions in the base frame [m]
    contacts: tuple[tuple[float, ...], ...] = ()  # positions of contact in the base frame [m]


def find_differing_shapes(shapes: Sequence[Shape], own: Sequence[Shape]) -> tuple[Shape, ...]:
    """Return the shapes that differ from the arm's own in place or look, made see-through."""
    return tuple(
        shape.scale_opacity(GHOST) for shape, mine in zip(shapes, own) if not shape.is_same(mine)
    )


class Drawing:
    """Drawing of a robot in a connected page.

    Args:
        swift: the page.
        robot: the robot to draw.
        wide, camera: see `camera.compute_camera_pose`.

    Raises:
        ViewerError: the page could not load the robot's meshes.
        TimeoutError: by all methods, if the page has gone.
    """

    def __init__(self, swift: LocalSwift, robot: Robot, wide: float = 0.0, camera: Camera = CORNER):
        self._swift = swift
        self._robot = robot
        swift.set_lights(
            [
                HemisphereLight(
                    sky_color=(1.0, 1.0, 1.0), ground_color=(0.45, 0.45, 0.5), intensity=1.25
                ),
                DirectionalLight(position=(1.2, -0.6, 2.2), target=(0.3, 0.0, 0.2), intensity=2.1),
            ]
        )
        swift.set_camera_pose(*compute_camera_pose(camera, robot.workspace, wide))
        self._label: Any = swift.add_ui(Label())
        self._arms = [_DrawnArm(swift, robot, opacity=1.0)]
        self._sent_handles: list[dict] = []
        self._sent_marks: list[list] = [[], [], []]
        self._shapes: list[tuple[tuple, sg.Shape]] = []  # look of each shape, and Swift's shape

    def draw(self, frame: Frame) -> None:
        """Draw a frame, reusing what it shares with the last one."""
        while len(self._arms) < 1 + len(frame.ghosts):
            opacity = 1.0 if frame.ghosts[len(self._arms) - 1].solid else GHOST
            self._arms.append(_DrawnArm(self._swift, self._robot, opacity))
        while len(self._arms) > 1 + len(frame.ghosts):
            self._swift.remove(self._arms.pop().handle)
        for drawn, arm in zip(self._arms, (Arm(frame.q, frame.gripper), *frame.ghosts)):
            drawn.move_to(arm)
        self._update_shapes(frame.shapes)
        self._send_handles(frame.handles)
        self._send_marks(frame)
        self._label.label = html.escape(frame.text)
        self._swift.step(frame.dt)

    def _send_handles(self, handles: Sequence[Handle]) -> None:
        """Send the handles to the page, if they changed."""
        sent = []
        for name, T_bh, size, turns in handles:
            T = self._robot.rtb.base.A @ T_bh
            sent.append(
                {
                    "name": name,
                    "t": T[:3, 3].tolist(),
                    "q": convert_to_quaternion(T).tolist(),
                    "size": size,
                    "turns": turns,
                }
            )
        if sent != self._sent_handles:
            self._swift.send_handles(sent)
            self._sent_handles = sent

    def _send_marks(self, frame: Frame) -> None:
        """Send goals, TCP paths and contacts to the page, if they changed."""

        def transform(points):
            return (self._robot.rtb.base * np.transpose(points)).T.tolist() if len(points) else []

        drops = transform([shape.T_bs[:3, 3] for shape in frame.shapes if shape.is_goal])
        paths = [transform(path) for path in frame.paths if path]
        marks = [drops, paths, transform(frame.contacts)]
        if marks != self._sent_marks:
            self._swift.send_marks(*marks)
            self._sent_marks = marks

    def _update_shapes(self, shapes: Sequence[Shape]) -> None:
        """Move the drawn shapes; redraw those with another look, remove those that are gone."""
        kept = []
        for i, shape in enumerate(shapes):
            pose = SE3(self._robot.rtb.base.A @ shape.T_bs, check=False)
            if i < len(self._shapes) and self._shapes[i][0] == shape.look:
                self._shapes[i][1].T = pose
                kept.append(self._shapes[i])
            else:
                kept.append((shape.look, _make_swift_shape(shape, pose)))
                self._swift.add_shape(kept[i][1])
        for pair in self._shapes:
            if not any(pair is other for other in kept):
                self._swift.remove(pair[1])
        self._shapes = kept


def list_parts(robot: Robot) -> list[Any]:
    """List spatialgeometry's shapes of an arm and its gripper, in the order of their poses."""
    holders = (robot.rtb, *robot.rtb.grippers)
    return [part for holder in holders for link in holder.links for part in link.geometry]


class _DrawnArm:
    """An arm in the page. All arms share a model, so `_compute_poses` sets the gripper's joints."""

    def __init__(self, swift: LocalSwift, robot: Robot, opacity: float):
        self._rtb = robot.rtb
        self._hand = robot.gripper
        self._arm = Arm(np.asarray(robot.home))
        parts = list_parts(robot)
        for part in parts:
            part.opacity = opacity
        try:
            self.handle = swift.add_assembly(self._compute_poses, parts, readonly=True)
        except RuntimeError as error:  # a mesh that is missing or cannot be read
            raise ViewerError(
                f"cannot show robot {robot.name!r}: {get_first_line(error)}"
            ) from None

    def move_to(self, arm: Arm) -> None:
        """Set the arm's state for the next picture."""
        self._arm = arm

    def _compute_poses(self, q: Any) -> list[SE3]:
        for drawn in self._rtb.grippers if self._hand else ():
            drawn.q = not_none(self._hand).compute_model_q(drawn.links, float(self._arm.gripper))
        move_followers(self._rtb, np.asarray(self._arm.q))
        poses = self._rtb.fkine_geometry(self._arm.q)
        return [SE3(*self._arm.base) * pose for pose in poses] if any(self._arm.base) else poses


def convert_to_quaternion(T: np.ndarray) -> np.ndarray:
    """Return the quaternion (4,) xyzw, as in three.js, of a pose (4, 4)."""
    return r2q(T[:3, :3], order="xyzs")


def _make_swift_shape(shape: Shape, pose: SE3) -> sg.Shape:
    """Make Swift's object of a shape."""
    if shape.kind == "sphere":
        return sg.Sphere(shape.size[0], color=shape.colour, pose=pose)
    if shape.kind == "box":
        return sg.Cuboid(shape.size, color=shape.colour, pose=pose)
    if shape.kind == "cylinder":
        radius, length = shape.size
        return sg.Cylinder(radius, length, color=shape.colour, pose=pose)
    if shape.kind == "axes":
        return sg.Axes(shape.size[0], arrows=True, radius=0.004, pose=pose)
    return sg.Polyline(
        np.transpose(shape.points), radius=shape.size[0], color=shape.colour, pose=pose
    )
