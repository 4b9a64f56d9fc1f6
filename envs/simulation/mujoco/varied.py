"""Worlds with varied physics: a model for each, rewritten when an episode has other values."""

# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false
# MuJoCo's Python package has no type stubs.

import copy
from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco import MjData, MjModel

from envs.simulation.mujoco.model import CompiledModel
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
        variation: names the columns of the drawn values.
    """

    def __init__(self, physics: CompiledModel, variation: Variation):
        self._physics = physics
        self._columns = tuple(variation.ranges)
        self._models: list[MjModel] = []
        self._written = np.empty((0, len(self._columns)))
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

    def prepare_worlds(self, drawn: np.ndarray) -> Worlds:
        """Prepare the worlds with drawn values (B, k)."""
        while len(self._models) < len(drawn):
            self._models.append(copy.copy(self._physics.model))
            self._written = np.concatenate(
                (self._written, np.full((1, len(self._columns)), np.nan))
            )
        for row in np.flatnonzero((self._written[: len(drawn)] != drawn).any(1)):
            self._write(self._models[row], dict(zip(self._columns, drawn[row])))
            self._written[row] = drawn[row]
        stiffer, damper = (
            drawn[:, [self._columns.index(name)]] for name in ("stiffness", "damping")
        )
        drives = self._physics.drives
        models = self._models[: len(drawn)]
        return Worlds(models, stiffer * drives.stiffness, damper * drives.damping)

    def _write(self, model: MjModel, drawn: dict[str, float]) -> None:
        physics = self._physics
        plain = physics.model
        model.actuator_gainprm[:, 0] = plain.actuator_gainprm[:, 0] * drawn["stiffness"]
        model.actuator_biasprm[:, 1] = plain.actuator_biasprm[:, 1] * drawn["stiffness"]
        model.actuator_biasprm[:, 2] = plain.actuator_biasprm[:, 2] * drawn["damping"]
        model.dof_damping[physics.qd] = plain.dof_damping[physics.qd] * drawn["joint_damping"]
        model.geom_friction[:, 0] = plain.geom_friction[:, 0] * drawn["friction"]
        mass = plain.body_mass[physics.hand] + drawn["payload"]
        model.body_mass[physics.hand] = mass
        # compensates what it knows of
        model.body_gravcomp[physics.hand] = plain.body_mass[physics.hand] / mass
        for name in physics.cubes:
            self._write_cube(model, name, drawn)
        mujoco.mj_setConst(model, self._data)  # what MuJoCo works out of masses

    def _write_cube(self, model: MjModel, name: str, drawn: dict[str, float]) -> None:
        geom = model.geom(name).id
        body = model.body(name).id
        plain = self._physics.model
        side = drawn["cube_side"] if "cube_side" in drawn else 2.0 * plain.geom_size[geom, 0]
        mass = drawn["cube_mass"] if "cube_mass" in drawn else plain.body_mass[body]
        model.geom_size[geom] = side / 2.0
        model.geom_rbound[geom] = np.sqrt(3.0) * side / 2.0
        model.geom_aabb[geom, 3:] = side / 2.0
        model.body_mass[body] = mass
        model.body_inertia[body] = mass * side**2 / 6.0
