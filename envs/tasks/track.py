"""Track a moving goal: keep the TCP on a point that runs along a loop at constant speed.

The error at control step k is between the TCP and the goal at the time k dt. Success is a mean
error, over the episode after the first `settle` seconds, of at most `tolerance`.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from envs import kinematics
from envs.kinematics.least_squares import damped_inverse
from envs.planning.contact_check import is_free
from envs.simulation.engine import Command, batched_o
from envs.tasks.layout import Column, arm_columns
from envs.tasks.measures import Measure
from envs.tasks.motion import compute_limit_proximity
from envs.tasks.reach import compute_distance
from envs.tasks.registry import register_task
from envs.tasks.shapes import Shape, make_path_shape
from envs.tasks.task import Outcome, Task
from envs.world import Moment, Scene, World
from td3_robot.errors import ConfigError
from td3_robot.vec_env import draw_normal, draw_uniform

COARSE = 16  # samples of a loop for dropping infeasible ones early
DENSE = 128  # samples of a loop for measuring its length


@register_task("track")
@dataclass(frozen=True)
class Track(Task):
    """The task `track`; the values of its constants are in configs/tasks/track.yaml.

    Attributes:
        speed: speed of the goal along its loop [m/s].
        settle: time to reach the goal before errors count [s].
        radius_min, radius_max: range of the half axis of the ellipse that a loop resembles [m].
        bend: greatest amplitude of the loop's second harmonic, relative to the half axis.
        effort: share of each joint's speed and acceleration limits that suffices to follow the
            goal exactly.
        distance_weight: reward lost per metre of distance, each step.
        precision_weight: height of the reward bonus at the goal.
        precision_scale: distance at which the bonus has fallen to 1/e [m].
        action_weight: reward lost for a full-speed command of all joints.
        error_unit: unit of the observed error, and per second of the goal's velocity [m].
        joint_unit: joint motion at which the observation's joint_error saturates [rad or m].
        gain: gain of the observation's resolved_rate [1/s].
        damping: damping of the inverse of both [m/rad].
    """

    speed: float
    settle: float
    radius_min: float
    radius_max: float
    bend: float
    effort: float
    distance_weight: float
    precision_weight: float
    precision_scale: float
    action_weight: float
    error_unit: float
    joint_unit: float
    gain: float
    damping: float

    measures = (
        Measure(
            "tracking_error_m",
            "position_error",
            "steps",
            "quantiles",
            "tracking error",
            "mm",
            "tolerance",
        ),
    )
    memory_keys = ("goal", "goal_velocity", "error_sum")

    def __post_init__(self):
        if self.settle_steps >= self.horizon:
            length = self.horizon * self.dt
            raise ConfigError(
                f"settle must be shorter than the episode of {length:g} s, got {self.settle:g}"
            )

    @property
    def settle_steps(self) -> int:
        """Number of control steps before errors count."""
        return round(self.settle / self.dt)

    @property
    def criterion(self) -> str:
        """The condition of success, in words."""
        tolerance = 1000 * self.tolerance
        return f"a mean error of at most {tolerance:g} mm after the first {self.settle:g} s"

    def list_columns(self, world: World) -> list[Column]:
        """List the columns of `observe`."""
        k = world.model.position_joints
        goal = [
            Column("goal", 3, tells_goal=True),
            Column("error", 3, tells_goal=True),
            Column("goal_velocity", 3),
        ]
        n = len(world.model.qdlim)
        motion = [
            Column("resolved_rate", n, tells_goal=True),
            Column("joint_error", k, tells_goal=True),
            Column("room", n),
        ]
        return [*arm_columns(world), Column("tcp", 3), *goal, *motion]

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """Sample loops that the arm can follow.

        `path` (k, horizon + 2, 3) is the goal at every control step and one step later [m], `goal`
        (k, 3) its present position, `goal_velocity` (k, 3) its mean velocity until the next step
        [m/s], and `error_sum` (k,) the sum of the errors that count before the present step [m].
        """
        path = sample_trajectories(self, world, count, generator)[1]
        goal = path[:, 0]
        goal_velocity = (path[:, 1] - goal) / self.dt
        return {
            "path": path,
            "goal": goal,
            "goal_velocity": goal_velocity,
            "error_sum": path.new_zeros(len(path)),
        }

    def make_command(self, world: World, moment: Moment, action: Tensor) -> Command:
        """Shut the gripper on the goal and open it elsewhere, so that tracking can be seen."""
        return Command(action, (compute_distance(moment) > self.tolerance).to(action.dtype))

    def advance(self, world: World, before: Moment, after: Moment) -> Moment:
        """Move the goal, and add the error before that to the sum."""
        counted = torch.where(before.steps > self.settle_steps, compute_distance(before), 0.0)
        path = after.scene["path"]
        rows = torch.arange(len(path), device=path.device)
        step = after.steps.clamp_max(self.horizon)  # latency compensation looks beyond the end
        goal = path[rows, step]
        changed = {
            "goal": goal,
            "goal_velocity": (path[rows, step + 1] - goal) / self.dt,
            "error_sum": after.scene["error_sum"] + counted,
        }
        return replace(after, scene={**after.scene, **changed})

    def predict(self, moment: Moment, seconds: float | Tensor) -> Moment:
        """Return the moment with the goal a little later."""
        goal = moment.scene["goal"] + seconds * moment.scene["goal_velocity"]
        return replace(moment, scene={**moment.scene, "goal": goal})

    def observe(self, world: World, moment: Moment) -> Tensor:
        """Return the observation (B, o_dim).

        Its columns are o [rad, m]; qd [rad/s]; tcp and goal [m]; error = goal - tcp [error_unit];
        goal_velocity until the next step [error_unit/s]; resolved_rate and joint_error, see
        `_observe_tracking`; room, see `compute_limit_proximity`.
        """
        tcp = moment.tcp
        goal = moment.scene["goal"]
        error = (goal - tcp) / self.error_unit
        velocity = moment.scene["goal_velocity"] / self.error_unit
        parts = (batched_o(world.model, moment.state), moment.state.qd, tcp, goal, error, velocity)
        return torch.cat(
            (
                *parts,
                *self._observe_tracking(world, moment),
                compute_limit_proximity(world.model, moment.state.q),
            ),
            1,
        )

    def _observe_tracking(self, world: World, moment: Moment) -> tuple[Tensor, Tensor]:
        """Compute resolved_rate (B, n) and joint_error (B, k) by damped least squares.

        The first is the action of resolved-rate control at `gain`, 0 for joints that do not move
        the TCP. The second is the motion of the others to the goal, which saturates at about
        `joint_unit` so that millimetres are visible.
        """
        k = world.model.position_joints
        n = len(world.model.qdlim)
        wanted = torch.stack((moment.scene["goal"] - moment.tcp, moment.scene["goal_velocity"]), 2)
        error, along = (damped_inverse(moment.J[:, :3, :k], self.damping**2) @ wanted).unbind(2)
        resolved = (self.gain * error + along) / world.model.qdlim[:k]
        return torch.nn.functional.pad(resolved.clamp(-1.0, 1.0), (0, n - k)), torch.tanh(
            error / self.joint_unit
        )

    def compute_outcome(self, world: World, moment: Moment, action: Tensor) -> Outcome:
        """Return success, the distance and the terms of `compute_reward_terms`.

        The measure `tracking_error_mean` is the mean of the errors that count so far, or 0 [m].
        """
        d = compute_distance(moment)
        counted = (moment.steps - self.settle_steps).clamp_min(0)
        mean = torch.where(counted > 0, (moment.scene["error_sum"] + d) / counted.clamp_min(1), 0.0)
        success = (counted > 0) & (mean <= self.tolerance)
        return Outcome(
            success, d, compute_reward_terms(self, d, action), {"tracking_error_mean": mean}
        )

    def make_shapes(self, world: World, moment: Moment) -> list[Shape]:
        """List the shapes of the goal and its loop."""
        return [
            *super().make_shapes(world, moment),
            make_path_shape(moment.scene["path"][0].tolist()),
        ]

    def achieved_goal(self, world: World, moment: Moment) -> Tensor:
        """Return the TCP's position (B, 3) [m]."""
        return moment.tcp

    def compute_previous_goal(self, before: Moment, after: Moment, goal: Tensor) -> Tensor:
        """Return the goals (B, 3) one step before `goal` (B, 3)."""
        return goal + (before.scene["goal"] - after.scene["goal"])

    def replace_goal(self, world: World, moment: Moment, goal: Tensor) -> Moment:
        """Return the moment with other goals (B, 3) of the same velocity, on shifted loops.

        Earlier errors are those of another goal; so the present step becomes the first that counts.
        """
        scene = {**moment.scene, "goal": goal, "error_sum": torch.zeros_like(goal[:, 0])}
        return replace(
            moment, scene=scene, steps=torch.full_like(moment.steps, self.settle_steps + 1)
        )

    def move_goal(self, world: World, moment: Moment, goal: Tensor) -> Moment:
        """Return the moment with the goals moved to (B, 3), and their loops with them."""
        path = moment.scene["path"] + (goal - moment.scene["goal"])[:, None]
        return replace(moment, scene={**moment.scene, "path": path, "goal": goal})


def compute_reward_terms(task: Track, distance: Tensor, action: Tensor) -> dict[str, Tensor]:
    """Compute the named terms, each (B,), whose sum is the reward.

    Args:
        distance: (B,) between TCP and goal [m].
        action: (B, n) in [-1, 1].
    """
    return {
        "distance": -task.distance_weight * distance,
        "precision": task.precision_weight * torch.exp(-distance / task.precision_scale),
        "action": -task.action_weight * action.square().mean(1),
    }


# Loops


def sample_trajectories(
    task: Track, world: World, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Sample joint motions that follow a loop of the TCP at constant speed within the limits.

    A loop is q(s) = q_c + f(s) A with f of `compute_harmonics`, s in [0, 1]. About a random q_c,
    the joint amplitudes A are the least that would draw a random ellipse with a second harmonic if
    the arm were linear. The arm's actual loop is round as well, where random joint amplitudes give
    mostly slivers with sharp ends.

    Returns:
        q (k, horizon + 2, n) [rad] and the TCP's positions (k, horizon + 2, 3) [m], at steps of dt;
        k is any number up to `count`. All positions are in the workspace, and no joint motion has
        contact; speeds and accelerations keep to `effort`.
    """
    chain = world.model.chain
    q_c = world.random_q(count, generator)
    T_be, J = kinematics.fkine_jacob0(chain, q_c)
    inside = world.in_workspace(T_be[:, :3, 3])
    q_c = q_c[inside]
    J_v = J[inside, :3]
    A = sample_ellipses(task, len(q_c), generator) @ torch.linalg.pinv(J_v).mT  # (k, 4, n)

    s = torch.arange(COARSE, dtype=q_c.dtype, device=world.device) / COARSE
    q = _compute_q(q_c, A, s)
    fits = _is_within(world.model.qlim, q) & world.in_workspace(_compute_tcp(chain, q)).all(1)
    q_c = q_c[fits]
    A = A[fits]

    dense = torch.arange(DENSE + 1, dtype=q_c.dtype, device=world.device) / DENSE
    loop = _compute_tcp(chain, _compute_q(q_c, A, dense))
    q = _compute_q(q_c, A, _space_evenly(loop, task))
    q = q[_is_followable(task, world, q)]
    path = _compute_tcp(chain, q)
    inside = world.in_workspace(path).all(1)
    q = q[inside]
    path = path[inside]
    untouched = is_free(world, q).all(1)
    return q[untouched], path[untouched]


def sample_ellipses(task: Track, count: int, generator: torch.Generator) -> Tensor:
    """Sample ellipses in random planes, with a second harmonic that bends them.

    Returns:
        (count, 4, 3) vectors to multiply `compute_harmonics` with [m].
    """

    def sample_uniform(*size):
        return draw_uniform(generator, count, *size)

    normal = draw_normal(generator, 2, count, 3)
    first = torch.nn.functional.normalize(normal[0], dim=1)
    second = torch.nn.functional.normalize(torch.linalg.cross(first, normal[1]), dim=1)
    radius = task.radius_min + (task.radius_max - task.radius_min) * sample_uniform(1, 1)
    flat = 0.5 + 0.5 * sample_uniform(1)  # ratio of the half axes
    bent = task.bend * (2.0 * sample_uniform(2, 3) - 1.0)
    return radius * torch.cat((torch.stack((first, flat * second), 1), bent), 1)


def compute_harmonics(s: Tensor) -> Tensor:
    """Return cosine and sine (..., 4) of one and two turns at places s (...) in turns."""
    turn = 2.0 * math.pi * s
    return torch.stack((turn.cos(), turn.sin(), (2.0 * turn).cos(), (2.0 * turn).sin()), -1)


def _compute_q(q_c: Tensor, A: Tensor, s: Tensor) -> Tensor:
    """Return joint positions (k, S, n) at places s, (S,) or (k, S)."""
    return q_c[:, None] + compute_harmonics(s) @ A


def _compute_tcp(chain: kinematics.Chain, q: Tensor) -> Tensor:
    """Return TCP positions (k, S, 3) of q (k, S, n)."""
    return kinematics.fkine(chain, q.flatten(0, 1))[:, :3, 3].reshape(*q.shape[:2], 3)


def _space_evenly(loop: Tensor, task: Track) -> Tensor:
    """Return the places of the goal on its loop at every control step and one step later.

    Args:
        loop: (k, S + 1, 3) positions at s = 0, 1/S, ..., 1 [m].

    Returns:
        (k, horizon + 2) places s in [0, 1], equally far from each other along the polyline.
    """
    sides = torch.linalg.vector_norm(loop.diff(dim=1), dim=2)
    # (k, S + 1) length of the polyline up to each position
    length = torch.nn.functional.pad(sides.cumsum(1), (1, 0))
    steps = torch.arange(task.horizon + 2, dtype=loop.dtype, device=loop.device)
    wanted = task.speed * task.dt * steps
    wanted = wanted.expand(len(loop), -1) % length[:, -1:]
    side = (torch.searchsorted(length, wanted, right=True) - 1).clamp_max(sides.shape[1] - 1)
    return (side + (wanted - length.gather(1, side)) / sides.gather(1, side)) / sides.shape[1]


def _is_followable(task: Track, world: World, q: Tensor) -> Tensor:
    """Return whether motions q (k, S, n) at steps of dt keep to `effort` and qlim, (k,) bool."""
    model = world.model
    qd = q.diff(dim=1) / model.dt
    speed = (qd.abs() <= task.effort * model.qdlim).all(2).all(1)
    change = (qd.diff(dim=1).abs() <= task.effort * model.dqd).all(2).all(1)
    return speed & change & _is_within(model.qlim, q)


def _is_within(qlim: Tensor, q: Tensor) -> Tensor:
    """Return whether q (k, S, n) stays inside the limits (2, n), (k,) bool."""
    return ((q >= qlim[0]) & (q <= qlim[1])).all(2).all(1)
