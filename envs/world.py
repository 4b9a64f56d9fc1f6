"""The world that stays the same, and the moment that B arms are in, for tasks and controllers."""

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from envs import kinematics
from envs.collision import CollisionModel, Obstacles
from envs.kinematics.rotations import rotation_error, to_matrix
from envs.robots import Robot
from envs.simulation.bodies import JOINT_TORQUE, WRENCH
from envs.simulation.engine import Scene, SimModel, SimState
from td3_robot.errors import ConfigError, not_none
from td3_robot.vec_env import draw_uniform

GROUND = 0.0  # height of the ground in the base frame [m]


@dataclass(frozen=True)
class World:
    """The robot and its surroundings that stay the same over all episodes, on one device.

    Attributes:
        robot, model: the robot as it was registered, and as the simulator's tensors.
        workspace: (2, 3) lower and upper corner of the box that goals lie in, base frame [m].
        collision: the robot's capsules; None where they are not known.
    """

    robot: Robot
    model: SimModel
    workspace: Tensor
    collision: CollisionModel | None = None

    @property
    def capsules(self) -> CollisionModel:
        """`collision`, where the task has asked for it."""
        return not_none(self.collision)

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.workspace.device

    @property
    def home(self) -> Tensor:
        """The home position (n,) [rad or m]."""
        return torch.as_tensor(self.robot.home, dtype=torch.float32, device=self.device)

    def index(self, *places: int) -> Tensor:
        """Return indices as a tensor on the device, copied there once, not at every use."""
        if places not in self._indices:
            self._indices[places] = torch.tensor(places, device=self.device)
        return self._indices[places]

    @functools.cached_property
    def _indices(self) -> dict[tuple[int, ...], Tensor]:
        return {}

    def random_q(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw (count, n) joint positions, uniform inside qlim [rad or m]."""
        lower, upper = self.model.qlim
        return lower + draw_uniform(generator, count, len(lower)) * (upper - lower)

    def in_workspace(self, position: Tensor) -> Tensor:
        """Tell (...) if positions (..., 3) in the base frame [m] lie in the workspace of goals."""
        return ((position > self.workspace[0]) & (position < self.workspace[1])).all(-1)


@dataclass(frozen=True)
class Moment:
    """B arms at one time, and of their kinematics what every task needs.

    Attributes:
        state: the arms.
        T_be: (B, 4, 4) TCP poses.
        find_jacobians: returns `J`; few moments are asked for it.
        scene: what is around them.
        steps: (B,) control steps since the episode began.
        frames: `kinematics.link_frames` of the arms, where they are at hand: for whoever asks next,
            and not kept.
    """

    state: SimState
    T_be: Tensor
    find_jacobians: Callable[[], Tensor]
    scene: Scene
    steps: Tensor
    frames: list[Tensor] | None = None

    @property
    def tcp(self) -> Tensor:
        """(B, 3) TCP positions in the base frame [m]."""
        return self.T_be[:, :3, 3]

    @property
    def J(self) -> Tensor:
        """(B, 6, n) geometric Jacobians in the base frame."""
        return self.find_jacobians()

    def each(self, change: Callable[..., Tensor], *others: "Moment") -> "Moment":
        """Return the moment with every tensor x replaced by change(x, y, ...), where y, ... are the
        same tensors of the others.
        """
        moments = (self, *others)

        def change_named(*tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: change(*(named[name] for named in tensors)) for name in tensors[0]}

        return Moment(
            state=SimState(**change_named(*(vars(moment.state) for moment in moments))),
            T_be=change(*(moment.T_be for moment in moments)),
            find_jacobians=functools.cache(lambda: change(*(moment.J for moment in moments))),
            scene=change_named(*(moment.scene for moment in moments)),
            steps=change(*(moment.steps for moment in moments)),
        )

    def __getstate__(self) -> dict:
        """Return what a pickle holds: Jacobians instead of the function that finds them."""
        return {**vars(self), "find_jacobians": None, "frames": None, "J": self.J}

    def __setstate__(self, state: dict) -> None:
        """Restore what a pickle holds."""
        J = state.pop("J")
        vars(self).update(state, find_jacobians=lambda: J)

    def tensors(self) -> dict:
        """Return all tensors by name, the scene in a dictionary of its own."""
        return {
            **vars(self.state),
            "T_be": self.T_be,
            "J": self.J,
            "steps": self.steps,
            "scene": dict(self.scene),
        }

    @staticmethod
    def of_tensors(tensors: dict) -> "Moment":
        """Make a moment from the result of `tensors`."""
        state = SimState(**{name: tensors[name] for name in ("q", "qd", "gripper")})
        J = tensors["J"]
        return Moment(state, tensors["T_be"], lambda: J, tensors["scene"], tensors["steps"])

    def require_like(self, other: "Moment", *, but: Collection[str] = ()) -> None:
        """Refuse a moment of another robot, task or number of arms.

        Args:
            other: the moment.
            but: tensors that either may have or lack.

        Raises:
            ConfigError: names the first tensor that differs in its shape, or that one lacks.
        """
        own = self._get_shapes()
        saved = other._get_shapes()
        for name in sorted((own.keys() | saved.keys()) - set(but)):
            if own.get(name) != saved.get(name):
                raise ConfigError(
                    f"the saved arms are of another robot, task, number or latency: {name} is "
                    f"{saved.get(name) or 'missing'} there, {own.get(name) or 'missing'} here"
                )

    def _get_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all tensors by name, those of the scene included."""
        tensors = self.tensors()
        tensors |= tensors.pop("scene")
        return {name: tuple(x.shape) for name, x in tensors.items()}

    def flatten(self) -> "Moment":
        """Return the same moment without the moments that it was made of, which `J` reads."""
        return Moment.of_tensors(self.tensors())

    @property
    def wrench(self) -> Tensor:
        """(B, 6) external force [N] and moment [Nm] on the gripper, at the TCP in the base frame.

        Zero where the engine has no forces, or the task does not ask for them; see `PhysicsSpec`.
        """
        felt = self.scene.get(WRENCH)
        return self.state.q.new_zeros(len(self.state.q), 6) if felt is None else felt

    @property
    def joint_torque(self) -> Tensor:
        """(B, n) external torques of the joints [Nm or N]; zero as `wrench` is."""
        felt = self.scene.get(JOINT_TORQUE)
        return torch.zeros_like(self.state.q) if felt is None else felt

    @property
    def obstacles(self) -> Obstacles:
        """The obstacles around the arms."""
        return get_obstacles(self.scene)

    @functools.cached_property
    def R_goal(self) -> Tensor:
        """(B, 3, 3) wanted orientation of the TCP, where goals are poses: position and
        quaternion.
        """
        return to_matrix(self.scene["goal"][:, 3:])

    @functools.cached_property
    def rotation_error(self) -> Tensor:
        """(B, 3) rotation vector in the base frame from the TCP's orientation to the wanted one
        [rad].
        """
        return rotation_error(self.T_be[:, :3, :3], self.R_goal)


def get_obstacles(scene: Scene) -> Obstacles:
    """Return the obstacles in B scenes; none of a kind that a task does not have."""
    return Obstacles(**{name: scene.get(name) for name in Obstacles.__dataclass_fields__})


def make_moment(world: World, state: SimState, scene: Scene, steps: Tensor) -> Moment:
    """Make a moment, and compute the kinematics of its arms."""
    chain = world.model.chain
    frames = kinematics.link_frames(chain, state.q)
    jacobians = functools.cache(lambda: kinematics.compute_jacobian(chain, frames))
    return Moment(state, kinematics.compute_tcp_pose(frames), jacobians, scene, steps, frames)
