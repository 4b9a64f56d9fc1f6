"""Episodes that an expert leads, for the policy to learn from."""

import torch
from torch import Tensor

from td3_robot.config.run import ExplorationConfig
from td3_robot.vec_env import Policy, draw_uniform


class ExpertActions:
    """Controller that acts in some of the episodes, which the policy alone would not find.

    An episode is chosen at its start, with a probability that falls linearly to zero over the run.
    With a delay the policy makes a uniformly drawn number of its first steps, and the expert
    recovers from where these led: the idea of DAgger (Ross, Gordon & Bagnell, AISTATS 2011).

    Attributes:
        active: (B,) bool, the episode is one of the expert's.
        wait: (B,) steps that the policy still makes in it; negative afterwards.
    """

    def __init__(
        self, policy: Policy, num_envs: int, config: ExplorationConfig, generator: torch.Generator
    ):
        self._policy = policy
        self._config = config
        self._generator = generator
        self.active = torch.zeros(num_envs, dtype=torch.bool, device=generator.device)
        self.wait = torch.zeros(num_envs, dtype=torch.long, device=generator.device)
        self.end_episodes(~self.active, 0.0)

    def override(self, observation: Tensor, action: Tensor) -> Tensor:
        """Return the actions (B, a_dim), with the expert's in the episodes that it leads."""
        leads = self.active & (self.wait <= 0)
        self.wait = self.wait - 1
        return torch.where(leads[:, None], self._policy(observation), action)

    def end_episodes(self, done: Tensor, progress: float) -> None:
        """Choose again where `done` (B,) is true; `progress` in [0, 1] is the run's."""
        share = self._config.expert_share * max(0.0, 1.0 - progress / self._config.expert_until)
        drawn = draw_uniform(self._generator, *done.shape) < share
        self.active = torch.where(done, drawn, self.active)
        if most := self._config.expert_delay:
            wait = torch.randint(
                most + 1, done.shape, generator=self._generator, device=done.device
            )
            self.wait = torch.where(done, wait, self.wait)

    def leave_running_episodes(self) -> None:
        """Leave the running episodes to the policy, which began them."""
        self.active = torch.zeros_like(self.active)

    def state_dict(self) -> dict[str, Tensor]:
        """Return which episodes are the expert's, and the steps before it acts."""
        return {"guided": self.active, "wait": self.wait}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore a `state_dict`."""
        self.active = state["guided"].to(self.active.device)
        self.wait = state["wait"].to(self.wait.device)
