"""What a task is: the episodes it draws, what the policy sees of them, and what it is paid for.

A task holds constants and no state; its methods are pure functions of B arms at one moment.
`ArmEnv` joins a task to an engine. Adding one: docs/add_your_own_task.md.
"""

import sys
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from envs.collision import Nearest, clearance, compile_collision, find_collision_model, nearest
from envs.robots import Robot
from envs.simulation.engine import OBJECT, Command, SimState, compile_robot
from envs.tasks.layout import Column
from envs.tasks.measures import Measure
from envs.tasks.shapes import Shape, make_goal_shapes
from envs.world import GROUND, Moment, Scene, World

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
    """What a control step was worth.

    Attributes:
        success: (B,) bool, contact or not; an episode is a success where its last step is, and no
            step touched.
        position_error: (B,) distance that the task wants to be zero [m].
        terms: named parts of the dense reward, each (B,).
        measures: further figures to report, each (B, ...).
        terminated: (B,) bool, the task has come to an end; None: it never does before its time is
            up.
    """

    success: Tensor
    position_error: Tensor
    terms: dict[str, Tensor]
    measures: dict[str, Tensor] = field(default_factory=dict)
    terminated: Tensor | None = None

    @property
    def ended(self) -> Tensor:
        """(B,) bool: `terminated`, or nowhere."""
        return torch.zeros_like(self.success) if self.terminated is None else self.terminated


@dataclass(frozen=True)
class Task:
    """What all tasks have in common; each is a subclass whose values live in a YAML file.

    Attributes:
        dt: control period [s].
        horizon: control steps an episode.
        start_spread: episodes start at home plus a uniform offset up to this, each joint [rad].
        tolerance: success distance [m].
        contact_weight: reward lost in each step that ends in contact; none unless its file says so.
        near_weight: reward lost in each step as contact is made, falling linearly to nothing at
            `near_distance` [m].
        change_weight: reward lost for asking every joint for a velocity that is its limit away from
            the one it has.
    """

    dt: float
    horizon: int
    start_spread: float
    tolerance: float
    contact_weight: float = field(default=0.0, kw_only=True)
    near_weight: float = field(default=0.0, kw_only=True)
    near_distance: float = field(default=0.03, kw_only=True)
    change_weight: float = field(default=0.0, kw_only=True)

    # What else there is to know of a kind of task; not constants of a file.
    controllers: ClassVar[tuple[str, ...]] = (
        "rrmc",
        "neo",
        "reactive",
    )  # those of envs/controllers that can do it
    measures: ClassVar[tuple[Measure, ...]] = ()  # figures of its own
    memory_keys: ClassVar[tuple[str, ...]] = (
        "goal",
    )  # of the scene: what `observe` and `outcome` depend on
    moves_gripper: ClassVar[bool] = (
        False  # whether the action has one more element, the wanted opening of the gripper
    )
    needs_hand: ClassVar[bool] = (
        False  # whether it cannot be done without a gripper whose pads are known
    )
    cubes: ClassVar[tuple[str, ...]] = (
        OBJECT,
    )  # names in scenes of those that there are, where `cube_side` is one
    needs_collision: ClassVar[bool] = (
        False  # whether it cannot be done without the robot's capsules
    )
    ends_early: ClassVar[bool] = (
        False  # whether `outcome` tells which episodes come to an end before their time is up
    )
    move_gain: ClassVar[float] = (
        4.0  # of a motion to joint positions that solve it: speed per distance [1/s]
    )
    plan_keys: ClassVar[tuple[str, ...]] = ()  # of the scene: what `begun` gives
    fresh_scenes: ClassVar[float] = (
        1.0  # share of a training's episodes with a scene that is new, see `ScenePool`
    )

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
        """Of success, in words."""
        return f"an error below {1000 * self.tolerance:g} mm at the end of the episode"

    @property
    def settle_steps(self) -> int:
        """Control steps at the start of an episode whose errors do not count."""
        return 0

    @property
    def cube_side(self) -> float | None:
        """Side of the cubes that are around [m]; None where there are none."""
        return None

    def make_world(
        self, robot: Robot, device: torch.device | str, collision: bool = False
    ) -> World:
        """The robot made ready for this task, with its capsules where they are known.

        Args:
            collision: they have to be.

        Raises:
            ConfigError: the robot lacks what the task needs.
        """
        known = compile_collision if self.needs_collision or collision else find_collision_model
        capsules = known(robot, device)
        workspace = torch.as_tensor(robot.workspace, dtype=torch.float32, device=device)
        return World(
            robot, compile_robot(robot, self.dt, device, self.cube_side), workspace, capsules
        )

    def list_columns(self, world: World) -> list[Column]:
        """Those of `observe`: `o` first (`q`, `drivers`), then `qd`, and among the rest `goal`."""
        raise NotImplementedError

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """Draw scenes and keep those that can be solved without contact: any number of rows up to
        `count`, often far fewer.

        A scene with the name `start` (n,) fixes where its episode begins; otherwise it is around
        home.
        """
        raise NotImplementedError

    def plan_episode(self, world: World, state: SimState, scene: Scene) -> Scene:
        """What follows from the scene of B episodes, as it is measured, and from where their arms
        begin: beside it.
        """
        return {}

    # A control step

    def make_command(self, world: World, moment: Moment, action: Tensor) -> Command:
        """What the arms are told by actions (B, a_dim) in [-1, 1]; by default the gripper's comes
        last, if any.
        """
        if self.moves_gripper:
            return Command(action[:, :-1], (action[:, -1] + 1.0) / 2.0)
        return Command(action)

    def advance(self, world: World, before: Moment, after: Moment) -> Moment:
        """What a control step does to the scene beyond what the engine does, a goal's motion for
        one.

        Args:
            before: as the step began.
            after: the engine has moved arms and objects; the rest of the scene is still the one of
                `before`.
        """
        return after

    def predict(self, moment: Moment, seconds: float) -> Moment:
        """The moment with what moves by itself where it will be a little later; by default nothing
        does.
        """
        return moment

    def sense(self, world: World, moment: Moment) -> Moment:
        """A moment that a controller is to see, with what is worked out of it once, for all that
        follows.
        """
        return moment

    def compute_clearance(self, world: World, moment: Moment) -> Tensor:
        """(B,) how far the arms are from touching anything, their fingers at their true shape
        [m].
        """
        at = moment.state
        return clearance(world.capsules, at.q, moment.obstacles, GROUND, at.gripper, moment.frames)

    def find_nearest(self, world: World, moment: Moment) -> Nearest:
        """What the arms are near to: obstacles, the ground and themselves. Needs
        `World.collision`.
        """
        return self.find_nearest_at(world, moment, moment.state.q, moment.frames)

    def find_nearest_at(
        self, world: World, moment: Moment, q: Tensor, frames: list[Tensor] | None = None
    ) -> Nearest:
        """What they would be near to at q (B, n). Of a task that moves the gripper the fingers are
        where they are now: they have to come down to the table, and what encloses their whole
        stroke stands out below their tips.
        """
        gripper = moment.state.gripper if self.moves_gripper else None
        return nearest(world.capsules, q, moment.obstacles, GROUND, gripper, frames)

    def observe(self, world: World, moment: Moment) -> Tensor:
        """What the policy sees, (B, o_dim); see `columns`."""
        raise NotImplementedError

    def compute_outcome(self, world: World, moment: Moment, action: Tensor) -> Outcome:
        """What the control step that led to a moment was worth.

        Args:
            action: (B, a_dim) in [-1, 1] of that step.
        """
        raise NotImplementedError

    def make_shapes(self, world: World, moment: Moment) -> list[Shape]:
        """What to draw around the first arm of a moment."""
        return make_goal_shapes(moment.scene["goal"][0])

    # Other goals

    def achieved_goal(self, world: World, moment: Moment) -> Tensor:
        """The goal (B, g) that a moment would have met."""
        raise NotImplementedError

    def is_goal_met(self, achieved: Tensor, desired: Tensor) -> Tensor:
        """Whether goals (B, g) count as reached by what was achieved (B, g), so far as goals alone
        tell; (B,) bool.
        """
        return torch.linalg.vector_norm(desired - achieved, dim=1) < self.tolerance

    def compute_previous_goal(self, before: Moment, after: Moment, goal: Tensor) -> Tensor:
        """The goal (B, g) one step before it was `goal` (B, g), for goals that move; by default
        they stand still.
        """
        return goal

    def replace_goal(self, world: World, moment: Moment, goal: Tensor) -> Moment:
        """The moment as it would have been with another goal (B, g)."""
        return replace(moment, scene={**moment.scene, "goal": goal})

    def move_goal(self, world: World, moment: Moment, goal: Tensor) -> Moment:
        """The moment in which somebody puts the goal elsewhere, (B, g), and the episode goes on."""
        return self.replace_goal(world, moment, goal)


for _old, _new in RENAMED.items():
    setattr(Task, _old, getattr(Task, _new))  # what a task calls with super()
