"""Worlds whose physics differ: a model for each, written anew where an episode with other values
begins.
"""

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
    """What B worlds are stepped with.

    Attributes:
        models: one for all, or one for each.
        stiffness, damping: (1, a) or (B, a) of the servos.
    """

    models: MjModel | list[MjModel]
    stiffness: np.ndarray
    damping: np.ndarray


class VariedModels:
    """The models of worlds by what was drawn for them.

    Args:
        physics: what they would be without.
        variation: what the columns of what is drawn mean.
    """

    def __init__(self, physics: CompiledModel, variation: Variation):
        self._physics, self._columns = physics, tuple(variation.ranges)
        self._models: list[MjModel] = []
        self._written = np.empty((0, len(self._columns)))
        self._data = MjData(physics.model)

    def lifted(self, drawn: np.ndarray) -> np.ndarray | float:
        """(B,) by how much higher the middles of cubes lie on the table than without, by what was
        drawn (B, k) [m].
        """
        if "cube_side" not in self._columns:
            return 0.0
        name = next(iter(self._physics.cubes))
        return (
            drawn[:, self._columns.index("cube_side")] / 2.0
            - self._physics.model.geom(name).size[2]
        )

    def worlds(self, drawn: np.ndarray) -> Worlds:
        """Those for which was drawn what is given, (B, k)."""
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
        drives, models = self._physics.drives, self._models[: len(drawn)]
        return Worlds(models, stiffer * drives.stiffness, damper * drives.damping)

    def _write(self, model: MjModel, drawn: dict[str, float]) -> None:
        physics, plain = self._physics, self._physics.model
        model.actuator_gainprm[:, 0] = plain.actuator_gainprm[:, 0] * drawn["stiffness"]
        model.actuator_biasprm[:, 1] = plain.actuator_biasprm[:, 1] * drawn["stiffness"]
        model.actuator_biasprm[:, 2] = plain.actuator_biasprm[:, 2] * drawn["damping"]
        model.dof_damping[physics.qd] = plain.dof_damping[physics.qd] * drawn["joint_damping"]
        model.geom_friction[:, 0] = plain.geom_friction[:, 0] * drawn["friction"]
        mass = plain.body_mass[physics.hand] + drawn["payload"]
        model.body_mass[physics.hand] = mass
        model.body_gravcomp[physics.hand] = (
            plain.body_mass[physics.hand] / mass
        )  # compensates what it knows of
        for name in physics.cubes:
            self._write_cube(model, name, drawn)
        mujoco.mj_setConst(model, self._data)  # what MuJoCo works out of masses

    def _write_cube(self, model: MjModel, name: str, drawn: dict[str, float]) -> None:
        geom, body = model.geom(name).id, model.body(name).id
        plain = self._physics.model
        side = drawn["cube_side"] if "cube_side" in drawn else 2.0 * plain.geom_size[geom, 0]
        mass = drawn["cube_mass"] if "cube_mass" in drawn else plain.body_mass[body]
        model.geom_size[geom] = side / 2.0
        model.geom_rbound[geom] = np.sqrt(3.0) * side / 2.0
        model.geom_aabb[geom, 3:] = side / 2.0
        model.body_mass[body], model.body_inertia[body] = mass, mass * side**2 / 6.0
