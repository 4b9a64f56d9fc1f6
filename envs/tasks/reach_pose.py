"""Reach a pose: bring the TCP to a position and orientation and hold it until the episode ends.

Success is the TCP within `tolerance` and `rotation_tolerance` of the goal at the end of the
episode; nothing ends early. A pose leaves a seven-joint arm one degree of freedom, so that joint
limits are often active.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from envs import kinematics
from envs.controllers.follow_solution import compute_joint_move
from envs.kinematics.least_squares import damped_least_squares, multiply_small
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

ROUNDING = 1e-5  # difference of a motion and its limited value that is rounding [rad or m]


@register_task("reach_pose")
@dataclass(frozen=True)
class ReachPose(Task):
    """The task `reach_pose`; the values of its constants are in configs/tasks/reach_pose.yaml.

    A goal is (7,): position [m] and unit quaternion, wxyz with w >= 0, in the base frame.

    Attributes:
        rotation_tolerance: success angle [rad].
        metres_per_radian: distance that the reward counts as an angle of one radian [m/rad].
        distance_weight: reward lost per metre of distance and angle, each step.
        precision_weight: height of the reward bonus at the goal.
        precision_scale: distance and angle, as metres, at which the bonus has fallen to 1/e [m].
        action_weight: reward lost for a full-speed command of all joints.
        stillness_weight: additional cost of a full-speed command at the goal, see `Reach`.
        stillness_scale: distance and angle, as metres, at which that has fallen to 1/e [m].
        error_unit: unit of the observed error [m].
        rotation_unit: unit of the observed rotation error [rad].
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
        """The condition of success, in words."""
        angle = math.degrees(self.rotation_tolerance)
        return (
            f"the TCP within {1000 * self.tolerance:g} mm and {angle:.3g} degrees "
            "of the goal at the end"
        )

    def list_columns(self, world: World) -> list[Column]:
        """List the columns of `observe`."""
        n = len(world.model.qdlim)
        goal = [("goal", 7), ("goal_axes", 6), ("error", 3), ("rotation_error", 3)]
        goal += [("joint_error", n), ("beyond", n), ("within", n), ("solution", n), ("ik", n)]
        goal_columns = [Column(name, width, tells_goal=True) for name, width in goal]
        return [
            *arm_columns(world),
            Column("tcp", 3),
            Column("axes", 6),
            *goal_columns,
            Column("room", n),
        ]

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """Sample TCP poses of random contact-free joint positions, if they lie in the workspace."""
        q = world.random_q(count, generator)
        T_be = kinematics.fkine(world.model.chain, q)
        inside = world.in_workspace(T_be[:, :3, 3])
        T_be = T_be[inside][is_free(world, q[inside])]
        return {"goal": torch.cat((T_be[:, :3, 3], to_quaternion(T_be[:, :3, :3])), 1)}

    def plan_episode(self, world: World, state: SimState, scene: Scene) -> Scene:
        """Return `solution` (B, n), the joint positions of `solve_goal`."""
        return {"solution": solve_goal(world, state.q, scene["goal"])}

    def make_command(self, world: World, moment: Moment, action: Tensor) -> Command:
        """Open the gripper on the way and shut it at the goal, so that arrival can be seen."""
        return Command(action, 1.0 - self._is_met(*compute_errors(moment)).to(action.dtype))

    def observe(self, world: World, moment: Moment) -> Tensor:
        """Return the observation (B, o_dim).

        Its columns are o [rad, m]; qd [rad/s]; tcp [m] and axes, the first two columns of its
        rotation matrix; goal and goal_axes likewise; error [error_unit] and rotation_error, a
        rotation vector [rotation_unit], both in the base frame; joint_error, the damped
        least-squares joint motion that reduces both to zero, half a revolution at most a joint
        [rad]; beyond, its excess over the joint limits [rad]; within, a similar motion inside the
        limits, see `_clip_motion` [rad]; solution, the motion to joint positions with the goal's
        pose [rad]; ik, the action that moves straight there; room, see `compute_limit_proximity`.
        """
        q = moment.state.q
        goal = moment.scene["goal"]
        error = goal[:, :3] - moment.tcp
        rotation = moment.rotation_error
        axes = moment.T_be[:, :3, :2].transpose(1, 2).flatten(1)
        goal_axes = moment.R_goal[:, :, :2].transpose(1, 2).flatten(1)
        joint_error = damped_least_squares(moment.J, torch.cat((error, rotation), 1), self.damping)
        within = self._clip_motion(world, moment, joint_error)
        joint_error = joint_error.clamp(-math.pi, math.pi)
        target = q + joint_error
        beyond = target - target.clamp(*world.model.qlim)
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
        left = moment.scene["solution"] - q
        ik = compute_joint_move(
            world.model, moment.state.q, moment.scene["solution"], self.move_gain
        )
        return torch.cat(
            (*parts, *errors, left, ik, compute_limit_proximity(world.model, moment.state.q)), 1
        )

    def _clip_motion(self, world: World, moment: Moment, motion: Tensor) -> Tensor:
        """Return the joint motion (B, n) to the goal inside the joint limits.

        In each of two rounds, joints that would exceed a limit stop at it, and the others make up
        for them as far as they can.
        """
        q = moment.state.q
        J = moment.J
        limits = world.model.qlim
        error = torch.cat((moment.scene["goal"][:, :3] - moment.tcp, moment.rotation_error), 1)
        stopped = torch.zeros_like(q, dtype=torch.bool)
        for _ in range(2):
            allowed = torch.clamp(q + motion, *limits) - q
            stopped = stopped | ((allowed - motion).abs() > ROUNDING)
            held = torch.where(stopped, allowed, 0.0)
            rest = error - multiply_small(J, held[:, :, None])[:, :, 0]
            motion = torch.where(
                stopped, held, damped_least_squares(J * ~stopped[:, None], rest, self.damping)
            )
        return (torch.clamp(q + motion, *limits) - q).clamp(-math.pi, math.pi)

    def compute_outcome(self, world: World, moment: Moment, action: Tensor) -> Outcome:
        """Return success, the distance and the terms of `compute_reward_terms`."""
        distance, angle = compute_errors(moment)
        terms = compute_reward_terms(self, distance, angle, action)
        return Outcome(self._is_met(distance, angle), distance, terms, {"rotation_error": angle})

    def _is_met(self, distance: Tensor, angle: Tensor) -> Tensor:
        return (distance < self.tolerance) & (angle < self.rotation_tolerance)

    def achieved_goal(self, world: World, moment: Moment) -> Tensor:
        """Return the TCP's pose (B, 7)."""
        return torch.cat((moment.tcp, to_quaternion(moment.T_be[:, :3, :3])), 1)

    def replace_goal(self, world: World, moment: Moment, goal: Tensor) -> Moment:
        """Return the moment with other goals (B, 7), solved from the arm's positions alone."""
        old = moment.scene
        q = moment.state.q
        solution = torch.where(
            (goal == old["goal"]).all(1)[:, None], old["solution"], solve_goal(world, q, goal, 0)
        )
        return replace(moment, scene={**old, "goal": goal, "solution": solution})

    def is_goal_met(self, achieved: Tensor, desired: Tensor) -> Tensor:
        """Return whether goals (B, 7) are met by achieved poses (B, 7), (B,) bool."""
        angle = rotation_error(to_matrix(achieved[:, 3:]), to_matrix(desired[:, 3:]))
        distance = torch.linalg.vector_norm(desired[:, :3] - achieved[:, :3], dim=1)
        return self._is_met(distance, torch.linalg.vector_norm(angle, dim=1))


def compute_errors(moment: Moment) -> tuple[Tensor, Tensor]:
    """Return the distance (B,) [m] and angle (B,) [rad] between the TCP and the goal."""
    distance = torch.linalg.vector_norm(moment.scene["goal"][:, :3] - moment.tcp, dim=1)
    return distance, torch.linalg.vector_norm(moment.rotation_error, dim=1)


def compute_reward_terms(
    task: ReachPose, distance: Tensor, angle: Tensor, action: Tensor
) -> dict[str, Tensor]:
    """Compute the named terms, each (B,), whose sum is the reward.

    Args:
        distance: (B,) between TCP and goal [m].
        angle: (B,) between their orientations [rad].
        action: (B, n) in [-1, 1].
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
