"""Stack: put one cube onto another and release it, in the MuJoCo engine.

Success is the cube at rest on the other, which was not pushed far, and released at the end of the
episode; nothing ends early. Further thresholds are those of ManiSkill's StackCube but for
`tolerance`, which there is 33 mm for the same cubes
(https://github.com/haosulab/ManiSkill/blob/main/mani_skill/envs/tasks/tabletop/stack_cube.py). How
cubes move in the kinematic engine is in envs/simulation/grasp.py and kinematic.py; the task is
described in docs/reference/tasks/stack.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from envs.config.env_options import KINEMATIC, MUJOCO
from envs.simulation import grasp
from envs.simulation.engine import OBJECT, SUPPORT
from envs.tasks.measures import Measure
from envs.tasks.pick_place import Picking
from envs.tasks.registry import register_task
from envs.tasks.shapes import SUPPORT as SUPPORT_COLOUR
from envs.tasks.shapes import Shape, make_cube_shape
from envs.tasks.task import Outcome
from envs.world import Moment, Scene, World
from td3_robot.errors import not_none
from td3_robot.vec_env import draw_uniform


@register_task("stack")
@dataclass(frozen=True)
class Stack(Picking):
    """The task `stack`; the values of its constants are in configs/tasks/stack.yaml.

    The scene also holds `support` (3,), the position of the other cube, one side below the goal;
    `support_start` (3,), where the episode put it; `yaw` and `support_yaw` (), the initial turns of
    the cubes about the vertical [rad]; `contact_depth` (), the depth of a finger in the top of a
    cube [m]; and `settled` (), whether both cubes are at rest and not grasped.

    Attributes:
        level: tolerance of the height of a cube that lies on the other [m].
        rest_speed: speed below which a cube is at rest [m/s].
        placing: horizontal distance to the other's middle at which the cube is released [m].
        clear: gap of the pads beyond the cube's side before the hand rises [m].
        stacked_weight: bonus for success.
        shove: distance of the other cube from its start beyond which nothing is a success [m].
        berth: horizontal distance that a held cube keeps from the other while it is too low to
            pass over it [m].
        over: gap between the cubes from which on it is high enough [m].
    """

    level: float
    rest_speed: float
    placing: float
    clear: float
    stacked_weight: float
    shove: float
    berth: float
    over: float

    keeps_goal_height = True  # the other cube stays on the table
    cubes = (OBJECT, SUPPORT)
    engines = (MUJOCO, KINEMATIC)
    memory_keys = (*Picking.memory_keys, SUPPORT, "support_start", "settled")
    measures = (
        Measure("support_moved_m", "support_moved", "last", "quantiles", "lower cube moved", "mm"),
    )

    @property
    def criterion(self) -> str:
        """The condition of success, in words."""
        return (
            "the cube at rest on the other and let go, "
            f"{1000 * self.tolerance:g} mm off its middle at most, at the end; "
            f"the other moved by {1000 * self.shove:g} mm at most"
        )

    # Scenes

    def sample_places(
        self, draw: Callable[..., Tensor], place: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Sample cubes on the table, and goals on top of other cubes there."""
        table = torch.full_like(draw(), self.cube / 2.0)
        return place(table), place(table + self.cube)

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """Sample scenes as `Picking` does, with two cubes on the table."""
        scene = super().sample_scenes(world, count, generator)
        turns = draw_uniform(generator, 2, len(scene["goal"]))
        yaw, support_yaw = 0.5 * math.pi * turns
        support = scene["goal"] - self._compute_lift(scene)
        return {
            **scene,
            "yaw": yaw,
            "support_yaw": support_yaw,
            SUPPORT: support,
            "support_start": support.clone(),
            "contact_depth": torch.zeros_like(yaw),
            "settled": torch.ones_like(scene["held"]),
        }

    def advance(self, world: World, before: Moment, after: Moment) -> Moment:
        """Return the moment after a step with `settled` and the goal up to date."""
        distances = [
            torch.linalg.vector_norm(after.scene[name] - before.scene[name], dim=1)
            for name in self.cubes
        ]
        # Engines with contacts know better what is grasped.
        grasped = after.scene.get("pressed", after.scene["held"])
        settled = (torch.maximum(*distances) < self.rest_speed * self.dt) & ~grasped
        return self.sense(world, replace(after, scene={**after.scene, "settled": settled}))

    def sense(self, world: World, moment: Moment) -> Moment:
        """Return the moment with the goal on top of the other cube's measured position."""
        scene = moment.scene
        return replace(moment, scene={**scene, "goal": scene[SUPPORT] + self._compute_lift(scene)})

    def _compute_lift(self, scene: Scene) -> Tensor:
        """Return the displacement (3,) from a cube to one on top of it [m]."""
        return scene["goal"].new_tensor([0.0, 0.0, self.cube])

    # Approach and reward

    def _is_on(self, scene: Scene, within: Tensor | float) -> Tensor:
        """Return whether the cube is on the other, within a horizontal distance of its middle [m],
        (B,) bool.
        """
        off = scene[OBJECT] - scene["goal"]
        return (torch.linalg.vector_norm(off[:, :2], dim=1) < within) & (
            off[:, 2].abs() < self.level
        )

    def is_placed(self, scene: Scene) -> Tensor:
        """Return whether the cube is on the other, (B,) bool; a held cube has to be nearer to the
        middle than a released one.
        """
        within = torch.where(scene["held"], self.placing, self.tolerance)
        return self._is_on(scene, within)

    def compute_approach_vector(self, world: World, moment: Moment) -> Tensor:
        """Return the displacement (B, 3) of the TCP to its next target [m].

        It is zero while the placed cube is released, then up; else it is that of `Picking`.
        """
        scene = moment.scene
        hand = not_none(world.model.hand)
        apart = grasp.compute_gap(hand, moment.state.gripper) > self.cube + self.clear
        over = scene[OBJECT][:, 2] + self.compute_tcp_height(world) - self.cube / 2.0 + self.hover
        rise = torch.where(apart & ~scene["held"], over - moment.tcp[:, 2], 0.0)
        up = torch.nn.functional.pad(rise[:, None], (2, 0))
        return torch.where(
            self.is_placed(scene)[:, None], up, super().compute_approach_vector(world, moment)
        )

    def compute_carrying_vector(self, way: Tensor) -> Tensor:
        """Return the displacement (B, 3) of a held cube to its next target [m].

        It is that of `Picking`, except that a cube that is too low to pass over the other stays
        outside of `berth`.

        Args:
            way: (B, 3) displacement of the cube to the goal [m].
        """
        aside = torch.linalg.vector_norm(way[:, :2], dim=1)
        low = (2.0 + way[:, 2] / self.over).clamp(0.0, 1.0)  # 1 up to a gap of `over`, 0 from twice
        off = (4.0 * aside / self.berth - 1.0).clamp(0.0, 1.0)  # 0 where it is about to be put down
        nearer = 1.0 - low * off * self.berth / aside.clamp_min(1e-6)
        across = way[:, :2] * nearer[:, None]
        return torch.cat((across, super().compute_carrying_vector(way)[:, 2:]), 1)

    def compute_outcome(self, world: World, moment: Moment, action: Tensor) -> Outcome:
        """Return the outcome of `Picking` with a bonus for success."""
        outcome = super().compute_outcome(world, moment, action)
        scene = moment.scene
        moved = torch.linalg.vector_norm(scene[SUPPORT] - scene["support_start"], dim=1)
        success = self._is_on(scene, self.tolerance) & scene["settled"] & (moved < self.shove)
        stacked = self.stacked_weight * success.to(action.dtype)
        terms = {**outcome.terms, "stacked": stacked}
        measures = {**outcome.measures, "support_moved": moved}
        return replace(outcome, success=success, terms=terms, measures=measures)

    def make_shapes(self, world: World, moment: Moment) -> list[Shape]:
        """List the shapes of the goal and both cubes."""
        other = make_cube_shape(moment.scene, self.cube, SUPPORT, SUPPORT_COLOUR)
        return [*super().make_shapes(world, moment), other]

    def replace_goal(self, world: World, moment: Moment, goal: Tensor) -> Moment:
        """Return the moment with other goals (B, g) and the other cube below them, as far from its
        start as it was.
        """
        old = moment.scene
        support = goal - self._compute_lift(old)
        start = support + (old["support_start"] - old[SUPPORT])
        return replace(
            moment, scene={**old, "goal": goal, SUPPORT: support, "support_start": start}
        )
