"""What a task is: the episodes it draws, what the policy sees of them, and what it is paid for.

A task holds constants and no state; its methods are pure functions of B arms at one moment. `ArmEnv` joins a task to
the simulator.
"""

import functools
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from envs import kinematics
from envs.collision import CollisionModel, Nearest, Obstacles, compile_collision, nearest
from envs.observation import Layout
from envs.robots import Robot
from envs.rotations import rotation_error, to_matrix
from envs.simulator import SimModel, SimState, compile_robot
from td3_robot.errors import ConfigError

GROUND = 0.0  # height of the ground in the base frame [m]

# What is in an episode beside the arm, by name, one row an arm: at least `goal` (B, g). All that a step depends on.
Scene = dict[str, Tensor]


@dataclass(frozen=True)
class World:
    """What stays the same over all episodes, on one device.

    Attributes:
        robot, model: the robot as it was registered, and as the simulator's tensors.
        workspace: (2, 3) lower and upper corner of the box that goals lie in, base frame [m].
        collision: the robot's capsules; None where nothing needs them.
    """

    robot: Robot
    model: SimModel
    workspace: Tensor
    collision: CollisionModel | None = None

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.workspace.device

    @property
    def home(self) -> Tensor:
        """(n,) [rad or m]."""
        return torch.as_tensor(self.robot.home, dtype=torch.float32, device=self.device)

    def random_q(self, count: int, generator: torch.Generator) -> Tensor:
        """(count, n) joint positions, uniform inside qlim [rad or m]."""
        lower, upper = self.model.qlim
        return lower + torch.rand(count, len(lower), generator=generator, device=self.device) * (upper - lower)

    def in_workspace(self, position: Tensor) -> Tensor:
        """Whether positions (..., 3) in the base frame [m] lie in the box that goals are drawn in; (...) bool."""
        return ((position > self.workspace[0]) & (position < self.workspace[1])).all(-1)


@dataclass(frozen=True)
class Moment:
    """B arms at one time, and of their kinematics what every task needs.

    Attributes:
        state: the arms.
        T_be: (B, 4, 4) TCP poses.
        J: (B, 6, n) geometric Jacobians in the base frame.
        scene: what is around them.
        steps: (B,) control steps since the episode began.
    """

    state: SimState
    T_be: Tensor
    J: Tensor
    scene: Scene
    steps: Tensor

    @property
    def tcp(self) -> Tensor:
        """(B, 3) TCP positions in the base frame [m]."""
        return self.T_be[:, :3, 3]

    @property
    def obstacles(self) -> Obstacles:
        """What stands around the arms."""
        return obstacles_of(self.scene)

    @functools.cached_property
    def R_goal(self) -> Tensor:
        """(B, 3, 3) wanted orientation of the TCP, where goals are poses: position and quaternion."""
        return to_matrix(self.scene["goal"][:, 3:])

    @functools.cached_property
    def rotation_error(self) -> Tensor:
        """(B, 3) rotation vector in the base frame from the TCP's orientation to the wanted one [rad]."""
        return rotation_error(self.T_be[:, :3, :3], self.R_goal)


def obstacles_of(scene: Scene) -> Obstacles:
    """The obstacles in B scenes; of a kind that a task does not have, none."""
    return Obstacles(*(scene.get(name) for name in ("spheres", "boxes", "walls")))


def moment_of(world: World, state: SimState, scene: Scene, steps: Tensor) -> Moment:
    """A moment, with the kinematics of its arms worked out."""
    T_be, J = kinematics.fkine_jacob0(world.model.chain, state.q)
    return Moment(state, T_be, J, scene, steps)


@dataclass(frozen=True)
class Outcome:
    """What a control step was worth.

    Attributes:
        success: (B,) bool; an episode is a success where its last step is.
        position_error: (B,) distance that the task wants to be zero [m].
        terms: named parts of the dense reward, each (B,).
        measures: further figures to report, each (B, ...).
        terminated: (B,) bool, the task has come to an end; None: it never does before its time is up.
    """

    success: Tensor
    position_error: Tensor
    terms: dict[str, Tensor]
    measures: dict[str, Tensor] = field(default_factory=dict)
    terminated: Tensor | None = None


@dataclass(frozen=True)
class Task:
    """What all tasks have in common; each is a subclass whose values live in configs/tasks/NAME.yaml.

    Attributes:
        dt: control period [s].
        horizon: control steps an episode.
        start_spread: episodes start at home plus a uniform offset up to this, each joint [rad].
        tolerance: success distance [m].
    """

    dt: float
    horizon: int
    start_spread: float
    tolerance: float

    # Class attributes that a subclass may override; not constants of a file.
    moves_gripper = False  # whether the action has one more element, the wanted opening of the gripper
    needs_collision = False  # whether `World.collision` has to be there
    fresh_scenes = 1.0  # share of episodes with a scene that was never used before, see `ScenePool`

    def world(self, robot: Robot, device: torch.device | str, collision: bool = False) -> World:
        """The robot made ready for this task, with its capsules where the task or `collision` wants them.

        Raises:
            ConfigError: the robot lacks what the task needs.
        """
        if self.moves_gripper and robot._gripper is None:
            raise ConfigError(f"this task needs a gripper, and robot {robot.name!r} has none")
        capsules = compile_collision(robot, device) if self.needs_collision or collision else None
        workspace = torch.as_tensor(robot.workspace, dtype=torch.float32, device=device)
        return World(robot, compile_robot(robot, self.dt, device), workspace, capsules)

    def layout(self, world: World) -> Layout:
        """Names of the columns of `observe`: `o` first (`q`, `drivers`), then `qd`, and among the rest `goal`."""
        raise NotImplementedError

    def candidates(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """Draw scenes and keep those that can be solved: any number of rows up to `count`, often far fewer.

        A scene with the name `start` (n,) fixes where its episode begins; otherwise it is around home.
        """
        raise NotImplementedError

    def grip(self, world: World, moment: Moment, action: Tensor) -> Tensor | None:
        """(B,) wanted opening of the gripper during the next step in [0, 1], 1 is open; None leaves it as it is.

        Args:
            action: (B, a_dim) in [-1, 1].
        """
        if self.moves_gripper:
            return (action[:, -1] + 1.0) / 2.0
        return None

    def nearest(self, world: World, moment: Moment) -> Nearest:
        """What the arms are near to: obstacles, the ground and themselves. Needs `World.collision`."""
        return nearest(world.collision, moment.state.q, moment.obstacles, GROUND)

    def advance(self, world: World, before: Moment, after: Moment) -> Moment:
        """What a control step does beyond moving the arm: `after` with its scene, and perhaps its gripper, changed.

        Args:
            before: as the step began.
            after: the arm has moved; the scene is still the one of `before`.
        """
        return after

    def observe(self, world: World, moment: Moment) -> Tensor:
        """What the policy sees, (B, o_dim); its columns are those of `layout`."""
        raise NotImplementedError

    def outcome(self, world: World, moment: Moment, action: Tensor) -> Outcome:
        """What the control step that led to a moment was worth.

        Args:
            action: (B, a_dim) in [-1, 1] of that step.
        """
        raise NotImplementedError

    # Hindsight ----------------------------------------------------------------------------------------------

    def achieved_goal(self, world: World, observation: Tensor) -> Tensor:
        """The goal (B, g) that would have been met in these observations (B, o_dim)."""
        raise NotImplementedError

    def goal_met(self, achieved: Tensor, desired: Tensor) -> Tensor:
        """Whether goals (B, g) count as reached by what was achieved (B, g), so far as goals alone tell; (B,) bool."""
        return torch.linalg.vector_norm(desired - achieved, dim=1) < self.tolerance

    def recall(self, world: World, observation: Tensor) -> Moment:
        """The moment that `observe` showed, as far as observation, reward and success depend on it."""
        layout, model = self.layout(world), world.model
        grip = observation[:, layout["drivers"]]
        mimic = model.driver_mimic
        state = SimState(
            observation[:, layout["q"]],
            observation[:, layout["qd"]],
            grip[:, 0] / mimic[0] if len(mimic) else observation.new_zeros(len(observation)),
        )
        steps = torch.zeros(len(observation), dtype=torch.long, device=observation.device)
        return moment_of(world, state, self.recall_scene(world, layout, observation), steps)

    def recall_scene(self, world: World, layout: Layout, observation: Tensor) -> Scene:
        """The scene of `recall`."""
        return {"goal": observation[:, layout["goal"]]}

    def goal_before(self, before: Moment, goal: Tensor) -> Tensor:
        """The goal (B, g) one step before it was `goal` (B, g), for goals that move; by default they stand still."""
        return goal

    def with_goal(self, moment: Moment, goal: Tensor) -> Moment:
        """The moment as it would have been with another goal (B, g)."""
        return replace(moment, scene={**moment.scene, "goal": goal})


class ScenePool:
    """Solvable scenes, drawn ahead in large blocks, since most candidates fail.

    They are handed out in order. At the end of the pool more are drawn, and all but the new ones forgotten, unless the
    task says that scenes are dear: where `Task.fresh_scenes` is below 1 it is the share of scenes that are new. The
    pool, of `FEWEST` to `KEPT`, is then shuffled and handed out again.
    """

    BLOCK = 8192
    FEWEST, KEPT = 200, 10_000
    PATIENCE = 10  # blocks in a row without a scene

    def __init__(self, task: Task, world: World, generator: torch.Generator):
        self._task, self._world, self._generator = task, world, generator
        self.clear()

    def clear(self) -> None:
        """Forget scenes drawn ahead, so that the next ones depend on the generator alone."""
        self.scenes: Scene = {}
        self.next, self.handed_out = 0, 0  # of the pool, and in all

    def __len__(self) -> int:
        return len(next(iter(self.scenes.values()), ()))

    def draw(self, count: int) -> Scene:
        """`count` scenes.

        Raises:
            ConfigError: block after block of candidates holds none.
        """
        while len(self) - self.next < count:
            if self._task.fresh_scenes < 1.0 and self._enough(count):
                self._shuffle()
            else:
                self._append_block()
        rows = slice(self.next, self.next + count)
        self.next += count
        self.handed_out += count
        return {key: value[rows] for key, value in self.scenes.items()}

    def _enough(self, count: int) -> bool:
        """Whether the pool holds its share of fresh scenes, and as many as are asked for."""
        share = min(self.KEPT, self._task.fresh_scenes * self.handed_out)
        return len(self) >= max(count, share, self.FEWEST)

    def _shuffle(self) -> None:
        order = torch.randperm(len(self), generator=self._generator, device=self._generator.device)
        self.scenes, self.next = {key: value[order] for key, value in self.scenes.items()}, 0

    def _append_block(self) -> None:
        for _ in range(self.PATIENCE):
            found = self._task.candidates(self._world, self.BLOCK, self._generator)
            if len(found["goal"]):
                break
        else:
            box, tried = self._world.workspace.tolist(), self.PATIENCE * self.BLOCK
            raise ConfigError(f"workspace {box} holds none of {tried} random goals; enlarge it")
        if self._task.fresh_scenes == 1.0:  # what was handed out is not used again
            self.scenes, self.next = {key: value[self.next :] for key, value in self.scenes.items()}, 0
        self.scenes = {key: torch.cat((self.scenes[key], found[key])) for key in found} if self.scenes else found
