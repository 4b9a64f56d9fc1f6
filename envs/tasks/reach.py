"""Reach: bring the TCP to a point and hold it there until the episode ends.

Success is the TCP within `tolerance` of the goal at the end of the episode; nothing ends early.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from envs import kinematics
from envs.planning.contact_check import is_free
from envs.simulation.engine import Command, batched_o
from envs.tasks.layout import Column, arm_columns, multiply_transpose
from envs.tasks.registry import register_task
from envs.tasks.task import Outcome, Task
from envs.world import Moment, Scene, World


@register_task("reach")
@dataclass(frozen=True)
class Reach(Task):
    """The task `reach`; the values of its constants are in configs/tasks/reach.yaml.

    Attributes:
        distance_weight: reward lost per metre of distance, each step.
        precision_weight: height of the reward bonus at the goal.
        precision_scale: distance at which the bonus has fallen to 1/e [m].
        action_weight: reward lost for a full-speed command of all joints.
        stillness_weight: additional cost of a full-speed command at the goal. It is proportional to
            the command, not to its square, which would hardly punish a slow drift: without this
            term idle joints wander to a limit and take the TCP off the goal.
        stillness_scale: distance at which that cost has fallen to 1/e [m].
        error_unit: unit of the observed error [m]. Errors of centimetres stand next to joint angles
            of radians; in metres the networks learn to use them last.
    """

    distance_weight: float
    precision_weight: float
    precision_scale: float
    action_weight: float
    stillness_weight: float
    stillness_scale: float
    error_unit: float

    @property
    def criterion(self) -> str:
        """The condition of success, in words."""
        return f"the TCP within {1000 * self.tolerance:g} mm of the goal at the end of the episode"

    def list_columns(self, world: World) -> list[Column]:
        """List the columns of `observe`."""
        return [
            *arm_columns(world),
            Column("tcp", 3),
            Column("goal", 3, tells_goal=True),
            Column("error", 3, tells_goal=True),
            Column("joint_error", world.model.position_joints, tells_goal=True),
        ]

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """Sample goals (k, 3) [m]: TCP positions of random contact-free joint positions, if they
        lie in the workspace.
        """
        q = world.random_q(count, generator)
        tcp = kinematics.fkine(world.model.chain, q)[:, :3, 3]
        inside = world.in_workspace(tcp)
        return {"goal": tcp[inside][is_free(world, q[inside])]}

    def make_command(self, world: World, moment: Moment, action: Tensor) -> Command:
        """Open the gripper on the way and shut it at the goal, so that arrival can be seen."""
        return Command(action, (compute_distance(moment) > self.tolerance).to(action.dtype))

    def observe(self, world: World, moment: Moment) -> Tensor:
        """Return the observation (B, o_dim).

        Its columns are o [rad, m]; qd [rad/s]; tcp and goal [m]; error = goal - tcp [error_unit];
        and joint_error = J_v^T error, the joint motion that shortens the error fastest, without the
        joints that cannot move the TCP.
        """
        tcp = moment.tcp
        goal = moment.scene["goal"]
        error = (goal - tcp) / self.error_unit
        J_v = moment.J[:, :3, : world.model.position_joints]
        columns = (
            batched_o(world.model, moment.state),
            moment.state.qd,
            tcp,
            goal,
            error,
            multiply_transpose(J_v, error),
        )
        return torch.cat(columns, 1)

    def compute_outcome(self, world: World, moment: Moment, action: Tensor) -> Outcome:
        """Return success, the distance and the terms of `compute_reward_terms`."""
        distance = compute_distance(moment)
        terms = compute_reward_terms(self, distance, action)
        return Outcome(distance < self.tolerance, distance, terms)

    def achieved_goal(self, world: World, moment: Moment) -> Tensor:
        """Return the TCP's position (B, 3) [m]."""
        return moment.tcp


def compute_distance(moment: Moment) -> Tensor:
    """Return the distance (B,) between TCP and goal [m]."""
    return torch.linalg.vector_norm(moment.scene["goal"] - moment.tcp, dim=1)


def compute_reward_terms(task: Reach, distance: Tensor, action: Tensor) -> dict[str, Tensor]:
    """Compute the named terms, each (B,), whose sum is the reward.

    Args:
        distance: (B,) between TCP and goal [m].
        action: (B, n) in [-1, 1].
    """
    effort = action.square().mean(1)
    nearness = torch.exp(-distance / task.stillness_scale)
    return {
        "distance": -task.distance_weight * distance,
        "precision": task.precision_weight * torch.exp(-distance / task.precision_scale),
        "action": -task.action_weight * effort,
        "stillness": -task.stillness_weight * nearness * effort.sqrt(),
    }
