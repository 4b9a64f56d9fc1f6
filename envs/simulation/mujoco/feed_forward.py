"""What a motion takes, by the arm's own model: the torque that its controller gives before there is
any error.

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


class FeedForward:
    """Inverse dynamics of many arms, one after the other; a thirtieth of what a control period of
    physics takes.

    Args:
        model: the robot's, with whatever else there is.
        q, qd: (n,) where the arm's joints are in qpos and qvel.
    """

    def __init__(self, model: MjModel, q: np.ndarray, qd: np.ndarray):
        self._model = copy.copy(model)
        self._model.opt.gravity[:] = 0.0
        self._data, self._q, self._qd = MjData(self._model), q, qd
        self._armature, self._friction = model.dof_armature[qd], model.dof_damping[qd]

    def torque(self, qpos: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
        """Of arms at qpos (B, nq), where the fingers are too, with velocities qd and accelerations
        qdd (B, n).

        Returns:
            (B, n) [Nm or N].
        """
        model, data, all_dofs = self._model, self._data, np.zeros(self._model.nv)
        torque = np.empty_like(qd)
        for row in range(len(qd)):
            data.qpos[:], data.qvel[self._qd], data.qacc[self._qd] = qpos[row], qd[row], qdd[row]
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            mujoco.mj_comVel(model, data)
            mujoco.mj_rne(model, data, 1, all_dofs)
            torque[row] = all_dofs[self._qd]
        return torque + self._armature * qdd + self._friction * qd
