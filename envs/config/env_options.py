"""Options of an environment: a robot and its task, or a Gymnasium environment.

The scripts put them next to the learner's own; td3_robot/config/field.py describes the declaration.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from envs.config.assignments import parse_assignments
from envs.config.disturbance_options import DISTURBANCES, GROUP, GROUP_TEXT, declare_disturbance
from envs.config.yaml_values import CONFIGS
from td3_robot.config.field import check
from td3_robot.errors import ConfigError
from td3_robot.utils.legacy import keep_old_names

VECTORS = ("sync", "async")
KINEMATIC = "kinematic"
MUJOCO = "mujoco"
ENGINES = (KINEMATIC, MUJOCO)
NOTHING = "none"  # is randomised
# Tasks whose first of `Task.engines` is MUJOCO; here, since a command line is read without torch.
_PHYSICAL = ("pick_turned", "push", "stack")
_GYMNASIUM = ("vector", "time_limit")  # what only Gymnasium environments have
_STAYS = {"fixed": True}
_BASIC = {**_STAYS, "basic": True}
_GYMNASIUM_GROUP = "Gymnasium environments"
_PHYSICS_STEP = 3e-4  # [s] of CPU for a control step of an arm, by benchmarks/physics.py --speed
# Approximate memory of one environment [bytes]. Measured were 13 kB for an arm among obstacles, and
# 100 kB for a small environment of others.
_ARM_BYTES = 15_000
_PHYSICS_BYTES = 30_000
_GYMNASIUM_BYTES = 100_000
MOST_ENVS = 10**6  # all of them step at once, in memory
_VELOCITY = (1e-3, 100.0, "no arm is slower or faster")
_DEAR = 0.5  # [s] a step, from which on it is said
ACCELERATION = (1e-3, 1e5, "no arm has more")
# Options of an evaluation that replace those of the training.
CONDITIONS = ("engine", "randomize", *DISTURBANCES)
# ids of gymnasium-robotics and panda-gym with goals
_GOALS = ("AntMaze", "Hand", "Panda", "PointMaze")
_PLAIN_ID = re.compile(r"([\w.-]+/)?[\w.-]+", re.ASCII)  # of a Gymnasium id that imports nothing


def _strip_module(env: str | None) -> str | None:
    """Return an environment's id without the module that registers it."""
    return env and env.rpartition(":")[2]


@keep_old_names(about="metadata", cost="describe_cost", preset="find_preset")
@dataclass(frozen=True)
class EnvOptions:
    """Robot and task.

    What is trained: an arm, its gripper, the task, and how the arm is simulated.

    Attributes:
        robot: Robot to train, one of --list robots, or the path of a URDF, xacro or MJCF
            (.xml) file.
        task: Task to learn, one of --list tasks.
        gripper: Gripper to mount instead of the robot's own, one of --list grippers, or none.
        tcp: Link of the robot's URDF to control, or site or body of its MJCF; needs a robot given
            by its file.
        xacro: Arguments of the robot's xacro file, KEY=VALUE ...
        base: Body at the base of the arm in an MJCF file in which several things move.
        velocity: Velocity limit of every joint in rad/s or m/s, or one for each, for a robot whose
            file has none; an MJCF file has none.
        acceleration: Limit of every joint in rad/s2 or m/s2, for a robot whose file has none.
        sparse: Reward of -1 for each step short of success and 0 for a success, instead of the
            task's dense reward.
        guard: Enable the safety shield: brake for obstacles, the ground and the arm itself,
            whatever the policy commands.
        guard_stops: With guard: take only commands after which the arm can still stop clear of
            everything. Prevents contacts at full speed; a step takes a multiple of the time.
        engine: Engine that moves arms and cubes: kinematic, by geometry alone, or mujoco, with
            contact dynamics.
        randomize: What differs from episode to episode: a name in configs/randomization, the path
            of such a file, or none.
        env: Gymnasium id to train on instead of a robot and its task; module:id first imports the
            module that registers it, which is found on PYTHONPATH.
        vector: Step Gymnasium environments one after the other (sync), or each in a process of its
            own (async).
        time_limit: Steps after which an episode of a Gymnasium environment is truncated, instead of
            its own limit.

    Raises:
        ConfigError: a value is of another type or out of its range, or a Gymnasium environment
            has something that only a robot has.
    """

    GROUPS: ClassVar[Mapping[str, str]] = {
        GROUP: GROUP_TEXT,
        _GYMNASIUM_GROUP: "Environments of others, which bring task and physics of their own.",
    }

    robot: str = field(default="panda", metadata=_BASIC)
    task: str = field(default="reach", metadata=_BASIC)
    gripper: str | None = field(default=None, metadata=_BASIC)
    tcp: str | None = field(default=None, metadata=_STAYS)
    xacro: tuple[str, ...] = field(default=(), metadata=_STAYS)
    base: str | None = field(default=None, metadata=_STAYS)
    velocity: tuple[float, ...] = field(default=(), metadata={**_STAYS, "range": _VELOCITY})
    acceleration: float | None = field(default=None, metadata={**_STAYS, "range": ACCELERATION})
    sparse: bool = field(default=False, metadata=_STAYS)
    guard: bool = field(default=False, metadata=_BASIC)
    guard_stops: bool = field(default=False, metadata=_STAYS)
    engine: str = field(default=KINEMATIC, metadata={**_BASIC, "choices": ENGINES})
    latency: float | None = declare_disturbance("latency")
    latency_spread: float | None = declare_disturbance("latency_spread")
    servo_lag: float | None = declare_disturbance("servo_lag")
    noise: float | None = declare_disturbance("noise")
    joint_offset: float | None = declare_disturbance("joint_offset")
    tcp_offset: float | None = declare_disturbance("tcp_offset")
    object_offset: float | None = declare_disturbance("object_offset")
    base_offset: float | None = declare_disturbance("base_offset")
    base_turn: float | None = declare_disturbance("base_turn")
    force_noise: float | None = declare_disturbance("force_noise")
    force_bias: float | None = declare_disturbance("force_bias")
    torque_noise: float | None = declare_disturbance("torque_noise")
    torque_bias: float | None = declare_disturbance("torque_bias")
    assumed_latency: float | None = declare_disturbance(
        "assumed_latency", "by default the true one, the lag of the servos included"
    )
    estimate_latency: bool | None = declare_disturbance(
        "estimate_latency", "by default if latency_spread is given and assumed_latency is not"
    )
    randomize: str = field(default=NOTHING, metadata=_BASIC)
    env: str | None = field(
        default=None,
        metadata={
            "fixed": _strip_module,
            "in_file": (_PLAIN_ID, "plain id"),
            "basic": True,
            "group": _GYMNASIUM_GROUP,
        },
    )
    vector: str = field(default="sync", metadata={"choices": VECTORS, "group": _GYMNASIUM_GROUP})
    time_limit: int | None = field(
        default=None,
        metadata={
            **_STAYS,
            "range": (1, 10**15, "no episode lasts longer"),
            "group": _GYMNASIUM_GROUP,
        },
    )

    def __post_init__(self):
        check(self)
        parse_assignments("xacro", self.xacro)
        for name in (
            item.name
            for item in fields(self)
            if getattr(self, item.name) not in (item.default, 0.0)
        ):
            if self.env is None and name in _GYMNASIUM:
                raise ConfigError(f"{name} has no effect without env, a Gymnasium environment")
            if self.env is not None and name not in ("env", *_GYMNASIUM):
                raise ConfigError(
                    f"env and {name} exclude each other: leave {name} out, since a Gymnasium "
                    "environment brings its own"
                )
        if self.engine == MUJOCO and self.servo_lag:
            raise ConfigError(
                "engine mujoco and servo_lag exclude each other: leave servo_lag out, since "
                "its servos lag by themselves"
            )

    @property
    def name(self) -> str:
        """The name for a line of text."""
        return self.env or f"{self.robot} {self.task}"

    @property
    def metadata(self) -> dict[str, object]:
        """The environment's entries in a summary."""
        return (
            {"env": self.env} if self.env is not None else {"robot": self.robot, "task": self.task}
        )

    @property
    def disturbances(self) -> dict[str, Any]:
        """The disturbances that are set; a zero is one if `randomize` names others, or if it is
        assumed.
        """
        named = {name: getattr(self, name) for name in DISTURBANCES}
        beside = ("assumed_latency", "estimate_latency")
        zeros = {name for name in named if self.randomize != NOTHING or name in beside}
        return {
            name: value for name, value in named.items() if value or (value == 0 and name in zeros)
        }

    @property
    def conditions(self) -> dict[str, bool | str | float]:
        """All that differs from undisturbed arms without a guard."""
        flags = {name: True for name in ("guard", "sparse") if getattr(self, name)}
        if self.guard and self.guard_stops:
            flags["guard_stops"] = True
        plain = {"engine": KINEMATIC, "randomize": NOTHING}
        named = {name: getattr(self, name) for name in plain if getattr(self, name) != plain[name]}
        return flags | named | self.disturbances

    @property
    def bytes_each(self) -> int:
        """Approximate memory of one environment in bytes."""
        if self.env is not None:
            return _GYMNASIUM_BYTES
        return _PHYSICS_BYTES if self.engine == MUJOCO else _ARM_BYTES

    def describe_cost(self, count: int) -> list[str]:
        """Describe the cost of `count` environments in a line, if it is high."""
        seconds = count * _PHYSICS_STEP
        if self.engine != MUJOCO or seconds < _DEAR:
            return []
        megabytes = count * self.bytes_each / 1e6
        return [
            f"{count} arms in contact physics take about {seconds:.1f} s of CPU a control step, "
            f"{megabytes:.0f} MB"
        ]

    @staticmethod
    def find_defaults(values: dict[str, object]) -> dict[str, object]:
        """Return the defaults that follow from these options: the engine that a task needs."""
        is_physical = values.get("env") is None and values.get("task") in _PHYSICAL
        return {"engine": MUJOCO} if is_physical else {}

    @staticmethod
    def find_preset(values: dict[str, object]) -> tuple[str, Path | None]:
        """Return a name for the environment of these options, and its preset's file or None."""
        if values.get("env") is not None:
            return f"env {values['env']!r}", _find_gymnasium_preset(str(values["env"]))
        task = values.get("task", EnvOptions.task)
        path = CONFIGS / f"{task}.yaml"
        return f"task {task!r}", path if path.parent == CONFIGS and os.path.isfile(path) else None

    @staticmethod
    def find_files(values: dict[str, object], folder: Path) -> dict[str, object]:
        """Find the files that these options name by their paths.

        A file that is not in the working directory is looked for in a run's folder and in the
        folders above it, of which one is the working directory of the training. So is the name of
        a file whose absolute path does not exist.

        Args:
            values: options of the run.
            folder: the run's folder.

        Returns:
            The options, with the absolute paths of files that were found there; one of `randomize`
            that was not, which an evaluation may do without, belongs in the run's folder.

        Raises:
            ConfigError: the robot's file is not found.
        """
        found = {}
        for name in ("robot", "randomize"):
            path = Path(str(values.get(name)))
            if path.suffix and not os.path.isfile(path):
                part = path.name if path.is_absolute() else path
                above = (parent / part for parent in (folder, *folder.parents))
                there = next(filter(os.path.isfile, above), None)
                if there is None and name == "robot":
                    raise ConfigError(
                        f"{path}: the robot's file is missing; put it at {folder / part}"
                    )
                found |= {name: str(there or folder / part)}
        return values | found


def _find_gymnasium_preset(env_id: str) -> Path:
    """Return the file with the longest name that begins the id, else its family's or default."""
    name = env_id.split(":")[-1]
    folder = CONFIGS / "gymnasium"
    files = sorted(folder.glob("*.yaml"), key=lambda path: len(path.stem))
    family = folder / ("goals.yaml" if name.startswith(_GOALS) else "default.yaml")
    return [family, *(path for path in files if name.startswith(path.stem))][-1]
