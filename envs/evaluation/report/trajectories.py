"""All that the report needs of the episodes of one controller."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.arm_env.arm_env import ArmEnv
from envs.evaluation.motion import last
from td3_robot.evaluation.rollout import Policy

OBSTACLES = ("spheres", "boxes", "walls")


class Watched:
    """A policy that notes what its environment's `info` leaves out: goals, and the obstacles around
    the arm.

    Args:
        policy: what to do.
        env: where it is done.
    """

    def __init__(self, policy: Policy, env: ArmEnv):
        self._policy, self._env = policy, env
        self._goals: list[Tensor] = []

    def __call__(self, observation: Tensor) -> Tensor:
        """(B, o_dim) -> (B, a_dim)."""
        if not self._goals:
            scene = self._env.moment.scene
            self.obstacles = {name: scene[name] for name in OBSTACLES if name in scene}
        self._goals.append(self._env.goal[:, :3])
        return self._policy(observation)

    def take_goals(self) -> Tensor:
        """(T, B, 3) where the goal was as each step since the last call began, base frame [m]."""
        goals = torch.stack(self._goals)
        self._goals.clear()
        return goals


@dataclass(frozen=True)
class Trajectories:
    """E episodes of at most T steps, on the CPU.

    Attributes:
        alive: (T, E) bool, whether the step belongs to the episode.
        series: (T, E, ...) what `ArmEnv.step` put into `info` after every step, terms of the reward
            excepted; and `goal` (T, E, 3) [m] before it.
        obstacles: what stands around the arm, by its name in the scene, a row an episode.
    """

    alive: Tensor
    series: dict[str, Tensor]
    obstacles: dict[str, Tensor]

    @classmethod
    def of_round(cls, alive: Tensor, info: dict[str, Tensor], watched: Watched) -> "Trajectories":
        """What is worth keeping of a rollout of a watched policy."""
        series = {
            name: value.cpu() for name, value in info.items() if not name.startswith("reward/")
        }
        obstacles = {name: value.cpu() for name, value in watched.obstacles.items()}
        return cls(alive.cpu(), series | {"goal": watched.take_goals().cpu()}, obstacles)

    def one(self, episode: int) -> "Trajectories":
        """One of the episodes, without the steps after its end."""
        alive = self.alive[:, episode]

        def cut(values):
            return values[alive][:, episode : episode + 1]

        obstacles = {name: values[episode : episode + 1] for name, values in self.obstacles.items()}
        return Trajectories(
            cut(self.alive), {name: cut(values) for name, values in self.series.items()}, obstacles
        )

    def last(self, name: str) -> Tensor:
        """(E, ...) a series after the last step of each episode."""
        return last(self.series[name], self.alive)

    @property
    def succeeded(self) -> Tensor:
        """Numbers of the episodes whose last step is a success."""
        return self.last("success").bool().nonzero()[:, 0]

    @property
    def failed(self) -> Tensor:
        """Numbers of the episodes whose last step is no success."""
        return (~self.last("success").bool()).nonzero()[:, 0]


def join(rounds: Sequence[Trajectories], episodes: int) -> Trajectories:
    """Several rounds as one, cut to the first `episodes`; one of fewer steps is filled up with
    zeros and False.
    """
    first, steps = rounds[0], max(len(part.alive) for part in rounds)

    def side_by_side(parts: list[Tensor]) -> Tensor:
        filled = [
            torch.cat((part, part.new_zeros(steps - len(part), *part.shape[1:]))) for part in parts
        ]
        return torch.cat(filled, 1)[:, :episodes]

    return Trajectories(
        side_by_side([part.alive for part in rounds]),
        {name: side_by_side([part.series[name] for part in rounds]) for name in first.series},
        {
            name: torch.cat([part.obstacles[name] for part in rounds])[:episodes]
            for name in first.obstacles
        },
    )
