"""Errors of sensors of force and torque: a bias for each episode and noise in each step.

They are in the scene beside what is felt, `wrench` and `joint_torque` (see
`envs.simulation.bodies`): `<name>_bias` and `<name>_noise`, of the same shape.
"""

from typing import Any

import torch
from torch import Tensor

from envs.simulation.bodies import JOINT_TORQUE, SENSES, WRENCH
from envs.simulation.engine import Scene
from td3_robot.vec_env import draw_normal


class ForceSensors:
    """Sensors whose errors are sampled in each episode and step.

    Args:
        deviations: `force_noise`, `force_bias` [N], `torque_noise` and `torque_bias` [Nm] of
            `Disturbances`.
        generator: draws the errors; nothing is drawn where a deviation is zero.
    """

    def __init__(self, deviations: Any, generator: torch.Generator):
        self._bias = (deviations.force_bias, deviations.torque_bias)
        self._noise = (deviations.force_noise, deviations.torque_noise)
        self._generator = generator

    def begin(self, scene: Scene) -> Scene:
        """Return the scene of episodes that begin, with the errors of their sensors."""
        return self._add(self._add(scene, "bias", self._bias, keep=True), "noise", self._noise)

    def step(self, scene: Scene) -> Scene:
        """Return the scene with new noise."""
        return self._add(scene, "noise", self._noise)

    def _add(
        self, scene: Scene, kind: str, deviations: tuple[float, float], keep: bool = False
    ) -> Scene:
        """Add errors; `keep` those that are there, of an episode that is begun again."""
        if not any(deviations):
            return scene
        drawn = {
            f"{name}_{kind}": self._sample(scene[name], name, deviations)
            for name in SENSES
            if name in scene and not (keep and f"{name}_{kind}" in scene)
        }
        return {**scene, **drawn}

    def _sample(self, felt: Tensor, name: str, deviations: tuple[float, float]) -> Tensor:
        force, torque = deviations
        size = felt.new_tensor({WRENCH: [force] * 3 + [torque] * 3, JOINT_TORQUE: [torque]}[name])
        return size * draw_normal(self._generator, *felt.shape)


def measure_forces(scene: Scene) -> Scene:
    """Return what is felt as it is measured: with bias and noise."""
    return {
        name: sum((scene[key] for key in _list_errors(scene, name)), scene[name])
        for name in SENSES
        if name in scene and _list_errors(scene, name)
    }


def _list_errors(scene: Scene, name: str) -> list[str]:
    return [key for key in (f"{name}_bias", f"{name}_noise") if key in scene]
