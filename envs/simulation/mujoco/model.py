"""A robot, a table and perhaps cubes as one MuJoCo model, with their indices in its arrays."""

# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false
# MuJoCo's Python package has no type stubs.

import math
import sys
from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco import MjModel, MjSpec, mjtObj

from envs.collision.compiler import find_collision_model
from envs.collision.files import format_fitting
from envs.robots import Robot
from envs.robots.urdf.rtb_model import find_file_name
from envs.simulation.bodies import PhysicsSpec
from envs.simulation.engine import OBJECT
from envs.simulation.mujoco.bodies import Bodies, add_robot, make_body_name
from envs.simulation.mujoco.contacts import Contacts
from envs.simulation.mujoco.drives import Drives, Ties, add_drives, index_ties, tune
from envs.simulation.mujoco.inertias import PER_METRE, WIDEST, compute_gyration
from envs.simulation.mujoco.shapes import PADS, TABLE, add_capsules, add_cube, add_hand, add_table
from envs.simulation.mujoco.task_bodies import (
    TaskIndex,
    add_bodies,
    add_sensors,
    get_hand_name,
    index_task,
)
from td3_robot.errors import ConfigError, not_none

_FOUND, _FORCE, _DIST = (1 << int(bit) for bit in (0, 1, 3))  # of mjtConDataField
_DEEPEST = 1  # a sensor's choice among contacts: mindist
_SUM = 3  # netforce


@dataclass(frozen=True)
class CompiledModel:
    """MuJoCo's model of a robot and its scene, and the indices of its parts.

    Attributes:
        model: MuJoCo's.
        substeps: steps of the physics in a control period.
        drives: the servos.
        q: (n,) indices of the arm's joints in qpos, and qd: in qvel.
        ties: the joints of links that follow joints of the arm.
        gripper: (m,) indices of the gripper's moving joints in qpos, multiple: (m,) their multiples
            of the driver coordinate, and drivers, driver_multiple: (2,) the same of the drivers.
        hand: the body that carries the fingers, or the last link of an arm without.
        cubes: index in qpos of the position of each cube, by its name in scenes.
        table, itself: columns of the sensors for contact of the robot with the table and with
            itself: the deepest one's force (3) and distance. table_force: the whole force on the
            table (3). pads: (2, 3) the force on each pad that the first cube gives; None where
            there is none.
        estimated: links whose inertia is an estimate.
        task: where the task's own bodies and sensors are; None without any.
    """

    model: MjModel
    substeps: int
    drives: Drives
    q: np.ndarray
    qd: np.ndarray
    ties: Ties
    gripper: np.ndarray
    multiple: np.ndarray
    drivers: np.ndarray
    driver_multiple: np.ndarray
    hand: int
    cubes: dict[str, int]
    table: np.ndarray
    table_force: np.ndarray
    itself: np.ndarray
    pads: np.ndarray | None
    estimated: tuple[str, ...]
    task: TaskIndex | None = None


def build(
    robot: Robot,
    contacts: Contacts,
    dt: float,
    cube: float | None = None,
    cubes: tuple[str, ...] = (OBJECT,),
    needs: PhysicsSpec | None = None,
) -> CompiledModel:
    """Build the model of a robot on its table.

    Args:
        dt: control period [s].
        cube: side of the cubes that are around [m]; None for none.
        cubes: their names in scenes; the first is what is grasped.
        needs: what the task brings; None for nothing.

    Raises:
        ConfigError: the robot has something that physics cannot work with, or a body of the task is
            called like a cube.
    """
    hand = robot.gripper
    cubes = cubes if cube is not None else ()
    if needs is not None:
        _check_names(cubes, needs)
    if hand is not None and hand.physics.torque is None:
        raise ConfigError(
            f"engine mujoco needs to drive the fingers, and gripper {hand.name!r} has no torque "
            "in its file"
        )
    substeps = math.ceil(dt / contacts.timestep - 1e-9)
    spec = _make_spec(contacts, dt / substeps)
    bodies = add_robot(spec, robot)
    add_table(spec, contacts)
    capsules = find_collision_model(robot)
    if capsules is not None:
        add_capsules(spec, bodies.by_link, robot, capsules, contacts)
    if hand is not None and hand.pads is not None:
        add_hand(bodies.by_link, robot, contacts)
    for name in cubes:
        add_cube(spec, contacts, not_none(cube), name)
    root = make_body_name(robot.rtb.links[0].name)
    if needs is not None:
        add_bodies(spec, robot, bodies, needs.bodies, contacts)
    add_drives(spec, robot, bodies)
    _add_sensors(spec, root, cubes[:1])
    if needs is not None:
        add_sensors(spec, root, get_hand_name(robot), bodies, needs)
    try:
        model = spec.compile()
    except ValueError as error:
        raise ConfigError(f"{robot.owner}: MuJoCo cannot build it: {error}") from None
    _warn(robot, bodies, capsules is not None)
    task = index_task(model, bodies, needs) if needs is not None else None
    return _index_model(model, substeps, robot, bodies, cubes, task, needs or PhysicsSpec())


def _check_names(cubes: tuple[str, ...], needs: PhysicsSpec) -> None:
    """Refuse bodies that are called like a cube."""
    for body in needs.bodies:
        if body.name in cubes:
            raise ConfigError(
                f"body {body.name!r} is called like a cube; it needs a name of its own, not "
                f"{' or '.join(cubes)}"
            )


def _make_spec(contacts: Contacts, timestep: float) -> MjSpec:
    spec = MjSpec()
    spec.compiler.degree = False
    spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE
    spec.option.timestep = timestep
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio = contacts.impratio
    return spec


def _add_sensors(spec: MjSpec, root: str, grasped: tuple[str, ...]) -> None:
    robot = {"objtype": mjtObj.mjOBJ_XBODY, "objname": root}
    table = {"reftype": mjtObj.mjOBJ_GEOM, "refname": TABLE}
    deepest = [_FORCE | _DIST, _DEEPEST, 1]
    total = [_FORCE, _SUM, 1]

    def add(name, prm, **what):
        return spec.add_sensor(name=name, type=mujoco.mjtSensor.mjSENS_CONTACT, intprm=prm, **what)

    add("table", deepest, **robot, **table)
    add("table_force", total, **robot, **table)
    add("itself", deepest, **robot, reftype=mjtObj.mjOBJ_XBODY, refname=root)
    for cube in grasped:
        for pad in PADS:
            add(
                pad,
                total,
                objtype=mjtObj.mjOBJ_GEOM,
                objname=pad,
                reftype=mjtObj.mjOBJ_GEOM,
                refname=cube,
            )


def _index_model(
    model: MjModel,
    substeps: int,
    robot: Robot,
    bodies: Bodies,
    cubes: tuple[str, ...],
    task: TaskIndex | None,
    needs: PhysicsSpec,
) -> CompiledModel:
    hand = robot.gripper

    def find_positions(names):
        return np.array([model.joint(name).qposadr[0] for name in names], int)

    moving = {model.joint(i).name for i in range(model.njnt)}
    named = (
        {name: multiple for name, multiple in zip(hand.joints, hand.mimic) if name in moving}
        if hand
        else {}
    )

    def find_columns(name):
        return model.sensor(name).adr[0] + np.arange(model.sensor(name).dim[0])

    q = find_positions(bodies.joints)
    gripper = find_positions(named)
    multiple = np.array(list(named.values()))
    qd = np.array([model.joint(name).dofadr[0] for name in bodies.joints], int)
    home = np.array(model.qpos0)
    home[q] = robot.home
    ties = index_ties(model, bodies)
    home[ties.q] = ties.compute_positions(robot.home)
    home[gripper] = multiple * not_none(hand).opened if hand else 0.0
    return CompiledModel(
        model=model,
        substeps=substeps,
        drives=tune(model, robot, qd, home, ties, needs),
        q=q,
        qd=qd,
        ties=ties,
        gripper=gripper,
        multiple=multiple,
        drivers=find_positions(bodies.drivers),
        driver_multiple=np.array([named[name] for name in bodies.drivers]),
        hand=_find_hand(model, bodies),
        cubes={name: int(model.joint(name).qposadr[0]) for name in cubes},
        table=find_columns("table"),
        table_force=find_columns("table_force"),
        itself=find_columns("itself"),
        pads=np.stack([find_columns(pad) for pad in PADS]) if cubes else None,
        estimated=bodies.weights.estimated,
        task=task,
    )


def _find_hand(model: MjModel, bodies: Bodies) -> int:
    joint = bodies.drivers[0] if bodies.drivers else bodies.joints[-1]
    body = model.jnt_bodyid[model.joint(joint).id]
    return int(model.body_parentid[body] if bodies.drivers else body)


def _warn(robot: Robot, bodies: Bodies, capsules: bool) -> None:
    """Warn in one line of estimated or missing parameters."""
    guessed = []
    weights = bodies.weights
    if weights.estimated:
        links = robot.rtb.link_dict
        names = ", ".join(find_file_name(links[name]) for name in weights.estimated)
        cylinder = f"each is taken for a cylinder of {PER_METRE:g} kg/m"
        guessed += [f"no inertia of {names} is known: {cylinder}, and its motor for a common one"]
    if weights.mended:
        names = ", ".join(weights.mended)
        guessed += [f"no rigid body has the inertia of {names}: the nearest that one has is taken"]
    if wide := [name for name, row in weights.rows.items() if compute_gyration(row) > WIDEST]:
        words = "is that of masses metres apart; it should be in kg m2, the mass in kg"
        guessed += [f"the inertia of {', '.join(wide)} {words}"]
    if robot.physics.torque is None:
        guessed += ["no torque limits are known: there are none"]
    if not capsules:
        guessed += ["it has no collision geometry, so the arm touches nothing; write it with: "]
        guessed[-1] += format_fitting(robot)
    if guessed:
        print(f"warning: engine mujoco: {robot.owner}: {'; '.join(guessed)}", file=sys.stderr)
