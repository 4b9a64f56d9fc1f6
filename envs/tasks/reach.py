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
    """The constants of the task; its values live in configs/tasks/reach.yaml.

    Attributes:
        distance_weight: reward lost per metre of distance, each step.
        precision_weight: height of the reward bonus at the goal.
        precision_scale: distance at which the bonus has fallen to 1/e [m].
        action_weight: reward lost for a full-speed command of all joints.
        stillness_weight: the same on top of it at the goal, falling to 1/e at `stillness_scale`
            from it [m]. In proportion to the command, not to its square, which would forgive a slow
            drift: without this term idle joints wander until they end at a limit and take the TCP
            off the goal.
        error_unit: length in which the observation gives the error [m]. Errors matter at the scale
            of centimetres beside joint angles of radians; in metres the networks learn to see them
            last.
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
        """See `Task.criterion`."""
        return f"the TCP within {1000 * self.tolerance:g} mm of the goal at the end of the episode"

    def list_columns(self, world: World) -> list[Column]:
        """See `observe`."""
        goal = [Column("goal", 3, True), Column("error", 3, True)]
        return [
            *arm_columns(world),
            Column("tcp", 3),
            *goal,
            Column("joint_error", world.model.position_joints, True),
        ]

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """Goals (k, 3) [m]: TCP positions of random joint positions without contact, if they lie in
        the workspace.
        """
        q = world.random_q(count, generator)
        tcp = kinematics.fkine(world.model.chain, q)[:, :3, 3]
        inside = world.in_workspace(tcp)
        return {"goal": tcp[inside][is_free(world, q[inside])]}

    def make_command(self, world: World, moment: Moment, action: Tensor) -> Command:
        """The gripper is open on the way and shut at the goal, so that arrival can be seen."""
        return Command(action, (compute_distance(moment) > self.tolerance).to(action.dtype))

    def observe(self, world: World, moment: Moment) -> Tensor:
        """(B, o_dim): o [rad, m]; qd [rad/s]; tcp and goal [m]; error = goal - tcp [error_unit];
        and joint_error = J_v^T error, the joint motion that shortens the error fastest, without the
        joints that cannot.
        """
        tcp, goal = moment.tcp, moment.scene["goal"]
        error = (goal - tcp) / self.error_unit
        J_v = moment.J[:, :3, : world.model.position_joints]
        parts = (
            batched_o(world.model, moment.state),
            moment.state.qd,
            tcp,
            goal,
            error,
            multiply_transpose(J_v, error),
        )
        return torch.cat(parts, 1)

    def compute_outcome(self, world: World, moment: Moment, action: Tensor) -> Outcome:
        """See `compute_reward_terms`."""
        d = compute_distance(moment)
        return Outcome(d < self.tolerance, d, compute_reward_terms(self, d, action))

    def achieved_goal(self, world: World, moment: Moment) -> Tensor:
        """Where the TCP is, (B, 3) [m]."""
        return moment.tcp


def compute_distance(moment: Moment) -> Tensor:
    """(B,) between TCP and goal [m]."""
    return torch.linalg.vector_norm(moment.scene["goal"] - moment.tcp, dim=1)


def compute_reward_terms(task: Reach, distance: Tensor, action: Tensor) -> dict[str, Tensor]:
    """The named terms whose sum is the reward.

    Args:
        distance: (B,) between TCP and goal [m].
        action: (B, n) in [-1, 1].

    Returns:
        Each term (B,).
    """
    effort = action.square().mean(1)
    nearness = torch.exp(-distance / task.stillness_scale)
    return {
        "distance": -task.distance_weight * distance,
        "precision": task.precision_weight * torch.exp(-distance / task.precision_scale),
        "action": -task.action_weight * effort,
        "stillness": -task.stillness_weight * nearness * effort.sqrt(),
    }
