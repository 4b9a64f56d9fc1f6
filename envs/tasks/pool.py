"""The scenes that episodes are drawn from."""

import torch

from envs.tasks.task import Task
from envs.world import Scene, World
from td3_robot.errors import ConfigError


class ScenePool:
    """Solvable scenes, drawn ahead in large blocks, since most candidates fail.

    They are handed out in order. At the end of the pool more are drawn, and all but the new ones forgotten, unless the
    task says that scenes are dear: where `Task.fresh_scenes` is below 1 it is the share of scenes that are new. The
    pool, of `FEWEST` to `KEPT`, is then shuffled and handed out again.
    """

    BLOCK = 8192
    FEWEST, KEPT = 200, 10_000
    PATIENCE = 10  # blocks in a row without a scene

    def __init__(self, task: Task, world: World, generator: torch.Generator):
        self._task, self._world, self._generator = task, world, generator
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
            if self._task.fresh_scenes < 1.0 and self._enough(count):
                self._shuffle()
            else:
                self._append_block()
        rows = slice(self.next, self.next + count)
        self.next += count
        self.handed_out += count
        return {key: value[rows] for key, value in self.scenes.items()}

    def _enough(self, count: int) -> bool:
        """Whether the pool holds its share of fresh scenes, and as many as are asked for."""
        share = min(self.KEPT, self._task.fresh_scenes * self.handed_out)
        return len(self) >= max(count, share, self.FEWEST)

    def _shuffle(self) -> None:
        order = torch.randperm(len(self), generator=self._generator, device=self._generator.device)
        self.scenes, self.next = {key: value[order] for key, value in self.scenes.items()}, 0

    def _append_block(self) -> None:
        for _ in range(self.PATIENCE):
            found = self._task.candidates(self._world, self.BLOCK, self._generator)
            if len(found["goal"]):
                break
        else:
            box, tried = self._world.workspace.tolist(), self.PATIENCE * self.BLOCK
            raise ConfigError(f"workspace {box} holds none of {tried} random goals; enlarge it")
        if self._task.fresh_scenes == 1.0:  # what was handed out is not used again
            self.scenes, self.next = {key: value[self.next :] for key, value in self.scenes.items()}, 0
        self.scenes = {key: torch.cat((self.scenes[key], found[key])) for key in found} if self.scenes else found
