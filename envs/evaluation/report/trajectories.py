"""Trajectories of a controller's episodes, as the report needs them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.arm_env.arm_env import ArmEnv
from envs.evaluation.motion import select_last
from td3_robot.evaluation.rollout import Policy

OBSTACLES = ("spheres", "boxes", "walls")


class RecordingPolicy:
    """A policy that records goals and obstacles, which its environment's `info` leaves out.

    Args:
        policy: the policy to call.
        env: the environment that it acts in.
    """

    def __init__(self, policy: Policy, env: ArmEnv):
        self._policy = policy
        self._env = env
        self._goals: list[Tensor] = []

    def __call__(self, observation: Tensor) -> Tensor:
        """(B, o_dim) -> (B, a_dim)."""
        if not self._goals:
            scene = self._env.scene
            self.obstacles = {name: scene[name] for name in OBSTACLES if name in scene}
        self._goals.append(self._env.goal[:, : 3 * self._env.task.goal_is_place])
        return self._policy(observation)

    def take_goals(self) -> Tensor:
        """Return the goals of each step since the last call in the base frame [m], (T, B, 3).

        Goals that are no places are left out, (T, B, 0).
        """
        goals = torch.stack(self._goals)
        self._goals.clear()
        return goals


@dataclass(frozen=True)
class Trajectories:
    """E episodes of at most T steps, on the CPU.

    Attributes:
        alive: (T, E) bool, whether the step belongs to the episode.
        series: (T, E, ...) the `info` of `ArmEnv.step` after every step, reward terms excepted; and
            `goal` (T, E, 3) [m] before it, see `RecordingPolicy.take_goals`.
        obstacles: obstacles by their name in the scene, a row per episode.
    """

    alive: Tensor
    series: dict[str, Tensor]
    obstacles: dict[str, Tensor]

    @classmethod
    def from_round(
        cls, alive: Tensor, info: dict[str, Tensor], recorder: RecordingPolicy
    ) -> "Trajectories":
        """Collect the trajectories of a rollout of a recording policy."""
        series = {
            name: value.cpu() for name, value in info.items() if not name.startswith("reward/")
        }
        obstacles = {name: value.cpu() for name, value in recorder.obstacles.items()}
        return cls(alive.cpu(), series | {"goal": recorder.take_goals().cpu()}, obstacles)

    @staticmethod
    def join(rounds: "Sequence[Trajectories]", episodes: int) -> "Trajectories":
        """Concatenate rounds, cut to the first `episodes` and the longest of these.

        Shorter ones are padded with zeros.
        """
        first = rounds[0]
        steps = max(len(part.alive) for part in rounds)

        def concatenate(parts: list[Tensor]) -> Tensor:
            filled = [
                torch.cat((part, part.new_zeros(steps - len(part), *part.shape[1:])))
                for part in parts
            ]
            return torch.cat(filled, 1)[:, :episodes]

        alive = concatenate([part.alive for part in rounds])
        longest = int(alive.any(1).sum())
        return Trajectories(
            alive[:longest],
            {
                name: concatenate([part.series[name] for part in rounds])[:longest]
                for name in first.series
            },
            {
                name: torch.cat([part.obstacles[name] for part in rounds])[:episodes]
                for name in first.obstacles
            },
        )

    def select(self, episode: int) -> "Trajectories":
        """Select one episode, without the steps after its end."""
        alive = self.alive[:, episode]
        row = slice(episode, episode + 1)
        return Trajectories(
            self.alive[alive][:, row],
            {name: values[alive][:, row] for name, values in self.series.items()},
            {name: values[row] for name, values in self.obstacles.items()},
        )

    def select_last(self, name: str) -> Tensor:
        """Select the values (E, ...) of a series after each episode's last step."""
        return select_last(self.series[name], self.alive)

    @property
    def succeeded(self) -> Tensor:
        """Numbers of the episodes whose last step is a success."""
        return self.select_last("success").bool().nonzero()[:, 0]

    @property
    def failed(self) -> Tensor:
        """Numbers of the episodes whose last step is no success."""
        return (~self.select_last("success").bool()).nonzero()[:, 0]
