"""Push: slide a cube over the table to a goal, with shut fingers.

Success is the cube within `tolerance` of the goal at the end of the episode; nothing ends early.
How the cube moves without forces is in envs/simulation/grasp.py; the task is described in
docs/push.md.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from envs.controllers.pointing import point_down
from envs.kinematics.pointing_down import solve_pointing_down
from envs.planning.contact_check import is_free
from envs.robots import Robot
from envs.simulation import grasp
from envs.simulation.engine import Command, batched_o
from envs.tasks.cube_task import CANDIDATES, CubeTask
from envs.tasks.layout import Column, arm_columns, multiply_transpose
from envs.tasks.registry import register_task
from envs.tasks.task import Outcome
from envs.world import Moment, Scene, World
from td3_robot.errors import not_none


@register_task("push")
@dataclass(frozen=True)
class Push(CubeTask):
    """The constants of the task; its values live in configs/tasks/push.yaml.

    Goals are on the table. The scene further holds `contact_depth` (), how deep a finger that came
    from above is in the top of the cube [m]. The hand comes down behind the cube and pushes as long
    as it is no further than `corridor` beside the line from the goal through the cube.

    Attributes:
        longest_way: between cube and goal at the start [m].
        behind: from the cube's centre to where the TCP comes down, on the far side from the goal
            [m].
        stride: how far ahead of itself the TCP is led while it pushes, at most [m].
        near: the cube is pushed no more when it is this near to the goal [m].
        turn_weight: reward lost per radian of `turn`.
        gain, damping: of the scripted push, see `point_down` [1/s, m/rad].
    """

    longest_way: float
    behind: float
    stride: float
    near: float
    turn_weight: float
    gain: float
    damping: float

    controllers = ("push",)

    def make_world(
        self, robot: Robot, device: torch.device | str, collision: bool = False
    ) -> World:
        """See `Task.make_world`: here a cube that is pushed off its middle slips, as one that turns is
        lost.
        """
        made = super().make_world(robot, device, collision)
        hand = replace(not_none(made.model.hand), slips=True)
        return replace(made, model=replace(made.model, hand=hand))

    def list_columns(self, world: World) -> list[Column]:
        """See `observe`."""
        k, n = world.model.position_joints, len(world.model.qdlim)
        told = {"goal", "error", "way", "joint_way", "turn", "joint_turn", "scripted"}
        points = {name: 3 for name in ("tcp", "approach", "closing", "in_hand", "way", "goal")}
        points |= {"object": 2, "error": 2}
        rest = {"joint_way": k, "joint_tilt": k - 1, "turn": 1, "joint_turn": n, "scripted": n}
        return [
            *arm_columns(world),
            *(Column(name, width, name in told) for name, width in (points | rest).items()),
        ]

    # Scenes

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """Cubes and goals on the table that the hand, pointing down, can come down behind and end
        behind, without contact; found from home, within qlim.
        """
        count = min(count, CANDIDATES)
        lower, upper = world.workspace[:, :2]
        places = lower + torch.rand(2, count, 2, generator=generator, device=world.device) * (
            upper - lower
        )
        cube, goal = torch.nn.functional.pad(places, (0, 1), value=self.cube / 2.0)
        way = torch.linalg.vector_norm(goal - cube, dim=1)
        chosen = (way >= self.least_way) & (way <= self.longest_way)
        cube, goal = cube[chosen], goal[chosen]
        over = cube.new_tensor([0.0, 0.0, self.compute_tcp_height(world) - self.cube / 2.0])
        back = self.behind * _compute_direction(cube, goal)
        arm = (world.model.chain, world.model.qlim, not_none(world.model.hand).axes[:, 2])
        home = world.home.expand(len(cube), -1)
        q, reached = solve_pointing_down(*arm, home, cube - back + over)
        touching = (
            self.cube / 2.0 * _compute_direction(cube, goal)
        )  # more than touching: fingers are not thin
        there, arrived = solve_pointing_down(*arm, q, goal - touching + over)
        shut = not_none(world.model.hand).stroke[0]
        good = (
            reached & arrived & is_free(world, q, driver=shut) & is_free(world, there, driver=shut)
        )
        held = torch.zeros(len(cube), dtype=torch.bool, device=world.device)
        scene = {
            "goal": goal,
            "object": cube,
            "held": held,
            "contact_depth": torch.zeros_like(way[chosen]),
        }
        return {name: value[good] for name, value in scene.items()}

    def make_command(self, world: World, moment: Moment, action: Tensor) -> Command:
        """The fingers stay shut."""
        return Command(action, torch.zeros_like(action[:, 0]))

    # What the policy sees

    def observe(self, world: World, moment: Moment) -> Tensor:
        """(B, o_dim): o [rad, m]; qd [rad/s]; tcp [m]; approach and closing, the hand's directions
        in the base frame; in_hand, the cube from the TCP, across, closing and approach, and way,
        where the TCP is to go now, see `way` (both in error_unit); goal [m]; object, the cube's
        place on the table [m], and error, from there to the goal [error_unit]; joint_way = J_v^T
        way and joint_tilt, the joint motions that go there, and turn the hand down, fastest, the
        latter without the first joint, whose axis is vertical; turn, see `turn` [rad], and
        joint_turn, which turns the hand so; and scripted, what the scripted push would do.
        """
        scene, state, model = moment.scene, moment.state, world.model
        *hand, joint_tilt = self.observe_hand(world, moment)
        way = self.compute_approach_vector(world, moment) / self.error_unit
        goal, cube = scene["goal"], scene["object"][:, :2]
        places = (moment.tcp, *hand, way, goal, cube, (goal[:, :2] - cube) / self.error_unit)
        turn = self.turn(world, moment)[:, None]
        joint_way = multiply_transpose(moment.J[:, :3, : model.position_joints], way)
        motions = (
            joint_way,
            joint_tilt,
            turn,
            moment.J[:, 5] * turn,
            self.compute_scripted_action(world, moment),
        )
        return torch.cat((batched_o(model, state), state.qd, *places, *motions), 1)

    def compute_scripted_action(self, world: World, moment: Moment) -> Tensor:
        """(B, n) in [-1, 1]: along `way` and by `turn` at resolved rates, pointing down."""
        return point_down(
            world,
            moment,
            self.compute_approach_vector(world, moment),
            self.turn(world, moment),
            self.gain,
            self.damping,
        )

    def compute_approach_vector(self, world: World, moment: Moment) -> Tensor:
        """(B, 3) from the TCP to where it is to go now [m]: up from where it may be low beside the
        cube, over and down behind it, then against it, towards the goal; nowhere once the cube is
        there.
        """
        cube, goal, tcp = moment.scene["object"], moment.scene["goal"], moment.tcp
        left, ahead = torch.linalg.vector_norm(goal - cube, dim=1), _compute_direction(cube, goal)
        level, up = tcp.new_tensor([1.0, 1.0, 0.0]), tcp.new_tensor([0.0, 0.0, 1.0])
        beyond = (tcp - cube) * level
        along = (beyond * ahead).sum(1)  # negative behind the cube
        aside = beyond - along[:, None] * ahead
        down = self.compute_tcp_height(world) - tcp[:, 2]
        to_start = -beyond - self.behind * ahead
        over = self.descent * (torch.linalg.vector_norm(to_start, dim=1) - self.corridor)
        rise = down + over.clamp(0.0, self.hover)
        beside = torch.linalg.vector_norm(beyond, dim=1) < self.behind - self.corridor
        straight_up = beside & (rise > self.corridor)  # or the hand would take the cube along
        coming = torch.where(straight_up[:, None], 0.0, to_start) + rise[:, None] * up
        pushing = left.clamp(max=self.stride)[:, None] * ahead - aside + down[:, None] * up
        lined_up = (
            (along < -self.cube / 2.0)
            & (along > -self.behind - self.corridor)
            & (down.abs() < self.corridor)
        )
        lined_up = lined_up & (torch.linalg.vector_norm(aside, dim=1) < self.corridor)
        way = torch.where(lined_up[:, None], pushing, coming)
        return torch.where((left < self.near)[:, None], 0.0, way)

    def turn(self, world: World, moment: Moment) -> Tensor:
        """(B,) by how much the hand has to turn about the vertical for one of its faces to meet the
        cube squarely, up to an eighth of a turn [rad].
        """
        ahead = _compute_direction(moment.scene["object"], moment.scene["goal"])
        across = grasp.compute_hand_axes(not_none(world.model.hand), moment.T_be)[:, :, 0]
        angle = torch.atan2(ahead[:, 1], ahead[:, 0]) - torch.atan2(across[:, 1], across[:, 0])
        return torch.atan2(torch.sin(4.0 * angle), torch.cos(4.0 * angle)) / 4.0

    # What it is paid for

    def compute_outcome(self, world: World, moment: Moment, action: Tensor) -> Outcome:
        """See `compute_reward_terms`."""
        scene, hand = moment.scene, not_none(world.model.hand)
        distance = torch.linalg.vector_norm(scene["goal"] - scene["object"], dim=1)
        clearance = grasp.compute_tip_height(hand, moment.T_be, moment.state.gripper)
        seen = RewardInputs(
            way=torch.linalg.vector_norm(self.compute_approach_vector(world, moment), dim=1),
            turn=self.turn(world, moment).abs(),
            distance=distance,
            down=-grasp.compute_hand_axes(hand, moment.T_be)[:, 2, 2],
            clearance=clearance,
        )
        measures = {"object": scene["object"], "table_clearance": clearance}
        return Outcome(
            distance < self.tolerance, distance, compute_reward_terms(self, seen, action), measures
        )

    def move_goal(self, world: World, moment: Moment, goal: Tensor) -> Moment:
        """See `Task.move_goal`; it stays on the table."""
        return self.replace_goal(
            world, moment, torch.cat((goal[:, :2], moment.scene["goal"][:, 2:]), 1)
        )


@dataclass(frozen=True)
class RewardInputs:
    """What the reward depends on beside the action, each (B,).

    Attributes:
        way: to where the TCP is to go, see `Push.way` [m].
        turn: how far the hand's faces are from square to the push [rad].
        distance: between cube and goal [m].
        down: cosine of the angle between the hand's approach and straight down.
        clearance: height of the finger tips over the table [m].
    """

    way: Tensor
    turn: Tensor
    distance: Tensor
    down: Tensor
    clearance: Tensor


def compute_reward_terms(task: Push, seen: RewardInputs, action: Tensor) -> dict[str, Tensor]:
    """The named terms whose sum is the reward, each (B,).

    Args:
        action: (B, n) in [-1, 1].
    """
    effort = action.square().mean(1)
    near = torch.exp(-seen.distance / task.stillness_scale)
    return {
        "approach": -task.approach_weight * seen.way,
        "tilt": -task.tilt_weight * (1.0 - seen.down),
        "turn": -task.turn_weight * seen.turn,
        "distance": -task.distance_weight * seen.distance,
        "precision": task.precision_weight * torch.exp(-seen.distance / task.precision_scale),
        "action": -task.action_weight * effort,
        "stillness": -task.stillness_weight * near * effort.sqrt(),
        "table": -task.table_weight * (-100.0 * seen.clearance).clamp(0.0, 3.0),
    }


def _compute_direction(start: Tensor, end: Tensor) -> Tensor:
    """(B, 3) unit vectors; zero where the two are one."""
    return torch.nn.functional.normalize(end - start, dim=1)
