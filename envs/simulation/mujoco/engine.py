"""Contact physics as an engine: what the kinematic engine would do is what the joints' servos are
told to follow.

What an episode is made of lives in the scene, one row an arm, so that resets, resuming and
foresight need nothing more:

- `physics` (B, s): MuJoCo's state (mjSTATE_FULLPHYSICS), in float64, as a period begins; its clock
    starts anew in each;
- `told` (B, 2 n + 1): where the servos are to be then: q, qd, and the gripper's driver coordinate;
- `contact_depth` (B,) [m], `contact_force` (B,) [N]: how deep the arm is, at the deepest of the
  period, in the table or in itself, and the greatest force that it got from them; what it grasps
  does not count;
- `unstable` (B,): how often in this episode the physics failed, and the arm was stopped where the
    period began;
- `turned` (B, 4), where there is a cube: the quaternion, wxyz, of its axes in the base frame, and
    `support_turned`;
- `pressed` (B,), where there is a cube: whether a pad presses on it;
- `varied` (B, k), where episodes differ: what was drawn for them, see `Variation`.
"""

# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false
# MuJoCo's Python package has no type stubs.

from typing import Any

import mujoco
import numpy as np
import torch
from mujoco import MjData
from mujoco.rollout import Rollout
from torch import Tensor

from envs import kinematics
from envs.robots import Robot
from envs.simulation import grasp, kinematic
from envs.simulation.engine import OBJECT, Command, Scene, SimModel, SimState, make_cube_key
from envs.simulation.mujoco.contacts import Contacts, read_contacts
from envs.simulation.mujoco.feed_forward import FeedForward
from envs.simulation.mujoco.model import build
from envs.simulation.mujoco.varied import VariedModels, Worlds
from envs.simulation.variation import Variation
from td3_robot.errors import not_none

_FULL = mujoco.mjtState.mjSTATE_FULLPHYSICS
_TOO_FAST = 10.0  # times its velocity limit: no servo moves a joint like that


class MujocoEngine:
    """See the module and `step`; an `Engine`.

    Args:
        robot: which arm.
        dt: control period [s].
        cube: side of the cubes that are around [m]; None for none.
        contacts: how things touch; None: as in their file.
        feed_forward: servos are given the torque that the motion takes by the arm's model, see
            `FeedForward`.
        threads: that step worlds beside each other; None: as many as torch's.
        variation: in what episodes differ.
        cubes: names in scenes of those that are around; the first is what is grasped.

    Attributes:
        physics: the model, see `model.CompiledModel`.
        unstable: how often the physics failed, in all worlds together.

    Raises:
        ConfigError: the robot has something that physics cannot work with.
    """

    def __init__(
        self,
        robot: Robot,
        dt: float,
        cube: float | None = None,
        contacts: Contacts | None = None,
        feed_forward: bool = True,
        threads: int | None = None,
        variation: Variation | None = None,
        cubes: tuple[str, ...] = (OBJECT,),
    ):
        self.physics, self.unstable = build(robot, contacts or read_contacts(), dt, cube, cubes), 0
        self._n, nq, p = robot.n, self.physics.model.nq, self.physics
        self._feed_forward = FeedForward(p.model, p.q, p.qd) if feed_forward else None
        threads = torch.get_num_threads() if threads is None else threads
        self._pool: Any = Rollout(nthread=threads if threads > 1 else 0)  # 0 is this thread
        self._data = [MjData(self.physics.model) for _ in range(threads)]
        self._varied = VariedModels(self.physics, variation) if variation else None
        self._qpos, self._qvel = slice(1, 1 + nq), slice(1 + nq, 1 + nq + self.physics.model.nv)
        self._shares = torch.linspace(0.0, 1.0, self.physics.substeps + 1, dtype=torch.float64)

    def begin(self, model: SimModel, state: SimState, scene: Scene) -> Scene:
        """See `Engine.begin`. A cube is turned by `yaw` (B,) [rad] of the scene, if that is there,
        see `make_cube_key`.
        """
        p, count = self.physics, len(state.q)
        start = np.zeros((count, mujoco.mj_stateSize(p.model, _FULL)))
        qpos, qvel = start[:, self._qpos], start[:, self._qvel]
        qpos[:] = p.model.qpos0
        qpos[:, p.q], qvel[:, p.qd] = _convert_array(state.q), _convert_array(state.qd)
        qpos[:, p.gripper] = _convert_array(state.gripper)[:, None] * p.multiple
        for name, first in p.cubes.items():
            qpos[:, first : first + 3] = _convert_array(scene[name])
            if self._varied is not None and "varied" in scene:
                qpos[:, first + 2] += self._varied.lifted(_convert_array(scene["varied"]))
            yaw = scene.get(make_cube_key(name, "yaw"))
            half = np.zeros(count) if yaw is None else _convert_array(yaw) / 2.0
            qpos[:, first + 3], qpos[:, first + 6] = np.cos(half), np.sin(half)
        none = torch.zeros_like(state.gripper)
        kept = {
            "physics": torch.as_tensor(start, device=state.q.device),
            "told": _flatten_state(state),
        }
        kept |= {
            make_cube_key(name, "turned"): turned
            for name, (_, turned) in self._cubes(start, state.q).items()
        }
        kept |= {"pressed": none.bool()} if p.cubes else {}
        return {
            **scene,
            **kept,
            "contact_depth": none,
            "contact_force": none,
            "unstable": none.long(),
        }

    def step(
        self, model: SimModel, state: SimState, command: Command, scene: Scene
    ) -> tuple[SimState, Scene]:
        """See `Engine.step`."""
        n = self._n
        told = SimState(scene["told"][:, :n], scene["told"][:, n : 2 * n], scene["told"][:, 2 * n])
        target = kinematic.step(model, told, command.joints, command.grip)
        start = _convert_array(scene["physics"]).copy()
        worlds = self._worlds(scene)
        controls = self._controls(worlds, told, target, model.dt)
        if self._feed_forward is not None:
            controls[:, :, :n] += self._ahead(worlds, start, told, target, model.dt)[:, None]
        states, sensed = self._pool.rollout(worlds.models, self._data, start, controls)
        failed, physics = self._failed(model, states[:, -1]), states[:, -1]
        physics[failed] = start[failed]
        physics[failed, self._qvel] = 0.0
        physics[:, 0] = 0.0
        sensed[failed] = 0.0
        self.unstable += int(failed.sum())
        bad = torch.as_tensor(failed, device=state.q.device)
        after = self._state(physics, state)
        scene = {
            **scene,
            **self._touching(sensed, state.q),
            "physics": torch.as_tensor(physics, device=state.q.device),
        }
        scene |= {
            "told": self._reachable(model, target, after, bad),
            "unstable": scene["unstable"] + bad,
        }
        return after, scene | self._grasped(model, after, physics, sensed)

    def _worlds(self, scene: Scene) -> Worlds:
        if self._varied is not None and "varied" in scene:
            return self._varied.worlds(_convert_array(scene["varied"]))
        drives = self.physics.drives
        return Worlds(self.physics.model, drives.stiffness[None], drives.damping[None])

    def _controls(self, worlds: Worlds, told: SimState, target: SimState, dt: float) -> np.ndarray:
        """(B, substeps, a) what the servos are told: velocity rises evenly, and what it comes to is
        where to be.
        """
        n = self._n
        share = self._shares[:, None, None]  # (S + 1, 1, 1)
        (q, v, g), (_, v_end, g_end) = (
            [x.double().cpu() for x in (s.q, s.qd, s.gripper[:, None])] for s in (told, target)
        )
        speed, along = v + share * (v_end - v), q + dt * share * (v + 0.5 * share * (v_end - v))
        places, speeds = (
            along[:-1],
            speed[1:],
        )  # the integrator takes positions as they were and speeds as they will be
        if worlds.stiffness.shape[1] > n:
            rate = ((g_end - g) / dt).expand(len(places), -1, -1)
            places = torch.cat((places, g + dt * share[:-1] * rate), 2)
            speeds = torch.cat((speeds, rate), 2)
        lead = torch.as_tensor(worlds.damping / worlds.stiffness)
        return (places + lead * speeds).transpose(0, 1).contiguous().numpy()

    def _ahead(
        self, worlds: Worlds, start: np.ndarray, told: SimState, target: SimState, dt: float
    ) -> np.ndarray:
        """(B, n) by how much farther the servos are told to be, for the torque that the motion
        takes.
        """
        before, after = _convert_array(told.qd), _convert_array(target.qd)
        torque = not_none(self._feed_forward).torque(
            start[:, self._qpos], (before + after) / 2.0, (after - before) / dt
        )
        return torque / worlds.stiffness[:, : self._n]

    def _failed(self, model: SimModel, physics: np.ndarray) -> np.ndarray:
        """(B,) whose numbers are not finite or beyond reason, or whose clock shows that MuJoCo
        began anew.
        """
        late = np.abs(physics[:, 0] - model.dt) > 1e-6
        fast = (
            np.abs(physics[:, self._qvel][:, self.physics.qd])
            > _TOO_FAST * model.qdlim.cpu().numpy()
        )
        return late | fast.any(1) | ~np.isfinite(physics).all(1)

    def _state(self, physics: np.ndarray, like: SimState) -> SimState:
        """The arms as they are."""
        p, qpos, qvel = self.physics, physics[:, self._qpos], physics[:, self._qvel]

        def tensor(x):
            return torch.as_tensor(x, dtype=like.q.dtype, device=like.q.device)

        gripper = (
            tensor((qpos[:, p.drivers] / p.driver_multiple).mean(1))
            if len(p.drivers)
            else like.gripper
        )
        return SimState(tensor(qpos[:, p.q]), tensor(qvel[:, p.qd]), gripper)

    def _reachable(
        self, model: SimModel, target: SimState, after: SimState, failed: Tensor
    ) -> Tensor:
        """What the servos go on from (B, 2 n + 1): no farther from the arm than where they give all
        their torque.

        An arm that is held up does not store how far it would have gone.
        """
        drives, n = self.physics.drives, self._n
        room = torch.as_tensor(
            drives.torque / drives.stiffness, dtype=after.q.dtype, device=after.q.device
        )
        q = torch.clamp(torch.clamp(target.q, after.q - room[:n], after.q + room[:n]), *model.qlim)
        gripper = target.gripper
        if len(room) > n:
            gripper = torch.clamp(gripper, after.gripper - room[n], after.gripper + room[n])
        return torch.where(
            failed[:, None], _flatten_state(after), _flatten_state(SimState(q, target.qd, gripper))
        )

    def _touching(self, sensed: np.ndarray, like: Tensor) -> Scene:
        """What the robot touched in the period; sensed (B, S, ...)."""
        p = self.physics
        depth = np.maximum(-sensed[..., p.table[3]], -sensed[..., p.itself[3]]).max(1).clip(0.0)
        force = [
            np.linalg.norm(sensed[..., columns], axis=2).max(1)
            for columns in (p.table_force, p.itself[:3])
        ]

        def tensor(x):
            return torch.as_tensor(x, dtype=like.dtype, device=like.device)

        return {"contact_depth": tensor(depth), "contact_force": tensor(np.maximum(*force))}

    def _grasped(
        self, model: SimModel, after: SimState, physics: np.ndarray, sensed: np.ndarray
    ) -> Scene:
        """Where cubes are; and of the first whether a pad presses on it, and both with enough of it
        between them.
        """
        p, like = self.physics, after.q
        if not p.cubes:
            return {}
        scene: Scene = {}
        for name, (place, turned) in self._cubes(physics, like).items():
            scene |= {name: place, make_cube_key(name, "turned"): turned}
        pressed = torch.as_tensor(
            np.linalg.norm(sensed[:, -1][:, not_none(p.pads)], axis=2) > 0.0, device=like.device
        )
        hand, T = not_none(model.hand), kinematics.fkine(model.chain, after.q)
        overlap = grasp.compute_overlap(
            hand,
            grasp.transform_to_hand(grasp.compute_hand_axes(hand, T), T[:, :3, 3], scene[OBJECT]),
        )
        return scene | {
            "pressed": pressed.any(1),
            "held": pressed.all(1) & (overlap >= grasp.OVERLAP),
        }

    def _cubes(self, physics: np.ndarray, like: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """By name, where each cube is (B, 3) [m], and how it stands (B, 4)."""
        qpos = torch.as_tensor(physics[:, self._qpos], dtype=like.dtype, device=like.device)
        return {
            name: (qpos[:, i : i + 3], qpos[:, i + 3 : i + 7])
            for name, i in self.physics.cubes.items()
        }


def _convert_array(x: Tensor) -> np.ndarray:
    return x.detach().double().cpu().numpy()


def _flatten_state(state: SimState) -> Tensor:
    """(B, 2 n + 1)."""
    return torch.cat((state.q, state.qd, state.gripper[:, None]), 1)
