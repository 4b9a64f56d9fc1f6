"""Tasks: the scenes they sample, the observations and rewards of a policy, and success.

A task holds constants and no state; its methods are pure functions of B arms at one moment.
`ArmEnv` joins a task to an engine. How to add one: docs/tutorials/your-task.md.
"""

import sys
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from envs.collision import (
    Nearest,
    clearance,
    compile_collision,
    compute_nearest,
    find_collision_model,
)
from envs.config.env_options import ENGINES
from envs.controllers.guard import DEFAULTS, GuardConstants
from envs.robots import Robot
from envs.simulation.bodies import PhysicsSpec
from envs.simulation.engine import OBJECT, Command, SimState, compile_robot
from envs.tasks.layout import Column
from envs.tasks.measures import Measure
from envs.tasks.shapes import Shape, make_goal_shapes
from envs.world import GROUND, Moment, Scene, World
from td3_robot.errors import ConfigError

# Hooks and constants under the names that tasks written for older versions define.
RENAMED = {
    "ahead": "predict",
    "begun": "plan_episode",
    "candidates": "sample_scenes",
    "clearance": "compute_clearance",
    "columns": "list_columns",
    "command": "make_command",
    "follows": "plan_keys",
    "goal_before": "compute_previous_goal",
    "goal_met": "is_goal_met",
    "kept": "memory_keys",
    "nearest": "find_nearest",
    "nearest_at": "find_nearest_at",
    "outcome": "compute_outcome",
    "put_goal": "move_goal",
    "shapes": "make_shapes",
    "with_goal": "replace_goal",
    "world": "make_world",
}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a control step.

    Attributes:
        success: (B,) bool, contact aside; an episode succeeds if its last step does and no step
            had contact.
        position_error: (B,) distance that the task reduces to zero [m].
        terms: named parts of the dense reward, each (B,).
        measures: further figures to report, each (B, ...).
        terminated: (B,) bool, whether the task has ended; None: it never ends before the horizon.
    """

    success: Tensor
    position_error: Tensor
    terms: dict[str, Tensor]
    measures: dict[str, Tensor] = field(default_factory=dict)
    terminated: Tensor | None = None

    @property
    def ended(self) -> Tensor:
        """(B,) bool: `terminated`, or all false."""
        return torch.zeros_like(self.success) if self.terminated is None else self.terminated


@dataclass(frozen=True)
class Task:
    """Base class of tasks; the values of a task's fields are in a YAML file.

    Attributes:
        dt: control period [s].
        horizon: control steps an episode.
        start_spread: largest offset from home at the start, uniform for each joint [rad].
        tolerance: success distance [m].
        contact_weight: reward lost in each step that ends in contact; none by default.
        near_weight: reward lost in each step at contact, falling linearly to zero at
            `near_distance` [m].
        near_distance: distance below which `near_weight` costs something [m].
        change_weight: reward lost for commanding every joint a velocity change of its speed limit.
    """

    dt: float
    horizon: int
    start_spread: float
    tolerance: float
    contact_weight: float = field(default=0.0, kw_only=True)
    near_weight: float = field(default=0.0, kw_only=True)
    near_distance: float = field(default=0.03, kw_only=True)
    change_weight: float = field(default=0.0, kw_only=True)

    # Constants of a kind of task, which no file sets.
    # Classical controllers that can do the task, of envs/controllers.
    controllers: ClassVar[tuple[str, ...]] = ("rrmc", "neo", "reactive")
    # Engines that can do the task; the first is the one that it is made for.
    engines: ClassVar[tuple[str, ...]] = ENGINES
    # Figures of the task's own.
    measures: ClassVar[tuple[Measure, ...]] = ()
    # Parts of the scene that `observe` and `compute_outcome` depend on.
    memory_keys: ClassVar[tuple[str, ...]] = ("goal",)
    # Whether goals are places in the base frame, (3,) or (7,); a wrong base displaces them.
    goal_is_place: ClassVar[bool] = True
    # Parts of the scene, of floats, that `advance` computes from where the TCP is. They change
    # gradually, and latency compensation predicts them with the TCP.
    tcp_keys: ClassVar[tuple[str, ...]] = ()
    # Whether the action has one more element, the opening of the gripper.
    moves_gripper: ClassVar[bool] = False
    # Whether the task needs a gripper whose pads are known.
    needs_hand: ClassVar[bool] = False
    # Names of the cubes in scenes, if `cube_side` is a number.
    cubes: ClassVar[tuple[str, ...]] = (OBJECT,)
    # Whether the task needs the robot's capsules.
    needs_collision: ClassVar[bool] = False
    # Whether `compute_outcome` ends episodes before the horizon.
    ends_early: ClassVar[bool] = False
    # Gain of the joint motion to a solution: speed per distance [1/s].
    move_gain: ClassVar[float] = 4.0
    # Parts of the scene that `plan_episode` returns.
    plan_keys: ClassVar[tuple[str, ...]] = ()
    # The guard's constants.
    guard_constants: ClassVar[GuardConstants] = DEFAULTS
    # Share of a training's episodes that get a new scene, see `ScenePool`.
    fresh_scenes: ClassVar[float] = 1.0

    def __init_subclass__(cls, **options: object):
        """Accept the older names of hooks, and answer to them."""
        super().__init_subclass__(**options)
        for old, new in RENAMED.items():
            if old in vars(cls):
                setattr(cls, new, vars(cls)[old])
                print(f"note: task {cls.__name__}: {old} is now {new}", file=sys.stderr)
            elif new in vars(cls):
                setattr(cls, old, vars(cls)[new])

    @property
    def criterion(self) -> str:
        """The condition of success, in words."""
        return f"an error below {1000 * self.tolerance:g} mm at the end of the episode"

    @property
    def settle_steps(self) -> int:
        """Number of control steps at the start of an episode whose errors do not count."""
        return 0

    @property
    def cube_side(self) -> float | None:
        """Side of the cubes in the scene [m]; None if the task has none."""
        return None

    @property
    def physics(self) -> PhysicsSpec | None:
        """The bodies, contacts and senses that the task adds to the MuJoCo engine, if any."""
        return None

    def make_world(
        self, robot: Robot, device: torch.device | str, collision: bool = False
    ) -> World:
        """Compile the robot for this task, with its capsules if they are known.

        Args:
            collision: whether a guard requires the capsules.

        Raises:
            ConfigError: the robot lacks what the task needs.
        """
        known = compile_collision if self.needs_collision or collision else find_collision_model
        try:
            capsules = known(robot, device)
        except ConfigError as error:
            if self.needs_collision or not collision:
                raise
            raise ConfigError(
                f"the guard, which --guard false leaves out, needs capsules: {error}"
            ) from None
        workspace = torch.as_tensor(robot.workspace, dtype=torch.float32, device=device)
        return World(
            robot, compile_robot(robot, self.dt, device, self.cube_side), workspace, capsules
        )

    def list_columns(self, world: World) -> list[Column]:
        """List the columns of `observe`: `q`, `drivers` and `qd` first, `goal` among the others."""
        raise NotImplementedError

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """Sample `count` scenes and keep those that can be solved without contact, often far fewer.

        If scenes have a part `start` (n,), their episodes begin there, otherwise around home; with
        `start_gripper` (), the gripper's driver coordinate, otherwise open.
        """
        raise NotImplementedError

    def describe_lack(self, world: World) -> str:
        """Describe what may be wrong, and what to do, where no scene was found."""
        corners = [[round(x, 3) for x in corner] for corner in world.workspace.tolist()]
        return (
            f"if it is right, workspace {corners} has no goal that the arm reaches "
            "without contact with itself or the ground (z = 0): enlarge it, "
            "or give the arm room below its base"
        )

    def plan_episode(self, world: World, state: SimState, scene: Scene) -> Scene:
        """Return the parts `plan_keys` of the scenes of B episodes.

        Args:
            state: where the arms begin.
            scene: as it is measured.
        """
        return {}

    # A control step

    def make_command(self, world: World, moment: Moment, action: Tensor) -> Command:
        """Return the command of actions (B, a_dim) in [-1, 1].

        By default the action itself, with the gripper's element last, if any.
        """
        if self.moves_gripper:
            return Command(action[:, :-1], (action[:, -1] + 1.0) / 2.0)
        return Command(action)

    def advance(self, world: World, before: Moment, after: Moment) -> Moment:
        """Return the moment after a control step with what the engine does not change, such as a
        goal that moves.

        Args:
            before: the moment before the step.
            after: arms and objects as the engine has moved them; the rest of the scene is that of
                `before`.
        """
        return after

    def advance_known(self, world: World, before: Moment, after: Moment) -> Moment:
        """Return the moment after a step that a controller predicts; by default as `advance`.

        Args:
            before, after: as for `advance`, of what is observed.
        """
        return self.advance(world, before, after)

    def predict(self, moment: Moment, seconds: float | Tensor) -> Moment:
        """Return the moment with moving goals a little later; by default goals do not move.

        Args:
            seconds: one time or one for each arm (B, 1).
        """
        return moment

    def sense(self, world: World, moment: Moment) -> Moment:
        """Return an observed moment with the parts of the scene that are computed once a step."""
        return moment

    def compute_clearance(self, world: World, moment: Moment) -> Tensor:
        """Return the clearance (B,) of the arms, with their fingers at their true shape [m]."""
        at = moment.state
        return clearance(world.capsules, at.q, moment.obstacles, GROUND, at.gripper, moment.frames)

    def find_nearest(self, world: World, moment: Moment) -> Nearest:
        """Find the distances of the arms to obstacles, the ground and themselves.

        Needs `World.collision`.
        """
        return self.find_nearest_at(world, moment, moment.state.q, moment.frames)

    def find_nearest_at(
        self, world: World, moment: Moment, q: Tensor, frames: list[Tensor] | None = None
    ) -> Nearest:
        """Find the distances that the arms would have at q (B, n).

        If the task moves the gripper, the fingers are where they are now: they have to come down to
        the table, and the capsules of their whole stroke stand out below their tips.
        """
        gripper = moment.state.gripper if self.moves_gripper else None
        return compute_nearest(world.capsules, q, moment.obstacles, GROUND, gripper, frames)

    def observe(self, world: World, moment: Moment) -> Tensor:
        """Return the observation (B, o_dim), see `list_columns`."""
        raise NotImplementedError

    def list_privileged(self, world: World) -> list[Column]:
        """List the columns of `observe_privileged`; by default there are none."""
        return []

    def observe_privileged(self, world: World, true: Moment) -> Tensor:
        """Return what the simulator knows and an arm does not (B, k), for critics alone.

        Args:
            true: the arms and the scene as they are, not as they are measured.
        """
        raise NotImplementedError

    def compute_outcome(self, world: World, moment: Moment, action: Tensor) -> Outcome:
        """Compute the outcome of the control step that led to a moment.

        Args:
            action: (B, a_dim) in [-1, 1] of that step.
        """
        raise NotImplementedError

    def make_shapes(self, world: World, moment: Moment) -> list[Shape]:
        """List the shapes to draw around the first arm of a moment."""
        return make_goal_shapes(moment.scene["goal"][0]) if self.goal_is_place else []

    # Other goals

    def achieved_goal(self, world: World, moment: Moment) -> Tensor:
        """Return the goal (B, g) that a moment would have met."""
        raise NotImplementedError

    def is_goal_met(self, achieved: Tensor, desired: Tensor) -> Tensor:
        """Return whether goals (B, g) are met by achieved goals (B, g), (B,) bool."""
        return torch.linalg.vector_norm(desired - achieved, dim=1) < self.tolerance

    def compute_previous_goal(self, before: Moment, after: Moment, goal: Tensor) -> Tensor:
        """Return the goals (B, g) one step before `goal` (B, g); by default goals do not move."""
        return goal

    def replace_goal(self, world: World, moment: Moment, goal: Tensor) -> Moment:
        """Return the moment as it would have been with other goals (B, g)."""
        return replace(moment, scene={**moment.scene, "goal": goal})

    def move_goal(self, world: World, moment: Moment, goal: Tensor) -> Moment:
        """Return the moment with the goals moved to (B, g) by hand; the episodes continue."""
        return self.replace_goal(world, moment, goal)


for _old, _new in RENAMED.items():
    setattr(Task, _old, getattr(Task, _new))  # what a task calls with super()
