"""Reach a pose: bring the TCP to a position and a full orientation and hold it there until the
episode ends.

Success is the TCP within `tolerance` and `rotation_tolerance` of the goal at the end of the
episode; nothing ends early. A pose leaves a seven-joint arm one degree of freedom, so that joint
limits are often in the way.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from envs import kinematics
from envs.controllers.follow_solution import compute_joint_move
from envs.kinematics.least_squares import damped_least_squares
from envs.kinematics.rotations import rotation_error, to_matrix, to_quaternion
from envs.planning.contact_check import is_free
from envs.planning.goal_solver import solve_goal
from envs.simulation.engine import Command, SimState, batched_o
from envs.tasks.layout import Column, arm_columns
from envs.tasks.measures import Measure
from envs.tasks.motion import compute_limit_proximity
from envs.tasks.registry import register_task
from envs.tasks.task import Outcome, Task
from envs.world import Moment, Scene, World

ROUNDING = 1e-5  # [rad or m] of a motion and what the limits leave of it, when they leave all


@register_task("reach_pose")
@dataclass(frozen=True)
class ReachPose(Task):
    """The constants of the task; its values live in configs/tasks/reach_pose.yaml.

    A goal is (7,): position [m] and unit quaternion, wxyz with w >= 0, in the base frame.

    Attributes:
        rotation_tolerance: success angle [rad].
        metres_per_radian: the distance that counts as much as an angle of one radian, in the
            reward.
        distance_weight: reward lost per metre of distance and angle, each step.
        precision_weight: height of the reward bonus at the goal.
        precision_scale: distance and angle, as metres, at which the bonus has fallen to 1/e [m].
        action_weight: reward lost for a full-speed command of all joints.
        stillness_weight: the same on top of it at the goal, see `Reach`.
        stillness_scale: distance and angle, as metres, at which that has fallen to 1/e [m].
        error_unit: length in which the observation gives the error [m].
        rotation_unit: angle in which the observation gives the rotation error [rad].
        damping: of the inverse that gives the observation's joint_error [m/rad].
    """

    rotation_tolerance: float
    metres_per_radian: float
    distance_weight: float
    precision_weight: float
    precision_scale: float
    action_weight: float
    stillness_weight: float
    stillness_scale: float
    error_unit: float
    rotation_unit: float
    damping: float

    controllers = (*Task.controllers, "ik")
    plan_keys = ("solution",)
    memory_keys = ("goal", *plan_keys)
    measures = (
        Measure(
            "final_rotation_error_deg",
            "rotation_error",
            "last",
            "quantiles",
            "final rotation error",
            "deg",
            within="rotation_tolerance",
        ),
    )

    @property
    def criterion(self) -> str:
        """See `Task.criterion`."""
        angle = math.degrees(self.rotation_tolerance)
        return f"the TCP within {1000 * self.tolerance:g} mm and {angle:.3g} degrees of the goal at the end"

    def list_columns(self, world: World) -> list[Column]:
        """See `observe`."""
        n = len(world.model.qdlim)
        goal = [("goal", 7), ("goal_axes", 6), ("error", 3), ("rotation_error", 3)]
        goal += [("joint_error", n), ("beyond", n), ("within", n), ("solution", n), ("ik", n)]
        of_the_goal = [Column(name, width, True) for name, width in goal]
        return [
            *arm_columns(world),
            Column("tcp", 3),
            Column("axes", 6),
            *of_the_goal,
            Column("room", n),
        ]

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """TCP poses of random joint positions without contact, if they lie in the workspace."""
        q = world.random_q(count, generator)
        T_be = kinematics.fkine(world.model.chain, q)
        inside = world.in_workspace(T_be[:, :3, 3])
        T_be, q = T_be[inside], q[inside]
        solved = is_free(world, q)
        T_be = T_be[solved]
        return {"goal": torch.cat((T_be[:, :3, 3], to_quaternion(T_be[:, :3, :3])), 1)}

    def plan_episode(self, world: World, state: SimState, scene: Scene) -> Scene:
        """`solve_goal` (B, n), see envs/planning/goal_solver.py."""
        return {"solution": solve_goal(world, state.q, scene["goal"])}

    def make_command(self, world: World, moment: Moment, action: Tensor) -> Command:
        """The gripper is open on the way and shut at the goal, so that arrival can be seen."""
        return Command(action, 1.0 - self._is_met(*compute_errors(moment)).to(action.dtype))

    def observe(self, world: World, moment: Moment) -> Tensor:
        """(B, o_dim): o [rad, m]; qd [rad/s]; tcp [m] and axes, the first two columns of its
        rotation matrix; goal and goal_axes likewise; error [error_unit] and rotation_error, a
        rotation vector [rotation_unit], both in the base frame; joint_error, the joint motion that
        would take both to zero at once were the arm linear, by damped least squares and half a turn
        at most a joint [rad]; beyond, how far outside the limits that would end [rad]; within, the
        like motion that stays inside them [rad]; solution, the motion to joint positions that have
        the goal's pose [rad]; ik, the action that goes straight there; room, see `motion.room`.
        """
        goal = moment.scene["goal"]
        error, rotation = goal[:, :3] - moment.tcp, moment.rotation_error
        axes = moment.T_be[:, :3, :2].transpose(1, 2).flatten(1)
        goal_axes = moment.R_goal[:, :, :2].transpose(1, 2).flatten(1)
        joint_error = damped_least_squares(moment.J, torch.cat((error, rotation), 1), self.damping)
        within = self._clip_motion(world, moment, joint_error)
        joint_error = joint_error.clamp(-math.pi, math.pi)
        there = moment.state.q + joint_error
        beyond = there - there.clamp(*world.model.qlim)
        parts = (
            batched_o(world.model, moment.state),
            moment.state.qd,
            moment.tcp,
            axes,
            goal,
            goal_axes,
        )
        errors = (
            error / self.error_unit,
            rotation / self.rotation_unit,
            joint_error,
            beyond,
            within,
        )
        left = moment.scene["solution"] - moment.state.q
        ik = compute_joint_move(
            world.model, moment.state.q, moment.scene["solution"], self.move_gain
        )
        return torch.cat(
            (*parts, *errors, left, ik, compute_limit_proximity(world.model, moment.state.q)), 1
        )

    def _clip_motion(self, world: World, moment: Moment, motion: Tensor) -> Tensor:
        """(B, n) what `joint_error`, here not held to half a turn, becomes inside the limits:
        joints that it would take beyond one go up to it, and the others make up for them as far as
        they can. Two rounds of that.
        """
        q, J, limits = moment.state.q, moment.J, world.model.qlim
        error = torch.cat((moment.scene["goal"][:, :3] - moment.tcp, moment.rotation_error), 1)
        stopped = torch.zeros_like(q, dtype=torch.bool)
        for _ in range(2):
            allowed = torch.clamp(q + motion, *limits) - q
            stopped = stopped | ((allowed - motion).abs() > ROUNDING)
            held = torch.where(stopped, allowed, 0.0)
            rest = error - (J @ held[:, :, None])[:, :, 0]
            motion = torch.where(
                stopped, held, damped_least_squares(J * ~stopped[:, None], rest, self.damping)
            )
        return (torch.clamp(q + motion, *limits) - q).clamp(-math.pi, math.pi)

    def compute_outcome(self, world: World, moment: Moment, action: Tensor) -> Outcome:
        """See `compute_reward_terms`."""
        distance, angle = compute_errors(moment)
        terms = compute_reward_terms(self, distance, angle, action)
        return Outcome(self._is_met(distance, angle), distance, terms, {"rotation_error": angle})

    def _is_met(self, distance: Tensor, angle: Tensor) -> Tensor:
        return (distance < self.tolerance) & (angle < self.rotation_tolerance)

    def achieved_goal(self, world: World, moment: Moment) -> Tensor:
        """The TCP's pose, (B, 7)."""
        return torch.cat((moment.tcp, to_quaternion(moment.T_be[:, :3, :3])), 1)

    def replace_goal(self, world: World, moment: Moment, goal: Tensor) -> Moment:
        """See `Task.replace_goal`. The solution of a new goal is looked for from where the arm is and
        nowhere else.
        """
        old, q = moment.scene, moment.state.q
        there = torch.where(
            (goal == old["goal"]).all(1)[:, None], old["solution"], solve_goal(world, q, goal, 0)
        )
        return replace(moment, scene={**old, "goal": goal, "solution": there})

    def is_goal_met(self, achieved: Tensor, desired: Tensor) -> Tensor:
        """See `Task.is_goal_met`."""
        angle = rotation_error(to_matrix(achieved[:, 3:]), to_matrix(desired[:, 3:]))
        distance = torch.linalg.vector_norm(desired[:, :3] - achieved[:, :3], dim=1)
        return self._is_met(distance, torch.linalg.vector_norm(angle, dim=1))


def compute_errors(moment: Moment) -> tuple[Tensor, Tensor]:
    """Distance (B,) [m] and angle (B,) [rad] between the TCP and the goal."""
    distance = torch.linalg.vector_norm(moment.scene["goal"][:, :3] - moment.tcp, dim=1)
    return distance, torch.linalg.vector_norm(moment.rotation_error, dim=1)


def compute_reward_terms(
    task: ReachPose, distance: Tensor, angle: Tensor, action: Tensor
) -> dict[str, Tensor]:
    """The named terms whose sum is the reward.

    Args:
        distance: (B,) between TCP and goal [m].
        angle: (B,) between their orientations [rad].
        action: (B, n) in [-1, 1].

    Returns:
        Each term (B,).
    """
    turn = task.metres_per_radian * angle
    both = torch.sqrt(distance.square() + turn.square())
    effort = action.square().mean(1)
    return {
        "distance": -task.distance_weight * distance,
        "rotation": -task.distance_weight * turn,
        "precision": task.precision_weight * torch.exp(-both / task.precision_scale),
        "action": -task.action_weight * effort,
        "stillness": -task.stillness_weight
        * torch.exp(-both / task.stillness_scale)
        * effort.sqrt(),
    }
