"""Parts that a task adds to the MuJoCo engine: bodies, who may touch whom, and what is felt.

A task returns a `PhysicsSpec` as its `physics`; an engine with contact dynamics builds it, the
kinematic engine has none of it. What changes between episodes is in the scene, under the body's
name: see `Body`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from envs.kinematics.rotations import from_vector, to_matrix
from envs.simulation.engine import Scene
from td3_robot.errors import ConfigError, unknown

Numbers = tuple[float, ...]

TABLE = "table"  # names of what touches besides bodies
ROBOT = "robot"  # the arm with all that it carries
HAND = "hand"  # the gripper with all that it carries
WORLD = "world"  # MuJoCo's own body
FIXED = "fixed"  # kinds of motion
PLACED = "placed"
HELD = "held"
FREE = "free"
JOINTED = "jointed"
MOTIONS = (FIXED, PLACED, HELD, FREE, JOINTED)
HINGE = "hinge"  # kinds of joints
SLIDE = "slide"
SIZES = {"box": 3, "cylinder": 2, "capsule": 2, "sphere": 1}  # numbers of each kind of geom
WRENCH = "wrench"  # what can be felt, names in scenes
JOINT_TORQUE = "joint_torque"
SENSES = (WRENCH, JOINT_TORQUE)
# What episodes can vary of a body: how many numbers each is, and the motion that it needs.
VARIED = {"friction": 1, "mass": 1, "place": 7, "anchor": 3, "joint_friction": 1}
VARIED |= {"joint_damping": 1}
_NEEDS = {"place": HELD, "anchor": JOINTED, "joint_friction": JOINTED, "joint_damping": JOINTED}
_NO_TURN = (1.0, 0.0, 0.0, 0.0)
_ROUNDING = 1e-4  # of the length of a unit quaternion


def _check_pose(owner: str, position: Numbers, quaternion: Numbers) -> None:
    """Check that a position is a place and a quaternion a rotation.

    Raises:
        ConfigError: one has not its three or four finite numbers, or the length is not 1.
    """
    if len(position) != 3 or not all(map(math.isfinite, position)):
        raise ConfigError(f"{owner} needs a position of three finite numbers, got {list(position)}")
    if len(quaternion) != 4 or not abs(math.hypot(*quaternion) - 1.0) < _ROUNDING:
        raise ConfigError(
            f"{owner} needs a quaternion wxyz of length 1, such as 1 0 0 0, got {list(quaternion)}"
        )


@dataclass(frozen=True)
class Geom:
    """A convex shape of a body.

    Attributes:
        kind: "box", "cylinder", "capsule" or "sphere".
        size: half sides of a box; radius and half length along z of a cylinder or capsule; radius
            of a sphere [m].
        position, quaternion: pose in the body's frame [m], wxyz.
        friction: sliding; of two that touch the greater counts.

    Raises:
        ConfigError: an unknown kind, a size that does not belong to it, or values that cannot be
            right.
    """

    kind: str
    size: Numbers
    position: Numbers = (0.0, 0.0, 0.0)
    quaternion: Numbers = _NO_TURN
    friction: float = 0.3

    def __post_init__(self):
        if self.kind not in SIZES:
            raise unknown("kind of geom", self.kind, SIZES)
        if len(self.size) != SIZES[self.kind] or not all(0 < x < math.inf for x in self.size):
            raise ConfigError(
                f"a {self.kind} needs {SIZES[self.kind]} positive sizes, got {list(self.size)}"
            )
        if not 0 <= self.friction < math.inf:
            raise ConfigError(
                f"friction of a {self.kind} must be from 0 to below infinity, got {self.friction!r}"
            )
        _check_pose(f"a {self.kind}", self.position, self.quaternion)


@dataclass(frozen=True)
class BodyJoint:
    """The hinge or slide by which a body hangs on the world, as a door or a drawer does.

    Attributes:
        kind: "hinge" or "slide".
        axis: (3,) its direction in the body's frame, of any length.
        anchor: (3,) a point of a hinge's axis in the body's frame [m].
        limits: least and greatest position [rad or m].
        friction: dry friction [Nm or N].
        damping: [Nm s/rad or N s/m].

    Raises:
        ConfigError: values that cannot be right.
    """

    kind: str
    axis: Numbers = (0.0, 0.0, 1.0)
    anchor: Numbers = (0.0, 0.0, 0.0)
    limits: tuple[float, float] = (0.0, 1.0)
    friction: float = 0.0
    damping: float = 0.0

    def __post_init__(self):
        if self.kind not in (HINGE, SLIDE):
            raise unknown("kind of joint", self.kind, (HINGE, SLIDE))
        finite = all(map(math.isfinite, (*self.axis, *self.anchor)))
        if len(self.axis) != 3 or len(self.anchor) != 3 or not finite or not any(self.axis):
            raise ConfigError(
                f"a {self.kind} needs three finite numbers of its axis, not all zero, and of its "
                f"anchor, got {list(self.axis)} and {list(self.anchor)}"
            )
        if len(self.limits) != 2 or not self.limits[0] < self.limits[1]:
            raise ConfigError(
                f"limits of a {self.kind}: two, the lower first, got {list(self.limits)}"
            )
        for name in ("friction", "damping"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ConfigError(
                    f"{name} of a {self.kind} must be from 0 to below infinity, "
                    f"got {getattr(self, name)!r}"
                )


@dataclass(frozen=True)
class Body:
    """A rigid body that a task adds to the world.

    Attributes:
        name: in scenes and contacts.
        geoms: its shapes.
        motion: "fixed" in the base frame at its pose; "placed" at the scene's part `name` (7,), a
            position [m] and a unit quaternion wxyz in the base frame, which the task may change in
            every step; "held", fixed to the TCP frame at its pose; "free", which starts at the
            scene's part `name` (7,), and the engine keeps that part up to date; or "jointed", which
            is at the scene's part `name` (7,) with its joint at zero. The engine keeps the joint's
            position `<name>_joint` () [rad or m] up to date; it starts there, or at zero.
        position, quaternion: its pose, if "fixed" or "held" [m], wxyz.
        mass: if "held", "free" or "jointed" [kg]; spread as in a solid box around the geoms.
        varied: what differs between episodes: "friction" and "mass", the scene's parts
            `<name>_friction` and `<name>_mass` (); of a held body "place", its pose `<name>_place`
            (7,) in the TCP frame; of a jointed one "anchor" (3,), "joint_friction" () and
            "joint_damping" (), as in `BodyJoint`.
        joint: if "jointed".

    Raises:
        ConfigError: values that cannot be right.
    """

    name: str
    geoms: tuple[Geom, ...]
    motion: str = FIXED
    position: Numbers = (0.0, 0.0, 0.0)
    quaternion: Numbers = _NO_TURN
    mass: float = 0.1
    varied: tuple[str, ...] = ()
    joint: BodyJoint | None = None

    def __post_init__(self):
        if self.motion not in MOTIONS:
            raise unknown(f"motion of body {self.name!r}", self.motion, MOTIONS)
        if self.name in ("", TABLE, ROBOT, HAND, WORLD) or not self.geoms:
            raise ConfigError(
                f"body {self.name!r} needs at least one geom and a name of its own, "
                f"not {TABLE}, {ROBOT}, {HAND} or {WORLD}"
            )
        if not 0 < self.mass < math.inf:
            raise ConfigError(
                f"body {self.name!r}: mass must be positive and finite, got {self.mass!r}"
            )
        _check_pose(f"body {self.name!r}", self.position, self.quaternion)
        for what in self.varied:
            if what not in VARIED:
                raise unknown(f"what varies of body {self.name!r}", what, VARIED)
            if self.motion != _NEEDS.get(what, self.motion):
                raise ConfigError(
                    f"body {self.name!r}: the {what} of a {_NEEDS[what]} body alone can vary"
                )
        if (self.joint is not None) != (self.motion == JOINTED):
            raise ConfigError(
                f"body {self.name!r}: a joint and the motion {JOINTED!r} need each other"
            )

    @property
    def pose(self) -> Numbers:
        """The constant pose (7,): position [m] and quaternion."""
        return (*self.position, *self.quaternion)

    @property
    def joint_key(self) -> str:
        """The scene's part with the position of the joint."""
        return f"{self.name}_joint"

    @property
    def varied_keys(self) -> dict[str, str]:
        """The scene's part of each thing that varies."""
        return {what: f"{self.name}_{what}" for what in self.varied}


@dataclass(frozen=True)
class AllowedContact:
    """Two that may touch each other.

    Attributes:
        first, second: names of bodies, or "table", "robot" (the arm with all that it carries) or
            "hand" (the gripper with all that it carries).
        force: greatest allowed force between them [N]; an episode with more is no success.

    Raises:
        ConfigError: the force is negative or no number.
    """

    first: str
    second: str
    force: float = float("inf")

    def __post_init__(self):
        if not self.force >= 0.0:
            raise ConfigError(
                f"force between {self.first!r} and {self.second!r} must not be negative, "
                f"got {self.force!r}"
            )


@dataclass(frozen=True)
class PhysicsSpec:
    """The needs of a task in the MuJoCo engine.

    Any contact of the arm, or of what it holds, with a body or the table rules out success, except
    `contacts`. In scenes are `contact_forces` and `contact_depths` (B, P), the greatest force [N]
    and penetration [m] of each of `contacts` during the period.

    Attributes:
        bodies: that are around.
        contacts: which pairs may touch.
        senses: what is felt, in the scene: "wrench" (B, 6), the external force [N] and moment [Nm]
            on the gripper at the TCP in the base frame, as a wrist sensor measures them; and
            "joint_torque" (B, n), the external torques, the arm's model minus its motors [Nm or
            N]. Both are means over the control period.
        constants: of `Contacts`, in place of those of their file.
        servo_stiffness, servo_damping: factors of the arm's servos: less than 1 for an arm that
            yields, as joint impedance control lets it (libfranka's `setJointImpedance`).

    Raises:
        ConfigError: a name that does not exist, or is there twice.
    """

    bodies: tuple[Body, ...] = ()
    contacts: tuple[AllowedContact, ...] = ()
    senses: tuple[str, ...] = ()
    constants: Mapping[str, float | Numbers] = field(default_factory=dict)
    servo_stiffness: float = 1.0
    servo_damping: float = 1.0

    def __post_init__(self):
        for name in ("servo_stiffness", "servo_damping"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be positive, got {getattr(self, name)!r}")
        names = [body.name for body in self.bodies]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ConfigError(f"body {twice!r} is there twice")
        for contact in self.contacts:
            for name in (contact.first, contact.second):
                if name not in (*names, TABLE, ROBOT, HAND):
                    raise unknown("body in contacts", name, (*names, TABLE, ROBOT, HAND))
        for name in self.senses:
            if name not in SENSES:
                raise unknown("sense", name, SENSES)

    def find(self, name: str) -> Body:
        """Return the body of a name.

        Raises:
            ConfigError: no such body.
        """
        for body in self.bodies:
            if body.name == name:
                return body
        raise unknown("body", name, [body.name for body in self.bodies])

    @property
    def varied_keys(self) -> tuple[str, ...]:
        """The parts of scenes that vary bodies."""
        return tuple(key for body in self.bodies for key in body.varied_keys.values())


def get_body_poses(body: Body, scene: Scene, T_be: Tensor) -> Tensor:
    """Return the poses (B, 4, 4) of a body in the base frame.

    Args:
        T_be: (B, 4, 4) TCP poses, for bodies that are held.
    """
    if body.motion in (PLACED, FREE):
        return _make_poses(scene[body.name])
    if body.joint is not None:
        return _make_poses(scene[body.name]) @ _move_joint(body, body.joint, scene)
    varied = scene.get(f"{body.name}_place") if "place" in body.varied else None
    pose = T_be.new_tensor(body.pose).expand(len(T_be), 7) if varied is None else varied
    T = _make_poses(pose)
    return T_be @ T if body.motion == HELD else T


def _move_joint(body: Body, joint: BodyJoint, scene: Scene) -> Tensor:
    """Return the poses (B, 4, 4) of a jointed body in its frame of joint position zero."""
    position = scene[body.joint_key]
    axis = torch.nn.functional.normalize(position.new_tensor(joint.axis), dim=0)
    T = torch.eye(4, dtype=position.dtype, device=position.device).repeat(len(position), 1, 1)
    along = position[:, None] * axis
    if joint.kind == SLIDE:
        T[:, :3, 3] = along
        return T
    anchor = position.new_tensor(joint.anchor).expand(len(position), 3)
    if "anchor" in body.varied:
        anchor = scene[f"{body.name}_anchor"]
    R = to_matrix(from_vector(along))
    T[:, :3, :3] = R
    T[:, :3, 3] = anchor - (R @ anchor[:, :, None])[:, :, 0]
    return T


def _make_poses(pose: Tensor) -> Tensor:
    T = torch.eye(4, dtype=pose.dtype, device=pose.device).repeat(len(pose), 1, 1)
    T[:, :3, :3] = to_matrix(pose[:, 3:])
    T[:, :3, 3] = pose[:, :3]
    return T
