"""The content of a URDF file as plain, checked data.

Only what the simulators and the view have a use for is kept; transmissions, sensors and other
programs' elements are passed over.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from td3_robot.errors import ConfigError

MOVING = ("revolute", "continuous", "prismatic")
_MAX_LINKS = 1000  # a humanoid with hands has about 100
_LISTED = 10
_MAX_DEPTH = 100  # joints between the root and a link; roboticstoolbox goes along them recursively
FAR = 100.0  # [rad or m] beyond this float32 no longer resolves 1e-5


@dataclass(frozen=True)
class Pose:
    """A frame in another: xyz [m], and fixed-axis roll, pitch, yaw [rad]."""

    xyz: tuple[float, float, float] = (0.0, 0.0, 0.0)
    rpy: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @classmethod
    def from_quaternion(
        cls, xyzw: tuple[float, ...], xyz: tuple[float, float, float] = (0.0, 0.0, 0.0)
    ) -> "Pose":
        """Make a pose from a unit quaternion (x, y, z, w) and a position [m]."""
        x, y, z, w = xyzw
        xx, yy, zz = (2.0 * value * value for value in (x, y, z))
        R = (
            (1.0 - yy - zz, 2.0 * (x * y - z * w), 2.0 * (x * z + y * w)),
            (2.0 * (x * y + z * w), 1.0 - xx - zz, 2.0 * (y * z - x * w)),
            (2.0 * (x * z - y * w), 2.0 * (y * z + x * w), 1.0 - xx - yy),
        )
        yaw = math.atan2(R[1][0], R[0][0])
        pitch = math.atan2(-R[2][0], math.hypot(R[0][0], R[1][0]))
        # of the rotation that is left without the yaw: exact also where the pitch is a right angle
        sin = math.sin(yaw)
        cos = math.cos(yaw)
        roll = math.atan2(sin * R[0][2] - cos * R[1][2], cos * R[1][1] - sin * R[0][1])
        return cls(xyz, (roll, pitch, yaw))

    @property
    def T(self) -> np.ndarray:
        """(4, 4), with R = Rz(yaw) Ry(pitch) Rx(roll)."""
        (sr, sp, sy) = np.sin(self.rpy)
        (cr, cp, cy) = np.cos(self.rpy)
        T = np.eye(4)
        T[:3, :3] = (
            (cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr),
            (sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr),
            (-sp, cp * sr, cp * cr),
        )
        T[:3, 3] = self.xyz
        return T


@dataclass(frozen=True)
class Shape:
    """A visual or a collision body.

    Attributes:
        kind: "box", "cylinder", "sphere", "capsule" or "mesh".
        size: box: x, y, z; cylinder: radius, length; sphere: radius; capsule: radius, length
            between the centres of its ends [m]; mesh: its scale along x, y, z. Cylinders and
            capsules lie along z.
        pose: the shape in its link.
        mesh: path of the mesh file.
        color: red, green, blue, opacity in [0, 1].
        fault: why the mesh file cannot be used, for example that there is none; None if it can.
    """

    kind: str
    size: tuple[float, ...]
    pose: Pose
    mesh: Path | None = None
    color: tuple[float, ...] | None = None
    fault: str | None = None


@dataclass(frozen=True)
class Inertial:
    """The mass and inertia of a link.

    Attributes:
        mass: [kg].
        center: of mass, in the link's frame [m].
        inertia: three rows, about it, along the axes of the link's frame [kg m2].
    """

    mass: float
    center: tuple[float, ...]
    inertia: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Link:
    """A rigid body."""

    name: str
    visuals: tuple[Shape, ...] = ()
    collisions: tuple[Shape, ...] = ()
    inertial: Inertial | None = None


@dataclass(frozen=True)
class Mimic:
    """Follows another joint: position = multiplier * the other's + offset."""

    joint: str
    multiplier: float
    offset: float


@dataclass(frozen=True)
class Joint:
    """Ties a child link to a parent.

    Attributes:
        kind: "revolute", "continuous", "prismatic" or "fixed".
        pose: the child link's frame in the parent's, at joint position 0.
        axis: (3,) of length 1, in the child's frame; what the joint turns about or slides along.
        lower, upper: position limits [rad or m], the soft ones of a safety controller where those
            are further in; None where the file gives none.
        velocity: limit [rad/s or m/s], as written; None where the file gives none.
        effort: most torque or force, as written [Nm or N]; None where the file gives none.
        acceleration: limit, the lesser of speeding up and braking [rad/s2 or m/s2]; None where the
            file gives none.
        jerk: limit [rad/s3 or m/s3]; None where the file gives none.
        mimic: the joint that it follows, if any.
    """

    name: str
    kind: str
    parent: str
    child: str
    pose: Pose
    axis: tuple[float, float, float] = (1.0, 0.0, 0.0)
    lower: float | None = None
    upper: float | None = None
    velocity: float | None = None
    effort: float | None = None
    acceleration: float | None = None
    jerk: float | None = None
    mimic: Mimic | None = None

    @property
    def moves(self) -> bool:
        """True unless it is fixed."""
        return self.kind in MOVING


@dataclass(frozen=True)
class Tree:
    """A whole robot: links joined without loops, from one root.

    Attributes:
        source: the file, as messages name it.
        links, joints: by name, in the order of the file.
        root: name of the link that has no parent.
        notices: what of the file is not used, or not as it stands there; a line each.
    """

    source: str
    name: str
    links: dict[str, Link]
    joints: dict[str, Joint]
    root: str
    notices: tuple[str, ...] = ()

    def find_joint_above(self, link: str) -> Joint | None:
        """Find the joint that holds a link; None for the root."""
        return next((joint for joint in self.joints.values() if joint.child == link), None)

    def find_joints_below(self, link: str) -> list[Joint]:
        """Find the joints that a link holds."""
        return [joint for joint in self.joints.values() if joint.parent == link]

    def find_path(self, link: str) -> list[Joint]:
        """Find the joints from the root down to a link."""
        joints = []
        while (joint := self.find_joint_above(link)) is not None:
            joints.append(joint)
            link = joint.parent
        return joints[::-1]


def join_names(names: Iterable[str]) -> str:
    """Join names for a message, the first ten."""
    names = list(names)
    return ", ".join(names[:_LISTED]) + (
        f", ... ({len(names)} in all)" if len(names) > _LISTED else ""
    )


def make_tree(
    source: str, name: str, links: list[Link], joints: list[Joint], notices: Sequence[str] = ()
) -> Tree:
    """Join links and joints, if they make one tree.

    Raises:
        ConfigError: no links or very many, names used twice or not defined, two parents, several
            roots, a loop, a wrong mimic.
    """
    for kind, things in (("link", links), ("joint", joints)):
        if len(things) > _MAX_LINKS:
            raise ConfigError(
                f"{source}: has {len(things)} {kind}s; at most {_MAX_LINKS} are taken"
            )
        names = [thing.name for thing in things]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"{source}: two {kind}s are called {twice[0]!r}")
    tree = Tree(
        source,
        name,
        {link.name: link for link in links},
        {joint.name: joint for joint in joints},
        "",
    )
    if not links:
        raise ConfigError(
            f"{source}: <robot> has no <link>; where a xacro file holds macros alone, load the "
            "one that uses them"
        )
    for joint in joints:
        for role in ("parent", "child"):
            if getattr(joint, role) not in tree.links:
                raise ConfigError(
                    f"{source}: joint {joint.name!r}: there is no {role} link "
                    f"{getattr(joint, role)!r}"
                )
    _check_mimics(tree)
    return Tree(source, name, tree.links, tree.joints, _find_root(tree), tuple(notices))


def _find_root(tree: Tree) -> str:
    """Find the one link without a parent, from which all others can be reached."""
    above: dict[str, Joint] = {}
    for joint in tree.joints.values():
        if joint.child in above:
            names = f"{above[joint.child].name!r} and {joint.name!r}"
            raise ConfigError(
                f"{tree.source}: link {joint.child!r} is the child of two joints, {names}"
            )
        above[joint.child] = joint
    roots = [link for link in tree.links if link not in above]
    reached = set(roots)
    level = roots
    depth = 0
    while level := [joint.child for link in level for joint in tree.find_joints_below(link)]:
        reached = reached | set(level)
        depth = depth + 1
    if depth > _MAX_DEPTH:
        raise ConfigError(
            f"{tree.source}: has {depth} joints one after the other; at most {_MAX_DEPTH} are taken"
        )
    if loop := [link for link in tree.links if link not in reached]:
        raise ConfigError(
            f"{tree.source}: links hang on each other in a circle: {join_names(map(repr, loop))}"
        )
    if len(roots) > 1:
        raise ConfigError(
            f"{tree.source}: several links have no parent, one may: {join_names(map(repr, roots))}"
        )
    return roots[0]


def _check_mimics(tree: Tree) -> None:
    """Check that every mimic follows a moving joint, and none follows itself in the end."""
    for joint in tree.joints.values():
        seen = {joint.name}
        follower = joint
        while follower.mimic is not None:
            leader = tree.joints.get(follower.mimic.joint)
            if leader is None or not leader.moves:
                fault = "does not exist" if leader is None else "is fixed"
                what = f"{follower.mimic.joint!r}, which {fault}"
                raise ConfigError(f"{tree.source}: joint {follower.name!r} mimics {what}")
            if len(seen) > _MAX_DEPTH:
                raise ConfigError(
                    f"{tree.source}: joint {joint.name!r} mimics another through over "
                    f"{_MAX_DEPTH} others"
                )
            if leader.name in seen:
                raise ConfigError(
                    f"{tree.source}: joint {leader.name!r} mimics itself, directly or through "
                    "others"
                )
            seen.add(leader.name)
            follower = leader
