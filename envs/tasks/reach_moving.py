"""Reach a point among obstacles that move, without contact with them, the ground or the arm itself.

Spheres and boxes go back and forth on straight lines; walls stand. Scenes are sampled with a motion
of the arm that is known to be free, see envs/planning/moving_scenes.py, which is then dropped. A
policy sees no planned path: it would have to be planned again every few steps.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from envs.collision import Nearest, compute_nearest
from envs.controllers.guard import GuardConstants
from envs.planning import obstacle_scenes as scenes
from envs.planning.moving_scenes import Motion, Strokes, draw_moving_obstacles
from envs.tasks.among_obstacles import ROUNDS, ReachAmongObstacles, compute_goals, find_moving_links
from envs.tasks.layout import Column
from envs.tasks.registry import register_task
from envs.world import GROUND, Moment, Scene, World
from td3_robot.errors import ConfigError, not_none


@register_task("reach_moving")
@dataclass(frozen=True)
class ReachMoving(ReachAmongObstacles):
    """The task `reach_moving`; the values of its constants are in configs/tasks/reach_moving.yaml.

    Attributes:
        speed: least and greatest of obstacles [m/s].
        stroke: least and greatest length of the line on which one goes back and forth [m].
        crossing: earliest and latest time at which one passes the place where it blocks the arm
            [s].
        pace: mean share of the fastest joint's limit in the motion that is known to be free.
        wait: time for which obstacles keep clear of the arm's start [s].
        shows_velocity: whether the obstacles' velocities are known, to policies and programs.
    """

    speed: tuple[float, float]
    stroke: tuple[float, float]
    crossing: tuple[float, float]
    pace: float
    wait: float
    shows_velocity: bool

    controllers = (*ReachAmongObstacles.controllers, "replan")
    guard_constants = GuardConstants(share=1.0)
    memory_keys = (*ReachAmongObstacles.memory_keys, "sphere_velocities", "box_velocities", "drift")

    def list_columns(self, world: World) -> list[Column]:
        """List the columns of `observe`."""
        columns = super().list_columns(world)
        if not self.shows_velocity:
            return columns
        moving = [Column("drift", len(_find_approached_links(world)))]
        moving.append(Column("sphere_velocities", 3 * scenes.SPHERES))
        moving.append(Column("box_velocities", 3 * scenes.BOXES))
        return [*columns, *moving]

    # Scenes

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """Sample scenes with a motion that is free of the obstacles.

        `strokes` (B, M, 2, 3) are the ends of the lines on which spheres, then boxes, move [m];
        `stroke_rates` and `stroke_phases` (B, M) are those of `Strokes`.

        Raises:
            ConfigError: none was found.
        """
        duration = self.horizon * self.dt
        motion = Motion(self.speed, self.stroke, self.crossing, self.pace, self.wait, duration)
        margins = (self.margin, self.path_margin)
        for _ in range(ROUNDS):
            solution = self._draw_solutions(world, count, generator)
            detour = self._draw_detour(world, solution, generator)
            detour, obstacles, strokes = draw_moving_obstacles(
                world, detour, motion, margins, self.spread, generator
            )
            if len(detour.start):
                scene = {
                    "goal": compute_goals(world, detour),
                    "start": detour.start,
                    **dict(zip(scenes.KINDS, obstacles.kinds)),
                    "strokes": strokes.ends,
                    "stroke_rates": strokes.rates,
                    "stroke_phases": strokes.phases,
                }
                return {**scene, **self._locate(scene, 0.0)}
        raise ConfigError(
            f"{self._describe_lack(world, count, generator)}; slower obstacles, or a smaller "
            "margin, leave more scenes"
        )

    def _locate(self, scene: Scene, time: float | Tensor) -> Scene:
        """Return obstacles and their velocities at a time since the episode began [s]."""
        strokes = Strokes(scene["strokes"], scene["stroke_rates"], scene["stroke_phases"])
        places, velocities = strokes.locate(time)
        if not self.shows_velocity:
            velocities = torch.zeros_like(velocities)
        counts = (scenes.SPHERES, scenes.BOXES)
        found = {}
        for name, place in zip(("spheres", "boxes"), places.split(counts, 1)):
            found[name] = torch.cat((place, scene[name][:, :, 3:]), 2)
        names = ("sphere_velocities", "box_velocities")
        return {**found, **dict(zip(names, velocities.split(counts, 1)))}

    def advance(self, world: World, before: Moment, after: Moment) -> Moment:
        """Move the obstacles."""
        time = self.dt * after.steps.to(after.state.q.dtype)[:, None]
        return replace(after, scene={**after.scene, **self._locate(after.scene, time)})

    def advance_known(self, world: World, before: Moment, after: Moment) -> Moment:
        """Move the obstacles as they are seen to move: nobody is shown where they turn round."""
        return self.predict(after, self.dt)

    def predict(self, moment: Moment, seconds: float | Tensor) -> Moment:
        """Return the moment with the obstacles a little later, as their velocities say."""
        then = moment.obstacles.move(seconds)
        scene = {**moment.scene, "spheres": not_none(then.spheres), "boxes": not_none(then.boxes)}
        return replace(moment, scene=scene)

    def sense(self, world: World, moment: Moment) -> Moment:
        """Return the moment with `distance`, `gradient` and `drift`, see `Nearest`."""
        found = compute_nearest(
            world.capsules, moment.state.q, moment.obstacles, GROUND, frames=moment.frames
        )
        known = {
            "distance": found.distance,
            "gradient": found.gradient,
            "drift": not_none(found.drift),
        }
        return replace(moment, scene={**moment.scene, **known})

    def find_nearest(self, world: World, moment: Moment) -> Nearest:
        """Return the distances that `sense` found."""
        scene = moment.scene
        return Nearest(scene["distance"], scene["gradient"], scene["drift"])

    # Observation

    def observe(self, world: World, moment: Moment) -> Tensor:
        """Return the observation (B, o_dim).

        Its columns are those of `ReachAmongObstacles`, and if velocities are known drift, the rate
        of change of nearness by the obstacles' motion alone, of each of the moving links [1/s], and
        the velocities of spheres and boxes [sight/s].
        """
        columns = [super().observe(world, moment)]
        if self.shows_velocity:
            near = self.find_nearest(world, moment)
            moving = world.index(*_find_approached_links(world))
            nearness = torch.exp(-near.distance.clamp(min=-self.repulsion) / self.repulsion)
            drift = -nearness * moment.scene["drift"] / self.repulsion
            columns.append(drift.index_select(1, moving))
            for name in ("sphere_velocities", "box_velocities"):
                columns.append(moment.scene[name].flatten(1) / self.sight)
        return torch.cat(columns, 1)


def _find_approached_links(world: World) -> list[int]:
    """List the columns of distances to obstacles that the arm's motion changes."""
    return find_moving_links(world)[:-1]  # the last is the arm's to itself
