"""The safety filter between a policy and an arm: what is sent is smooth, within the arm's limits,
and clear of contact.

The joints are always on a plan that ends at rest and was checked before it was taken. The plan of
each joint keeps its position, velocity, acceleration and jerk limits (`joint_limiter`). Where the
arm's shape is known, the plan of all joints together also stays clear of the arm itself, the ground
and obstacles, and below the TCP speed. A step whose plan does not is not taken: the joints continue
on the plan that they have.
"""

from typing import NamedTuple

import numpy as np

from td3_robot.deploy.errors import DeployError
from td3_robot.deploy.numbers import UNREADABLE, read_number, read_numbers
from td3_robot.deploy.robot.description import Robot
from td3_robot.deploy.robot.obstacles import Obstacles
from td3_robot.deploy.safety.joint_limiter import (
    JointPlanState,
    continue_plan,
    plan_joint_stop,
    steer,
)
from td3_robot.deploy.safety.stop_trajectory import State, evaluate_plan, evaluate_positions

# Shares of a stop at which distances and the TCP's speed are measured; distances are bounded in
# between. Stops of a slow TCP or at a low rate, in which the TCP's speed may rise in a single tick,
# have no more ticks than this.
SAMPLES = np.linspace(0.0, 1.0, 16)[:, None]
SLOW = 0.08  # [m] beyond the clearance, from where an arm that comes nearer to something slows down
CREEP = 0.02  # share of the speed that is kept at the clearance, since no arm would arrive without
CUT = 0.8  # share of the speed that is left after a step that was not taken
CLEARANCE = 0.005  # [m] that is kept to anything by default
ROUNDING = 1e-6  # [m] by which a distance may fall where an arm comes no nearer
TCP_SHARE = 0.95  # of the TCP speed limit that is aimed at, and asked of the samples


class StopCheck(NamedTuple):
    """The result of a check of a stop.

    Attributes:
        obstruction: why the stop is not clear, in words; empty where it is.
        clearance: the least distance to anything on the way [m]; infinite where none is measured.
        approaches: whether the arm comes nearer to something than it is now.
        J: (3, n) the TCP's linear Jacobian where the stop begins; None where it is not needed.
    """

    obstruction: str = ""
    clearance: float = np.inf
    approaches: bool = False
    J: np.ndarray | None = None


class SafetyFilter:
    """A filter from commanded velocities to those that are sent, called once a tick of 1 / rate
    seconds.

    Args:
        robot: the arm.
        rate: ticks a second [Hz].
        command_rate: how often commands change [Hz]; a change is spread evenly over that period.
            Give `rate` for commands that are new in every tick.
        speed: share of the velocity limits that is used, in (0, 1].
        margin: kept before position limits [rad or m].
        clearance: least distance to anything that is kept [m]; needs the robot's shape.
        tcp_speed: largest speed of the TCP [m/s], or None.
        obstacles: what stands around the arm, with no velocities but zero; also settable later, as
            `obstacles`, while the arm is at rest.

    Attributes:
        refused: why the last command was not followed as it was, in words; empty where it was.
        state: position, velocity and acceleration that the arm was last told to have.

    Raises:
        DeployError: values that cannot be right.
    """

    def __init__(
        self,
        robot: Robot,
        rate: float = 1000.0,
        command_rate: float = 20.0,
        *,
        speed: float = 1.0,
        margin: float = 0.0,
        clearance: float = CLEARANCE,
        tcp_speed: float | None = None,
        obstacles: Obstacles | None = None,
    ):
        if not isinstance(robot, Robot):
            raise DeployError(
                f"robot must be a Robot, got {robot!r}: SafetyFilter.for_robot takes a name"
            )
        rate = read_number("rate", rate)
        command_rate = read_number("command_rate", command_rate)
        margin = read_number("margin", margin)
        clearance = read_number("clearance", clearance)
        tcp_speed = None if tcp_speed is None else read_number("tcp_speed", tcp_speed)
        if not (0 < command_rate <= rate < np.inf):
            raise DeployError(
                f"rates must be 0 < command_rate <= rate, got {command_rate:g} and {rate:g}"
            )
        if tcp_speed is not None and not 0 < tcp_speed < np.inf:
            raise DeployError(f"tcp_speed must be positive, got {tcp_speed:g}")
        for name, value in (("margin", margin), ("clearance", clearance)):
            if not 0 <= value < np.inf:
                raise DeployError(f"{name} must be 0 or more, got {value:g}")
        self.robot = robot
        self.h = 1.0 / rate
        self.command_rate = command_rate
        self.clearance = clearance
        self.tcp_speed = tcp_speed
        self.limits = robot.limits.narrow(speed, margin)
        self.obstacles = obstacles
        self.refused = ""
        self._spread = round(rate / command_rate)  # ticks over which a command is reached
        self._stroke = np.maximum(np.abs(self.limits.lower), np.abs(self.limits.upper))
        self._reach = (
            None if robot.capsules is None else robot.capsules.find_reach(robot.chain, self._stroke)
        )
        self._plans: JointPlanState | None = None

    @classmethod
    def for_robot(cls, name: str, rate: float = 1000.0, **options) -> "SafetyFilter":
        """Make a filter for a robot by name, or by the path of its description."""
        return cls(Robot.load(name), rate, **options)

    @property
    def obstacles(self) -> Obstacles:
        """Obstacles around the arm; set them while it is at rest."""
        return self._obstacles

    @obstacles.setter
    def obstacles(self, obstacles: Obstacles | None) -> None:
        if self.robot.capsules is None and obstacles is not None:
            raise DeployError(
                f"robot {self.robot.name!r} has no capsules, so obstacles cannot be avoided"
            )
        if not isinstance(obstacles, Obstacles | None):
            raise DeployError(
                f"obstacles must be Obstacles(spheres=..., boxes=..., walls=...), got {obstacles!r}"
            )
        self._obstacles = (obstacles or Obstacles()).check_standing()

    @property
    def state(self) -> State:
        """Position, velocity and acceleration that the arm was last sent."""
        return self._get_state().now

    def reset(
        self, q: np.ndarray, qd: np.ndarray | None = None, qdd: np.ndarray | None = None
    ) -> None:
        """Begin at joint positions q (n,), by default at rest.

        Raises:
            DeployError: from there the arm cannot stop within its limits, or it touches something:
                in words.
        """
        none = np.zeros(self.limits.n)
        given = {"q": q, "qd": none if qd is None else qd, "qdd": none if qdd is None else qdd}
        start = State(*(read_numbers(name, x, none.shape).copy() for name, x in given.items()))
        plans, can_stop = plan_joint_stop(start, self.h, self.limits)
        if not can_stop.all():
            joint = int(np.argmin(can_stop))
            low = self.limits.lower[joint]
            high = self.limits.upper[joint]
            raise DeployError(
                f"joint {joint + 1} at {start.q[joint]:.4f}, moving at {start.v[joint]:.4f}, "
                f"cannot stop within {low:.4f} to {high:.4f}: "
                "move the arm there by hand or with its own tools"
            )
        stop = self._check_stop(plans)
        if stop.obstruction:
            raise DeployError(f"cannot start here: {stop.obstruction}")
        self._plans = plans
        self._J = stop.J
        self.refused = ""
        self._command = self._aim = start.v
        self._from = start.v
        self._ticks = self._spread
        self._scale = 1.0

    def __call__(self, command: np.ndarray) -> np.ndarray:
        """Take a tick, and return the velocities (n,) to send now [rad/s or m/s], on the way to
        those that are commanded (n,).

        A command that holds no number is no command: the arm brakes, and `refused` says so.

        Raises:
            DeployError: the command has another shape; nothing moves on. `brake` says what to send
                then.
        """
        plans = self._get_state()
        try:
            command = np.asarray(command, float)
        except UNREADABLE:
            raise DeployError(
                f"a command must be {self.limits.n} numbers, got {command!r}"
            ) from None
        if command.shape != (self.limits.n,):
            raise DeployError(f"a command must have shape ({self.limits.n},), got {command.shape}")
        self.refused = "" if np.isfinite(command).all() else "the command is not finite"
        target = self._interpolate(command if not self.refused else np.zeros_like(command))
        return self._take_step(steer(plans, self._scale_target(target), self.h, self.limits), plans)

    def brake(self) -> np.ndarray:
        """Take a tick of the stop that the joints are on, and return the velocities (n,) to send
        [rad/s or m/s]; zero in the end.
        """
        self._command = self._aim = self._from = np.zeros(self.limits.n)
        self._plans = continue_plan(self._get_state(), self.h)
        return self._plans.now.v.copy()

    def _get_state(self) -> JointPlanState:
        if self._plans is None:
            raise DeployError("call reset(q) with the arm's joint positions first")
        return self._plans

    def _interpolate(self, command: np.ndarray) -> np.ndarray:
        """Return the target on a straight line from the earlier one to the command."""
        command = np.minimum(np.maximum(command, -self.limits.velocity), self.limits.velocity)
        if (command != self._command).any():
            self._command = command
            self._from = self._aim
            self._ticks = 0
        self._ticks = min(self._ticks + 1, self._spread)
        self._aim = self._from + (self._ticks / self._spread) * (command - self._from)
        return self._aim

    def _scale_target(self, target: np.ndarray) -> np.ndarray:
        """Scale the target down to what nearby things and the TCP speed allow."""
        if self.tcp_speed is not None and self._J is not None:
            tcp_speed = np.linalg.norm(self._J @ target)
            target = target * min(1.0, TCP_SHARE**2 * self.tcp_speed / max(tcp_speed, 1e-9))
        return target * self._scale

    def _take_step(self, step: JointPlanState, plans: JointPlanState) -> np.ndarray:
        """Take the step if all of its stop is clear; otherwise continue on the current plans."""
        stop = self._check_stop(step)
        if stop.J is not None:
            self._J = stop.J  # where the step leads, which is where the next one begins
        if stop.obstruction:
            self.refused = stop.obstruction
            self._scale = CUT * self._scale
            step = continue_plan(plans, self.h)
        elif stop.approaches:
            room = stop.clearance - self.clearance
            self._scale = float(np.clip(room / SLOW, CREEP, 1.0))
        else:
            self._scale = 1.0
        self._plans = step
        return step.now.v.copy()

    def _check_stop(self, plans: JointPlanState) -> StopCheck:
        """Check a stop against the TCP speed limit, and against whatever the arm may touch."""
        if self._reach is None and self.tcp_speed is None:
            return StopCheck()
        left = (plans.plan.ticks - plans.age).max()
        ticks = plans.age + np.ceil(SAMPLES * max(left, 0.0))
        q = evaluate_positions(plans.plan, ticks, self.h)
        frames = self.robot.chain.frames(q)
        J = None
        if self.tcp_speed is not None:
            jacobians = self.robot.chain.jacobian(frames)[:, :3]
            v = evaluate_plan(plans.plan, ticks, self.h).v
            tcp_velocity = (jacobians @ v[..., None])[..., 0]
            if (tcp_velocity * tcp_velocity).sum(1).max() > (TCP_SHARE * self.tcp_speed) ** 2:
                return StopCheck(f"the TCP would be faster than {self.tcp_speed:g} m/s")
            J = jacobians[0]
        if self._reach is None or self.robot.capsules is None:
            return StopCheck(J=J)
        distance = self.robot.capsules.find_clearance(frames, self.obstacles, q)
        # how much a distance changes at most from one sample to the next
        travelled = np.abs(q[1:] - q[:-1]) @ self._reach
        nearest = distance.min()
        least = min(nearest, (distance[:-1] + distance[1:] - travelled).min() / 2.0)
        approaches = bool(nearest < distance[0] - ROUNDING)
        obstruction = ""
        if least < self.clearance:
            obstruction = (
                f"it would come within {self.clearance:g} m of itself, the ground or an obstacle"
            )
        return StopCheck(obstruction, least, approaches, J)
