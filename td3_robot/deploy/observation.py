"""What a policy sees, column by column: the simulator's observation, worked out of what an arm knows.

An exported policy lists its columns by name and width; each is one function here, of what is seen now. To add a column
is to add its function to `COLUMNS`, or to `OWN` where a task means something of its own by the name.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from td3_robot.deploy import avoiding, pushing
from td3_robot.deploy.avoiding import Links, Nearest
from td3_robot.deploy.description import Robot
from td3_robot.deploy.errors import DeployError
from td3_robot.deploy.hand import Hand, way
from td3_robot.deploy.motions import damped, inside, room, within
from td3_robot.deploy.rotations import rotation_vector, to_matrix


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
        """(3,) rotation vector from the TCP's orientation to the goal's, in the base frame [rad]."""
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
        """(L + 1,) of each link, and of the arm to itself: 1 in contact, falling to 1/e at `repulsion`."""
        repulsion = self.constants["repulsion"]
        return np.exp(-np.maximum(self.near.distance, -repulsion) / repulsion)

    @functools.cached_property
    def push(self) -> np.ndarray:
        """(L + 1, n) the joint motion by which it falls fastest, times `repulsion`."""
        return self.nearness[:, None] * self.near.gradient

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
        return way(self.T[:3, 3], self.scene, self.picking, self.constants) / self.constants["error_unit"]

    @functools.cached_property
    def pushing_way(self) -> np.ndarray:
        """(3,) where a hand that pushes is to go [error_unit]."""
        return pushing.way(self.T[:3, 3], self.scene, self.picking, self.constants) / self.constants["error_unit"]

    @functools.cached_property
    def pushing_turn(self) -> float:
        """By how much it has to turn to be square to the push [rad]."""
        return pushing.turn(self.hand_axes[:, 0], self.scene)

    def from_object(self, point: np.ndarray) -> np.ndarray:
        """(3,) from the object to a point [error_unit]."""
        return (point - self.scene["object"]) / self.constants["error_unit"]


def _tilt(seen: Seen) -> np.ndarray:
    """The joint motion that turns the hand down fastest, without the first joint, whose axis is vertical."""
    approach, J = seen.hand_axes[:, 2], seen.J[3:, : seen.joints]
    return (J[1] * approach[0] - J[0] * approach[1])[1:]


def _beyond(seen: Seen) -> np.ndarray:
    there = seen.q + seen.joint_motion
    return there - inside(there, seen.robot.limits)


def _velocity(seen: Seen) -> np.ndarray:
    return seen.scene["goal_velocity"] / seen.constants["error_unit"]


def _transposed(seen: Seen, vector: np.ndarray) -> np.ndarray:
    """(k,) the joint motion along which a vector at the TCP is followed fastest."""
    return seen.J[:3, : seen.joints].T @ vector


def _closing(seen: Seen) -> np.ndarray:
    """How fast nearness rises [1/s]."""
    assert seen.links is not None
    return -(seen.push[seen.links.moving] @ seen.qd) / seen.constants["repulsion"]


def _push(seen: Seen) -> np.ndarray:
    assert seen.links is not None
    return seen.push.ravel()[seen.links.pushed]


def _shown(kind: str) -> "Column":
    return lambda seen: avoiding.shown(kind, seen.scene[kind], seen.T[:3, 3], seen.constants["sight"])


def _followed(seen: Seen, vector: np.ndarray) -> np.ndarray:
    """(k,) the joint motion that follows a vector at the TCP, by damped least squares."""
    return damped(seen.J[:3, : seen.joints], vector, seen.constants)


def _resolved_rate(seen: Seen) -> np.ndarray:
    wanted = seen.constants["gain"] * seen.missing + seen.scene["goal_velocity"]
    rate = _followed(seen, wanted) / seen.robot.limits.velocity[: seen.joints]
    return np.minimum(np.maximum(rate, -1.0), 1.0)


Column = Callable[[Seen], np.ndarray]
COLUMNS: dict[str, Column] = {
    "q": lambda seen: seen.q,
    "drivers": lambda seen: seen.gripper * seen.robot.drivers,
    "qd": lambda seen: seen.qd,
    "tcp": lambda seen: seen.T[:3, 3],
    "axes": lambda seen: seen.T[:3, :2].T.ravel(),
    "goal": lambda seen: seen.goal,
    "goal_axes": lambda seen: seen.goal_matrix[:, :2].T.ravel(),
    "error": lambda seen: seen.missing / seen.constants["error_unit"],
    "rotation_error": lambda seen: seen.turn / seen.constants["rotation_unit"],
    "joint_error": lambda seen: _transposed(seen, seen.missing / seen.constants["error_unit"]),
    "goal_velocity": _velocity,
    "beyond": _beyond,
    "within": lambda seen: within(seen.q, seen.J, seen.wanted, seen.whole_motion, seen.robot.limits, seen.constants),
    "room": lambda seen: room(seen.q, seen.robot.limits),
}
HAND_COLUMNS: dict[str, Column] = {
    "approach": lambda seen: seen.hand_axes[:, 2],
    "closing": lambda seen: seen.hand_axes[:, 1],
    "in_hand": lambda seen: -seen.hand_axes.T @ seen.from_object(seen.T[:3, 3]),
    "joint_tilt": _tilt,
}
OWN: dict[str, dict[str, Column]] = {
    "reach_pose": {"joint_error": lambda seen: seen.joint_motion},
    "reach_avoid": {
        "nearness": lambda seen: seen.nearness,
        "closing": _closing,
        "push": _push,
        "reactive": lambda seen: avoiding.reactive(seen.J[:3], seen.missing, seen.near, seen.q, seen.robot),
        **{kind: _shown(kind) for kind in avoiding.KINDS},
    },
    "track": {
        "resolved_rate": _resolved_rate,
        "joint_error": lambda seen: np.tanh(_followed(seen, seen.missing) / seen.constants["joint_unit"]),
    },
    "push": {
        **HAND_COLUMNS,
        "object": lambda seen: seen.scene["object"][:2],
        "error": lambda seen: seen.from_object(seen.goal)[:2],
        "way": lambda seen: seen.pushing_way,
        "joint_way": lambda seen: _transposed(seen, seen.pushing_way),
        "turn": lambda seen: np.array([seen.pushing_turn]),
        "joint_turn": lambda seen: seen.J[5] * seen.pushing_turn,
    },
    "pick_place": {
        **HAND_COLUMNS,
        "object": lambda seen: seen.scene["object"],
        "error": lambda seen: seen.from_object(seen.goal),
        "way": lambda seen: seen.way,
        "joint_way": lambda seen: _transposed(seen, seen.way),
        "room": lambda seen: np.array([seen.picking.room_at(seen.gripper)]),
        "held": lambda seen: seen.scene["held"],
    },
}
OWN["pick_turned"] = OWN["pick_place"]
TRANSPOSED = ("joint_error", "joint_way")  # the width of these says how many joints can move the TCP


SCENES = {
    "track": ("goal", "goal_velocity"),
    "push": ("goal", "object"),
    "pick_place": ("goal", "object", "held"),
    "pick_turned": ("goal", "object", "held"),
    "reach_avoid": ("goal", *avoiding.KINDS),
}


def scene_of(task: str) -> tuple[str, ...]:
    """What of a task's scene its policies are told."""
    return SCENES.get(task, ("goal",))


class Observation:
    """The columns of one policy.

    Args:
        robot: whose.
        about: what the exported file says of its task and its columns.

    Attributes:
        columns: (name, width) of each, in order.
        scene: the shape of each thing around that the task shows, by name; `goal` for one.
        size: of all columns together.
        hand: the gripper, where the task is about what it grasps.

    Raises:
        DeployError: a column is none that can be worked out here.
    """

    def __init__(self, robot: Robot, about: Mapping):
        task = about["task"]["name"]
        known = COLUMNS | OWN.get(task, {})
        self.columns = {name: width for name, width in about["observation"]["columns"]}
        if strangers := [name for name in self.columns if name not in known]:
            raise DeployError(f"task {task!r} shows {strangers[0]!r}, which cannot be worked out of an arm's state yet")
        self._functions = [known[name] for name in self.columns]
        self.robot, self.constants = robot, about["task"]["constants"]
        shapes = {name: avoiding.shape_of(name, self.columns[name]) for name in scene_of(task)}
        self.scene = shapes | {name: (3,) for name in ("object",) if name in shapes}  # of which `push` shows two
        self.size = sum(self.columns.values())
        self._joints = next((self.columns[name] for name in TRANSPOSED if name in self.columns), robot.limits.n)
        self.hand = Hand.of(about["hand"]) if about.get("hand") else None
        self.links = Links.of(about["links"], robot, self._joints) if about.get("links") else None

    def __call__(self, q: np.ndarray, qd: np.ndarray, gripper: float, scene: Mapping[str, np.ndarray]) -> np.ndarray:
        """(o_dim,) what the policy sees."""
        seen = Seen(self.robot, self.constants, q, qd, gripper, scene, self._joints, self.hand, self.links)
        return np.concatenate([function(seen) for function in self._functions])
