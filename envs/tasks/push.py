"""Push: slide a cube over the table to a goal, with shut fingers.

Success is the cube within `tolerance` of the goal at the end of the episode; nothing ends early.
How the cube moves in the kinematic engine is in envs/simulation/grasp.py; the task is described in
docs/reference/tasks/push.md.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from envs.config.env_options import KINEMATIC, MUJOCO
from envs.controllers.pointing import point_down
from envs.kinematics.pointing_down import solve_pointing_down
from envs.planning.contact_check import is_free
from envs.robots import Robot
from envs.simulation import grasp
from envs.simulation.engine import Command, batched_o
from envs.tasks.cube_task import CANDIDATES, CubeTask, compute_cube_terms
from envs.tasks.layout import Column, arm_columns, multiply_transpose
from envs.tasks.registry import register_task
from envs.tasks.task import Outcome
from envs.world import Moment, Scene, World
from td3_robot.errors import not_none
from td3_robot.vec_env import draw_uniform


class _HandPlace(NamedTuple):
    """Places of B hands relative to the cube and the goal.

    Attributes:
        ahead: (B, 3) unit vectors from the cube to the goal.
        beyond: (B, 3) level displacement of the TCP from the cube [m].
        along: (B,) part of that along `ahead`, negative behind the cube [m].
        aside: (B, 3) the rest of it [m].
        low: (B,) how far the TCP is below the height of a push, negative above it [m].
        up: (3,) unit vector.
    """

    ahead: Tensor
    beyond: Tensor
    along: Tensor
    aside: Tensor
    low: Tensor
    up: Tensor


@register_task("push")
@dataclass(frozen=True)
class Push(CubeTask):
    """The task `push`; the values of its constants are in configs/tasks/push.yaml.

    Goals are on the table. The scene also holds `contact_depth` (), the depth of a finger in the
    cube's top [m]. The hand comes down behind the cube and pushes as long as it is within
    `corridor` of the line from the goal through the cube.

    Attributes:
        longest_way: greatest distance between cube and goal at the start [m].
        behind: distance behind the cube's centre, seen from the goal, at which the TCP comes down
            [m].
        stride: greatest length of the approach vector while pushing [m].
        near: distance between cube and goal at which pushing stops [m].
        again: distance beyond which a hand that is not behind the cube comes back to push [m].
        lift: height gained behind the cube while pushing, against wedging it on the table [m].
        lift_gain: correction of the height while pushing, as a multiple of the distance.
        turn_weight: reward lost per radian of `turn`.
        gain, damping: of the scripted expert, see `point_down` [1/s, m/rad].
        homing: speed per distance at which its joints return home as far as the hand's motion
            leaves them free, so that the elbow does not fold up beside the base [1/s].
    """

    longest_way: float
    behind: float
    stride: float
    near: float
    again: float
    lift: float
    lift_gain: float
    turn_weight: float
    gain: float
    damping: float
    homing: float

    keeps_goal_height = True  # on the table
    controllers = ("push",)
    engines = (MUJOCO, KINEMATIC)

    def make_world(
        self, robot: Robot, device: torch.device | str, collision: bool = False
    ) -> World:
        """Compile the robot with a hand from which an eccentrically pushed cube slips."""
        made = super().make_world(robot, device, collision)
        hand = replace(not_none(made.model.hand), slips=True)
        return replace(made, model=replace(made.model, hand=hand))

    def list_columns(self, world: World) -> list[Column]:
        """List the columns of `observe`."""
        k = world.model.position_joints
        n = len(world.model.qdlim)
        tell_goal = {"goal", "error", "way", "joint_way", "turn", "joint_turn", "scripted"}
        points = {name: 3 for name in ("tcp", "approach", "closing", "in_hand", "way", "goal")}
        points |= {"object": 2, "error": 2}
        rest = {"joint_way": k, "joint_tilt": k - 1, "turn": 1, "joint_turn": n, "scripted": n}
        return [
            *arm_columns(world),
            *(
                Column(name, width, tells_goal=name in tell_goal)
                for name, width in (points | rest).items()
            ),
        ]

    # Scenes

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """Sample cubes and goals on the table behind which the hand fits without contact.

        It points down. Solutions are searched from home, inside qlim.
        """
        count = min(count, CANDIDATES)
        lower, upper = world.workspace[:, :2]
        places = lower + draw_uniform(generator, 2, count, 2) * (upper - lower)
        cube, goal = torch.nn.functional.pad(places, (0, 1), value=self.cube / 2.0)
        distance = torch.linalg.vector_norm(goal - cube, dim=1)
        chosen = (distance >= self.least_way) & (distance <= self.longest_way)
        cube = cube[chosen]
        goal = goal[chosen]
        over = cube.new_tensor([0.0, 0.0, self.compute_tcp_height(world) - self.cube / 2.0])
        back = self.behind * _compute_direction(cube, goal)
        arm = (world.model.chain, world.model.qlim, not_none(world.model.hand).axes[:, 2])
        home = world.home.expand(len(cube), -1)
        q, reached = solve_pointing_down(*arm, home, cube - back + over)
        # More than touching: fingers are not thin.
        touching = self.cube / 2.0 * _compute_direction(cube, goal)
        q_goal, arrived = solve_pointing_down(*arm, q, goal - touching + over)
        shut = not_none(world.model.hand).stroke[0]
        good = (
            reached & arrived & is_free(world, q, driver=shut) & is_free(world, q_goal, driver=shut)
        )
        held = torch.zeros(len(cube), dtype=torch.bool, device=world.device)
        scene = {
            "goal": goal,
            "object": cube,
            "held": held,
            "contact_depth": torch.zeros_like(distance[chosen]),
        }
        return {name: value[good] for name, value in scene.items()}

    def make_command(self, world: World, moment: Moment, action: Tensor) -> Command:
        """Return the command of the joints, with the fingers shut."""
        return Command(action, torch.zeros_like(action[:, 0]))

    # Observation

    def observe(self, world: World, moment: Moment) -> Tensor:
        """Return the observation (B, o_dim).

        Its columns are o [rad, m]; qd [rad/s]; tcp [m]; approach, closing and in_hand, see
        `HandFeatures`; way, see `compute_approach_vector` [error_unit]; goal [m]; object, the
        cube's position on the table [m]; error = goal - object [error_unit]; joint_way = J_v^T way;
        joint_tilt, see `HandFeatures`; turn, see `compute_turn` [rad]; joint_turn, the joint motion
        that turns the hand so; and scripted, the action of the scripted expert.
        """
        scene = moment.scene
        state = moment.state
        model = world.model
        *hand, joint_tilt = self.observe_hand(world, moment)
        way = self.compute_approach_vector(world, moment) / self.error_unit
        goal = scene["goal"]
        cube = scene["object"][:, :2]
        places = (moment.tcp, *hand, way, goal, cube, (goal[:, :2] - cube) / self.error_unit)
        turn = self.compute_turn(world, moment)[:, None]
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
        """Compute the action (B, n) in [-1, 1] along the approach vector and by `compute_turn`."""
        way = self.compute_approach_vector(world, moment)
        home = self.homing * (world.home - moment.state.q)
        return point_down(
            world,
            moment,
            way,
            self.compute_turn(world, moment),
            self.gain,
            self.damping,
            torch.where((way != 0.0).any(1, keepdim=True), home, 0.0),
        )

    def compute_approach_vector(self, world: World, moment: Moment) -> Tensor:
        """Return the displacement (B, 3) of the TCP to its next target [m].

        The hand comes down behind the cube, and then pushes it towards the goal. Once the cube is
        there, it only rises if it has sunk.
        """
        cube = moment.scene["object"]
        goal = moment.scene["goal"]
        left = _compute_level_distance(cube, goal)
        hand = self._locate_hand(world, moment)
        lined_up = self._is_lined_up(hand)
        pushing = self._compute_pushing_vector(hand, left)
        coming = self._compute_coming_vector(hand)
        way = torch.where(lined_up[:, None], pushing, coming)
        done = left < torch.where(lined_up, self.near, self.again)
        return torch.where(done[:, None], hand.low.clamp_min(0.0)[:, None] * hand.up, way)

    def _locate_hand(self, world: World, moment: Moment) -> _HandPlace:
        """Locate the hands relative to cube and goal."""
        cube = moment.scene["object"]
        tcp = moment.tcp
        ahead = _compute_direction(cube, moment.scene["goal"])
        level = tcp.new_tensor([1.0, 1.0, 0.0])
        up = tcp.new_tensor([0.0, 0.0, 1.0])
        beyond = (tcp - cube) * level
        along = (beyond * ahead).sum(1)
        aside = beyond - along[:, None] * ahead
        low = self.compute_tcp_height(world) - tcp[:, 2]
        return _HandPlace(ahead, beyond, along, aside, low, up)

    def _is_lined_up(self, hand: _HandPlace) -> Tensor:
        """Return whether hands are behind the cube and low enough to push it, (B,) bool."""
        lined_up = (
            (hand.along < -self.cube / 4.0)  # half its side, less what calibration leaves
            & (hand.along > -self.behind - self.corridor)
            & (hand.low.abs() < self.corridor)
        )
        return lined_up & (torch.linalg.vector_norm(hand.aside, dim=1) < self.corridor)

    def _compute_coming_vector(self, hand: _HandPlace) -> Tensor:
        """Compute the way (B, 3) to the place behind the cube [m].

        The hand rises if it is low next to the cube, and moves over and down behind it.
        """
        to_start = -hand.beyond - self.behind * hand.ahead
        over = self.descent * (torch.linalg.vector_norm(to_start, dim=1) - self.corridor)
        rise = hand.low + over.clamp(0.0, self.hover)
        beside = torch.linalg.vector_norm(hand.beyond, dim=1) < self.behind - self.corridor
        straight_up = beside & (rise > self.corridor)  # or the hand would take the cube along
        return torch.where(straight_up[:, None], 0.0, to_start) + rise[:, None] * hand.up

    def _compute_pushing_vector(self, hand: _HandPlace, left: Tensor) -> Tensor:
        """Compute the way (B, 3) against the cube towards the goal [m].

        Args:
            left: (B,) distance between cube and goal [m].
        """
        lifting = self.lift_gain * (hand.low + self.lift)
        stride = left.clamp(max=self.stride)
        return stride[:, None] * hand.ahead - hand.aside + lifting[:, None] * hand.up

    def compute_turn(self, world: World, moment: Moment) -> Tensor:
        """Return the turn (B,) of the hand about the vertical that makes one of its broad faces
        meet the cube squarely; zero at the goal [rad].

        Shut fingers are broader along the closing direction than across it. The turn is a quarter
        of a revolution at most. If it leads the last joint beyond its limit, the hand turns the
        other way, to the other face.
        """
        left = _compute_level_distance(moment.scene["object"], moment.scene["goal"])
        ahead = _compute_direction(moment.scene["object"], moment.scene["goal"])
        across = grasp.compute_hand_axes(not_none(world.model.hand), moment.T_be)[:, :, 0]
        angle = torch.atan2(ahead[:, 1], ahead[:, 0]) - torch.atan2(across[:, 1], across[:, 0])
        turn = torch.atan2(torch.sin(2.0 * angle), torch.cos(2.0 * angle)) / 2.0
        lower, upper = world.model.qlim[:, -1]
        last = moment.state.q[:, -1] + turn * moment.J[:, 5, -1]
        beyond = (last < lower) | (last > upper)
        turn = torch.where(beyond, turn - torch.pi * turn.sign(), turn)
        return torch.where(left < self.near, 0.0, turn)

    # Reward

    def compute_outcome(self, world: World, moment: Moment, action: Tensor) -> Outcome:
        """Return success, the cube's distance and the terms of `compute_reward_terms`."""
        scene = moment.scene
        hand = not_none(world.model.hand)
        distance = torch.linalg.vector_norm(scene["goal"] - scene["object"], dim=1)
        clearance = grasp.compute_tip_height(hand, moment.T_be, moment.state.gripper)
        inputs = RewardInputs(
            approach_distance=torch.linalg.vector_norm(
                self.compute_approach_vector(world, moment), dim=1
            ),
            turn=self.compute_turn(world, moment).abs(),
            distance=distance,
            down=-grasp.compute_hand_axes(hand, moment.T_be)[:, 2, 2],
            clearance=clearance,
        )
        measures = {"object": scene["object"], "table_clearance": clearance}
        return Outcome(
            distance < self.tolerance,
            distance,
            compute_reward_terms(self, inputs, action),
            measures,
        )


@dataclass(frozen=True)
class RewardInputs:
    """Inputs of the reward in addition to the action, each (B,).

    Attributes:
        approach_distance: length of the approach vector [m].
        turn: angle of the hand's faces to the push [rad].
        distance: between cube and goal [m].
        down: cosine of the angle between the hand's approach and straight down.
        clearance: height of the finger tips over the table [m].
    """

    approach_distance: Tensor
    turn: Tensor
    distance: Tensor
    down: Tensor
    clearance: Tensor


def compute_reward_terms(task: Push, inputs: RewardInputs, action: Tensor) -> dict[str, Tensor]:
    """Compute the named terms, each (B,), whose sum is the reward.

    Args:
        action: (B, n) in [-1, 1].
    """
    effort = action.square().mean(1)
    return {
        "approach": -task.approach_weight * inputs.approach_distance,
        "tilt": -task.tilt_weight * (1.0 - inputs.down),
        "turn": -task.turn_weight * inputs.turn,
        **compute_cube_terms(task, inputs.distance, inputs.clearance, effort),
    }


def _compute_level_distance(start: Tensor, end: Tensor) -> Tensor:
    """Return level distances (B,); the heights at which a cube and its goal are seen may differ."""
    return torch.linalg.vector_norm((end - start)[:, :2], dim=1)


def _compute_direction(start: Tensor, end: Tensor) -> Tensor:
    """Return level unit vectors (B, 3) from start to end; zero where they coincide."""
    level = start.new_tensor([1.0, 1.0, 0.0])
    return torch.nn.functional.normalize((end - start) * level, dim=1)
