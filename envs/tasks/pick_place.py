"""Pick and place: grasp a cube on the table and bring it to a goal on the table or in the air.

Success is the cube within `tolerance` of the goal at the end of the episode; nothing ends early.
How the cube moves is in envs/simulation/grasp.py; the whole task is described in
docs/reference/tasks/pick_place.md.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.controllers.scripted_pick import compute_pick_action
from envs.kinematics.pointing_down import solve_pointing_down
from envs.planning.contact_check import is_free
from envs.simulation import grasp
from envs.simulation.engine import batched_o
from envs.tasks.cube_task import CANDIDATES, CubeTask, compute_cube_terms
from envs.tasks.layout import Column, arm_columns, multiply_transpose
from envs.tasks.measures import Measure
from envs.tasks.registry import register_task
from envs.tasks.task import Outcome
from envs.world import Moment, Scene, World
from td3_robot.errors import not_none
from td3_robot.vec_env import draw_uniform


@dataclass(frozen=True)
class Picking(CubeTask):
    """Base class of tasks in which a cube is grasped and brought to a goal.

    Heirs define `sample_places`. The hand approaches the cube from above; `approach_weight` applies
    while nothing is held.

    Attributes:
        around_weight: height of the bonus for the pads around the cube.
        around_scale: distance at which that bonus has fallen to 1/e [m].
        gripper_weight: reward lost for a shut gripper away from the cube, and for an open one
            around it.
        held_weight: bonus for holding the cube.
    """

    around_weight: float
    around_scale: float
    gripper_weight: float
    held_weight: float

    moves_gripper = True
    controllers = ("pick",)
    measures = (
        Measure("grasp_rate", "held", "any", "rate", "episodes with a grasp", "%"),
        *CubeTask.measures,
    )

    def list_columns(self, world: World) -> list[Column]:
        """List the columns of `observe`."""
        k = world.model.position_joints
        tell_goal = {"goal", "error", "way", "joint_way", "scripted"}
        points = {
            name: 3
            for name in ("tcp", "approach", "closing", "goal", "object", "in_hand", "error", "way")
        }
        rest = {
            "joint_way": k,
            "joint_tilt": k - 1,
            "room": 1,
            "held": 1,
            "scripted": len(world.model.qdlim) + 1,
        }
        return [
            *arm_columns(world),
            *(
                Column(name, width, tells_goal=name in tell_goal)
                for name, width in (points | rest).items()
            ),
        ]

    # Scenes

    def sample_places(
        self, draw: Callable[..., Tensor], place: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Sample positions of cubes and goals, (B, 3) each [m].

        Args:
            draw: samples uniform numbers (B, *shape) in [0, 1) of a shape.
            place: samples positions (B, 3) over the floor of the workspace at heights (B,).
        """
        raise NotImplementedError

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """Sample cubes and goals in the workspace that the hand reaches without contact.

        It points down. Solutions are searched from home, inside qlim.
        """
        count = min(count, CANDIDATES)

        def draw(*shape):
            return draw_uniform(generator, count, *shape)

        lower, upper = world.workspace[:, :2]

        def place(height):
            return torch.cat((lower + draw(2) * (upper - lower), height[:, None]), 1)

        cube, goal = self.sample_places(draw, place)
        apart = torch.linalg.vector_norm(goal - cube, dim=1) >= self.least_way
        cube = cube[apart]
        goal = goal[apart]
        over = self.compute_tcp_height(world) - self.cube / 2.0  # the hand's height over the cube's
        lift = cube.new_tensor([0.0, 0.0, over])
        home = world.home.expand(len(cube), -1)
        arm = (world.model.chain, world.model.qlim, not_none(world.model.hand).axes[:, 2])
        q, reached = solve_pointing_down(*arm, home, cube + lift)
        q_goal, arrived = solve_pointing_down(*arm, q, goal + lift)
        good = reached & arrived & self._is_free(world, q) & self._is_free(world, q_goal)
        held = torch.zeros(len(cube), dtype=torch.bool, device=world.device)
        return {"goal": goal[good], "object": cube[good], "held": held[good]}

    def _is_free(self, world: World, q: Tensor) -> Tensor:
        """Return whether arms at q (B, n) are free of contact with the gripper open and with the
        cube in it, (B,) bool.
        """
        hand = not_none(world.model.hand)
        openings = hand.stroke[1], grasp.find_driver(hand, self.cube)
        return torch.stack([is_free(world, q, driver=driver) for driver in openings]).all(0)

    # Observation

    def observe(self, world: World, moment: Moment) -> Tensor:
        """Return the observation (B, o_dim).

        Its columns are o [rad, m]; qd [rad/s]; tcp [m]; approach, closing and in_hand, see
        `HandFeatures`; goal and object [m]; error = goal - object [error_unit]; way, see
        `compute_approach_vector` [error_unit]; joint_way = J_v^T way; joint_tilt, see
        `HandFeatures`; room between the pads beyond the cube's side, 1 when open; held, 0 or 1; and
        scripted, the action of the scripted expert.
        """
        scene = moment.scene
        state = moment.state
        model = world.model
        hand = not_none(model.hand)
        approach, closing, in_hand, joint_tilt = self.observe_hand(world, moment)
        way = self.compute_approach_vector(world, moment) / self.error_unit
        error = (scene["goal"] - scene["object"]) / self.error_unit
        joint_way = multiply_transpose(moment.J[:, :3, : model.position_joints], way)
        room = (grasp.compute_gap(hand, state.gripper) - self.cube) / hand.room
        directions = (
            moment.tcp,
            approach,
            closing,
            scene["goal"],
            scene["object"],
            in_hand,
            error,
            way,
        )
        held = scene["held"][:, None].to(way.dtype)
        scripted = compute_pick_action(self, world, moment)
        last = (joint_way, joint_tilt, room[:, None], held, scripted)
        return torch.cat((batched_o(model, state), state.qd, *directions, *last), 1)

    def is_placed(self, scene: Scene) -> Tensor:
        """Return whether the cube is where it is to be released, (B,) bool; by default never."""
        return torch.zeros_like(scene["held"])

    def compute_approach_vector(self, world: World, moment: Moment) -> Tensor:
        """Return the displacement (B, 3) of the TCP to its next target [m]: the grasp, from above,
        or with the cube the goal.
        """
        scene = moment.scene
        from_cube = moment.tcp - scene["object"]
        aside = torch.linalg.vector_norm(from_cube[:, :2], dim=1)
        over = (self.descent * (aside - self.corridor)).clamp(0.0, self.hover)
        over = over + self.compute_tcp_height(world) - self.cube / 2.0
        to_grasp = torch.cat((-from_cube[:, :2], (over - from_cube[:, 2])[:, None]), 1)
        return torch.where(scene["held"][:, None], scene["goal"] - scene["object"], to_grasp)

    def compute_carrying_vector(self, way: Tensor) -> Tensor:
        """Return the displacement (B, 3) of a held cube to its next target [m].

        That is over the goal until the cube is above it.

        Args:
            way: (B, 3) displacement of the cube to the goal [m].
        """
        aside = torch.linalg.vector_norm(way[:, :2], dim=1)
        up = (self.descent * (aside - self.corridor)).clamp(0.0, self.hover)
        return way + torch.nn.functional.pad(up[:, None], (2, 0))

    # Reward

    def compute_outcome(self, world: World, moment: Moment, action: Tensor) -> Outcome:
        """Return success, the cube's distance and the terms of `compute_reward_terms`."""
        scene = moment.scene
        hand = not_none(world.model.hand)
        driver = moment.state.gripper
        distance = torch.linalg.vector_norm(scene["goal"] - scene["object"], dim=1)
        clearance = grasp.compute_tip_height(hand, moment.T_be, driver)
        inputs = RewardInputs(
            approach_distance=torch.linalg.vector_norm(
                self.compute_approach_vector(world, moment), dim=1
            ),
            distance=distance,
            held=scene["held"] | self.is_placed(scene),
            down=-grasp.compute_hand_axes(hand, moment.T_be)[:, 2, 2],
            room=((grasp.compute_gap(hand, driver) - self.cube) / hand.room).clamp_min(0.0),
            clearance=clearance,
        )
        measures = {"object": scene["object"], "held": scene["held"], "table_clearance": clearance}
        return Outcome(
            distance < self.tolerance,
            distance,
            compute_reward_terms(self, inputs, action),
            measures,
        )


@register_task("pick_place")
@dataclass(frozen=True)
class PickPlace(Picking):
    """The task `pick_place`; the values of its constants are in configs/tasks/pick_place.yaml.

    Attributes:
        air_lowest, air_highest: range of heights of the goals in the air [m].
    """

    air_lowest: float
    air_highest: float

    def sample_places(
        self, draw: Callable[..., Tensor], place: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Sample cubes on the table, and goals half of which are on the table."""
        air = self.air_lowest + draw() * (self.air_highest - self.air_lowest)
        table = torch.full_like(air, self.cube / 2.0)
        return place(table), place(torch.where(draw() < 0.5, air, table))


@dataclass(frozen=True)
class RewardInputs:
    """Inputs of the reward in addition to the action, each (B,).

    Attributes:
        approach_distance: length of the approach vector [m].
        distance: between cube and goal [m].
        held: bool, whether the cube is held, or is where it is to be released.
        down: cosine of the angle between the hand's approach and straight down.
        room: between the pads beyond the cube's side, 1 when open, 0 at the cube's side or below.
        clearance: height of the finger tips over the table [m].
    """

    approach_distance: Tensor
    distance: Tensor
    held: Tensor
    down: Tensor
    room: Tensor
    clearance: Tensor


def compute_reward_terms(task: Picking, inputs: RewardInputs, action: Tensor) -> dict[str, Tensor]:
    """Compute the named terms, each (B,), whose sum is the reward.

    Args:
        action: (B, n + 1) in [-1, 1]; the gripper's costs nothing.
    """
    effort = action[:, :-1].square().mean(1)
    held = inputs.held.to(effort.dtype)
    around = torch.exp(-inputs.approach_distance / task.around_scale)
    wrong_gripper = (1.0 - around) * (1.0 - inputs.room) + around * inputs.room
    return {
        "approach": (held - 1.0) * task.approach_weight * inputs.approach_distance,
        "tilt": -task.tilt_weight * (1.0 - inputs.down),
        "around": task.around_weight * torch.where(inputs.held, 1.0, around),
        "gripper": (held - 1.0) * task.gripper_weight * wrong_gripper,
        "held": task.held_weight * held,
        **compute_cube_terms(task, inputs.distance, inputs.clearance, effort),
    }
