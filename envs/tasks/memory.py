"""Compact storage of moments, so that hindsight can observe and reward them under other goals."""

from dataclasses import replace

import torch
from torch import Tensor

from envs.simulation.calibration import measured_tcp
from envs.simulation.engine import SimState
from envs.world import Moment, Scene, World, make_moment


class Memory:
    """Moments as rows of numbers: q, qd, the gripper's driver coordinate and parts of the scene.

    Args:
        world: of the arms.
        example: a moment with the shapes and types of those to store.
        keys: names of the parts of the scene.

    Attributes:
        size: width of a row.
    """

    def __init__(self, world: World, example: Moment, keys: tuple[str, ...]):
        self._world = world
        keys += ("tcp_offset",) if "tcp_offset" in example.scene else ()  # see `measured_tcp`
        self._parts = {
            name: (example.scene[name].shape[1:], example.scene[name].dtype) for name in keys
        }
        n = example.state.q.shape[1]
        self._widths = [n, n, 1, *(shape.numel() for shape, _ in self._parts.values())]
        self.size = sum(self._widths)

    def keep(self, moment: Moment) -> Tensor:
        """Return the rows (B, size) of a moment."""
        state = moment.state
        parts = (
            moment.scene[name].reshape(len(state.q), -1).to(state.q.dtype) for name in self._parts
        )
        return torch.cat((state.q, state.qd, state.gripper[:, None], *parts), 1)

    def recall(self, rows: Tensor) -> Moment:
        """Return the moments of rows (N, size), with zero `steps` and partial scenes."""
        q, qd, gripper, *parts = rows.split(self._widths, 1)
        scene: Scene = {
            name: part.reshape(len(rows), *shape).to(dtype)
            for (name, (shape, dtype)), part in zip(self._parts.items(), parts)
        }
        steps = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
        moment = make_moment(self._world, SimState(q, qd, gripper[:, 0]), scene, steps)
        return replace(moment, T_be=measured_tcp(moment.T_be, scene))
