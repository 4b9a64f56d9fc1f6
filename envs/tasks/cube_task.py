"""Base class of tasks in which a hand that points down moves a cube on a table."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from envs.simulation import grasp
from envs.tasks.measures import Measure
from envs.tasks.pointing import describe_tilt
from envs.tasks.shapes import Shape, make_cube_shape, make_goal_ball
from envs.tasks.task import Task
from envs.world import Moment, World
from td3_robot.errors import not_none

CANDIDATES = 1024  # scenes sampled at a time: solving one costs more than sampling it


class HandFeatures(NamedTuple):
    """Observed features of B hands.

    Attributes:
        approach, closing: (B, 3) directions of the hand in the base frame.
        in_hand: (B, 3) the cube from the TCP, along the hand's third, closing and approach
            directions [error_unit].
        joint_tilt: (B, k - 1) J_w^T (approach x down), the motion of the k joints that move the TCP
            that turns the hand down fastest, without the first joint, whose axis is vertical.
    """

    approach: Tensor
    closing: Tensor
    in_hand: Tensor
    joint_tilt: Tensor


@dataclass(frozen=True)
class CubeTask(Task):
    """A cube on a table, which is the plane z = 0 of the base frame.

    A goal (3,) is a position of the cube's centre. The scene also holds `object` (3,), the cube's
    position, and `held` (), whether it is grasped.

    Attributes:
        cube: side of the cube [m].
        least_way: least distance between cube and goal at the start [m].
        table_room: distance of the finger tips from the table at a cube that lies on it [m].
        hover: height from which the hand approaches its target [m].
        corridor: horizontal distance from the target within which the hand moves straight down [m].
        descent: slope of the approach outside the corridor.
        approach_weight: reward lost per metre of the approach vector.
        tilt_weight: reward lost with a level approach direction; proportional to 1 - cos(tilt).
        distance_weight: reward lost per metre between cube and goal.
        precision_weight: height of the bonus for the cube at the goal.
        precision_scale: distance at which that has fallen to 1/e [m].
        action_weight: reward lost for a full-speed command of all joints.
        stillness_weight, stillness_scale: additional cost with the cube at the goal, see `Reach`
            [-, m].
        table_weight: reward lost per centimetre of a finger tip below the table, up to 3 cm.
        error_unit: unit of observed distances [m].
    """

    cube: float
    least_way: float
    table_room: float
    hover: float
    corridor: float
    descent: float
    approach_weight: float
    tilt_weight: float
    distance_weight: float
    precision_weight: float
    precision_scale: float
    action_weight: float
    stillness_weight: float
    stillness_scale: float
    table_weight: float
    error_unit: float

    # Whether goals that are moved by hand stay at their height.
    keeps_goal_height: ClassVar[bool] = False
    needs_hand = True
    measures = (
        Measure(
            "table_clearance_m",
            "table_clearance",
            "least",
            "least",
            "finger tips over the table",
            "mm",
        ),
    )
    memory_keys = ("goal", "object", "held")

    @property
    def criterion(self) -> str:
        """The condition of success, in words."""
        return f"the cube within {1000 * self.tolerance:g} mm of the goal at the end of the episode"

    @property
    def cube_side(self) -> float:
        """Side of the cubes [m]."""
        return self.cube

    def compute_tcp_height(self, world: World) -> float:
        """Return the TCP's height over the table at a cube that lies on it [m]."""
        hand = not_none(world.model.hand)
        return max(hand.half, hand.tip + self.table_room)

    def describe_lack(self, world: World) -> str:
        """Describe what may be wrong: often a hand that does not point down at the table."""
        low, high = world.workspace.clone()
        low[2] = high[2] = self.compute_tcp_height(world)
        return describe_tilt(world, low, high) or super().describe_lack(world)

    def observe_hand(self, world: World, moment: Moment) -> HandFeatures:
        """Compute the observed features of the hands."""
        R_bg = grasp.compute_hand_axes(not_none(world.model.hand), moment.T_be)
        in_hand = (
            grasp.transform_to_hand(R_bg, moment.tcp, moment.scene["object"]) / self.error_unit
        )
        approach = R_bg[:, :, 2]
        J_w = moment.J[:, 3:, : world.model.position_joints]
        joint_tilt = (J_w[:, 1] * approach[:, :1] - J_w[:, 0] * approach[:, 1:2])[:, 1:]
        return HandFeatures(approach, R_bg[:, :, 1], in_hand, joint_tilt)

    def make_shapes(self, world: World, moment: Moment) -> list[Shape]:
        """List the shapes of goal and cube."""
        scene = moment.scene
        return [make_goal_ball(scene["goal"][0], self.cube), make_cube_shape(scene, self.cube)]

    def achieved_goal(self, world: World, moment: Moment) -> Tensor:
        """Return the cube's position (B, 3) [m]."""
        return moment.scene["object"]

    def move_goal(self, world: World, moment: Moment, goal: Tensor) -> Moment:
        """Return the moment with the goals moved to (B, 3) by hand, see `keeps_goal_height`."""
        if self.keeps_goal_height:
            goal = torch.cat((goal[:, :2], moment.scene["goal"][:, 2:]), 1)
        return self.replace_goal(world, moment, goal)


def compute_cube_terms(
    task: CubeTask, distance: Tensor, clearance: Tensor, effort: Tensor
) -> dict[str, Tensor]:
    """Compute the reward terms (B,) of the cube's way to the goal, the arm's effort and the table.

    Args:
        distance: (B,) between cube and goal [m].
        clearance: (B,) height of the finger tips over the table [m].
        effort: (B,) mean square of the joints' part of the action.
    """
    near = torch.exp(-distance / task.stillness_scale)
    return {
        "distance": -task.distance_weight * distance,
        "precision": task.precision_weight * torch.exp(-distance / task.precision_scale),
        "action": -task.action_weight * effort,
        "stillness": -task.stillness_weight * near * effort.sqrt(),
        "table": -task.table_weight * _compute_table_depth(clearance),
    }


def _compute_table_depth(clearance: Tensor) -> Tensor:
    """Return how far finger tips are below the table (B,) [cm], at most 3.

    Args:
        clearance: (B,) height of the finger tips over the table [m].
    """
    return (-100.0 * clearance).clamp(0.0, 3.0)
