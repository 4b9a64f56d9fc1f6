"""Reach a point among obstacles and touch nothing: neither them, nor the ground, nor the arm
itself.

Success is the TCP within `tolerance` of the goal at the end of the episode. Contact ends the
episode at once, without success. Scenes are drawn with a path that is known to be free, see
envs/planning/obstacle_scenes.py, and then forgotten; the way that a policy is shown is one that was
looked for, see envs/planning/motion_planner.py.
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

ROUNDS = 20  # of drawing before giving up; for most arms one does
DRAWN = 8  # points of a leg of the way
AT_VIA = 0.15  # the way goes on to the solution when every joint is this near to via [rad]


@register_task("reach_avoid")
@dataclass(frozen=True)
class ReachAvoid(Reach):
    """The constants of the task; its values live in configs/tasks/reach_avoid.yaml. Those of
    `Reach`, and:

    Attributes:
        sight: unit in which the observation gives the obstacles [m].
        repulsion: distance at which nearness has fallen to 1/e [m].
        margin: obstacles are further than this from the arm at its start and at the solution [m].
        path_margin: and further than this all along the known way [m].
        path_time: longest that this way may take with every joint at full speed [s].
        detour: standard deviation of its via around the straight way, each joint [rad].
        spread: of obstacles around what they are in the way of, each axis [m].
    """

    sight: float
    repulsion: float
    margin: float
    path_margin: float
    path_time: float
    detour: float
    spread: float

    needs_collision = ends_early = True
    fresh_scenes = 0.1  # a scene takes as long to draw as some ten steps of its arm
    controllers = (*Reach.controllers, "ik")
    move_gain = 6.0
    plan_keys = ("via", "solution", "passed")
    memory_keys = ("goal", "spheres", "boxes", "walls", "distance", "gradient", *plan_keys)

    def list_columns(self, world: World) -> list[Column]:
        """See `observe`."""
        moving, pushed = len(find_moving_links(world)), len(find_gradient_columns(world))
        sensed = [
            Column("nearness", len(world.capsules.links) + 1),
            Column("closing", moving),
            Column("push", pushed),
        ]
        slots = {
            "spheres": 5 * scenes.SPHERES,
            "boxes": 9 * scenes.BOXES,
            "walls": 5 * scenes.WALLS,
        }
        shown, n = [Column(name, width) for name, width in slots.items()], len(world.model.qdlim)
        led = [Column("reactive", n, True), Column("way", n, True), Column("way_left", 1, True)]
        return [*super().list_columns(world), *sensed, *led, *shown]

    # Scenes

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """Scenes that have a free way, and with each what `begun` finds for it.

        Raises:
            ConfigError: none was found.
        """
        for _ in range(ROUNDS):
            detour, obstacles = self.draw(world, count, generator)
            if len(detour.start):
                scene = {
                    "goal": compute_goals(world, detour),
                    "start": detour.start,
                    **vars(obstacles),
                }
                return {**scene, **self._plan_path(world, detour.start, scene)}
        clear = float(clearance(world.capsules, world.home[None], ground=GROUND))
        raise ConfigError(
            f"robot {world.robot.name!r}: no scene found in {ROUNDS} x {count} draws; its clearance at home is "
            f"{clear:.3f} m, that of starts must be more than {MARGIN:g} m"
        )

    def draw(
        self, world: World, count: int, generator: torch.Generator
    ) -> tuple[scenes.Detour, Obstacles]:
        """Obstacles that stand in the way, and a detour that they leave free: that there is one is
        all that a scene tells of it.
        """
        solution = world.random_q(count, generator)
        solution = solution[
            world.in_workspace(kinematics.fkine(world.model.chain, solution)[:, :3, 3])
        ]
        detour = self._draw_detour(world, solution, generator)
        return scenes.draw_obstacles(
            world, detour, self.margin, self.path_margin, self.spread, generator
        )

    def plan_episode(self, world: World, state: SimState, scene: Scene) -> Scene:
        """`via` and `solution` (B, n), the corner and the end of a way, see
        envs/planning/motion_planner.py; and `passed` (B,), whether the corner is behind.
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
        """Ways from around home to those of the configurations (B, n) to which one was found that
        is free without obstacles.
        """
        like = {"device": world.device, "generator": generator}
        noise = torch.rand(solution.shape, **like)
        start = world.home + (2.0 * noise - 1.0) * self.start_spread
        aside = self.detour * torch.randn(solution.shape, **like)
        via = torch.lerp(start, solution, torch.rand(len(solution), 1, **like)) + aside
        detour = scenes.Detour(*(q.clamp(*world.model.qlim) for q in (start, via, solution)))
        detour = detour[detour.compute_duration(world) < self.path_time]
        detour = detour[is_free(world, torch.stack((detour.start, detour.solution))).all(0)]
        return detour[is_free(world, detour.sample_points()).all(0)]

    def sense(self, world: World, moment: Moment) -> Moment:
        """Look for what is near: `distance` (B, L + 1) of each link and of the arm to itself [m],
        and its `gradient` (B, L + 1, n) [m/rad].
        """
        found = nearest(
            world.capsules, moment.state.q, moment.obstacles, GROUND, frames=moment.frames
        )
        return replace(
            moment, scene={**moment.scene, "distance": found.distance, "gradient": found.gradient}
        )

    def find_nearest(self, world: World, moment: Moment) -> Nearest:
        """What was found as the moment began."""
        return Nearest(moment.scene["distance"], moment.scene["gradient"])

    def advance(self, world: World, before: Moment, after: Moment) -> Moment:
        """Whether the way's corner is behind."""
        there = (after.state.q - after.scene["via"]).abs().amax(1) < AT_VIA
        return replace(after, scene={**after.scene, "passed": after.scene["passed"] | there})

    # Observation

    def observe(self, world: World, moment: Moment) -> Tensor:
        """(B, o_dim): what `Reach.observe` has; nearness, closing and push, see `_near`; reactive,
        the action of the `compute_reactive_velocity` controller; way, the action that goes along the way, and
        way_left, how long that takes yet with every joint at full speed [s]; then the obstacles,
        zeros where there is none: spheres as centre - tcp and radius [sight], boxes as centre - tcp
        and half of each side [sight] and cosine and sine of twice the yaw, walls as normal and
        distance of the TCP [sight]; after each a 1, it is there.
        """
        led = (self._observe_reactive(world, moment), *self._observe_path(world, moment))
        shown = (*self._observe_proximity(world, moment), *led, *self._show_obstacles(moment))
        return torch.cat((super().observe(world, moment), *shown), 1)

    def _observe_proximity(self, world: World, moment: Moment) -> tuple[Tensor, Tensor, Tensor]:
        """nearness (B, L + 1), exp(-clearance / `repulsion`); and for each of the `find_moving_links`
        closing (B, k), how fast that rises [1/s], and push (B, m), the joint motion by which it
        falls fastest, times `repulsion`, of the joints that move the link.
        """
        near = self.find_nearest(world, moment)
        nearness = torch.exp(-near.distance.clamp(min=-self.repulsion) / self.repulsion)
        push = nearness[:, :, None] * near.gradient
        moving, pushed = (
            world.index(*places(world)) for places in (find_moving_links, find_gradient_columns)
        )
        closing = (
            -(push.index_select(1, moving) @ moment.state.qd[:, :, None])[:, :, 0] / self.repulsion
        )
        return nearness, closing, push.flatten(1).index_select(1, pushed)

    def _observe_reactive(self, world: World, moment: Moment) -> Tensor:
        """(B, n) in [-1, 1]."""
        return (
            compute_reactive_velocity(world.model, moment, self.find_nearest(world, moment))
            / world.model.qdlim
        )

    def _observe_path(self, world: World, moment: Moment) -> tuple[Tensor, Tensor]:
        """way (B, n) in [-1, 1] and way_left (B, 1) [s]."""
        q, scene, qdlim = moment.state.q, moment.scene, world.model.qdlim
        following = select_waypoint(scene)
        legs = torch.stack((following - q, scene["solution"] - following)).abs() / qdlim
        return compute_joint_move(world.model, q, following, self.move_gain), legs.amax(2).sum(0)[
            :, None
        ]

    def _show_obstacles(self, moment: Moment) -> list[Tensor]:
        obstacles, tcp = moment.obstacles, moment.tcp[:, None]
        spheres, boxes, walls = obstacles.kinds
        cos, sin = boxes[:, :, 6:7], boxes[:, :, 9:]  # of half the yaw
        cos, sin = cos * cos - sin * sin, 2.0 * cos * sin  # of the yaw
        turn = torch.cat((cos * cos - sin * sin, 2.0 * cos * sin), 2)
        height = (walls[:, :, :3] * tcp).sum(2, keepdim=True) - walls[:, :, 3:]
        rows = (
            torch.cat(((spheres[:, :, :3] - tcp) / self.sight, spheres[:, :, 3:] / self.sight), 2),
            torch.cat(
                ((boxes[:, :, :3] - tcp) / self.sight, boxes[:, :, 3:6] / self.sight, turn), 2
            ),
            torch.cat((walls[:, :, :3], height / self.sight), 2),
        )
        there = (flag[:, :, None].to(tcp.dtype) for flag in scenes.is_present(obstacles))
        return [torch.cat((row * flag, flag), 2).flatten(1) for row, flag in zip(rows, there)]

    def replace_goal(self, world: World, moment: Moment, goal: Tensor) -> Moment:
        """See `Task.replace_goal`. To another goal the way is straight, to joint positions near to
        those of the arm.
        """
        old, q = moment.scene, moment.state.q
        same = (goal == old["goal"]).all(1)
        there = solve_pose(world.model.chain, world.model.qlim, q, goal)[0]
        scene = {"goal": goal, "solution": torch.where(same[:, None], old["solution"], there)}
        return replace(moment, scene={**old, **scene, "passed": (old["passed"] > 0) | ~same})

    def make_shapes(self, world: World, moment: Moment) -> list[Shape]:
        """The goal, the obstacles, and where the TCP goes on what is left of the way."""
        q, scene = moment.state.q[:1], moment.scene
        corner, end = select_waypoint(scene)[:1], scene["solution"][:1]
        share = torch.linspace(0, 1, DRAWN, device=q.device)[:, None]
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
        """That of `Reach`; contact ends the episode."""
        return replace(
            super().compute_outcome(world, moment, action), terminated=moment.scene["clearance"] < 0
        )


def compute_goals(world: World, detour: scenes.Detour) -> Tensor:
    """(B, 3) where the TCP is at the end [m]."""
    return kinematics.fkine(world.model.chain, detour.solution)[:, :3, 3]


def find_moving_links(world: World) -> list[int]:
    """Which columns of a clearance (B, L + 1) change by the arm's motion: all but links that stand
    or turn in place.

    What turns in place is not quite round: a clearance of the Panda's link 1 changes by up to 5 cm
        a radian.
    """
    return [
        link
        for link, body in enumerate((*world.capsules.link_bodies, world.model.position_joints))
        if body > 1
    ]


def find_gradient_columns(world: World) -> list[int]:
    """Which of the (L + 1) n elements of a clearance's gradient, link by link, are not always
    zero.
    """
    n = len(world.model.qdlim)
    bodies = (*world.capsules.link_bodies, n)  # the last is the arm against itself
    return [link * n + joint for link in find_moving_links(world) for joint in range(bodies[link])]
