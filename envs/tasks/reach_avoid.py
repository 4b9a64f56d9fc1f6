"""Reach a point among obstacles without contact with them, the ground or the arm itself.

Scenes are sampled with a detour that is known to be free, see envs/planning/obstacle_scenes.py,
which is then dropped; a policy observes a planned path, see envs/planning/motion_planner.py.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from envs import kinematics
from envs.collision import Obstacles
from envs.controllers.follow_solution import AT_VIA, compute_joint_move, select_waypoint
from envs.kinematics.inverse import solve_pose
from envs.planning import obstacle_scenes as scenes
from envs.planning.motion_planner import plan_path
from envs.simulation.engine import SimState
from envs.tasks.among_obstacles import ROUNDS, ReachAmongObstacles, compute_goals
from envs.tasks.layout import Column
from envs.tasks.registry import register_task
from envs.tasks.shapes import Shape, make_path_shape
from envs.world import Moment, Scene, World, get_obstacles
from td3_robot.errors import ConfigError

DRAWN = 8  # points of a leg of the drawn path


@register_task("reach_avoid")
@dataclass(frozen=True)
class ReachAvoid(ReachAmongObstacles):
    """The task `reach_avoid`; the values of its constants are in configs/tasks/reach_avoid.yaml."""

    controllers = (*ReachAmongObstacles.controllers, "ik")
    plan_keys = ("via", "solution", "passed")
    memory_keys = (*ReachAmongObstacles.memory_keys, *plan_keys)

    def list_path_columns(self, world: World) -> list[Column]:
        """List the columns of `observe_path`."""
        return [
            Column("way", len(world.model.qdlim), tells_goal=True),
            Column("way_left", 1, tells_goal=True),
        ]

    # Scenes

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """Sample scenes that have a free path, with the planned paths.

        Raises:
            ConfigError: none was found.
        """
        for _ in range(ROUNDS):
            detour, obstacles = self.draw(world, count, generator)
            if len(detour.start):
                scene = {
                    "goal": compute_goals(world, detour),
                    "start": detour.start,
                    **dict(zip(scenes.KINDS, obstacles.kinds)),
                }
                return {**scene, **self._plan_path(world, detour.start, scene)}
        raise ConfigError(self._describe_lack(world, count, generator))

    def draw(
        self, world: World, count: int, generator: torch.Generator
    ) -> tuple[scenes.Detour, Obstacles]:
        """Sample obstacles that block the straight motion, and detours that they leave free."""
        solution = self._draw_solutions(world, count, generator)
        detour = self._draw_detour(world, solution, generator)
        return scenes.draw_obstacles(
            world, detour, self.margin, self.path_margin, self.spread, generator
        )

    def plan_episode(self, world: World, state: SimState, scene: Scene) -> Scene:
        """Plan `via` and `solution` (B, n), the corner and the end of a path, see
        envs/planning/motion_planner.py, and `passed` (B,), whether the corner has been reached.
        """
        return self._plan_path(world, state.q, scene)

    def _plan_path(self, world: World, q: Tensor, scene: Scene) -> Scene:
        via, solution = plan_path(world, q, scene["goal"], get_obstacles(scene))
        return {
            "via": via,
            "solution": solution,
            "passed": torch.zeros(len(q), dtype=torch.bool, device=q.device),
        }

    def advance(self, world: World, before: Moment, after: Moment) -> Moment:
        """Return the moment after a step with `passed` up to date."""
        at_via = (after.state.q - after.scene["via"]).abs().amax(1) < AT_VIA
        return replace(after, scene={**after.scene, "passed": after.scene["passed"] | at_via})

    # Observation

    def observe_path(self, world: World, moment: Moment) -> tuple[Tensor, Tensor]:
        """Return way (B, n) in [-1, 1], the action that follows the path, and way_left (B, 1), the
        duration of the rest of the path with every joint at full speed [s].
        """
        q = moment.state.q
        scene = moment.scene
        waypoint = select_waypoint(scene)
        legs = torch.stack((waypoint - q, scene["solution"] - waypoint)).abs()
        left = (legs / world.model.qdlim).amax(2).sum(0)[:, None]
        return compute_joint_move(world.model, q, waypoint, self.move_gain), left

    def replace_goal(self, world: World, moment: Moment, goal: Tensor) -> Moment:
        """Return the moment with other goals (B, 3).

        The path to another goal is straight, to joint positions near those of the arm.
        """
        old = moment.scene
        q = moment.state.q
        same = (goal == old["goal"]).all(1)
        found = solve_pose(world.model.chain, world.model.qlim, q, goal)[0]
        scene = {"goal": goal, "solution": torch.where(same[:, None], old["solution"], found)}
        return replace(moment, scene={**old, **scene, "passed": (old["passed"] > 0) | ~same})

    def make_shapes(self, world: World, moment: Moment) -> list[Shape]:
        """List the shapes of the goal, the obstacles and the rest of the TCP's path."""
        q = moment.state.q[:1]
        corner = select_waypoint(moment.scene)[:1]
        end = moment.scene["solution"][:1]
        share = torch.linspace(0, 1, DRAWN, device=q.device, dtype=torch.float32)[:, None]
        T_be = kinematics.fkine(
            world.model.chain,
            torch.cat((torch.lerp(q, corner, share), torch.lerp(corner, end, share))),
        )
        return [*super().make_shapes(world, moment), make_path_shape(T_be[:, :3, 3].tolist())]
