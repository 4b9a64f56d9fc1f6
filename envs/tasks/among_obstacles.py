"""Reaching a point among obstacles: the common base of tasks where they stand and where they move.

Success is the TCP within `tolerance` of the goal at the end of the episode. Contact ends the
episode immediately, without success. Scenes are sampled with a motion that is known to be free,
which is then dropped.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from envs import kinematics
from envs.collision import Nearest, clearance, compute_nearest
from envs.controllers.reactive import compute_reactive_velocity
from envs.planning import obstacle_scenes as scenes
from envs.planning.contact_check import MARGIN, is_free
from envs.tasks.layout import Column
from envs.tasks.reach import Reach
from envs.tasks.shapes import Shape, make_obstacle_shapes
from envs.tasks.task import Outcome
from envs.world import GROUND, Moment, World
from td3_robot.vec_env import draw_normal, draw_uniform

ROUNDS = 20  # of sampling before giving up; one is enough for most arms


@dataclass(frozen=True)
class ReachAmongObstacles(Reach):
    """Base of the tasks `reach_avoid` and `reach_moving`.

    Attributes:
        sight: unit of observed obstacles [m].
        repulsion: distance at which nearness has fallen to 1/e [m].
        margin: least distance of obstacles from the arm at its start, and at its solution if they
            stand [m].
        path_margin: least distance of obstacles from the arm on the known motion [m].
        path_time: longest duration of that motion with every joint at full speed [s].
        detour: standard deviation of its via around the straight line, each joint [rad].
        spread: standard deviation of obstacles around what they block, each axis [m].
    """

    sight: float
    repulsion: float
    margin: float
    path_margin: float
    path_time: float
    detour: float
    spread: float

    needs_collision = True
    ends_early = True
    fresh_scenes = 0.1  # sampling a scene takes as long as about ten steps of its arm
    move_gain = 6.0  # of programs that follow a path [1/s]
    memory_keys = ("goal", "spheres", "boxes", "walls", "distance", "gradient")

    def list_columns(self, world: World) -> list[Column]:
        """List the columns of `observe`."""
        n = len(world.model.qdlim)
        proximity = [
            Column("nearness", len(world.capsules.links) + 1),
            Column("closing", len(find_moving_links(world))),
            Column("push", len(find_gradient_columns(world))),
        ]
        controllers = [Column("reactive", n, tells_goal=True), *self.list_path_columns(world)]
        slots = {
            "spheres": 5 * scenes.SPHERES,
            "boxes": 9 * scenes.BOXES,
            "walls": 5 * scenes.WALLS,
        }
        obstacles = [Column(name, width) for name, width in slots.items()]
        return [*super().list_columns(world), *proximity, *controllers, *obstacles]

    def list_path_columns(self, world: World) -> list[Column]:
        """List the columns of `observe_path`."""
        return []

    # Scenes

    def _draw_detour(
        self, world: World, solution: Tensor, generator: torch.Generator
    ) -> scenes.Detour:
        """Sample detours from around home to solutions (B, n) that are free without obstacles."""
        noise = draw_uniform(generator, *solution.shape)
        start = world.home + (2.0 * noise - 1.0) * self.start_spread
        aside = self.detour * draw_normal(generator, *solution.shape)
        via = torch.lerp(start, solution, draw_uniform(generator, len(solution), 1)) + aside
        detour = scenes.Detour(*(q.clamp(*world.model.qlim) for q in (start, via, solution)))
        detour = detour[detour.compute_duration(world) < self.path_time]
        detour = detour[is_free(world, torch.stack((detour.start, detour.solution))).all(0)]
        return detour[is_free(world, detour.sample_points()).all(0)]

    def _draw_solutions(self, world: World, count: int, generator: torch.Generator) -> Tensor:
        """Sample joint positions (N, n), at most `count`, with the TCP in the workspace."""
        solution = world.random_q(count, generator)
        tcp = kinematics.fkine(world.model.chain, solution)[:, :3, 3]
        return solution[world.in_workspace(tcp)]

    def _describe_lack(self, world: World, count: int, generator: torch.Generator) -> str:
        """Describe how far `count` further draws come, for a robot for which no scene was found."""
        solution = self._draw_solutions(world, count, generator)
        detour = self._draw_detour(world, solution, generator)
        clear = float(clearance(world.capsules, world.home[None], ground=GROUND))
        return (
            f"robot {world.robot.name!r}: no scene found in {ROUNDS} x {count} draws; of another "
            f"{count} positions {len(solution)} have the TCP in the workspace, and "
            f"{len(detour.start)} a free way there of less than {self.path_time:g} s (path_time); "
            f"its clearance at home is {clear:.3f} m, that of starts must be more than {MARGIN:g} m"
        )

    def sense(self, world: World, moment: Moment) -> Moment:
        """Return the moment with `distance` (B, L + 1) of each link and of the arm to itself [m],
        and its `gradient` (B, L + 1, n) [m/rad].
        """
        found = compute_nearest(
            world.capsules, moment.state.q, moment.obstacles, GROUND, frames=moment.frames
        )
        return replace(
            moment, scene={**moment.scene, "distance": found.distance, "gradient": found.gradient}
        )

    def find_nearest(self, world: World, moment: Moment) -> Nearest:
        """Return the distances that `sense` found."""
        return Nearest(moment.scene["distance"], moment.scene["gradient"])

    # Observation

    def observe(self, world: World, moment: Moment) -> Tensor:
        """Return the observation (B, o_dim).

        Its columns are those of `Reach`; nearness, closing and push, see `_observe_proximity`;
        reactive, the action of the `reactive` controller; those of `observe_path`; and the slots of
        obstacles, zero if empty: spheres as centre - tcp and radius [sight], boxes as centre - tcp
        and half of each side [sight] and cosine and sine of twice the yaw, walls as normal and
        distance of the TCP [sight], each followed by a 1.
        """
        columns = (
            super().observe(world, moment),
            *self._observe_proximity(world, moment),
            self._observe_reactive(world, moment),
            *self.observe_path(world, moment),
            *self._observe_obstacles(moment),
        )
        return torch.cat(columns, 1)

    def observe_path(self, world: World, moment: Moment) -> tuple[Tensor, ...]:
        """Return columns of a path, for tasks that plan one."""
        return ()

    def _observe_proximity(self, world: World, moment: Moment) -> tuple[Tensor, Tensor, Tensor]:
        """Compute nearness (B, L + 1), exp(-clearance / `repulsion`); for each of the moving links
        closing (B, k), its rate of change [1/s]; and push (B, m), the joint motion that reduces it
        fastest, times `repulsion`, of the joints that move the link.
        """
        near = self.find_nearest(world, moment)
        nearness = torch.exp(-near.distance.clamp(min=-self.repulsion) / self.repulsion)
        push = nearness[:, :, None] * near.gradient
        moving = world.index(*find_moving_links(world))
        pushed = world.index(*find_gradient_columns(world))
        closing = (
            -(push.index_select(1, moving) @ moment.state.qd[:, :, None])[:, :, 0] / self.repulsion
        )
        return nearness, closing, push.flatten(1).index_select(1, pushed)

    def _observe_reactive(self, world: World, moment: Moment) -> Tensor:
        """Compute the action (B, n) in [-1, 1] of the `reactive` controller."""
        return (
            compute_reactive_velocity(world.model, moment, self.find_nearest(world, moment))
            / world.model.qdlim
        )

    def _observe_obstacles(self, moment: Moment) -> list[Tensor]:
        obstacles = moment.obstacles
        tcp = moment.tcp[:, None]
        spheres, boxes, walls = obstacles.kinds
        cos_half = boxes[:, :, 6:7]  # of half the yaw
        sin_half = boxes[:, :, 9:]
        cos = cos_half * cos_half - sin_half * sin_half
        sin = 2.0 * cos_half * sin_half
        turn = torch.cat((cos * cos - sin * sin, 2.0 * cos * sin), 2)
        height = (walls[:, :, :3] * tcp).sum(2, keepdim=True) - walls[:, :, 3:]
        rows = (
            torch.cat(((spheres[:, :, :3] - tcp) / self.sight, spheres[:, :, 3:] / self.sight), 2),
            torch.cat(
                ((boxes[:, :, :3] - tcp) / self.sight, boxes[:, :, 3:6] / self.sight, turn), 2
            ),
            torch.cat((walls[:, :, :3], height / self.sight), 2),
        )
        flags = (flag[:, :, None].to(tcp.dtype) for flag in scenes.is_present(obstacles))
        return [torch.cat((row * flag, flag), 2).flatten(1) for row, flag in zip(rows, flags)]

    def make_shapes(self, world: World, moment: Moment) -> list[Shape]:
        """List the shapes of the goal and the obstacles."""
        around = make_obstacle_shapes(moment.obstacles, world.workspace)
        return [*super().make_shapes(world, moment), *around]

    # Reward

    def compute_outcome(self, world: World, moment: Moment, action: Tensor) -> Outcome:
        """Return the outcome of `Reach`; contact ends the episode."""
        return replace(
            super().compute_outcome(world, moment, action), terminated=moment.scene["clearance"] < 0
        )


def compute_goals(world: World, detour: scenes.Detour) -> Tensor:
    """Return the TCP's positions (B, 3) at the ends of detours [m]."""
    return kinematics.fkine(world.model.chain, detour.solution)[:, :3, 3]


def find_moving_links(world: World) -> list[int]:
    """List the columns of distances (B, L + 1) that the arm's motion changes: all but links that
    stand or turn in place.

    A link that turns in place is not quite round: a clearance of the Panda's link 1 changes by up
    to 5 cm a radian.
    """
    return [
        link
        for link, body in enumerate((*world.capsules.link_bodies, world.model.position_joints))
        if body > 1
    ]


def find_gradient_columns(world: World) -> list[int]:
    """List the elements of the distances' gradient, (L + 1) n, that are not always zero."""
    n = len(world.model.qdlim)
    capsules = world.capsules
    moved = [capsules.list_moving_joints(body) for body in capsules.link_bodies]
    moved.append(list(range(n)))  # of the arm against itself
    return [link * n + joint for link in find_moving_links(world) for joint in moved[link]]
