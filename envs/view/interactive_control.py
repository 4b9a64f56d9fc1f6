"""Interactive control of one arm: its goal is dragged, its controller replaced, without end.

Nothing here draws or knows of a page; envs/view/panel.py joins both.
"""

import dataclasses
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch

from envs.arm_env.arm_env import ArmEnv
from envs.collision import compute_nearest
from envs.controllers import make_baseline
from envs.controllers.controlled import Surroundings
from envs.evaluation import Evaluation
from envs.evaluation.measurement import PolicyFactory
from envs.registry import make_from_moment
from envs.simulation.kinematic import KinematicEngine
from envs.simulation.manual_gripper import GripperOverride
from envs.simulation.randomization import combine_disturbances
from envs.view.handles import CUBE, GOAL, get_placement_bounds, is_in_reach, list_handles, put
from envs.view.playback import describe_errors, find_contacts, get_tcp_position
from envs.view.scene import Arm, Frame, find_differing_shapes
from envs.world import GROUND, Moment
from td3_robot.errors import Td3RobotError

_HORIZON = 1200  # control steps: a minute, after which a moving goal starts its path again
_TRACE_STEPS = 40  # control steps of the TCP's path that are drawn
_REACHED = {GOAL: "goal", CUBE: "object"}  # handle of what the arm has to come to -> in the scene
_GOAL_DRAWS = 100  # most random goals until one is free of obstacles


@dataclass
class _StepSummary:
    """Figures of the latest control step."""

    errors: str = ""
    clearance: float = np.inf  # [m]
    speed: float = 0.0  # the fastest joint's, over its limit
    success: bool = False  # whatever the contact


class _ControlledArm:
    """A controller in an environment of its own."""

    def __init__(self, make: PolicyFactory, env, name: str, gripper: GripperOverride):
        self.name = name
        self.env = env
        self.gripper = gripper
        self.summary = _StepSummary()
        self._policy = make(env)
        self._surroundings = Surroundings(env)

    @torch.no_grad()
    def step(self) -> None:
        """Make one control period; neither contact nor a time limit ends the motion."""
        env = self.env
        step = env.step(self._policy(env.task.observe(env.world, env.moment)))
        if step.terminated | step.truncated:
            env.moment = replace(env.arrived, steps=torch.zeros_like(env.arrived.steps))
        self.summary = _StepSummary(
            describe_errors(env.task, step.info["position_error"], step.info),
            self._surroundings().distance.min().item(),
            (step.info["qd"].abs() / env.model.qdlim).max().item(),
            bool(step.info["success_with_contact"]),
        )

    def put(self, name: str, T_bh: np.ndarray) -> None:
        """Move a handle, see `handles.put`."""
        env = self.env
        moment = put(env.task, env.world, env.arrived, name, T_bh)
        cubes = [cube for cube in env.task.cubes if cube in moment.scene]
        if any(moment.scene[cube] is not env.arrived.scene[cube] for cube in cubes):
            # contact physics starts again from the new poses
            scene = self.gripper.begin(env.model, moment.state, moment.scene)
            moment = replace(moment, scene=scene)
        env.moment = moment

    @property
    def pose(self) -> Arm:
        """Joint positions and gripper, to draw."""
        state = self.env.arrived.state
        return Arm(state.q[0].cpu().numpy(), state.gripper.item())


class InteractiveControl:
    """An arm under interactive control, and its state control step by control step.

    Args:
        evaluation: its controllers, and the baselines that can do its task, can be chosen; the
            first one acts, a second one is the ghost.

    Attributes:
        names: of the controllers.
        robot, task: as in the environments.
        placement_bounds: (2, 3) corners of where things can be put [m].
        options: the environment's options, with the current guard and disturbances.
        paused: whether `step` does nothing.
        note: error of the latest request, in words.
    """

    def __init__(self, evaluation: Evaluation):
        controllers = evaluation.feedback_controllers
        self._makers = {name: evaluation.controllers[name].make for name in controllers}
        self._template = evaluation.env
        self.robot = self._template.robot
        self.task = replace(self._template.task, horizon=_HORIZON)
        # draws the random starts, goals and scenes
        self._scenes = ArmEnv(self.robot, self.task, 1, evaluation.device, evaluation.seed)
        for name in self.task.controllers:
            self._makers.setdefault(
                name, lambda env, name=name: make_baseline(name, cast(Any, env))
            )
        self.names = list(self._makers)
        bounds = get_placement_bounds(self.task, self._scenes.world)
        self.placement_bounds = bounds.double().cpu().numpy().round(6)
        self.options = evaluation.options
        self.paused = False
        self.note = ""
        self._opening: float | None = None
        self._start = self._scenes.arrived
        self._in_reach: dict[str, bool] = {}  # whether what was put somewhere is, by handle
        self._trace: deque[tuple[float, ...]] = deque(maxlen=_TRACE_STEPS)
        self._arm = self._make_arm(self.names[0], self._start)
        self._ghost: _ControlledArm | None = None
        if len(controllers) > 1:
            self.compare(controllers[1])
        self._restart_timer()

    # Requests

    def put(self, name: str, T_bh: np.ndarray) -> None:
        """Move a handle for all arms; one that no longer exists is ignored.

        Args:
            name: of one of `handles`.
            T_bh: (4, 4) finite pose in the base frame.
        """
        for arm in self._arms:
            arm.put(name, T_bh)
        world = self._scenes.world
        self._start = put(self.task, world, self._start, name, T_bh)
        place = self._start.scene.get(_REACHED.get(name, ""))
        if place is not None and not self.goal_moves:
            self._in_reach[name] = is_in_reach(self.task, world, place[0])
        self._restart_timer()

    def draw_goal(self) -> None:
        """Draw a random goal for the arm where it is; or if it `goal_moves`, a new episode."""
        if self.goal_moves:
            self.draw_episode()
            return
        self.put(GOAL, self._draw_free_goal())

    def draw_episode(self) -> None:
        """Draw a random start, goal and scene."""
        self._scenes.reset()
        self._start = self._scenes.arrived
        self._in_reach.clear()
        self.reset()

    def reset(self) -> None:
        """Return to the start of this episode, in the scene as it was rearranged."""
        self._opening = None
        self._restart(self._start)

    def toggle_gripper(self) -> None:
        """Close the gripper if it is open, else open it; `reset` and `choose` release it."""
        closed, opened = self._arm.env.model.gripper_stroke
        is_open = abs(self._arm.env.state.gripper.item() - opened) < 0.5 * abs(opened - closed)
        self._opening = 0.0 if is_open else 1.0
        for arm in self._arms:
            arm.gripper.opening = self._opening

    def choose(self, name: str) -> None:
        """Hand arm and gripper to another controller."""
        self._opening = None
        self._arm = self._make_arm(name, self._arm.env.arrived)
        self._restart_timer()

    def compare(self, name: str | None) -> None:
        """Show another controller as a ghost from here on, or none."""
        self._ghost = None if name is None else self._make_arm(name, self._arm.env.arrived)

    @property
    def acting(self) -> str:
        """Name of the controller that moves the arm."""
        return self._arm.name

    @property
    def latency(self) -> float:
        """Latency between controller and arm [s]."""
        return combine_disturbances(self.options).latency

    def disturb(self, **changed: bool | float) -> None:
        """Change options between controller and arm: guard, latency.

        Raises:
            ConfigError: a value is out of its range, or the robot lacks what it needs.
        """
        before = self.options
        self.options = dataclasses.replace(self.options, **changed)
        try:
            self._restart(self._arm.env.arrived)
        except Td3RobotError:
            self.options = before
            raise

    # Simulation

    def step(self) -> None:
        """Make one control period, unless paused."""
        if not self.paused:
            self.step_once()

    def step_once(self) -> None:
        """Make one control period."""
        for arm in self._arms:
            arm.step()
        self._trace.append(get_tcp_position(self._arm.env.arrived))
        self._steps += 1
        if self._arm.summary.success and self._met is None:
            self._met = self._steps

    @property
    def compared(self) -> str | None:
        """Name of the ghost's controller, if there is one."""
        return self._ghost and self._ghost.name

    @property
    def goal_moves(self) -> bool:
        """True if the goal moves by itself, or is no place: nobody can drag it."""
        handles = list_handles(self.task, self._start)
        return "goal_velocity" in self._start.scene or all(x.name != GOAL for x in handles)

    @property
    def goal(self) -> np.ndarray:
        """The goal (3,) or (7,), as the task has it."""
        return self._arm.env.arrived.scene["goal"][0].cpu().numpy()

    @property
    def frame(self) -> Frame:
        """Frame of the current state."""
        env = self._arm.env
        shapes = tuple(self.task.make_shapes(env.world, env.arrived))
        ghosts = ()
        if self._ghost is not None:
            others = self.task.make_shapes(env.world, self._ghost.env.arrived)
            shapes += find_differing_shapes(others, shapes)
            ghosts = (self._ghost.pose,)
        arm = self._arm.pose
        return Frame(
            arm.q,
            arm.gripper,
            self._label,
            self.task.dt,
            shapes,
            ghosts,
            list_handles(self.task, env.arrived),
            (tuple(self._trace),),
            find_contacts(env.world, env.arrived),
        )

    @property
    def _arms(self) -> list[_ControlledArm]:
        return [self._arm, *([] if self._ghost is None else [self._ghost])]

    @property
    def _label(self) -> str:
        summary = self._arm.summary
        dt = self.task.dt
        lines = [f"{self._arm.name}: {summary.errors}" if summary.errors else self._arm.name]
        if self._ghost is not None and self._ghost.summary.errors:
            lines.append(f"{self._ghost.name} (see-through): {self._ghost.summary.errors}")
        met = f", at the goal after {self._met * dt:.2f} s" if self._met is not None else ""
        lines.append(f"{self._steps * dt:.2f} s{met}")
        lines.append(f"speed {100 * summary.speed:.0f}% of the limit")
        if not np.isinf(summary.clearance):
            lines.append(f"clearance {100 * summary.clearance:.1f} cm")
        state = "on the way"
        if summary.clearance < 0:
            state = "contact"
        elif summary.success:
            state = "success"
        lines.append("paused" if self.paused else state)
        if not summary.success:
            out = [name for name, reached in self._in_reach.items() if not reached]
            lines += [f"the {name} is out of reach" for name in out]
        if self.note:
            lines.append(self.note)
        return "\n".join(lines)

    def _restart_timer(self) -> None:
        self._steps: int = 0
        self._met: int | None = None

    def _make_arm(self, name: str, moment: Moment) -> _ControlledArm:
        """Make a controller's arm that continues from a moment."""
        # without commands and measurements that are still delayed
        scene = {key: moment.scene[key] for key in self._scenes.arrived.scene}
        disturbances = combine_disturbances(self.options)
        gripper = GripperOverride(self._template.engine or KinematicEngine(disturbances.servo_lag))
        gripper.opening = self._opening
        env = make_from_moment(
            replace(moment, scene=scene),
            0,
            self._template,
            self.options.guard,
            disturbances,
            self.task,
            gripper,
        )
        return _ControlledArm(self._makers[name], env, name, gripper)

    def _restart(self, moment: Moment) -> None:
        """Make all arms again, at a moment."""
        arms = [self._make_arm(arm.name, moment) for arm in self._arms]
        self._arm = arms[0]
        self._ghost = arms[1] if len(arms) > 1 else None
        self._trace.clear()
        self._restart_timer()

    def _draw_free_goal(self) -> np.ndarray:
        """Draw the pose (4, 4) of a goal in the workspace and free of obstacles, where known."""
        world = self._scenes.world
        now = self._arm.env.arrived
        for _ in range(_GOAL_DRAWS):
            self._scenes.reset()
            drawn = self._scenes.arrived
            solution = drawn.scene.get("solution")
            if world.collision is None or solution is None:
                break
            if compute_nearest(world.collision, solution, now.obstacles, GROUND).distance.min() > 0:
                break
        return list_handles(self.task, drawn)[0].T_bh
