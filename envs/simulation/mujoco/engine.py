"""Contact dynamics by MuJoCo as an engine: servos follow the motion of the kinematic engine.

The state of an episode is in the scene, one row an arm, so that resets, resuming and latency
compensation need nothing more:

- `physics` (B, s): MuJoCo's state (mjSTATE_FULLPHYSICS), in float64, at the start of a period; its
    clock starts at zero in each;
- `told` (B, 2 n + 1): the servos' reference then: q, qd, and the gripper's driver coordinate;
- `contact_depth` (B,) [m], `contact_force` (B,) [N]: the deepest penetration of the arm in the
  table or itself during the period, and the greatest force; grasped cubes do not count;
- `unstable` (B,): failures of the physics in this episode; each stops the arm where the period
    began;
- `turned` (B, 4), with a cube: the quaternion, wxyz, of its axes in the base frame, and
    `support_turned`;
- `pressed` (B,), with a cube: true if a pad presses on it;
- `varied` (B, k), if episodes vary: the values drawn for them, see `Variation`;
- of a task's own bodies: their poses, forces and what is felt, see `PhysicsSpec`.
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
from envs.simulation.bodies import JOINT_TORQUE, WRENCH, PhysicsSpec
from envs.simulation.engine import OBJECT, Command, Scene, SimModel, SimState, make_cube_key
from envs.simulation.failures import Failures
from envs.simulation.mujoco.contacts import Contacts, read_contacts, replace_constants
from envs.simulation.mujoco.feed_forward import FeedForward
from envs.simulation.mujoco.model import build
from envs.simulation.mujoco.varied import VariedModels, Worlds
from envs.simulation.variation import Variation
from td3_robot.errors import not_none

_FULL = mujoco.mjtState.mjSTATE_FULLPHYSICS
_CONTROLS = int(mujoco.mjtState.mjSTATE_CTRL)
_PLACES = int(mujoco.mjtState.mjSTATE_MOCAP_POS | mujoco.mjtState.mjSTATE_MOCAP_QUAT)
_TOO_FAST = 10.0  # times its velocity limit: no servo moves a joint like that
_REFERENCE = "told"  # of the servos, in scenes; checkpoints hold this key


class MujocoEngine:
    """An `Engine` with contact dynamics by MuJoCo.

    Args:
        robot: the arm.
        dt: control period [s].
        cube: side of the cubes that are around [m]; None for none.
        contacts: constants of contacts; None for those of their file.
        feed_forward: add the torque of the motion by the arm's model, see `FeedForward`.
        threads: that step worlds in parallel; None for as many as torch's.
        variation: of the physics between episodes.
        cubes: names in scenes of those that are around; the first is what is grasped.
        needs: what the task brings; None for nothing.

    Attributes:
        physics: the model, see `model.CompiledModel`.
        failures: of the physics, in all worlds.

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
        needs: PhysicsSpec | None = None,
    ):
        constants = contacts or read_contacts()
        if needs is not None:
            constants = replace_constants(constants, needs.constants)
        self.physics = p = build(robot, constants, dt, cube, cubes, needs)
        self.failures = Failures(robot, p.estimated, np.zeros(robot.n, int))
        self._n = robot.n
        nq = p.model.nq
        self._feed_forward = FeedForward(p.model, p.qd, p.ties) if feed_forward else None
        threads = torch.get_num_threads() if threads is None else threads
        self._pool: Any = Rollout(nthread=threads if threads > 1 else 0)  # 0 is this thread
        self._data = [MjData(p.model) for _ in range(threads)]
        self._task = task = p.task
        bodies_vary = bool(task is not None and task.needs.varied_keys)
        self._varied = VariedModels(p, variation, robot) if variation or bodies_vary else None
        felt = task is not None and JOINT_TORQUE in task.needs.senses
        self._model_torque = FeedForward(p.model, p.qd, p.ties) if felt else None
        self._qpos = slice(1, 1 + nq)
        self._qvel = slice(1 + nq, 1 + nq + p.model.nv)
        self._shares = torch.linspace(0.0, 1.0, p.substeps + 1, dtype=torch.float64)

    def begin(self, model: SimModel, state: SimState, scene: Scene) -> Scene:
        """Set up the physics of episodes that begin.

        Cubes are turned by `yaw` (B,) [rad] if the scene has it, see `make_cube_key`.
        """
        p = self.physics
        count = len(state.q)
        start = np.zeros((count, mujoco.mj_stateSize(p.model, _FULL)))
        qpos = start[:, self._qpos]
        qpos[:] = p.model.qpos0
        qpos[:, p.q] = _convert_array(state.q)
        qpos[:, p.ties.q] = p.ties.compute_positions(qpos[:, p.q])
        qvel = start[:, self._qvel]
        qvel[:, p.qd] = _convert_array(state.qd)
        qvel[:, p.ties.qd] = p.ties.compute_rates(qvel[:, p.qd])
        qpos[:, p.gripper] = _convert_array(state.gripper)[:, None] * p.multiple
        for name, first in p.cubes.items():
            qpos[:, first : first + 3] = _convert_array(scene[name])
            if self._varied is not None and "varied" in scene:
                qpos[:, first + 2] += self._varied.compute_lift(_convert_array(scene["varied"]))
            yaw = scene.get(make_cube_key(name, "yaw"))
            half = np.zeros(count) if yaw is None else _convert_array(yaw) / 2.0
            qpos[:, first + 3] = np.cos(half)
            qpos[:, first + 6] = np.sin(half)
        if self._task is not None:
            for name, first in self._task.free.items():
                qpos[:, first : first + 7] = _convert_array(scene[name])
            for name, index in self._task.joints.items():
                scene = {name: torch.zeros_like(state.gripper), **scene}
                qpos[:, index] = _convert_array(scene[name])
        none = torch.zeros_like(state.gripper)
        kept = {
            "physics": torch.as_tensor(start, device=state.q.device),
            _REFERENCE: _flatten_state(state),
        }
        for name, (place, turned) in self._read_cube_poses(start, state.q).items():
            kept |= {name: place, make_cube_key(name, "turned"): turned}
        kept |= {"pressed": none.bool()} if p.cubes else {}
        kept |= self._begin_task(state)
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
        """Roll the physics out over a control period, the servos following the kinematic engine."""
        n = self._n
        values = scene[_REFERENCE]
        reference = SimState(values[:, :n], values[:, n : 2 * n], values[:, 2 * n])
        target = kinematic.step(model, reference, command.joints, command.grip)
        start = _convert_array(scene["physics"]).copy()
        worlds = self._prepare_worlds(scene)
        controls = self._compute_controls(worlds, reference, target, model.dt)
        if self._feed_forward is not None:
            lead = self._compute_lead(worlds, start, reference, target, model.dt)
            controls[:, :, :n] += lead[:, None]
        control_spec = _CONTROLS
        if self._task is not None and self._task.placed:
            control_spec |= _PLACES
            controls = np.concatenate((controls, self._place_bodies(scene, controls.shape[1])), 2)
        states, sensed = self._pool.rollout(
            worlds.models, self._data, start, controls, control_spec=control_spec
        )
        physics = states[:, -1]
        failed = self._find_failed(model, physics)
        self.failures.add(self._compute_speeds(model, physics[failed]))
        physics[failed] = start[failed]
        physics[failed, self._qvel] = 0.0
        physics[:, 0] = 0.0
        sensed[failed] = 0.0
        bad = torch.as_tensor(failed, device=state.q.device)
        after = self._read_state(physics, state)
        scene = {
            **scene,
            **self._read_contacts(sensed, state.q),
            "physics": torch.as_tensor(physics, device=state.q.device),
            _REFERENCE: self._limit_reference(model, target, after, bad),
            "unstable": scene["unstable"] + bad,
        }
        if self._task is not None:
            scene |= self._read_task(model, state, after, physics, sensed, failed)
        return after, scene | self._read_cubes(model, after, physics, sensed)

    def _begin_task(self, state: SimState) -> Scene:
        """Return what a task's sensors read of arms that rest and touch nothing."""
        if self._task is None:
            return {}
        needs = self._task.needs
        pairs = state.q.new_zeros(len(state.q), len(needs.contacts))
        felt = {WRENCH: state.q.new_zeros(len(state.q), 6), JOINT_TORQUE: torch.zeros_like(state.q)}
        kept = {"contact_forces": pairs, "contact_depths": pairs.clone()}
        return kept | {name: felt[name] for name in needs.senses}

    def _place_bodies(self, scene: Scene, substeps: int) -> np.ndarray:
        """Return the poses (B, substeps, 7 m) of placed bodies as MuJoCo orders them."""
        poses = [_convert_array(scene[name]) for name in not_none(self._task).placed]
        row = np.concatenate([p[:, :3] for p in poses] + [p[:, 3:] for p in poses], 1)
        return np.repeat(row[:, None], substeps, 1)

    def _prepare_worlds(self, scene: Scene) -> Worlds:
        if self._varied is not None:
            keys = self._task.needs.varied_keys if self._task is not None else ()
            drawn = _convert_array(scene["varied"]) if "varied" in scene else None
            if keys or drawn is not None:
                rows = [_convert_array(scene[key]).reshape(len(scene[key]), -1) for key in keys]
                bodies = np.concatenate((np.empty((len(scene["physics"]), 0)), *rows), 1)
                return self._varied.prepare_worlds(drawn, bodies)
        drives = self.physics.drives
        return Worlds(self.physics.model, drives.stiffness[None], drives.damping[None])

    def _compute_controls(
        self, worlds: Worlds, reference: SimState, target: SimState, dt: float
    ) -> np.ndarray:
        """Compute the servos' commands (B, substeps, a): linear velocity, and its integral."""
        n = self._n
        share = self._shares[:, None, None]  # (S + 1, 1, 1)
        (q, v, g), (_, v_end, g_end) = (
            [x.double().cpu() for x in (s.q, s.qd, s.gripper[:, None])] for s in (reference, target)
        )
        # The integrator takes positions at the start and speeds at the end of a substep.
        places = (q + dt * share * (v + 0.5 * share * (v_end - v)))[:-1]
        speeds = (v + share * (v_end - v))[1:]
        if worlds.stiffness.shape[1] > n:
            rate = ((g_end - g) / dt).expand(len(places), -1, -1)
            places = torch.cat((places, g + dt * share[:-1] * rate), 2)
            speeds = torch.cat((speeds, rate), 2)
        lead = torch.as_tensor(worlds.damping / worlds.stiffness)
        return (places + lead * speeds).transpose(0, 1).contiguous().numpy()

    def _compute_lead(
        self, worlds: Worlds, start: np.ndarray, reference: SimState, target: SimState, dt: float
    ) -> np.ndarray:
        """Compute the lead (B, n) of the servos' commands that gives the torque of the motion."""
        before = _convert_array(reference.qd)
        after = _convert_array(target.qd)
        torque = not_none(self._feed_forward).compute_torque(
            start[:, self._qpos], (before + after) / 2.0, (after - before) / dt
        )
        return torque / worlds.stiffness[:, : self._n]

    @property
    def unstable(self) -> int:
        """Number of failures of the physics, in all worlds."""
        return int(self.failures.by_joint.sum())

    def _compute_speeds(self, model: SimModel, physics: np.ndarray) -> np.ndarray:
        """Compute the joints' speeds (B, n) in parts of their limits."""
        return np.abs(physics[:, self._qvel][:, self.physics.qd]) / model.qdlim.cpu().numpy()

    def _find_failed(self, model: SimModel, physics: np.ndarray) -> np.ndarray:
        """Find the worlds (B,) with absurd or infinite numbers, or a clock reset by MuJoCo."""
        late = np.abs(physics[:, 0] - model.dt) > 1e-6
        fast = (
            np.abs(physics[:, self._qvel][:, self.physics.qd])
            > _TOO_FAST * model.qdlim.cpu().numpy()
        )
        return late | fast.any(1) | ~np.isfinite(physics).all(1)

    def _read_state(self, physics: np.ndarray, like: SimState) -> SimState:
        """Read the state of the arms."""
        p = self.physics
        qpos = physics[:, self._qpos]
        qvel = physics[:, self._qvel]
        gripper = like.gripper
        if len(p.drivers):
            gripper = _convert_tensor((qpos[:, p.drivers] / p.driver_multiple).mean(1), like.q)
        return SimState(
            _convert_tensor(qpos[:, p.q], like.q), _convert_tensor(qvel[:, p.qd], like.q), gripper
        )

    def _limit_reference(
        self, model: SimModel, target: SimState, after: SimState, failed: Tensor
    ) -> Tensor:
        """Limit the servos' reference (B, 2 n + 1) to where they give all their torque.

        A blocked arm therefore does not wind up. Where stiffness varies, this is the nominal one's.
        """
        drives = self.physics.drives
        n = self._n
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

    def _read_contacts(self, sensed: np.ndarray, like: Tensor) -> Scene:
        """Read the robot's contacts in the period from its sensors (B, S, ...)."""
        p = self.physics
        table = -sensed[..., p.table[3]]
        if self._task is not None:  # which may allow some of them
            table = self._task.compute_forbidden_depth(sensed)
        depth = np.maximum(table, -sensed[..., p.itself[3]]).max(1).clip(0.0)
        force = [
            np.linalg.norm(sensed[..., columns], axis=2).max(1)
            for columns in (p.table_force, p.itself[:3])
        ]
        return {
            "contact_depth": _convert_tensor(depth, like),
            "contact_force": _convert_tensor(np.maximum(*force), like),
        }

    def _read_task(
        self,
        model: SimModel,
        before: SimState,
        after: SimState,
        physics: np.ndarray,
        sensed: np.ndarray,
        failed: np.ndarray,
    ) -> Scene:
        """Read the poses of a task's free bodies, the forces of its contacts, and what is felt."""
        task = not_none(self._task)
        like = after.q
        qpos = physics[:, self._qpos]
        force, depth = task.read_contacts(sensed)
        scene = {name: _convert_tensor(qpos[:, i : i + 7], like) for name, i in task.free.items()}
        scene |= {name: _convert_tensor(qpos[:, i], like) for name, i in task.joints.items()}
        scene["contact_forces"] = _convert_tensor(force, like)
        scene["contact_depths"] = _convert_tensor(depth, like)
        if task.wrench is not None:
            tcp = _convert_array(kinematics.fkine(model.chain, after.q)[:, :3, 3])
            scene[WRENCH] = _convert_tensor(task.read_wrench(sensed, tcp), like)
        if self._model_torque is not None:
            mean = np.repeat(qpos, 1, 0)
            mean[:, self.physics.q] = _convert_array((before.q + after.q) / 2.0)
            qd, qd_after = (_convert_array(x.qd) for x in (before, after))
            qdd = (qd_after - qd) / model.dt
            expected = self._model_torque.compute_torque(mean, (qd + qd_after) / 2.0, qdd)
            motors = sensed[..., not_none(task.torque)].mean(1)
            felt = self._model_torque.remove_dry_friction(expected - motors, qd, qd_after)
            felt[failed] = 0.0  # no motor was read there
            scene[JOINT_TORQUE] = _convert_tensor(felt, like)
        return scene

    def _read_cubes(
        self, model: SimModel, after: SimState, physics: np.ndarray, sensed: np.ndarray
    ) -> Scene:
        """Read the poses of cubes; of the first, whether a pad presses on it and both hold it."""
        p = self.physics
        like = after.q
        if not p.cubes:
            return {}
        scene: Scene = {}
        for name, (place, turned) in self._read_cube_poses(physics, like).items():
            scene |= {name: place, make_cube_key(name, "turned"): turned}
        pressed = torch.as_tensor(
            np.linalg.norm(sensed[:, -1][:, not_none(p.pads)], axis=2) > 0.0, device=like.device
        )
        hand = not_none(model.hand)
        T = kinematics.fkine(model.chain, after.q)
        overlap = grasp.compute_overlap(
            hand,
            grasp.transform_to_hand(grasp.compute_hand_axes(hand, T), T[:, :3, 3], scene[OBJECT]),
        )
        return scene | {
            "pressed": pressed.any(1),
            "held": pressed.all(1) & (overlap >= grasp.OVERLAP),
        }

    def _read_cube_poses(
        self, physics: np.ndarray, like: Tensor
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Read each cube's position (B, 3) [m] and quaternion (B, 4), by its name."""
        qpos = torch.as_tensor(physics[:, self._qpos], dtype=like.dtype, device=like.device)
        return {
            name: (qpos[:, i : i + 3], qpos[:, i + 3 : i + 7])
            for name, i in self.physics.cubes.items()
        }


def _convert_array(x: Tensor) -> np.ndarray:
    return x.detach().double().cpu().numpy()


def _convert_tensor(x: np.ndarray, like: Tensor) -> Tensor:
    return torch.as_tensor(x, dtype=like.dtype, device=like.device)


def _flatten_state(state: SimState) -> Tensor:
    """Return q, qd and gripper as one tensor (B, 2 n + 1)."""
    return torch.cat((state.q, state.qd, state.gripper[:, None]), 1)
