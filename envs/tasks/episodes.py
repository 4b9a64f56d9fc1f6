"""Where episodes begin: with random starts and scenes, or with one that is known."""

from typing import Protocol

import torch

from envs.planning.contact_check import find_free_start
from envs.simulation.engine import SimState, make_rest_state
from envs.tasks.task import Task
from envs.world import Moment, Scene, World
from td3_robot.errors import ConfigError
from td3_robot.vec_env import restore_generator


class Episodes(Protocol):
    """A source of episodes."""

    def seed(self, seed: int) -> None:
        """What is drawn from now on depends on this alone."""

    def draw(self, count: int) -> tuple[SimState, Scene]:
        """How `count` episodes begin."""
        ...

    def state_dict(self) -> dict:
        """All that what is drawn next depends on."""
        ...

    def load_state_dict(self, state: dict) -> None:
        """Take back what `state_dict` gave, on any device."""


class OneEpisode:
    """The same episode every time; an `Episodes`.

    Args:
        moment: that it begins with.
        row: which of the moment's arms.
    """

    def __init__(self, moment: Moment, row: int):
        only = moment.each(lambda x: x[row : row + 1])
        self._state, self._scene = only.state, only.scene

    def seed(self, seed: int) -> None:
        """Nothing depends on it."""

    def draw(self, count: int) -> tuple[SimState, Scene]:
        """See `Episodes.draw`."""

        def repeated(parts):
            return {name: x.expand(count, *x.shape[1:]).clone() for name, x in parts.items()}

        return SimState(**repeated(vars(self._state))), repeated(self._scene)

    def state_dict(self) -> dict:
        """Nothing changes."""
        return {}

    def load_state_dict(self, state: dict) -> None:
        """Nothing to take."""


class RandomEpisodes:
    """Arms at rest around home, free of contact, and scenes that can be solved; an `Episodes`.

    Args:
        task, world: what for, and with which robot.
        reuse: hand scenes out more than once where the task says that they are dear, see
            `ScenePool`. The scene that an arm gets next then depends on how many the others have
            used: all are handed out in one order.
    """

    def __init__(self, task: Task, world: World, reuse: bool = False):
        self._task, self._world = task, world
        self._generator = torch.Generator(world.device)
        self.pool = ScenePool(task, world, self._generator, task.fresh_scenes if reuse else 1.0)

    def seed(self, seed: int) -> None:
        """See `Episodes.seed`."""
        self._generator.manual_seed(seed)
        self.pool.clear()

    def draw(self, count: int) -> tuple[SimState, Scene]:
        """See `Episodes.draw`."""
        model, like = (
            self._world.model,
            {"generator": self._generator, "device": self._world.device},
        )
        noise = torch.rand(count, len(model.qdlim), **like)
        scene = self.pool.draw(count)
        offset = (2.0 * noise - 1.0) * self._task.start_spread
        q = scene.pop("start") if "start" in scene else find_free_start(self._world, offset)
        return make_rest_state(model, q.clamp(*model.qlim)), scene

    def state_dict(self) -> dict:
        """See `Episodes.state_dict`."""
        position = torch.tensor([self.pool.next, self.pool.handed_out])
        return {
            "pool": dict(self.pool.scenes),
            "pool_position": position,
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: dict) -> None:
        """See `Episodes.load_state_dict`."""
        self.pool.scenes = {name: x.to(self._world.device) for name, x in state["pool"].items()}
        self.pool.next, self.pool.handed_out = state["pool_position"].tolist()
        restore_generator(self._generator, state["generator"])


class ScenePool:
    """Solvable scenes, drawn ahead in large blocks, since most candidates fail.

    They are handed out in order. At the end of the pool more are drawn, and all but the new ones
    forgotten, unless scenes are dear: where `fresh` is below 1 it is the share of scenes that are
    new. The pool, of `FEWEST` to `KEPT`, is then shuffled and handed out again.
    """

    BLOCK = 8192
    FEWEST, KEPT = 200, 10_000
    PATIENCE = 10  # blocks in a row without a scene

    def __init__(self, task: Task, world: World, generator: torch.Generator, fresh: float = 1.0):
        self._task, self._world, self._generator, self._fresh = task, world, generator, fresh
        self.clear()

    def clear(self) -> None:
        """Forget scenes drawn ahead, so that the next ones depend on the generator alone."""
        self.scenes: Scene = {}
        self.next, self.handed_out = 0, 0  # of the pool, and in all

    def __len__(self) -> int:
        return len(next(iter(self.scenes.values()), ()))

    def draw(self, count: int) -> Scene:
        """`count` scenes.

        Raises:
            ConfigError: block after block of candidates holds none.
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
        """Whether the pool holds its share of fresh scenes, and as many as are asked for."""
        share = min(self.KEPT, self._fresh * self.handed_out)
        return len(self) >= max(count, share, self.FEWEST)

    def _shuffle(self) -> None:
        order = torch.randperm(len(self), generator=self._generator, device=self._generator.device)
        self.scenes, self.next = {key: value[order] for key, value in self.scenes.items()}, 0

    def _append_block(self) -> None:
        found = self._find_block()
        if self._fresh == 1.0:  # what was handed out is not used again
            self.scenes, self.next = (
                {key: value[self.next :] for key, value in self.scenes.items()},
                0,
            )
        self.scenes = (
            {key: torch.cat((self.scenes[key], found[key])) for key in found}
            if self.scenes
            else found
        )

    def _find_block(self) -> Scene:
        for _ in range(self.PATIENCE):
            found = self._task.sample_scenes(self._world, self.BLOCK, self._generator)
            if len(found["goal"]):
                return found
        raise ConfigError(
            f"workspace {self._world.workspace.tolist()} holds none of {self.PATIENCE} rounds of random goals that the "
            "arm could be led to without contact with itself or the ground (z = 0 of its base); enlarge it, or "
            "give the arm room below its base"
        )
