"""What a policy sees, column by column: the simulator's observation, worked out of what an arm
knows.

An exported policy lists its columns by name and width; each is one function here, of what is seen
now. To add a column is to add its function to `COLUMNS`, or to `OWN` where a task means something
of its own by the name.
"""

from collections.abc import Callable, Mapping

import numpy as np

from td3_robot.deploy.errors import DeployError
from td3_robot.deploy.observation import proximity as avoiding
from td3_robot.deploy.observation.features import Seen
from td3_robot.deploy.observation.grasp import Hand
from td3_robot.deploy.observation.inverse_kinematics import Solved
from td3_robot.deploy.observation.joint_motion import (
    WAY_GAIN,
    damped,
    inside,
    joint_move,
    room,
    within,
)
from td3_robot.deploy.observation.motion_planner import Led
from td3_robot.deploy.observation.proximity import Links
from td3_robot.deploy.robot.description import Robot


def _tilt(seen: Seen) -> np.ndarray:
    """The joint motion that turns the hand down fastest, without the first joint, whose axis is
    vertical.
    """
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
    return lambda seen: avoiding.shown(
        kind, seen.scene[kind], seen.T[:3, 3], seen.constants["sight"]
    )


def _followed(seen: Seen, vector: np.ndarray) -> np.ndarray:
    """(k,) the joint motion that follows a vector at the TCP, by damped least squares."""
    return damped(seen.J[:3, : seen.joints], vector, seen.constants)


def _resolved_rate(seen: Seen) -> np.ndarray:
    wanted = seen.constants["gain"] * seen.missing + seen.scene["goal_velocity"]
    rate = np.zeros_like(seen.q)
    rate[: seen.joints] = _followed(seen, wanted)
    return np.minimum(np.maximum(rate / seen.robot.limits.velocity, -1.0), 1.0)


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
    "within": lambda seen: within(
        seen.q, seen.J, seen.wanted, seen.whole_motion, seen.robot.limits, seen.constants
    ),
    "room": lambda seen: room(seen.q, seen.robot.limits),
}
HAND_COLUMNS: dict[str, Column] = {
    "approach": lambda seen: seen.hand_axes[:, 2],
    "closing": lambda seen: seen.hand_axes[:, 1],
    "in_hand": lambda seen: -seen.hand_axes.T @ seen.from_object(seen.T[:3, 3]),
    "joint_tilt": _tilt,
}
OWN: dict[str, dict[str, Column]] = {
    "reach_pose": {
        "joint_error": lambda seen: seen.joint_motion,
        "solution": lambda seen: seen.scene["solution"] - seen.q,
        "ik": lambda seen: joint_move(seen.q, seen.scene["solution"], seen.robot.limits),
    },
    "reach_avoid": {
        "nearness": lambda seen: seen.nearness,
        "closing": _closing,
        "push": _push,
        "way": lambda seen: joint_move(seen.q, seen.following, seen.robot.limits, WAY_GAIN),
        "way_left": lambda seen: np.array([seen.way_left]),
        "reactive": lambda seen: avoiding.reactive(
            seen.J[:3], seen.missing, seen.near, seen.q, seen.robot
        ),
        **{kind: _shown(kind) for kind in avoiding.KINDS},
    },
    "track": {
        "resolved_rate": _resolved_rate,
        "joint_error": lambda seen: np.tanh(
            _followed(seen, seen.missing) / seen.constants["joint_unit"]
        ),
    },
    "push": {
        **HAND_COLUMNS,
        "object": lambda seen: seen.scene["object"][:2],
        "error": lambda seen: seen.from_object(seen.goal)[:2],
        "way": lambda seen: seen.pushing_way,
        "joint_way": lambda seen: _transposed(seen, seen.pushing_way),
        "turn": lambda seen: np.array([seen.pushing_turn]),
        "joint_turn": lambda seen: seen.J[5] * seen.pushing_turn,
        "scripted": lambda seen: seen.pushing_script(),
    },
    "pick_place": {
        **HAND_COLUMNS,
        "object": lambda seen: seen.scene["object"],
        "error": lambda seen: seen.from_object(seen.goal),
        "way": lambda seen: seen.way,
        "joint_way": lambda seen: _transposed(seen, seen.way),
        "room": lambda seen: np.array([seen.picking.room_at(seen.gripper)]),
        "held": lambda seen: seen.scene["held"],
        "scripted": lambda seen: seen.picking_script(),
    },
}
OWN["pick_turned"] = OWN["pick_place"]
TRANSPOSED = (
    "joint_error",
    "joint_way",
)  # the width of these says how many joints can move the TCP
SCENES = {
    "reach_pose": ("goal", "solution"),
    "track": ("goal", "goal_velocity"),
    "push": ("goal", "object"),
    "pick_place": ("goal", "object", "held"),
    "pick_turned": ("goal", "object", "held"),
    "reach_avoid": ("goal", *avoiding.KINDS, *Led.names),
}
FINDERS = {
    "reach_pose": Solved,
    "reach_avoid": Led,
}  # what works a part of a scene out of the rest of it


def scene_of(task: str) -> tuple[str, ...]:
    """What of a task's scene its policies are told."""
    return SCENES.get(task, ("goal",))


class NoPlanner:
    """For tasks whose scenes are told whole."""

    names = ()

    def __init__(self, robot: Robot):
        pass

    def __call__(self, q: np.ndarray, scene: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Nothing."""
        return {}


class Observation:
    """The columns of one policy.

    Args:
        robot: whose.
        metadata: what the exported file says of its task and its columns.

    Attributes:
        columns: (name, width) of each, in order.
        scene: the shape of each thing around that the task shows, by name; `goal` for one.
        size: of all columns together.
        finder: what, made for a robot, works out the parts of the scene that nobody has to tell.
        hand: the gripper, where the task is about what it grasps.

    Raises:
        DeployError: a column is none that can be worked out here.
    """

    def __init__(self, robot: Robot, metadata: Mapping):
        task = metadata["task"]["name"]
        known = COLUMNS | OWN.get(task, {})
        self.columns = {name: width for name, width in metadata["observation"]["columns"]}
        if strangers := [name for name in self.columns if name not in known]:
            raise DeployError(
                f"task {task!r} shows {strangers[0]!r}, which cannot be worked out of an arm's state yet"
            )
        self._functions = [known[name] for name in self.columns]
        self.robot, self.constants = robot, metadata["task"]["constants"]
        widths = dict.fromkeys(Led.names, robot.limits.n) | {"passed": 1} | self.columns
        shapes = {name: avoiding.shape_of(name, widths[name]) for name in scene_of(task)}
        self.scene = shapes | {
            name: (3,) for name in ("object",) if name in shapes
        }  # of which `push` shows two
        self.finder = FINDERS.get(task, NoPlanner)
        self.size = sum(self.columns.values())
        self._joints = next(
            (self.columns[name] for name in TRANSPOSED if name in self.columns), robot.limits.n
        )
        self.hand = Hand.of(metadata["hand"]) if metadata.get("hand") else None
        self.links = (
            Links.of(metadata["links"], robot, self._joints) if metadata.get("links") else None
        )

    def __call__(
        self, q: np.ndarray, qd: np.ndarray, gripper: float, scene: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """(o_dim,) what the policy sees."""
        seen = Seen(
            self.robot, self.constants, q, qd, gripper, scene, self._joints, self.hand, self.links
        )
        return np.concatenate([function(seen) for function in self._functions])
