"""Offline learning: batches from a saved dataset instead of environments."""

import dataclasses
import zlib

import torch
from torch import Tensor

from td3_robot.config.run import Config
from td3_robot.data.dataset_file import load_dataset
from td3_robot.errors import ConfigError
from td3_robot.replay import Batch
from td3_robot.replay.factory import MakeReplay, make_replay, require_gamma, scale_and_clip
from td3_robot.td3.agent import TD3
from td3_robot.utils.legacy import keep_old_names
from td3_robot.utils.seeding import derive_seed
from td3_robot.vec_env import restore_generator


@keep_old_names(about="metadata")
class Dataset:
    """Batches from a file of transitions, to which nothing is added; a `BatchSource`.

    The whole dataset is counted in the observation statistics.

    Args:
        agent: the agent that learns.
        device: device of the transitions.
        config: `dataset` names the file.
        make_replay: makes the replay, instead of the one that `config` describes.

    Raises:
        ConfigError: the file cannot be used, its observations or actions have other widths than
            the agent's, or n-step returns have another discount than the agent's.
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
        if agent.privileged:
            raise ConfigError("a dataset holds observations alone: set td3.privileged to 0")
        data = load_dataset(config.dataset, device)
        for name, width, needed in (
            ("observations", data.state.shape[1], agent.o_dim),
            ("actions", data.action.shape[1], agent.a_dim),
        ):
            if width != needed:
                raise ConfigError(
                    f"dataset {str(config.dataset)!r}: {name} must have width {needed}, got {width}"
                )
        self._path = config.dataset
        self._checksum = 0
        for part in data[:-1]:  # truncations are partly found from the others
            self._checksum = zlib.crc32(part.cpu().numpy().tobytes(), self._checksum)
        # every process has read the same rows, which count once
        agent.observe(data.state if agent.communicator.rank == 0 else data.state[:0])
        self._batch_size = config.replay.batch_size
        self.generator = torch.Generator(device).manual_seed(derive_seed(config.seed, "batches"))
        # hindsight is for what is collected: a dataset does not say where its goals are
        whole = dataclasses.replace(
            config.replay, capacity=max(len(data.state), config.replay.batch_size), hindsight="none"
        )
        shape = (1, agent.o_dim, agent.a_dim)
        self.replay = make_replay(
            shape, dataclasses.replace(config, replay=whole, num_envs=1), self.generator, None
        )
        require_gamma(self.replay, agent.config.gamma)
        reward = scale_and_clip(data.reward, config.reward)
        self.replay.fill(*(x[:, None] for x in data._replace(reward=reward)))  # one environment

    def collect(self, progress: float) -> None:
        """Do nothing: the dataset is complete."""

    def sample(self, progress: float) -> Batch:
        """Return a batch to learn from."""
        self.replay.anneal(progress)
        return self.replay.sample(self._batch_size)

    def update_priorities(self, error: Tensor) -> None:
        """Set the priorities of the last batch by the critics' errors (B,)."""
        self.replay.update_priorities(error)

    def metrics(self) -> dict[str, float]:
        """Return {}: no episode is played."""
        return {}

    def metadata(self) -> dict[str, object]:
        """Return {}: the configuration names the dataset."""
        return {}

    def state_dict(self, with_replay: bool) -> dict:
        """Return the generator's state and the priorities; the dataset stays in its file."""
        return {
            "generator": self.generator.get_state(),
            "replay": None,
            "sampler": self.replay.sampler.state_dict(self.replay.index_by_time()),
            "checksum": self._checksum,
        }

    def load_state_dict(self, state: dict) -> list[str]:
        """Restore a `state_dict`. Return [], as nothing is lost.

        Raises:
            ConfigError: the file holds another dataset than then.
        """
        if state.get("checksum", self._checksum) != self._checksum:  # older ones have none
            raise ConfigError(
                f"dataset {str(self._path)!r} holds other transitions than the run began with; "
                "name their file, or train a new run"
            )
        restore_generator(self.generator, state["generator"])
        self.replay.sampler.load_state_dict(state["sampler"], self.replay.index_by_time())
        return []
