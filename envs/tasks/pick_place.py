"""Pick and place: grasp a cube that lies on the table and bring it to a goal, in the air half the
time.

Success is the cube within `tolerance` of the goal at the end of the episode; nothing ends early.
How the cube moves is in envs/simulation/grasp.py; the whole task is described in
docs/pick_place.md.
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
from envs.tasks.cube_task import CANDIDATES, CubeTask
from envs.tasks.layout import Column, arm_columns, multiply_transpose
from envs.tasks.measures import Measure
from envs.tasks.registry import register_task
from envs.tasks.task import Outcome
from envs.world import Moment, Scene, World
from td3_robot.errors import not_none


@dataclass(frozen=True)
class Picking(CubeTask):
    """What tasks have in common in which a cube is grasped and brought somewhere; each says where
    to in `places`.

    The hand is led to the cube from above; `approach_weight` is lost while nothing is held.

    Attributes:
        around_weight: height of the bonus for the pads around the cube, falling to 1/e at
            `around_scale` [m].
        gripper_weight: reward lost for a shut gripper on the way, and for an open one around the
            cube.
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
        """See `observe`."""
        k = world.model.position_joints
        told = {"goal", "error", "way", "joint_way", "scripted"}
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
            *(Column(name, width, name in told) for name, width in (points | rest).items()),
        ]

    # Scenes

    def sample_places(
        self, draw: Callable[..., Tensor], place: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Where cubes lie and where they are to be, (B, 3) each [m].

        Args:
            draw: gives uniform numbers in [0, 1), (B, ...), by the further dimensions.
            place: gives random places over the floor of the workspace (B, 3), by their heights
                (B,).
        """
        raise NotImplementedError

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """Cubes and goals in the workspace that the hand, pointing down, can be at without contact;
        found from home, within qlim.
        """
        count = min(count, CANDIDATES)

        def draw(*shape):
            return torch.rand(count, *shape, generator=generator, device=world.device)

        lower, upper = world.workspace[:, :2]

        def place(height):
            return torch.cat((lower + draw(2) * (upper - lower), height[:, None]), 1)

        cube, goal = self.sample_places(draw, place)
        apart = torch.linalg.vector_norm(goal - cube, dim=1) >= self.least_way
        cube, goal = cube[apart], goal[apart]
        over = self.compute_tcp_height(world) - self.cube / 2.0  # the hand's height over the cube's
        lift = cube.new_tensor([0.0, 0.0, over])
        home = world.home.expand(len(cube), -1)
        arm = (world.model.chain, world.model.qlim, not_none(world.model.hand).axes[:, 2])
        q, reached = solve_pointing_down(*arm, home, cube + lift)
        there, arrived = solve_pointing_down(*arm, q, goal + lift)
        good = reached & arrived & self._free(world, q) & self._free(world, there)
        held = torch.zeros(len(cube), dtype=torch.bool, device=world.device)
        return {"goal": goal[good], "object": cube[good], "held": held[good]}

    def _free(self, world: World, q: Tensor) -> Tensor:
        """(B,) whether arms at q (B, n) touch nothing with the gripper open, and with the cube in
        it.
        """
        hand = not_none(world.model.hand)
        openings = hand.stroke[1], grasp.find_driver(hand, self.cube)
        return torch.stack([is_free(world, q, driver=driver) for driver in openings]).all(0)

    # What the policy sees

    def observe(self, world: World, moment: Moment) -> Tensor:
        """(B, o_dim): o [rad, m]; qd [rad/s]; tcp [m]; approach and closing, the hand's directions
        in the base frame; goal and object [m]; in_hand, the cube from the TCP, across, closing and
        approach; error = goal - object; way, where the TCP is to go now, see `way` (these three in
        error_unit); joint_way = J_v^T way and joint_tilt, the joint motions that go there, and turn
        the hand down, fastest, the latter without the first joint, whose axis is vertical; room
        between the pads beyond the cube's side, 1 when open; held, 0 or 1; and scripted, what the
        scripted pick would do.
        """
        scene, state, model, hand = (
            moment.scene,
            moment.state,
            world.model,
            not_none(world.model.hand),
        )
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
        told = compute_pick_action(self, world, moment)
        last = (joint_way, joint_tilt, room[:, None], scene["held"][:, None].to(way.dtype), told)
        return torch.cat((batched_o(model, state), state.qd, *directions, *last), 1)

    def is_placed(self, scene: Scene) -> Tensor:
        """(B,) bool: whether the cube is where it is to be let go; by default nowhere."""
        return torch.zeros_like(scene["held"])

    def compute_approach_vector(self, world: World, moment: Moment) -> Tensor:
        """(B, 3) from the TCP to where it is to go now [m]: to the grasp, from above; with the
        cube, to the goal.
        """
        scene = moment.scene
        from_cube = moment.tcp - scene["object"]
        aside = torch.linalg.vector_norm(from_cube[:, :2], dim=1)
        over = (self.descent * (aside - self.corridor)).clamp(0.0, self.hover)
        over = over + self.compute_tcp_height(world) - self.cube / 2.0
        to_grasp = torch.cat((-from_cube[:, :2], (over - from_cube[:, 2])[:, None]), 1)
        return torch.where(scene["held"][:, None], scene["goal"] - scene["object"], to_grasp)

    # What it is paid for

    def compute_outcome(self, world: World, moment: Moment, action: Tensor) -> Outcome:
        """See `compute_reward_terms`."""
        scene, hand, driver = moment.scene, not_none(world.model.hand), moment.state.gripper
        distance = torch.linalg.vector_norm(scene["goal"] - scene["object"], dim=1)
        clearance = grasp.compute_tip_height(hand, moment.T_be, driver)
        seen = RewardInputs(
            way=torch.linalg.vector_norm(self.compute_approach_vector(world, moment), dim=1),
            distance=distance,
            held=scene["held"] | self.is_placed(scene),
            down=-grasp.compute_hand_axes(hand, moment.T_be)[:, 2, 2],
            room=((grasp.compute_gap(hand, driver) - self.cube) / hand.room).clamp_min(0.0),
            clearance=clearance,
        )
        measures = {"object": scene["object"], "held": scene["held"], "table_clearance": clearance}
        return Outcome(
            distance < self.tolerance, distance, compute_reward_terms(self, seen, action), measures
        )


@register_task("pick_place")
@dataclass(frozen=True)
class PickPlace(Picking):
    """The constants of the task; its values live in configs/tasks/pick_place.yaml.

    Attributes:
        air_lowest, air_highest: heights between which the goals in the air lie [m].
    """

    air_lowest: float
    air_highest: float

    def sample_places(
        self, draw: Callable[..., Tensor], place: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """See `Picking.places`: half of the goals are on the table."""
        air = self.air_lowest + draw() * (self.air_highest - self.air_lowest)
        table = torch.full_like(air, self.cube / 2.0)
        return place(table), place(torch.where(draw() < 0.5, air, table))


@dataclass(frozen=True)
class RewardInputs:
    """What the reward depends on beside the action, each (B,).

    Attributes:
        way: to where the TCP is to go, see `Picking.way` [m].
        distance: between cube and goal [m].
        held: bool, whether the cube is held, or is where it is to be let go.
        down: cosine of the angle between the hand's approach and straight down.
        room: between the pads beyond the cube's side, 1 when open, 0 at the cube's side or below.
        clearance: height of the finger tips over the table [m].
    """

    way: Tensor
    distance: Tensor
    held: Tensor
    down: Tensor
    room: Tensor
    clearance: Tensor


def compute_reward_terms(task: Picking, seen: RewardInputs, action: Tensor) -> dict[str, Tensor]:
    """The named terms whose sum is the reward, each (B,).

    Args:
        action: (B, n + 1) in [-1, 1]; the gripper's costs nothing.
    """
    effort = action[:, :-1].square().mean(1)
    held = seen.held.to(effort.dtype)
    around = torch.exp(-seen.way / task.around_scale)
    wrong_gripper = (1.0 - around) * (1.0 - seen.room) + around * seen.room
    near = torch.exp(-seen.distance / task.stillness_scale)
    return {
        "approach": (held - 1.0) * task.approach_weight * seen.way,
        "tilt": -task.tilt_weight * (1.0 - seen.down),
        "around": task.around_weight * torch.where(seen.held, 1.0, around),
        "gripper": (held - 1.0) * task.gripper_weight * wrong_gripper,
        "held": task.held_weight * held,
        "distance": -task.distance_weight * seen.distance,
        "precision": task.precision_weight * torch.exp(-seen.distance / task.precision_scale),
        "action": -task.action_weight * effort,
        "stillness": -task.stillness_weight * near * effort.sqrt(),
        "table": -task.table_weight * (-100.0 * seen.clearance).clamp(0.0, 3.0),
    }
