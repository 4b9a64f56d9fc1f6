"""Reach a point among obstacles without contact with them, the ground or the arm itself.

Success is the TCP within `tolerance` of the goal at the end of the episode. Contact ends the
episode immediately, without success. Scenes are sampled with a detour that is known to be free, see
envs/planning/obstacle_scenes.py, which is then dropped; a policy observes a planned path, see
envs/planning/motion_planner.py.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from envs import kinematics
from envs.collision import Nearest, Obstacles, clearance, nearest
from envs.controllers.follow_solution import compute_joint_move, select_waypoint
from envs.controllers.reactive import compute_reactive_velocity
from envs.kinematics.inverse import solve_pose
from envs.planning import obstacle_scenes as scenes
from envs.planning.contact_check import MARGIN, is_free
from envs.planning.motion_planner import plan_path
from envs.simulation.engine import SimState
from envs.tasks.layout import Column
from envs.tasks.reach import Reach
from envs.tasks.registry import register_task
from envs.tasks.shapes import Shape, make_obstacle_shapes, make_path_shape
from envs.tasks.task import Outcome
from envs.world import GROUND, Moment, Scene, World, get_obstacles
from td3_robot.errors import ConfigError
from td3_robot.vec_env import draw_normal, draw_uniform

ROUNDS = 20  # of sampling before giving up; one is enough for most arms
DRAWN = 8  # points of a leg of the drawn path
AT_VIA = 0.15  # distance of every joint from via below which the path continues [rad]


@register_task("reach_avoid")
@dataclass(frozen=True)
class ReachAvoid(Reach):
    """The task `reach_avoid`; the values of its constants are in configs/tasks/reach_avoid.yaml.

    Attributes:
        sight: unit of observed obstacles [m].
        repulsion: distance at which nearness has fallen to 1/e [m].
        margin: least distance of obstacles from the arm at its start and solution [m].
        path_margin: least distance of obstacles from the arm on the detour [m].
        path_time: longest duration of the detour with every joint at full speed [s].
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
    controllers = (*Reach.controllers, "ik")
    move_gain = 6.0
    plan_keys = ("via", "solution", "passed")
    memory_keys = ("goal", "spheres", "boxes", "walls", "distance", "gradient", *plan_keys)

    def list_columns(self, world: World) -> list[Column]:
        """List the columns of `observe`."""
        n = len(world.model.qdlim)
        proximity = [
            Column("nearness", len(world.capsules.links) + 1),
            Column("closing", len(find_moving_links(world))),
            Column("push", len(find_gradient_columns(world))),
        ]
        controllers = [Column("reactive", n, True), Column("way", n, True)]
        controllers += [Column("way_left", 1, True)]
        slots = {
            "spheres": 5 * scenes.SPHERES,
            "boxes": 9 * scenes.BOXES,
            "walls": 5 * scenes.WALLS,
        }
        obstacles = [Column(name, width) for name, width in slots.items()]
        return [*super().list_columns(world), *proximity, *controllers, *obstacles]

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
        clear = float(clearance(world.capsules, world.home[None], ground=GROUND))
        raise ConfigError(
            f"robot {world.robot.name!r}: no scene found in {ROUNDS} x {count} draws; its "
            f"clearance at home is {clear:.3f} m, that of starts must be more than {MARGIN:g} m"
        )

    def draw(
        self, world: World, count: int, generator: torch.Generator
    ) -> tuple[scenes.Detour, Obstacles]:
        """Sample obstacles that block the straight motion, and detours that they leave free."""
        solution = world.random_q(count, generator)
        solution = solution[
            world.in_workspace(kinematics.fkine(world.model.chain, solution)[:, :3, 3])
        ]
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

    def sense(self, world: World, moment: Moment) -> Moment:
        """Return the moment with `distance` (B, L + 1) of each link and of the arm to itself [m],
        and its `gradient` (B, L + 1, n) [m/rad].
        """
        found = nearest(
            world.capsules, moment.state.q, moment.obstacles, GROUND, frames=moment.frames
        )
        return replace(
            moment, scene={**moment.scene, "distance": found.distance, "gradient": found.gradient}
        )

    def find_nearest(self, world: World, moment: Moment) -> Nearest:
        """Return the distances that `sense` found."""
        return Nearest(moment.scene["distance"], moment.scene["gradient"])

    def advance(self, world: World, before: Moment, after: Moment) -> Moment:
        """Return the moment after a step with `passed` up to date."""
        at_via = (after.state.q - after.scene["via"]).abs().amax(1) < AT_VIA
        return replace(after, scene={**after.scene, "passed": after.scene["passed"] | at_via})

    # Observation

    def observe(self, world: World, moment: Moment) -> Tensor:
        """Return the observation (B, o_dim).

        Its columns are those of `Reach`; nearness, closing and push, see `_observe_proximity`;
        reactive, the action of the `reactive` controller; way, the action that follows the path;
        way_left, the duration of the rest of the path with every joint at full speed [s]; and the
        slots of obstacles, zero if empty: spheres as centre - tcp and radius [sight], boxes as
        centre - tcp and half of each side [sight] and cosine and sine of twice the yaw, walls as
        normal and distance of the TCP [sight], each followed by a 1.
        """
        columns = (
            super().observe(world, moment),
            *self._observe_proximity(world, moment),
            self._observe_reactive(world, moment),
            *self._observe_path(world, moment),
            *self._observe_obstacles(moment),
        )
        return torch.cat(columns, 1)

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

    def _observe_path(self, world: World, moment: Moment) -> tuple[Tensor, Tensor]:
        """Compute way (B, n) in [-1, 1] and way_left (B, 1) [s]."""
        q = moment.state.q
        scene = moment.scene
        waypoint = select_waypoint(scene)
        legs = torch.stack((waypoint - q, scene["solution"] - waypoint)).abs()
        left = (legs / world.model.qdlim).amax(2).sum(0)[:, None]
        return compute_joint_move(world.model, q, waypoint, self.move_gain), left

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
        around = make_obstacle_shapes(moment.obstacles, world.workspace)
        return [
            *super().make_shapes(world, moment),
            *around,
            make_path_shape(T_be[:, :3, 3].tolist()),
        ]

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
