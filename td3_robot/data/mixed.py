"""Offline to online learning: a share of every batch comes from a dataset."""

import dataclasses

import torch
from torch import Tensor

from td3_robot.config.run import Config
from td3_robot.data.batch_source import BatchSource
from td3_robot.data.collector import Collector
from td3_robot.data.offline import Dataset
from td3_robot.replay import Batch
from td3_robot.td3.agent import TD3
from td3_robot.vec_env import Policy, VecEnv


def make_source(
    agent: TD3, env: VecEnv, config: Config, expert: Policy | None = None
) -> BatchSource:
    """Return the source that the options describe: `Collector`, `Dataset`, or both.

    Raises:
        ConfigError: the source cannot be made of these.
    """
    if config.dataset is not None:
        return Dataset(agent, env.device, config)
    if config.replay.dataset is None:
        return Collector(agent, env, config, expert)
    return OfflineOnlineSource(agent, env, config, expert)


class OfflineOnlineSource:
    """Batches with a fixed share from a dataset and the rest from a `Collector`; a `BatchSource`.

    Symmetric sampling of RLPD (Ball, Smith, Kostrikov & Levine, "Efficient Online Reinforcement
    Learning with Offline Data", ICML 2023, https://arxiv.org/abs/2302.02948), at their share of one
    half: however few demonstrations there are, every batch has some, and the policy need not
    imitate them. Their other two parts are options of their own: `td3.norm layer`, which they found
    necessary, and several updates a step.

    Args:
        agent, env, config, expert: as for `Collector`; `config.replay` names the file and the
            share.

    Attributes:
        env_steps: control steps of all environments together.

    Raises:
        ConfigError: as for `Collector` and `Dataset`.
    """

    def __init__(self, agent: TD3, env: VecEnv, config: Config, expert: Policy | None = None):
        rows = config.replay.dataset_rows
        # A part may be of one row: what networks with norms of batches get is the whole.
        parts = dataclasses.replace(config, td3=dataclasses.replace(config.td3, norm="none"))

        def make_part(count: int, **changes) -> Config:
            replay = dataclasses.replace(config.replay, batch_size=count, dataset=None)
            return dataclasses.replace(parts, replay=replay, **changes)

        online = make_part(config.replay.batch_size - rows)
        self._collector = Collector(agent, env, online, expert)
        offline = make_part(rows, dataset=config.replay.dataset)
        self._dataset = Dataset(agent, env.device, offline)
        self.env_steps = 0

    @property
    def ready(self) -> bool:
        """True if the collector has enough to learn from."""
        return self._collector.ready

    def collect(self, progress: float) -> None:
        """Make one step in every environment, as `Collector.collect`."""
        self._collector.collect(progress)
        self.env_steps = self._collector.env_steps

    def sample(self, progress: float) -> Batch:
        """Return a batch: first the collected rows, then those of the dataset."""
        new = self._collector.sample(progress)
        old = self._dataset.sample(progress)
        discount = (
            None
            if new.discount is None or old.discount is None
            else torch.cat((new.discount, old.discount))
        )
        return Batch(
            state=torch.cat((new.state, old.state)),
            action=torch.cat((new.action, old.action)),
            reward=torch.cat((new.reward, old.reward)),
            next_state=torch.cat((new.next_state, old.next_state)),
            done=torch.cat((new.done, old.done)),
            discount=discount,
        )

    def update_priorities(self, error: Tensor) -> None:
        """Do nothing: rows have no priorities."""

    def metrics(self) -> dict[str, float]:
        """Return those of the collector."""
        return self._collector.metrics()

    def metadata(self) -> dict[str, object]:
        """Return those of the collector."""
        return self._collector.metadata()

    def state_dict(self, with_replay: bool) -> dict:
        """Return all that the next batches depend on; the dataset itself stays in its file."""
        return {
            **self._collector.state_dict(with_replay),
            "dataset": self._dataset.state_dict(with_replay),
        }

    def load_state_dict(self, state: dict) -> list[str]:
        """Restore a `state_dict`, as `Collector.load_state_dict`."""
        self._dataset.load_state_dict(state["dataset"])
        lost = self._collector.load_state_dict(state)
        self.env_steps = self._collector.env_steps
        return lost
