"""Track a moving goal: keep the TCP on a point that goes round a random smooth loop at constant
speed.

The goal at control step k is where it is at the time k dt of the arm's state, and the error is
measured between those two. Success is a mean error, over the episode after the first `settle`
seconds, of at most `tolerance`.
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

COARSE, DENSE = (
    16,
    128,
)  # samples of a loop: to drop the hopeless ones early, and to measure its length


@register_task("track")
@dataclass(frozen=True)
class Track(Task):
    """The constants of the task; its values live in configs/tasks/track.yaml.

    Attributes:
        speed: of the goal along its loop [m/s].
        settle: time to get to the goal before errors count [s].
        radius_min, radius_max: a loop is about an ellipse with a half axis between these [m].
        bend: amplitude of the loop's second harmonic, relative to the half axis, at most.
        effort: one way of the arm to follow the goal exactly needs at most this share of each
            joint's speed and acceleration limits.
        distance_weight: reward lost per metre of distance, each step.
        precision_weight: height of the reward bonus at the goal.
        precision_scale: distance at which the bonus has fallen to 1/e [m].
        action_weight: reward lost for a full-speed command of all joints.
        error_unit: length in which the observation gives the error, and per second the goal's
            velocity [m].
        joint_unit: joint motion at which the observation's joint_error saturates [rad or m].
        gain: of the observation's resolved_rate [1/s].
        damping: of the inverse that gives both [m/rad].
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
        """Errors count after this many control steps."""
        return round(self.settle / self.dt)

    @property
    def criterion(self) -> str:
        """See `Task.criterion`."""
        return f"a mean error of at most {1000 * self.tolerance:g} mm after the first {self.settle:g} s"

    def list_columns(self, world: World) -> list[Column]:
        """See `observe`."""
        k = world.model.position_joints
        goal = [Column("goal", 3, True), Column("error", 3, True), Column("goal_velocity", 3)]
        n = len(world.model.qdlim)
        along = [
            Column("resolved_rate", n, True),
            Column("joint_error", k, True),
            Column("room", n),
        ]
        return [*arm_columns(world), Column("tcp", 3), *goal, *along]

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """Loops that the arm can follow.

        `path` (k, horizon + 2, 3) is the goal at every control step and one step on [m], `goal` (k,
        3) where it is now, `goal_velocity` (k, 3) its mean velocity until the next step [m/s], and
        `error_sum` (k,) the sum of the errors that count, without that of the present step [m].
        """
        path = sample_trajectories(self, world, count, generator)[1]
        goal, goal_velocity = path[:, 0], (path[:, 1] - path[:, 0]) / self.dt
        return {
            "path": path,
            "goal": goal,
            "goal_velocity": goal_velocity,
            "error_sum": path.new_zeros(len(path)),
        }

    def make_command(self, world: World, moment: Moment, action: Tensor) -> Command:
        """The gripper is shut on the goal and open elsewhere, so that it can be seen."""
        return Command(action, (compute_distance(moment) > self.tolerance).to(action.dtype))

    def advance(self, world: World, before: Moment, after: Moment) -> Moment:
        """The goal moves on, and the error before it did is added to the sum."""
        counted = torch.where(before.steps > self.settle_steps, compute_distance(before), 0.0)
        path = after.scene["path"]
        rows = torch.arange(len(path), device=path.device)
        now = after.steps.clamp_max(self.horizon)  # foresight looks beyond the end
        goal = path[rows, now]
        moved = {
            "goal": goal,
            "goal_velocity": (path[rows, now + 1] - goal) / self.dt,
            "error_sum": after.scene["error_sum"] + counted,
        }
        return replace(after, scene={**after.scene, **moved})

    def predict(self, moment: Moment, seconds: float) -> Moment:
        """See `Task.predict`."""
        goal = moment.scene["goal"] + seconds * moment.scene["goal_velocity"]
        return replace(moment, scene={**moment.scene, "goal": goal})

    def observe(self, world: World, moment: Moment) -> Tensor:
        """(B, o_dim): o [rad, m]; qd [rad/s]; tcp and goal [m]; error = goal - tcp [error_unit];
        goal_velocity, until the next step [error_unit/s]; resolved_rate, the action of
        resolved-rate control at `gain`, 0 for joints that do not move the TCP, and joint_error, the
        joint motion of the others to the goal, which saturates at about `joint_unit` so that
        millimetres are seen, both by damped least squares; room, see `motion.room`.
        """
        tcp, goal = moment.tcp, moment.scene["goal"]
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
        """resolved_rate (B, n) and joint_error (B, k)."""
        k, n = world.model.position_joints, len(world.model.qdlim)
        wanted = torch.stack((moment.scene["goal"] - moment.tcp, moment.scene["goal_velocity"]), 2)
        error, along = (damped_inverse(moment.J[:, :3, :k], self.damping**2) @ wanted).unbind(2)
        resolved = (self.gain * error + along) / world.model.qdlim[:k]
        return torch.nn.functional.pad(resolved.clamp(-1.0, 1.0), (0, n - k)), torch.tanh(
            error / self.joint_unit
        )

    def compute_outcome(self, world: World, moment: Moment, action: Tensor) -> Outcome:
        """See `compute_reward_terms`. `tracking_error_mean` is the mean of the errors that count so far, 0
        before [m].
        """
        d = compute_distance(moment)
        counted = (moment.steps - self.settle_steps).clamp_min(0)
        mean = torch.where(counted > 0, (moment.scene["error_sum"] + d) / counted.clamp_min(1), 0.0)
        success = (counted > 0) & (mean <= self.tolerance)
        return Outcome(
            success, d, compute_reward_terms(self, d, action), {"tracking_error_mean": mean}
        )

    def make_shapes(self, world: World, moment: Moment) -> list[Shape]:
        """The goal and its loop."""
        return [
            *super().make_shapes(world, moment),
            make_path_shape(moment.scene["path"][0].tolist()),
        ]

    def achieved_goal(self, world: World, moment: Moment) -> Tensor:
        """Where the TCP is, (B, 3) [m]."""
        return moment.tcp

    def compute_previous_goal(self, before: Moment, after: Moment, goal: Tensor) -> Tensor:
        """See `Task.compute_previous_goal`."""
        return goal + (before.scene["goal"] - after.scene["goal"])

    def replace_goal(self, world: World, moment: Moment, goal: Tensor) -> Moment:
        """See `Task.replace_goal`. The velocity stays, so the goal is one of a shifted loop; and as
        earlier errors are those of another goal, this is as if the present step were the first that
        counts.
        """
        scene = {**moment.scene, "goal": goal, "error_sum": torch.zeros_like(goal[:, 0])}
        return replace(
            moment, scene=scene, steps=torch.full_like(moment.steps, self.settle_steps + 1)
        )

    def move_goal(self, world: World, moment: Moment, goal: Tensor) -> Moment:
        """See `Task.move_goal`; the loop goes along."""
        path = moment.scene["path"] + (goal - moment.scene["goal"])[:, None]
        return replace(moment, scene={**moment.scene, "path": path, "goal": goal})


def compute_reward_terms(task: Track, distance: Tensor, action: Tensor) -> dict[str, Tensor]:
    """The named terms whose sum is the reward.

    Args:
        distance: (B,) between TCP and goal [m].
        action: (B, n) in [-1, 1].

    Returns:
        Each term (B,).
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
    """Joint motions that follow a loop of the TCP at constant speed, within the limits, and where
    the TCP is.

    A loop is q(s) = q_c + f(s) A with f of `compute_harmonics`, s in [0, 1]. About a random q_c, the joint
    amplitudes A are the least that would draw a random ellipse with a second harmonic, were the arm
    linear; what the arm draws instead is the loop. So it is round, where random joint amplitudes
    give mostly slivers with sharp ends.

    Returns:
        q (k, horizon + 2, n) [rad] and the TCP's positions (k, horizon + 2, 3) [m], at steps of dt;
        k is any number up to `count`. All positions are in the workspace, and no joint motion has
        contact; speeds and accelerations keep to `effort`.
    """
    chain = world.model.chain
    q_c = world.random_q(count, generator)
    T_be, J = kinematics.fkine_jacob0(chain, q_c)
    inside = world.in_workspace(T_be[:, :3, 3])
    q_c, J_v = q_c[inside], J[inside, :3]
    A = sample_ellipses(task, len(q_c), generator) @ torch.linalg.pinv(J_v).mT  # (k, 4, n)

    s = torch.arange(COARSE, device=world.device) / COARSE
    q = _compute_q(q_c, A, s)
    hopeful = _is_within(world.model.qlim, q) & world.in_workspace(_compute_tcp(chain, q)).all(1)
    q_c, A = q_c[hopeful], A[hopeful]

    s = _space_evenly(
        _compute_tcp(
            chain, _compute_q(q_c, A, torch.arange(DENSE + 1, device=world.device) / DENSE)
        ),
        task,
    )
    q = _compute_q(q_c, A, s)
    q = q[_is_followable(task, world, q)]
    path = _compute_tcp(chain, q)
    seen = world.in_workspace(path).all(1)
    q, path = q[seen], path[seen]
    untouched = is_free(world, q).all(1)
    return q[untouched], path[untouched]


def sample_ellipses(task: Track, count: int, generator: torch.Generator) -> Tensor:
    """Random ellipses in random planes, with a second harmonic that bends them out of it.

    Returns:
        (count, 4, 3) the vectors that `compute_harmonics` are multiplied with [m].
    """

    def uniform(*size):
        return torch.rand(count, *size, generator=generator, device=generator.device)

    normal = torch.randn(2, count, 3, generator=generator, device=generator.device)
    first = torch.nn.functional.normalize(normal[0], dim=1)
    second = torch.nn.functional.normalize(torch.linalg.cross(first, normal[1]), dim=1)
    radius = task.radius_min + (task.radius_max - task.radius_min) * uniform(1, 1)
    flat = 0.5 + 0.5 * uniform(1)  # ratio of the half axes
    bent = task.bend * (2.0 * uniform(2, 3) - 1.0)
    return radius * torch.cat((torch.stack((first, flat * second), 1), bent), 1)


def compute_harmonics(s: Tensor) -> Tensor:
    """(..., 4): cosine and sine of one and of two turns, at places s (...) of a loop in turns."""
    turn = 2.0 * math.pi * s
    return torch.stack((turn.cos(), turn.sin(), (2.0 * turn).cos(), (2.0 * turn).sin()), -1)


def _compute_q(q_c: Tensor, A: Tensor, s: Tensor) -> Tensor:
    """(k, S, n) joint positions at places s, (S,) or (k, S)."""
    return q_c[:, None] + compute_harmonics(s) @ A


def _compute_tcp(chain: kinematics.Chain, q: Tensor) -> Tensor:
    """(k, S, 3) TCP positions of q (k, S, n)."""
    return kinematics.fkine(chain, q.flatten(0, 1))[:, :3, 3].reshape(*q.shape[:2], 3)


def _space_evenly(loop: Tensor, task: Track) -> Tensor:
    """Where on its loop the goal is at every control step and one step on.

    Args:
        loop: (k, S + 1, 3) positions at s = 0, 1/S, ..., 1 [m].

    Returns:
        (k, horizon + 2) places s in [0, 1], equally far from each other along the polyline.
    """
    sides = torch.linalg.vector_norm(loop.diff(dim=1), dim=2)
    gone = torch.nn.functional.pad(
        sides.cumsum(1), (1, 0)
    )  # (k, S + 1) length of the polyline up to each position
    wanted = task.speed * task.dt * torch.arange(task.horizon + 2, device=loop.device)
    wanted = wanted.expand(len(loop), -1) % gone[:, -1:]
    side = (torch.searchsorted(gone, wanted, right=True) - 1).clamp_max(sides.shape[1] - 1)
    return (side + (wanted - gone.gather(1, side)) / sides.gather(1, side)) / sides.shape[1]


def _is_followable(task: Track, world: World, q: Tensor) -> Tensor:
    """(k,) whether joint motions q (k, S, n) at steps of dt keep to `effort` and inside qlim."""
    model = world.model
    qd = q.diff(dim=1) / model.dt
    speed = (qd.abs() <= task.effort * model.qdlim).all(2).all(1)
    change = (qd.diff(dim=1).abs() <= task.effort * model.dqd).all(2).all(1)
    return speed & change & _is_within(model.qlim, q)


def _is_within(qlim: Tensor, q: Tensor) -> Tensor:
    """(k,) whether q (k, S, n) stays inside the limits (2, n)."""
    return ((q >= qlim[0]) & (q <= qlim[1])).all(2).all(1)
