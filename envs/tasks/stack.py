"""Stack: put one cube onto another and let it go, which is for contact physics.

Success is the cube at rest on the other, and no pad at it, at the end of the episode; nothing ends
early. The numbers of that are those of ManiSkill's StackCube but for `tolerance`, which there is 33
mm for the same cubes
(https://github.com/haosulab/ManiSkill/blob/main/mani_skill/envs/tasks/tabletop/stack_cube.py). How
cubes move without forces is in envs/simulation/grasp.py and kinematic.py; the task is described in
docs/stack.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from envs.simulation import grasp
from envs.simulation.engine import OBJECT, SUPPORT
from envs.tasks.pick_place import Picking
from envs.tasks.registry import register_task
from envs.tasks.shapes import SUPPORT as SUPPORT_COLOUR
from envs.tasks.shapes import Shape, make_cube_shape
from envs.tasks.task import Outcome
from envs.world import Moment, Scene, World
from td3_robot.errors import not_none


@register_task("stack")
@dataclass(frozen=True)
class Stack(Picking):
    """The constants of the task; its values live in configs/tasks/stack.yaml. See `Picking`.

    The scene further holds `support` (3,), where the other cube is; the goal is one side above it
    wherever it goes. `yaw` and `support_yaw` () say by how much the cubes are turned at first about
    the vertical [rad], `contact_depth` () how deep a finger that came from above is in the top of
    one [m], and `settled` () whether both are at rest and nothing grasps them.

    Attributes:
        level: how much higher or lower than on the other cube the cube may be to count as on it
            [m].
        rest_speed: below which a cube is at rest [m/s].
        placing: how near to the other's middle, horizontally, the held cube is let go [m].
        clear: by how much the pads are wider than the cube before the hand goes up from it [m].
        stacked_weight: bonus for success.
    """

    level: float
    rest_speed: float
    placing: float
    clear: float
    stacked_weight: float

    cubes = (OBJECT, SUPPORT)
    memory_keys = (*Picking.memory_keys, SUPPORT, "settled")

    @property
    def criterion(self) -> str:
        """See `Task.criterion`."""
        return f"the cube at rest on the other and let go, {1000 * self.tolerance:g} mm off its middle at most, at the end"

    # Scenes

    def sample_places(
        self, draw: Callable[..., Tensor], place: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """See `Picking.places`: all goals are over a cube on the table."""
        table = torch.full_like(draw(), self.cube / 2.0)
        return place(table), place(table + self.cube)

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """See `Picking.candidates`."""
        scene = super().sample_scenes(world, count, generator)
        turns = torch.rand(2, len(scene["goal"]), generator=generator, device=world.device)
        yaw, support_yaw = 0.5 * math.pi * turns
        scene |= {
            "yaw": yaw,
            "support_yaw": support_yaw,
            SUPPORT: scene["goal"] - self._compute_lift(scene),
        }
        return {
            **scene,
            "contact_depth": torch.zeros_like(yaw),
            "settled": torch.ones_like(scene["held"]),
        }

    def advance(self, world: World, before: Moment, after: Moment) -> Moment:
        """See `Task.advance`: whether the cubes have come to rest."""
        ways = [
            torch.linalg.vector_norm(after.scene[name] - before.scene[name], dim=1)
            for name in self.cubes
        ]
        grasped = after.scene.get(
            "pressed", after.scene["held"]
        )  # engines with contacts know better
        settled = (torch.maximum(*ways) < self.rest_speed * self.dt) & ~grasped
        return self.sense(world, replace(after, scene={**after.scene, "settled": settled}))

    def sense(self, world: World, moment: Moment) -> Moment:
        """See `Task.sense`: the goal is on the other cube wherever that is seen."""
        scene = moment.scene
        return replace(moment, scene={**scene, "goal": scene[SUPPORT] + self._compute_lift(scene)})

    def _compute_lift(self, scene: Scene) -> Tensor:
        """(3,) from a cube on the table to one that is on it [m]."""
        return scene["goal"].new_tensor([0.0, 0.0, self.cube])

    # What it is led to and paid for

    def _is_on(self, scene: Scene, within: Tensor | float) -> Tensor:
        """(B,) whether the cube is on the other, or as good as, within a horizontal distance of its
        middle [m].
        """
        off = scene[OBJECT] - scene["goal"]
        return (torch.linalg.vector_norm(off[:, :2], dim=1) < within) & (
            off[:, 2].abs() < self.level
        )

    def is_placed(self, scene: Scene) -> Tensor:
        """See `Picking.placed`: one that is held has to be nearer to the middle than one that lies
        there.
        """
        within = torch.where(scene["held"], self.placing, self.tolerance)
        return self._is_on(scene, within)

    def compute_approach_vector(self, world: World, moment: Moment) -> Tensor:
        """(B, 3) see `Picking.way`; nowhere while the placed cube is let go, and then up [m]."""
        scene, hand = moment.scene, not_none(world.model.hand)
        apart = grasp.compute_gap(hand, moment.state.gripper) > self.cube + self.clear
        over = scene[OBJECT][:, 2] + self.compute_tcp_height(world) - self.cube / 2.0 + self.hover
        rise = torch.where(apart & ~scene["held"], over - moment.tcp[:, 2], 0.0)
        up = torch.nn.functional.pad(rise[:, None], (2, 0))
        return torch.where(
            self.is_placed(scene)[:, None], up, super().compute_approach_vector(world, moment)
        )

    def compute_outcome(self, world: World, moment: Moment, action: Tensor) -> Outcome:
        """See `Picking.outcome`, and a bonus for success."""
        outcome, scene = super().compute_outcome(world, moment, action), moment.scene
        success = self._is_on(scene, self.tolerance) & scene["settled"]
        stacked = self.stacked_weight * success.to(action.dtype)
        return replace(outcome, success=success, terms={**outcome.terms, "stacked": stacked})

    def make_shapes(self, world: World, moment: Moment) -> list[Shape]:
        """The goal and both cubes."""
        other = make_cube_shape(moment.scene, self.cube, SUPPORT, SUPPORT_COLOUR)
        return [*super().make_shapes(world, moment), other]

    def replace_goal(self, world: World, moment: Moment, goal: Tensor) -> Moment:
        """See `Task.replace_goal`; the other cube is below it."""
        return replace(
            moment,
            scene={**moment.scene, "goal": goal, SUPPORT: goal - self._compute_lift(moment.scene)},
        )

    def move_goal(self, world: World, moment: Moment, goal: Tensor) -> Moment:
        """See `Task.move_goal`; the other cube stays on the table."""
        return self.replace_goal(
            world, moment, torch.cat((goal[:, :2], moment.scene["goal"][:, 2:]), 1)
        )
