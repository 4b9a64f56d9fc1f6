"""One arm that goes on without end, led by hand: its goal is put elsewhere, its controller is
exchanged.

Nothing here draws or knows of a page; `lead` of envs/view/panel.py joins both.
"""

import dataclasses
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch

from envs.arm_env.arm_env import ArmEnv
from envs.collision import nearest
from envs.controllers import make_baseline
from envs.controllers.controlled import Surroundings
from envs.evaluation import Evaluation
from envs.evaluation.evaluation import PolicyFactory
from envs.registry import beginning_with
from envs.simulation.kinematic import KinematicEngine
from envs.simulation.manual_gripper import GripperOverride
from envs.simulation.randomization import combine_disturbances
from envs.view.handles import GOAL, handles, put, room
from envs.view.playback import errors_told, position, touches
from envs.view.scene import Arm, Frame, elsewhere
from envs.world import GROUND, Moment
from td3_robot.errors import Td3RobotError

_HORIZON = 1200  # control steps: a minute, after which a goal that moves begins its way again
_WAY = 40  # control steps of its way that are drawn
_DRAWS = 100  # of goals, until one is free of obstacles


@dataclass
class _Seen:
    """What there is to tell of the latest step."""

    text: str = ""
    clearance: float = np.inf  # [m]
    speed: float = 0.0  # the fastest joint's, over its limit
    success: bool = False  # contact or not, which the clearance tells


class _Arm:
    """A controller, and an environment of its own that goes on from a moment."""

    def __init__(self, make: PolicyFactory, env, name: str, hand: GripperOverride):
        self.name, self.env, self._policy = name, env, make(env)
        self._near, self.seen, self.hand = Surroundings(env), _Seen(), hand

    @torch.no_grad()
    def step(self) -> None:
        """One control period; an arm that ran into something, or whose time is up, goes on all the
        same.
        """
        env = self.env
        step = env.step(self._policy(env.task.observe(env.world, env.moment)))
        if step.terminated | step.truncated:
            env.moment = replace(env.arrived, steps=torch.zeros_like(env.arrived.steps))
        told = errors_told(env.task, step.info["position_error"], step.info)
        speed = (step.info["qd"].abs() / env.model.qdlim).max().item()
        self.seen = _Seen(
            told, self._near().distance.min().item(), speed, bool(step.info["success_with_contact"])
        )

    def put(self, name: str, T_bh: np.ndarray) -> None:
        """See `handles.put`."""
        env = self.env
        moment = put(env.task, env.world, env.arrived, name, T_bh)
        cubes = [cube for cube in env.task.cubes if cube in moment.scene]
        if any(
            moment.scene[cube] is not env.arrived.scene[cube] for cube in cubes
        ):  # physics begins anew with them
            moment = replace(moment, scene=self.hand.begin(env.model, moment.state, moment.scene))
        env.moment = moment

    @property
    def drawn(self) -> Arm:
        """Where it is."""
        state = self.env.arrived.state
        return Arm(state.q[0].cpu().numpy(), state.gripper.item())


class Control:
    """What is done by hand and what comes of it, control step by control step.

    Args:
        evaluation: whose controllers, and the baselines that can do its task, there are to choose
            from; the first acts, a second is its ghost.

    Attributes:
        names: of the controllers.
        robot, task: as in the environments.
        room: (2, 3) corners of where things can be put [m].
        paused: whether `step` does nothing.
        note: what went wrong with the latest wish, in words.
    """

    def __init__(self, evaluation: Evaluation):
        self._makers = {
            name: evaluation.controllers[name].make for name in evaluation.feedback_controllers
        }
        self._like, options = evaluation.env, evaluation.options
        self.robot, self.task = self._like.robot, replace(self._like.task, horizon=_HORIZON)
        self._scenes = ArmEnv(
            self.robot, self.task, 1, evaluation.device, evaluation.seed
        )  # draws them
        for name in self.task.controllers:
            self._makers.setdefault(
                name, lambda env, name=name: make_baseline(name, cast(Any, env))
            )
        self.names = list(self._makers)
        self.room = room(self.task, self._scenes.world).double().cpu().numpy().round(6)
        self.options, self.paused, self.note = options, False, ""
        self._opening: float | None = None
        self._begun = self._scenes.arrived
        self._way: deque[tuple[float, ...]] = deque(maxlen=_WAY)
        self._arm, self._ghost = self._made(self.names[0], self._begun), None
        if len(evaluation.feedback_controllers) > 1:
            self.compare(evaluation.feedback_controllers[1])
        self._since_put()

    # What can be asked for

    def put(self, name: str, T_bh: np.ndarray) -> None:
        """Put one of `handles` elsewhere, for all arms; what is not there any more stays where it
        is.

        Args:
            T_bh: (4, 4) finite pose in the base frame.
        """
        for arm in self._arms:
            arm.put(name, T_bh)
        self._begun = put(self.task, self._scenes.world, self._begun, name, T_bh)
        self._since_put()

    def new_goal(self) -> None:
        """A random goal for the arm as it is; where a goal moves, a new episode."""
        if self.goal_moves:
            self.new_episode()
            return
        self.put(GOAL, self._free_goal())

    def new_episode(self) -> None:
        """A random start, goal and scene."""
        self._scenes.reset()
        self._begun = self._scenes.arrived
        self.reset()

    def reset(self) -> None:
        """This episode from its start, among what stands around by now."""
        self._opening = None
        self._again(self._begun)

    def grip(self) -> None:
        """Shut the gripper if it is open, open it if not; so it stays until `reset`, or until
        another controller.
        """
        shut, opened = self._arm.env.model.gripper_stroke
        is_open = abs(self._arm.env.state.gripper.item() - opened) < 0.5 * abs(opened - shut)
        self._open(0.0 if is_open else 1.0)

    def choose(self, name: str) -> None:
        """Another controller takes the arm over, and the gripper."""
        self._opening = None
        self._arm = self._made(name, self._arm.env.arrived)
        self._since_put()

    def compare(self, name: str | None) -> None:
        """Show another controller from here on, as a ghost, or none."""
        self._ghost = None if name is None else self._made(name, self._arm.env.arrived)

    @property
    def acting(self) -> str:
        """The controller that moves the arm."""
        return self._arm.name

    @property
    def latency(self) -> float:
        """Between controller and arm [s]."""
        return combine_disturbances(self.options).latency

    def disturb(self, **changed: bool | float) -> None:
        """Change options of what is between controller and arm: guard, latency.

        Raises:
            ConfigError: the robot has nothing that it would take, or the values are out of their
                range.
        """
        before, self.options = self.options, dataclasses.replace(self.options, **changed)
        try:
            self._again(self._arm.env.arrived)
        except Td3RobotError:
            self.options = before
            raise

    # What comes of it

    def step(self) -> None:
        """One control period, unless paused."""
        if not self.paused:
            self.step_once()

    def step_once(self) -> None:
        """One control period."""
        for arm in self._arms:
            arm.step()
        self._way.append(position(self._arm.env.arrived))
        self._steps += 1
        if self._arm.seen.success and self._met is None:
            self._met = self._steps

    @property
    def compared(self) -> str | None:
        """The name of the ghost, if there is one."""
        return self._ghost and self._ghost.name

    @property
    def goal_moves(self) -> bool:
        """Whether it does so by itself."""
        return "goal_velocity" in self._begun.scene

    @property
    def goal(self) -> np.ndarray:
        """(3,) or (7,) as the task has it."""
        return self._arm.env.arrived.scene["goal"][0].cpu().numpy()

    @property
    def frame(self) -> Frame:
        """What it looks like."""
        env, arm, ghost = self._arm.env, self._arm.drawn, self._ghost
        shapes = tuple(self.task.shapes(env.world, env.arrived))
        if ghost is not None:
            shapes += elsewhere(self.task.shapes(env.world, ghost.env.arrived), shapes)
        ghosts = () if ghost is None else (ghost.drawn,)
        held = handles(self.task, env.arrived)
        touched = touches(env.world, env.arrived)
        return Frame(
            arm.q,
            arm.gripper,
            self._told,
            self.task.dt,
            shapes,
            ghosts,
            held,
            (tuple(self._way),),
            touched,
        )

    @property
    def _arms(self) -> list[_Arm]:
        return [self._arm, *([] if self._ghost is None else [self._ghost])]

    @property
    def _told(self) -> str:
        seen, dt = self._arm.seen, self.task.dt
        lines = [f"{self._arm.name}: {seen.text}"] if seen.text else [self._arm.name]
        if self._ghost is not None and self._ghost.seen.text:
            lines.append(f"{self._ghost.name} (see-through): {self._ghost.seen.text}")
        met = f", at the goal after {self._met * dt:.2f} s" if self._met is not None else ""
        lines.append(f"{self._steps * dt:.2f} s{met}")
        lines.append(f"speed {100 * seen.speed:.0f}% of the limit")
        lines += [] if np.isinf(seen.clearance) else [f"clearance {100 * seen.clearance:.1f} cm"]
        state = "contact" if seen.clearance < 0 else "success" if seen.success else "on the way"
        return "\n".join(
            [*lines, "paused" if self.paused else state, *([self.note] if self.note else [])]
        )

    def _since_put(self) -> None:
        """Time counts from now."""
        self._steps: int = 0
        self._met: int | None = None

    def _open(self, opening: float) -> None:
        self._opening = opening
        for arm in self._arms:
            arm.hand.opening = opening

    def _made(self, name: str, moment: Moment) -> _Arm:
        scene = {
            key: moment.scene[key] for key in self._scenes.arrived.scene
        }  # without what is on its way
        plain = replace(moment, scene=scene)
        disturbances = combine_disturbances(self.options)
        engine = GripperOverride(self._like.engine or KinematicEngine(disturbances.servo_lag))
        engine.opening = self._opening
        env = beginning_with(
            plain, 0, self._like, self.options.guard, disturbances, self.task, engine
        )
        return _Arm(self._makers[name], env, name, engine)

    def _again(self, moment: Moment) -> None:
        """All arms from a moment on."""
        made = [self._made(arm.name, moment) for arm in self._arms]
        self._arm, self._ghost = made[0], made[1] if len(made) > 1 else None
        self._way.clear()
        self._since_put()

    def _free_goal(self) -> np.ndarray:
        """Of a random goal that is no further away than the workspace, and free of what stands
        around, its pose.
        """
        world, now = self._scenes.world, self._arm.env.arrived
        for _ in range(_DRAWS):
            self._scenes.reset()
            drawn = self._scenes.arrived
            there = drawn.scene.get("solution")
            if world.collision is None or there is None:
                break
            if nearest(world.collision, there, now.obstacles, GROUND).distance.min() > 0:
                break
        return handles(self.task, drawn)[0].T_bh
