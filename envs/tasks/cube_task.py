"""What tasks have in common in which a hand that points down moves a cube on a table."""

from dataclasses import dataclass

from torch import Tensor

from envs.simulation import grasp
from envs.tasks.measures import Measure
from envs.tasks.shapes import Shape, make_cube_shape, make_goal_ball
from envs.tasks.task import Task
from envs.world import Moment, World
from td3_robot.errors import not_none

CANDIDATES = 1024  # scenes drawn at a time: each is solved for, which costs more than drawing it


@dataclass(frozen=True)
class CubeTask(Task):
    """The base frame's z = 0 is the table. A goal is (3,), where the cube's centre is to be; the
    scene further holds `object` (3,), where it is, and `held` (), whether something holds it.

    Attributes:
        cube: side of the cube [m].
        least_way: least distance between cube and goal at the start [m].
        table_room: room under the finger tips while they are at a cube that lies on the table [m].
        hover: how far over the place where it is to come down the hand is led there [m].
        corridor: horizontal distance from that place within which it is led straight down [m].
        descent: slope of the way down to there.
        approach_weight: reward lost per metre between the TCP and that way's next point.
        tilt_weight: reward lost with the approach direction level; in proportion to 1 - cos of the
            tilt.
        distance_weight: reward lost per metre between cube and goal.
        precision_weight: height of the bonus for the cube at the goal.
        precision_scale: distance at which that has fallen to 1/e [m].
        action_weight: reward lost for a full-speed command of all joints.
        stillness_weight, stillness_scale: the same on top of it with the cube at the goal, see
            `Reach` [-, m].
        table_weight: reward lost per centimetre that a finger tip is below the table, up to 3 cm.
        error_unit: length in which the observation gives distances [m].
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
        """See `Task.criterion`."""
        return f"the cube within {1000 * self.tolerance:g} mm of the goal at the end of the episode"

    @property
    def cube_side(self) -> float:
        """See `Task.cube_side`."""
        return self.cube

    def compute_tcp_height(self, world: World) -> float:
        """Of the TCP over the table while it is at a cube that lies there [m]."""
        hand = not_none(world.model.hand)
        return max(hand.half, hand.tip + self.table_room)

    def observe_hand(self, world: World, moment: Moment) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What an observation has of the hand, B times.

        Returns:
            approach, closing: (B, 3) the hand's directions in the base frame.
            in_hand: (B, 3) the cube from the TCP, across, closing and approach [error_unit].
            joint_tilt: (B, k - 1) J_w^T (approach x down), the motion of the k joints that can move
                the TCP that turns the hand down fastest, without the first one, whose axis is
                vertical.
        """
        R_bg = grasp.compute_hand_axes(not_none(world.model.hand), moment.T_be)
        in_hand = (
            grasp.transform_to_hand(R_bg, moment.tcp, moment.scene["object"]) / self.error_unit
        )
        approach, J_w = R_bg[:, :, 2], moment.J[:, 3:, : world.model.position_joints]
        joint_tilt = (J_w[:, 1] * approach[:, :1] - J_w[:, 0] * approach[:, 1:2])[:, 1:]
        return approach, R_bg[:, :, 1], in_hand, joint_tilt

    def make_shapes(self, world: World, moment: Moment) -> list[Shape]:
        """The goal and the cube."""
        scene = moment.scene
        return [make_goal_ball(scene["goal"][0], self.cube), make_cube_shape(scene, self.cube)]

    def achieved_goal(self, world: World, moment: Moment) -> Tensor:
        """Where the cube is, (B, 3) [m]."""
        return moment.scene["object"]
