"""Offline learning: batches from a saved dataset in place of environments."""

import dataclasses

import torch
from torch import Tensor

from td3_robot.config.run import Config
from td3_robot.data.dataset_file import load_dataset
from td3_robot.errors import ConfigError
from td3_robot.replay import Batch
from td3_robot.replay.factory import MakeReplay, make_replay, require_gamma, shaped
from td3_robot.td3.agent import TD3
from td3_robot.utils.seeding import derive_seed
from td3_robot.vec_env import restore_generator


class Dataset:
    """What `Collector` is to online learning, but nothing new ever comes; a `Source`.

    The statistics of the observations are those of the whole dataset.

    Args:
        agent: who learns.
        device: where the transitions lie.
        config: `dataset` names the file.
        make_replay: makes the replay, in place of the one that `config` describes.

    Raises:
        ConfigError: the file cannot be used, or is of observations or actions of other widths, or
            n-step returns of another discount, than the agent's.
    """

    env_steps = 0
    ready = True

    def __init__(
        self,
        agent: TD3,
        device: torch.device,
        config: Config,
        make_replay: MakeReplay = make_replay,
    ):
        if config.dataset is None:
            raise ConfigError("dataset must name a file to learn from")
        data = load_dataset(config.dataset, device)
        for name, width, needed in (
            ("observations", data.state.shape[1], agent.o_dim),
            ("actions", data.action.shape[1], agent.a_dim),
        ):
            if width != needed:
                raise ConfigError(
                    f"dataset {str(config.dataset)!r}: {name} must have width {needed}, got {width}"
                )
        agent.observe(data.state)
        self._batch_size = config.replay.batch_size
        self.generator = torch.Generator(device).manual_seed(derive_seed(config.seed, "batches"))
        whole = dataclasses.replace(
            config.replay, capacity=max(len(data.state), config.replay.batch_size), hindsight="none"
        )  # hindsight is for what is collected: a dataset does not say where its goals are
        shape = (1, agent.o_dim, agent.a_dim)
        self.replay = make_replay(
            shape, dataclasses.replace(config, replay=whole, num_envs=1), self.generator, None
        )
        require_gamma(self.replay, agent.config.gamma)
        reward = shaped(data.reward, config.reward)
        self.replay.fill(
            *(x[:, None] for x in data._replace(reward=reward))
        )  # one environment's time

    def collect(self, progress: float) -> None:
        """Nothing: the dataset is all there is."""

    def sample(self, progress: float) -> Batch:
        """A batch to learn from."""
        self.replay.anneal(progress)
        return self.replay.sample(self._batch_size)

    def update_priorities(self, error: Tensor) -> None:
        """How wrong the critics were, error (B,), about the batch sampled last."""
        self.replay.update_priorities(error)

    def metrics(self) -> dict[str, float]:
        """Nothing: no episode is played."""
        return {}

    def metadata(self) -> dict[str, object]:
        """Nothing beside the configuration."""
        return {}

    def state_dict(self, with_replay: bool) -> dict:
        """The generator and the priorities; the dataset itself stays in its file."""
        sampler = self.replay.sampler.state_dict(self.replay.oldest_first())
        return {"generator": self.generator.get_state(), "replay": None, "sampler": sampler}

    def load_state_dict(self, state: dict) -> list[str]:
        """Take back what `state_dict` gave, all of it."""
        restore_generator(self.generator, state["generator"])
        self.replay.sampler.load_state_dict(state["sampler"], self.replay.oldest_first())
        return []
