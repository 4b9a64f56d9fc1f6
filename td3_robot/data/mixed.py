"""Offline to online: what was recorded before in a share of every batch, beside what is collected
now.
"""

import dataclasses

import torch
from torch import Tensor

from td3_robot.config.run import Config
from td3_robot.data.batch_source import Source
from td3_robot.data.collector import Collector
from td3_robot.data.offline import Dataset
from td3_robot.evaluation.rollout import Policy
from td3_robot.replay import Batch
from td3_robot.td3.agent import TD3
from td3_robot.vec_env import VecEnv


def make_source(agent: TD3, env: VecEnv, config: Config, guide: Policy | None = None) -> Source:
    """What the options say batches come from: `Collector`, `Dataset`, or both.

    Raises:
        ConfigError: see each of them.
    """
    if config.dataset is not None:
        return Dataset(agent, env.device, config)
    return (
        Collector(agent, env, config, guide)
        if config.replay.dataset is None
        else Mixed(agent, env, config, guide)
    )


class Mixed:
    """Batches of which a fixed share is of a dataset and the rest of what is collected; a `Source`.

    Symmetric sampling of RLPD (Ball, Smith, Kostrikov & Levine, "Efficient Online Reinforcement
    Learning with Offline Data", ICML 2023, https://arxiv.org/abs/2302.02948), at their share of one
    half: however few demonstrations there are, no batch is without them, and the policy need not
    imitate any. Their other two parts are options of their own: `td3.norm layer`, which they found
    necessary, and several updates a step.

    Args:
        agent, env, config, guide: as `Collector` takes them; `config.replay` names the file and the
            share.

    Attributes:
        env_steps: control steps of all environments together.

    Raises:
        ConfigError: see `Collector` and `Dataset`.
    """

    def __init__(self, agent: TD3, env: VecEnv, config: Config, guide: Policy | None = None):
        rows, size = config.replay.dataset_rows, config.replay.batch_size

        def part(count):
            return dataclasses.replace(config.replay, batch_size=count, dataset=None)

        # A part may be of one row: what networks with norms of batches get is the whole.
        parts = dataclasses.replace(config, td3=dataclasses.replace(config.td3, norm="none"))
        self._collector = Collector(
            agent, env, dataclasses.replace(parts, replay=part(size - rows)), guide
        )
        recorded = dataclasses.replace(parts, replay=part(rows), dataset=config.replay.dataset)
        self._dataset = Dataset(agent, env.device, recorded)

        self.env_steps = 0

    @property
    def ready(self) -> bool:
        """See `Collector.ready`."""
        return self._collector.ready

    def collect(self, progress: float) -> None:
        """One step of every environment; see `Collector.collect`."""
        self._collector.collect(progress)
        self.env_steps = self._collector.env_steps

    def sample(self, progress: float) -> Batch:
        """A batch: first the rows that were collected, then those of the dataset."""
        new, old = self._collector.sample(progress), self._dataset.sample(progress)
        discount = (
            None
            if new.discount is None or old.discount is None
            else torch.cat((new.discount, old.discount))
        )
        return Batch(*map(torch.cat, zip(new[:5], old[:5])))._replace(discount=discount)

    def update_priorities(self, error: Tensor) -> None:
        """Nothing: rows have no priorities."""

    def metrics(self) -> dict[str, float]:
        """See `Collector.metrics`."""
        return self._collector.metrics()

    def metadata(self) -> dict[str, object]:
        """See `Collector.metadata`."""
        return self._collector.metadata()

    def state_dict(self, with_replay: bool) -> dict:
        """All that the next batches depend on; the dataset itself stays in its file."""
        return {
            **self._collector.state_dict(with_replay),
            "dataset": self._dataset.state_dict(with_replay),
        }

    def load_state_dict(self, state: dict) -> list[str]:
        """Take back what `state_dict` gave; see `Collector.load_state_dict`."""
        self._dataset.load_state_dict(state["dataset"])
        lost = self._collector.load_state_dict(state)
        self.env_steps = self._collector.env_steps
        return lost
