"""Sources of episodes: random starts and scenes, or a given one."""

from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from envs.planning.contact_check import find_free_start
from envs.simulation.engine import SimState, make_rest_state
from envs.tasks.registry import find_task_name
from envs.tasks.task import Task
from envs.world import Moment, Scene, World
from td3_robot.errors import ConfigError
from td3_robot.vec_env import draw_uniform, restore_generator


class Episodes(Protocol):
    """A source of episodes."""

    def seed(self, seed: int) -> None:
        """Seed the source: what is sampled from now on depends on the seed alone."""

    def draw(self, count: int) -> tuple[SimState, Scene]:
        """Sample the states and scenes that `count` episodes begin with."""
        ...

    def state_dict(self) -> dict:
        """Return everything that the next samples depend on."""
        ...

    def load_state_dict(self, state: dict) -> None:
        """Restore what `state_dict` returned, on any device."""


class OneEpisode:
    """A source of one and the same episode; an `Episodes`.

    Args:
        moment: the moment that it begins with.
        row: the arm of that moment.
    """

    def __init__(self, moment: Moment, row: int):
        only = moment.each(lambda x: x[row : row + 1])
        self._state = only.state
        self._scene = only.scene

    def seed(self, seed: int) -> None:
        """Do nothing: the episode does not depend on a seed."""

    def draw(self, count: int) -> tuple[SimState, Scene]:
        """Return `count` copies of the start."""

        def repeat(parts):
            return {name: x.expand(count, *x.shape[1:]).clone() for name, x in parts.items()}

        return SimState(**repeat(vars(self._state))), repeat(self._scene)

    def state_dict(self) -> dict:
        """Return nothing: nothing changes."""
        return {}

    def load_state_dict(self, state: dict) -> None:
        """Do nothing: there is no state."""


class RandomEpisodes:
    """Arms at rest around home, free of contact, and scenes that can be solved; an `Episodes`.

    Args:
        task, world: the task and its robot.
        reuse: use scenes more than once if the task's `fresh_scenes` says so, see `ScenePool`. The
            next scene of an arm then depends on how many the others have used: all arms take
            scenes from one sequence.
    """

    def __init__(self, task: Task, world: World, reuse: bool = False):
        self._task = task
        self._world = world
        self._generator = torch.Generator(world.device)
        self.pool = ScenePool(task, world, self._generator, task.fresh_scenes if reuse else 1.0)

    def seed(self, seed: int) -> None:
        """Seed starts and scenes, and drop the scenes that were sampled before."""
        self._generator.manual_seed(seed)
        self.pool.clear()

    def draw(self, count: int) -> tuple[SimState, Scene]:
        """Sample `count` arms at rest, free of contact, with the next scenes."""
        model = self._world.model
        noise = draw_uniform(self._generator, count, len(model.qdlim))
        scene = self.pool.draw(count)
        offset = (2.0 * noise - 1.0) * self._task.start_spread
        q = scene.pop("start") if "start" in scene else find_free_start(self._world, offset)
        state = make_rest_state(model, q.clamp(*model.qlim))
        if "start_gripper" in scene:
            state = replace(state, gripper=scene.pop("start_gripper"))
        return state, scene

    def state_dict(self) -> dict:
        """Return the scenes, the position among them and the state of the generator."""
        position = torch.tensor([self.pool.next, self.pool.handed_out])
        return {
            "pool": dict(self.pool.scenes),
            "pool_position": position,
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: dict) -> None:
        """Restore what `state_dict` returned, on any device."""
        self.pool.scenes = {name: x.to(self._world.device) for name, x in state["pool"].items()}
        self.pool.next, self.pool.handed_out = state["pool_position"].tolist()
        restore_generator(self._generator, state["generator"])


class ScenePool:
    """A pool of solvable scenes, sampled in large blocks, since most candidates fail.

    Scenes are used in order. At the end of the pool a new block replaces it. If `fresh`, the share
    of scenes that are new, is below 1, the pool of `FEWEST` to `MOST` scenes is shuffled and used
    again as long as that share is kept.
    """

    BLOCK = 8192
    FEWEST = 200
    MOST = 10_000
    PATIENCE = 10  # blocks in a row without a scene

    def __init__(self, task: Task, world: World, generator: torch.Generator, fresh: float = 1.0):
        self._task = task
        self._world = world
        self._generator = generator
        self._fresh = fresh
        self.clear()

    def clear(self) -> None:
        """Drop all scenes, so that the next ones depend on the generator alone."""
        self.scenes: Scene = {}
        self.next = 0  # index in the pool
        self.handed_out = 0  # in all

    def __len__(self) -> int:
        return len(next(iter(self.scenes.values()), ()))

    def draw(self, count: int) -> Scene:
        """Return the next `count` scenes.

        Raises:
            ConfigError: `PATIENCE` blocks of candidates in a row hold none.
        """
        while len(self) - self.next < count:
            if self._fresh < 1.0 and self._has_enough(count):
                self._shuffle()
            else:
                self._append_block()
        rows = slice(self.next, self.next + count)
        self.next += count
        self.handed_out += count
        return {key: value[rows] for key, value in self.scenes.items()}

    def _has_enough(self, count: int) -> bool:
        """Tell whether the pool holds `count` scenes and its share of fresh ones."""
        share = min(self.MOST, self._fresh * self.handed_out)
        return len(self) >= max(count, share, self.FEWEST)

    def _shuffle(self) -> None:
        order = torch.randperm(len(self), generator=self._generator, device=self._generator.device)
        self._keep(order)

    def _append_block(self) -> None:
        found = self._find_block()
        if self._fresh == 1.0:  # what was handed out is not used again
            self._keep(slice(self.next, None))
        if self.scenes:
            found = {key: torch.cat((self.scenes[key], found[key])) for key in found}
        self.scenes = found

    def _keep(self, rows: Tensor | slice) -> None:
        self.scenes = {key: value[rows] for key, value in self.scenes.items()}
        self.next = 0

    def _find_block(self) -> Scene:
        for _ in range(self.PATIENCE):
            found = self._task.sample_scenes(self._world, self.BLOCK, self._generator)
            if len(found["goal"]):
                return found
        raise ConfigError(
            f"task {find_task_name(self._task)!r}: {self.PATIENCE} calls of sample_scenes returned "
            f"no scene; {self._task.describe_lack(self._world)}"
        )
