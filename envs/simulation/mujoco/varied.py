"""Worlds with varied physics: a model for each, rewritten when an episode has other values."""

# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false
# MuJoCo's Python package has no type stubs.

import copy
from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco import MjData, MjModel

from envs.robots import Robot
from envs.simulation.bodies import VARIED, Body
from envs.simulation.mujoco.model import CompiledModel
from envs.simulation.mujoco.task_bodies import compute_held_pose, make_joint_name
from envs.simulation.variation import Variation


@dataclass(frozen=True)
class Worlds:
    """The models and gains that B worlds are stepped with.

    Attributes:
        models: one for all, or one for each.
        stiffness, damping: (1, a) or (B, a) of the servos.
    """

    models: MjModel | list[MjModel]
    stiffness: np.ndarray
    damping: np.ndarray


class VariedModels:
    """The models of worlds, by the values drawn for them.

    Args:
        physics: the model without variation.
        variation: names the columns of the drawn values; None where nothing is drawn.
        robot: the arm that holds what is held.
    """

    def __init__(self, physics: CompiledModel, variation: Variation | None, robot: Robot):
        self._physics = physics
        self._robot = robot
        self._columns = tuple(variation.ranges) if variation else ()
        needs = physics.task.needs if physics.task is not None else None
        self._varied = [body for body in needs.bodies if body.varied] if needs else []
        self._models: list[MjModel] = []
        self._written = np.empty((0, 0))
        self._data = MjData(physics.model)

    def compute_lift(self, drawn: np.ndarray) -> np.ndarray | float:
        """Compute how much higher (B,) the centres of drawn cubes (B, k) lie on the table [m]."""
        if "cube_side" not in self._columns:
            return 0.0
        name = next(iter(self._physics.cubes))
        return (
            drawn[:, self._columns.index("cube_side")] / 2.0
            - self._physics.model.geom(name).size[2]
        )

    def prepare_worlds(self, drawn: np.ndarray | None, bodies: np.ndarray) -> Worlds:
        """Prepare the worlds of B arms.

        Args:
            drawn: (B, k) of the variation; None where nothing is drawn.
            bodies: (B, m) the parts of scenes that vary the task's bodies, see
                `PhysicsSpec.varied_keys`.
        """
        values = bodies if drawn is None else np.concatenate((drawn, bodies), 1)
        if self._written.shape[1] != values.shape[1]:
            self._written = np.full((len(self._models), values.shape[1]), np.nan)
        while len(self._models) < len(values):
            self._models.append(copy.copy(self._physics.model))
            self._written = np.concatenate((self._written, np.full((1, values.shape[1]), np.nan)))
        for row in np.flatnonzero((self._written[: len(values)] != values).any(1)):
            self._write(self._models[row], None if drawn is None else drawn[row], bodies[row])
            self._written[row] = values[row]
        drives = self._physics.drives
        models = self._models[: len(values)]
        if drawn is None:
            return Worlds(models, drives.stiffness[None], drives.damping[None])
        stiffer, damper = (
            drawn[:, [self._columns.index(name)]] for name in ("stiffness", "damping")
        )
        return Worlds(models, stiffer * drives.stiffness, damper * drives.damping)

    def _write(self, model: MjModel, drawn: np.ndarray | None, bodies: np.ndarray) -> None:
        named = {} if drawn is None else dict(zip(self._columns, drawn))
        if named:
            self._write_variation(model, named)
        start = 0
        for body in self._varied:
            for what in body.varied:
                value = bodies[start : start + VARIED[what]]
                start += VARIED[what]
                if what == "friction":
                    value = value * named.get("friction", 1.0)
                self._write_body(model, body, what, value)
        mujoco.mj_setConst(model, self._data)  # what MuJoCo works out of masses

    def _write_body(self, model: MjModel, body: Body, what: str, value: np.ndarray) -> None:
        plain = self._physics.model
        index = model.body(body.name).id
        if what == "mass":
            model.body_mass[index] = value[0]
            model.body_inertia[index] = plain.body_inertia[index] * value[0] / body.mass
        elif what == "friction":
            for number in range(len(body.geoms)):
                model.geom_friction[model.geom(f"{body.name}/{number}").id, 0] = value[0]
        elif what == "anchor":
            model.jnt_pos[model.joint(make_joint_name(body.name)).id] = value
        elif what == "joint_friction":
            model.dof_frictionloss[model.joint(make_joint_name(body.name)).dofadr[0]] = value[0]
        elif what == "joint_damping":
            model.dof_damping[model.joint(make_joint_name(body.name)).dofadr[0]] = value[0]
        else:
            pose = compute_held_pose(self._robot, value)
            model.body_pos[index] = pose[:3]
            model.body_quat[index] = pose[3:]

    def _write_variation(self, model: MjModel, drawn: dict[str, float]) -> None:
        physics = self._physics
        plain = physics.model
        model.actuator_gainprm[:, 0] = plain.actuator_gainprm[:, 0] * drawn["stiffness"]
        model.actuator_biasprm[:, 1] = plain.actuator_biasprm[:, 1] * drawn["stiffness"]
        model.actuator_biasprm[:, 2] = plain.actuator_biasprm[:, 2] * drawn["damping"]
        model.dof_damping[physics.qd] = plain.dof_damping[physics.qd] * drawn["joint_damping"]
        model.geom_friction[:, 0] = plain.geom_friction[:, 0] * drawn["friction"]
        model.pair_friction[:, :2] = plain.pair_friction[:, :2] * drawn["friction"]
        mass = plain.body_mass[physics.hand] + drawn["payload"]
        model.body_mass[physics.hand] = mass
        # compensates what it knows of, which is all where nothing weighs anything
        share = plain.body_mass[physics.hand] / mass if mass > 0.0 else 1.0
        model.body_gravcomp[physics.hand] = share
        for name in physics.cubes:
            self._write_cube(model, name, drawn)

    def _write_cube(self, model: MjModel, name: str, drawn: dict[str, float]) -> None:
        geom = model.geom(name).id
        body = model.body(name).id
        plain = self._physics.model
        side = drawn["cube_side"] if "cube_side" in drawn else 2.0 * plain.geom_size[geom, 0]
        mass = drawn["cube_mass"] if "cube_mass" in drawn else plain.body_mass[body]
        model.geom_size[geom] = side / 2.0
        model.geom_rbound[geom] = np.sqrt(3.0) * side / 2.0
        model.geom_aabb[geom, 3:] = side / 2.0
        # what a body of several geoms goes by before it looks at the cube itself
        model.bvh_aabb[model.body_bvhadr[body], 3:] = side / 2.0
        model.body_mass[body] = mass
        model.body_inertia[body] = mass * side**2 / 6.0
