"""Feed-forward torques by inverse dynamics, from the arm's own model.

Controllers of arms know their dynamics (Siciliano et al., "Robotics", 8.5.2, inverse dynamics
control; Franka's and Universal Robots' compensate inertia and friction inside), and a servo alone
would be behind by M qdd / kp, millimetres at the TCP. Gravity is compensated by the model itself.
"""

# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false
# MuJoCo's Python package has no type stubs.

import copy

import mujoco
import numpy as np
from mujoco import MjData, MjModel

from envs.simulation.mujoco.drives import Ties

_SLOW = 0.01  # [rad/s or m/s] below which nobody knows the direction of dry friction


class FeedForward:
    """Inverse dynamics of many arms, one after the other: 1/30 of the time of a control period.

    Args:
        model: of the robot and its scene.
        qd: (n,) indices of the arm's joints in qvel.
        ties: the joints of links that follow them.
    """

    def __init__(self, model: MjModel, qd: np.ndarray, ties: Ties):
        self._model = copy.copy(model)
        self._model.opt.gravity[:] = 0.0
        self._data = MjData(self._model)
        self._qd = qd
        self._ties = ties
        self._armature = model.dof_armature[qd]
        self._friction = model.dof_damping[qd]
        self._dry_friction = model.dof_frictionloss[qd]

    def compute_torque(self, qpos: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
        """Compute torques at qpos (B, nq), fingers included, with qd and accelerations qdd (B, n).

        Returns:
            (B, n) [Nm or N].
        """
        model = self._model
        data = self._data
        ties = self._ties
        all_dofs = np.zeros(model.nv)
        torque = np.empty_like(qd)
        for row in range(len(qd)):
            data.qpos[:] = qpos[row]
            data.qvel[self._qd] = qd[row]
            data.qacc[self._qd] = qdd[row]
            data.qvel[ties.qd] = ties.compute_rates(qd[row])
            data.qacc[ties.qd] = ties.compute_rates(qdd[row])
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            mujoco.mj_comVel(model, data)
            mujoco.mj_rne(model, data, 1, all_dofs)
            torque[row] = all_dofs[self._qd]
            np.add.at(torque[row], ties.leaders, ties.multipliers * all_dofs[ties.qd])
        return torque + self._armature * qdd + self._friction * qd

    def remove_dry_friction(
        self, torque: np.ndarray, qd: np.ndarray, qd_after: np.ndarray
    ) -> np.ndarray:
        """Return torques (B, n) on the joints over a time without their dry friction.

        It is against the motion, from qd to qd_after (B, n). Of a joint that rests or turns back it
        is whatever of the torque it can be.
        """
        most = self._dry_friction
        steady = (np.minimum(np.abs(qd), np.abs(qd_after)) > _SLOW) & (qd * qd_after > 0.0)
        friction = np.where(steady, -np.sign(qd) * most, np.clip(torque, -most, most))
        return torque - friction
