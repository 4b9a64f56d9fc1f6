"""Construction of environments from names, options or moments."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from envs.arm_env.arm_env import ArmEnv
from envs.config.assignments import parse_assignments
from envs.config.disturbance_options import DISTURBANCES
from envs.config.env_options import KINEMATIC, NOTHING, EnvOptions
from envs.config.notices import warn_once
from envs.controllers.guard import require_short_stop
from envs.robots import Robot, make_robot
from envs.simulation.bodies import SENSES, WRENCH
from envs.simulation.disturbances import Disturbances
from envs.simulation.engine import OBJECT, Engine
from envs.simulation.engines import make_engine
from envs.simulation.randomization import combine_disturbances
from envs.tasks.episodes import OneEpisode
from envs.tasks.registry import make_task
from envs.tasks.task import Task
from envs.world import Moment
from td3_robot.errors import ConfigError, KeywordError, unknown
from td3_robot.vec_env import VecEnv


def make(
    robot: str | Robot,
    task: str,
    num_envs: int = 1,
    device: str = "cpu",
    seed: int = 0,
    *,
    gripper: str | None = None,
    tcp: str | None = None,
    xacro: Mapping[str, object] | None = None,
    base: str | None = None,
    velocity: float | Sequence[float] = (),
    acceleration: float | None = None,
    sparse: bool = False,
    guard: bool = False,
    guard_stops: bool = False,
    training: bool = False,
    engine: str = KINEMATIC,
    randomize: str = NOTHING,
    disturbances: Disturbances | None = None,
    **disturbance_options: Any,
) -> ArmEnv:
    """Build B environments of a robot and a task.

    Args:
        robot: name of a registered robot, path of a URDF, xacro or MJCF file, or a `Robot`.
        task: name of a registered task.
        num_envs: B.
        device: where the simulation runs.
        seed: of starts and goals.
        gripper: of a robot by name: a registered gripper instead of its own, or "none"; None keeps
            its own.
        tcp: of a robot by name: link of the robot's file to control; None lets the file decide.
        xacro: of a robot by its xacro file: values of the file's arguments.
        base, velocity: of a robot by name: as of `make_robot`.
        acceleration: of a robot by name: the limit of every joint, where its file has none [rad/s2
            or m/s2].
        sparse: reward -1 for every step without success and 0 with success, instead of the task's
            dense terms.
        guard: change actions that would lead to contact, see `envs.controllers.guard`.
        guard_stops: with guard: `GuardConstants.stops`.
        training: reuse scenes and stagger episodes, see `ArmEnv`.
        engine: "kinematic", or "mujoco" for contact dynamics.
        randomize: what differs from episode to episode, see `read_randomization`; "none": nothing.
        disturbances: delay, lag and noise between the arm and its controller, instead of
            `randomize`.
        disturbance_options: fields of `Disturbances` that replace those of `randomize` or of
            `disturbances`, for example `latency=0.05` [s].

    Raises:
        ConfigError: no such robot, task, engine, randomisation or disturbance, an engine that
            cannot do the task, both of `randomize` and `disturbances`, values that cannot be right,
            stops too long for `guard_stops`.
    """
    chosen = make_task(task)  # first, so that a mistyped task is reported immediately
    _require_switches(sparse=sparse, guard=guard, guard_stops=guard_stops, training=training)
    if engine not in chosen.engines:
        able = " or ".join(f"--engine {name}" for name in chosen.engines)
        raise ConfigError(f"task {task!r} cannot be done on engine {engine!r}; it needs {able}")
    if guard_stops and not guard:
        raise ConfigError("guard_stops has no effect without guard: give guard=True, too")
    described = {"xacro": xacro, "base": base, "velocity": list(np.ravel(velocity))}
    if isinstance(robot, Robot):
        given = described | {"gripper": gripper, "tcp": tcp, "acceleration": acceleration}
        if useless := [name for name, value in given.items() if value]:
            raise ConfigError(f"{useless[0]} has no effect: robot {robot.name!r} is made already")
        made = robot
    else:
        made = make_robot(robot, gripper, tcp, acceleration=acceleration, **described)
    disturbances = _choose_disturbances(engine, randomize, disturbances, disturbance_options)
    varied = disturbances.physics if disturbances else None
    moved_by = make_engine(
        engine, made, chosen.dt, chosen.cube_side, varied, chosen.cubes, chosen.physics
    )
    env = ArmEnv(
        made,
        chosen,
        num_envs,
        device,
        seed,
        sparse=sparse,
        guard=guard,
        training=training,
        engine=moved_by,
        disturbances=disturbances,
    )
    if guard_stops:
        require_short_stop(env.model, made.owner)
    env.guard_constants = replace(env.guard_constants, stops=guard_stops)
    _warn_of_no_effect(task, env, disturbance_options)
    return env


def _require_switches(**switches: object) -> None:
    """Refuse words: "false" is true in Python, and would enable what it names."""
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{name} must be true or false, got {value!r}")


def _choose_disturbances(
    engine: str, randomize: str, disturbances: Disturbances | None, named: dict[str, Any]
) -> Disturbances | None:
    """Return the disturbances of the keywords of `make`; None is one that is not given."""
    named = {name: value for name, value in named.items() if value is not None}
    if strange := named.keys() - DISTURBANCES:
        name = min(strange)
        choices = unknown("keyword of an environment", name, (*_KEYWORDS, *DISTURBANCES))
        # Other libraries try keywords, and look for Python's own words to leave one out again.
        raise KeywordError(f"unexpected keyword argument {name!r}: {choices}")
    if randomize == NOTHING:
        given = replace(disturbances or Disturbances(), **named) if named else disturbances
        if given is not None:  # what options cannot have together, keywords cannot have either
            EnvOptions(engine=engine, servo_lag=given.servo_lag)
        return given
    if disturbances is not None:
        raise ConfigError("randomize and disturbances exclude each other: give one of them")
    return combine_disturbances(EnvOptions(engine=engine, randomize=randomize, **named))


def _warn_of_no_effect(task: str, env: ArmEnv, named: Mapping[str, Any]) -> None:
    """Warn of disturbances, given by name, of what the task's scenes do not have."""
    for name, parts in _DISTURBED.items():
        if named.get(name) and not env.scene.keys() & set(parts):
            lack = f"task {task!r} has no {' or '.join(parts)} in its scenes"
            warn_once(f"{name} has no effect: {lack}")


_DISTURBED = {  # parts of a scene that some disturbances are of
    "object_offset": (OBJECT,),
    **dict.fromkeys(("force_noise", "force_bias"), (WRENCH,)),
    **dict.fromkeys(("torque_noise", "torque_bias"), SENSES),
}
_SWITCHES = ("sparse", "guard", "guard_stops", "engine")  # options that are keywords of `make`
_KEYWORDS = [
    name
    for name, each in inspect.signature(make).parameters.items()
    if each.kind is each.KEYWORD_ONLY
]


def make_from_config(
    options: EnvOptions,
    num_envs: int = 1,
    device: str = "cpu",
    seed: int = 0,
    training: bool = False,
    robot: Robot | None = None,
    render_mode: str | None = None,
) -> VecEnv:
    """Build B environments from options: a robot and its task, or a Gymnasium environment.

    Args:
        options: robot and task, or the Gymnasium environment.
        num_envs, device, seed: as in `make`.
        training: as in `make`.
        robot: the robot of the options, if it was built before.
        render_mode: of a Gymnasium environment, see `make_gymnasium`.

    Raises:
        ConfigError: the options name something that cannot be built.
    """
    if options.env is None:
        named = {name: getattr(options, name) for name in _SWITCHES}
        named["guard_stops"] = options.guard and options.guard_stops
        if robot is None:
            named |= list_robot_keywords(options)
        named |= {"training": training, "disturbances": combine_disturbances(options)}
        env = make(robot or options.robot, options.task, num_envs, device, seed, **named)
        _warn_of_no_effect(options.task, env, options.disturbances)
        return env
    from envs.from_gymnasium import make_gymnasium  # here: our own robots do without gymnasium

    named = {"vector": options.vector, "time_limit": options.time_limit, "render_mode": render_mode}
    return make_gymnasium(options.env, num_envs, device, seed, **named)


def list_robot_keywords(options: EnvOptions) -> dict[str, Any]:
    """List the keywords of `make_robot` that options give.

    Raises:
        ConfigError: a word of `xacro` is not KEY=VALUE.
    """
    names = ("gripper", "tcp", "base", "velocity", "acceleration")
    xacro = parse_assignments("xacro", options.xacro)
    return {"xacro": xacro, **{name: getattr(options, name) for name in names}}


def make_from_moment(
    moment: Moment,
    row: int,
    env: ArmEnv,
    guard: bool,
    disturbances: Disturbances,
    task: Task | None = None,
    engine: Engine | None = None,
) -> ArmEnv:
    """Build an environment of one arm whose episodes all begin with the same moment.

    Args:
        moment, row: the moment and the arm in it.
        env: the environment to copy everything else from.
        guard, disturbances: as of `ArmEnv`.
        task, engine: as of `ArmEnv`; None: those of `env`.
    """
    one = ArmEnv(
        env.robot,
        task or env.task,
        num_envs=1,
        device=str(env.device),
        seed=0,
        sparse=env.sparse,
        guard=guard,
        episodes=OneEpisode(moment, row),
        engine=engine or env.engine,
        disturbances=disturbances,
    )
    one.guard_constants = env.guard_constants
    return one
