"""What hindsight keeps of a moment: enough to observe it and to pay for it again, under another
goal.
"""

import torch
from torch import Tensor

from envs.simulation.engine import SimState
from envs.world import Moment, Scene, World, make_moment


class Memory:
    """Moments as rows of numbers: q, qd, the gripper's driver coordinate, then some of the scene.

    Args:
        world: of the arms.
        example: a moment; its rows are of the same kind as those to come.
        kept: names of what is kept of the scene.

    Attributes:
        size: width of a row.
    """

    def __init__(self, world: World, example: Moment, kept: tuple[str, ...]):
        self._world, self._n = world, example.state.q.shape[1]
        self._kept = {
            name: (example.scene[name].shape[1:], example.scene[name].dtype) for name in kept
        }
        self._widths = [self._n, self._n, 1, *(shape.numel() for shape, _ in self._kept.values())]
        self.size = sum(self._widths)

    def keep(self, moment: Moment) -> Tensor:
        """(B, size) what there is to remember of a moment."""
        state, scene = moment.state, moment.scene
        parts = (
            scene[name].flatten(1) if scene[name].ndim > 1 else scene[name][:, None]
            for name in self._kept
        )
        return torch.cat(
            (
                state.q,
                state.qd,
                state.gripper[:, None],
                *(part.to(state.q.dtype) for part in parts),
            ),
            1,
        )

    def recall(self, rows: Tensor) -> Moment:
        """The moments of rows (N, size), with `steps` at nothing and what was not kept of their
        scenes missing.
        """
        q, qd, gripper, *parts = rows.split(self._widths, 1)
        scene: Scene = {
            name: part.reshape(len(rows), *shape).to(dtype)
            for (name, (shape, dtype)), part in zip(self._kept.items(), parts)
        }
        steps = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
        return make_moment(self._world, SimState(q, qd, gripper[:, 0]), scene, steps)
