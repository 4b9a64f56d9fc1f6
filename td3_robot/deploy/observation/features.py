"""An arm at one moment, and what the columns of an observation are made of, each worked out when it
is asked for.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from td3_robot.deploy.observation import pick_script as picking
from td3_robot.deploy.observation import proximity as avoiding
from td3_robot.deploy.observation import push_script as pushing
from td3_robot.deploy.observation.grasp import Hand, way
from td3_robot.deploy.observation.joint_motion import damped, pointing_down
from td3_robot.deploy.observation.proximity import Links, Nearest
from td3_robot.deploy.robot.description import Robot
from td3_robot.deploy.robot.rotations import rotation_vector, to_matrix


@dataclass(frozen=True)
class Seen:
    """An arm at one moment.

    Attributes:
        robot: the arm.
        constants: those of the task.
        q, qd: (n,) joint positions [rad or m] and velocities [rad/s or m/s].
        gripper: its driver coordinate [rad or m].
        scene: what is around, by name: at least `goal`, in the base frame.
        joints: how many joints can move the TCP.
        hand: the gripper, where the task is about what it grasps.
        links: of the arm, where the task is about what they are near to.
    """

    robot: Robot
    constants: Mapping[str, float]
    q: np.ndarray
    qd: np.ndarray
    gripper: float
    scene: Mapping[str, np.ndarray]
    joints: int
    hand: Hand | None = None
    links: Links | None = None

    @functools.cached_property
    def frames(self) -> np.ndarray:
        """(1, n+1, 4, 4), see `Chain`."""
        return self.robot.chain.frames(self.q[None])

    @functools.cached_property
    def T(self) -> np.ndarray:
        """(4, 4) pose of the TCP in the base frame."""
        return self.frames[0, -1]

    @functools.cached_property
    def J(self) -> np.ndarray:
        """(6, n) its geometric Jacobian."""
        return self.robot.chain.jacobian(self.frames)[0]

    @property
    def goal(self) -> np.ndarray:
        """What is wanted."""
        return self.scene["goal"]

    @functools.cached_property
    def goal_matrix(self) -> np.ndarray:
        """(3, 3) the wanted orientation."""
        return to_matrix(self.goal[3:])

    @functools.cached_property
    def missing(self) -> np.ndarray:
        """(3,) from the TCP to the goal [m]."""
        return self.goal[:3] - self.T[:3, 3]

    @functools.cached_property
    def turn(self) -> np.ndarray:
        """(3,) rotation vector from the TCP's orientation to the goal's, in the base frame
        [rad].
        """
        return rotation_vector(self.goal_matrix @ self.T[:3, :3].T)

    @functools.cached_property
    def wanted(self) -> np.ndarray:
        """(6,) position and rotation error."""
        return np.concatenate((self.missing, self.turn))

    @functools.cached_property
    def whole_motion(self) -> np.ndarray:
        """(n,) the motion that would take both to zero at once, by damped least squares."""
        return damped(self.J, self.wanted, self.constants)

    @functools.cached_property
    def joint_motion(self) -> np.ndarray:
        """(n,) the same, half a turn at most a joint."""
        return np.minimum(np.maximum(self.whole_motion, -np.pi), np.pi)

    @functools.cached_property
    def near(self) -> Nearest:
        """What the arm is near to."""
        assert self.links is not None
        return avoiding.nearest(self.robot, self.links, self.frames, self.scene)

    @functools.cached_property
    def nearness(self) -> np.ndarray:
        """(L + 1,) of each link, and of the arm to itself: 1 in contact, falling to 1/e at
        `repulsion`.
        """
        repulsion = self.constants["repulsion"]
        return np.exp(-np.maximum(self.near.distance, -repulsion) / repulsion)

    @functools.cached_property
    def push(self) -> np.ndarray:
        """(L + 1, n) the joint motion by which it falls fastest, times `repulsion`."""
        return self.nearness[:, None] * self.near.gradient

    @property
    def following(self) -> np.ndarray:
        """(n,) the joint positions that come next on the way."""
        return self.scene["solution"] if self.scene["passed"][0] > 0.5 else self.scene["via"]

    @property
    def way_left(self) -> float:
        """How long the way takes yet with every joint at full speed [s]."""
        legs = np.abs((self.following - self.q, self.scene["solution"] - self.following))
        return (legs / self.robot.limits.velocity).max(1).sum()

    @property
    def picking(self) -> Hand:
        """The hand; columns that need one are those of robots that have one."""
        assert self.hand is not None
        return self.hand

    @functools.cached_property
    def hand_axes(self) -> np.ndarray:
        """(3, 3) the axes of the hand in the base frame: columns across, closing, approach."""
        return self.T[:3, :3] @ self.picking.axes

    @functools.cached_property
    def way(self) -> np.ndarray:
        """(3,) where a hand that picks is to go [error_unit]."""
        return (
            way(self.T[:3, 3], self.scene, self.picking, self.constants)
            / self.constants["error_unit"]
        )

    @functools.cached_property
    def pushing_way(self) -> np.ndarray:
        """(3,) where a hand that pushes is to go [error_unit]."""
        return (
            pushing.way(self.T[:3, 3], self.scene, self.picking, self.constants)
            / self.constants["error_unit"]
        )

    @functools.cached_property
    def pushing_turn(self) -> float:
        """By how much it has to turn to be square to the push [rad]."""
        return pushing.turn(self.hand_axes[:, 0], self.scene)

    def picking_script(self) -> np.ndarray:
        """(n + 1,) what the scripted pick would do, the gripper last."""
        way = self.way * self.constants["error_unit"]
        to, shut = picking.script(way, self.scene, self.picking, self.gripper, self.constants)
        axis, constants = self.hand_axes[:, 2], {"gain": picking.GAIN, "damping": picking.DAMPING}
        joints = pointing_down(self.J, axis, to, None, self.robot.limits, constants)
        return np.append(joints, -1.0 if shut else 1.0)

    def pushing_script(self) -> np.ndarray:
        """(n,) what the scripted push would do."""
        way = self.pushing_way * self.constants["error_unit"]
        return pointing_down(
            self.J, self.hand_axes[:, 2], way, self.pushing_turn, self.robot.limits, self.constants
        )

    def from_object(self, point: np.ndarray) -> np.ndarray:
        """(3,) from the object to a point [error_unit]."""
        return (point - self.scene["object"]) / self.constants["error_unit"]
