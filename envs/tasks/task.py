"""What a task is: the episodes it draws, what the policy sees of them, and what it is paid for.

A task holds constants and no state; its methods are pure functions of B arms at one moment. `ArmEnv` joins a task to
the simulator.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from envs.collision import Nearest, compile_collision, nearest
from envs.robots import Robot
from envs.simulation.kinematic import SimState, compile_robot
from envs.tasks.layout import Layout
from envs.world import GROUND, Moment, Scene, World, moment_of
from td3_robot.errors import ConfigError


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
