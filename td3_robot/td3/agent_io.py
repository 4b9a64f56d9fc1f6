"""An agent on disk: its state dicts, what a checkpoint says of it, and the way back."""

import dataclasses
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from td3_robot import checkpoint
from td3_robot.checkpoint.agent_spec import check_layers, read_agent_spec
from td3_robot.checkpoint.validation import StateMismatch, validate_state
from td3_robot.config.td3 import TD3Config
from td3_robot.errors import CheckpointError
from td3_robot.networks.fused_adam import MakeOptimizer, adam
from td3_robot.networks.mlp import MakeNetworks, mlps
from td3_robot.networks.weight_norm import normalize_weights


class Kept:
    """What `TD3` can do with checkpoints; the rest of it is its update."""

    config: TD3Config
    o_dim: int
    a_dim: int
    a_max: Tensor
    normalizer: nn.Module

    def state_dicts(self) -> dict[str, dict]:
        """The state dicts of the networks, three optimizers and, if there is one, the normaliser,
        by file name.
        """
        return {name: part.state_dict() for name, part in self._parts().items()}

    def _parts(self) -> dict[str, nn.Module | torch.optim.Optimizer]:
        networks = ("Q1", "Q2", "actor")
        targets = (f"{name}_target" for name in networks if name in self.config.targets)
        names = (*networks, *(f"{name}_optimizer" for name in networks), *targets)
        parts = {name: getattr(self, name) for name in names}
        return (
            parts
            if isinstance(self.normalizer, nn.Identity)
            else {**parts, "normalizer": self.normalizer}
        )

    def load_state_dicts(self, states: dict[str, dict]) -> None:
        """Take back what `state_dicts` gave; a target that is missing, and is not what acts,
        becomes a copy.

        The learning rates stay as they are.

        Raises:
            CheckpointError: a state does not fit this agent: names, shapes, dtypes, or values that
                are not finite; the agent is left as it was.
        """
        if "normalizer" in states and "normalizer" not in self._parts():
            raise CheckpointError(
                "it normalises observations: make the agent with normalize_observations=True"
            )
        if self.config.policy not in states:
            raise CheckpointError(f"it has no {self.config.policy}, which is its policy")
        parts, taken = self._parts(), {}
        for name, part in parts.items():
            try:
                taken[name] = validate_state(
                    part, states.get(name, states.get(name.removesuffix("_target")))
                )
            except StateMismatch as error:
                raise CheckpointError(
                    f"{name} does not fit an agent with {self._shape()}: {error}"
                ) from None
        for name, part in parts.items():
            part.load_state_dict(taken[name])

    def require(self, o_dim: int, a_dim: int, what: str) -> None:
        """Hold the widths of this agent to those of an environment.

        Raises:
            CheckpointError: they differ; the message begins with `what`.
        """
        if (self.o_dim, self.a_dim) != (o_dim, a_dim):
            here, there = (
                f"o_dim {o} and a_dim {a}" for o, a in ((self.o_dim, self.a_dim), (o_dim, a_dim))
            )
            raise CheckpointError(f"{what} has {here}, the environment {there}")

    def _shape(self) -> str:
        return f"o_dim {self.o_dim}, a_dim {self.a_dim}, hidden {list(self.config.hidden)}"

    def metadata(self) -> dict[str, object]:
        """What a checkpoint says of this agent: what `from_checkpoint` makes it of."""
        options = dataclasses.asdict(self.config)
        return {
            "o_dim": self.o_dim,
            "a_dim": self.a_dim,
            "a_max": self.a_max.tolist(),
            "options": options,
        }

    def save(self, name: str | Path, notes: dict[str, object] | None = None) -> None:
        """Write the state dicts into the checkpoint folder `name`, all or none.

        Args:
            name: the folder.
            notes: what else its file `checkpoint.json` should say, values that JSON can hold.
        """
        checkpoint.write(name, self.state_dicts(), {"agent": self.metadata(), **(notes or {})})

    @classmethod
    def from_checkpoint(
        cls,
        name: str | Path,
        device: torch.device | str = "cpu",
        *,
        networks: MakeNetworks = mlps,
        optimizer: MakeOptimizer = adam,
    ) -> Self:
        """The agent of a checkpoint folder, or of six older files that begin with `name`, as the
        checkpoint says it.

        Args:
            name: the folder or prefix.
            device: where the networks shall live.
            networks, optimizer: what made those of the agent that was saved, where it was not the
                default.

        Raises:
            CheckpointError: nothing there, damaged, unsafe, or not of one agent.
        """
        found = checkpoint.load(name)
        told = read_agent_spec(Path(name), found)
        if networks is mlps:
            check_layers(Path(name), told, found)
        make = cast(Any, cls)  # TD3, which says what it takes; this is a part of it
        parts = {"networks": networks, "optimizer": optimizer}
        agent = make(told.o_dim, told.a_dim, told.a_max, device, **parts, **told.options)
        agent._take(name, found.states)
        return agent

    def load(self, name: str | Path) -> None:
        """Read a checkpoint folder, or six older files that begin with `name`, onto this agent's
        device.

        Where its policy is the actor and this agent's is `actor_target`, or the reverse, both begin
        as what acted.

        Raises:
            CheckpointError: nothing there, damaged, unsafe, or of an agent with another a_max or
                other networks.
        """
        found, options = checkpoint.load(name), {}
        if "agent" in found.metadata:
            told = read_agent_spec(Path(name), found)
            options = told.options
            if told.a_dim == self.a_dim and told.a_max != self.a_max.tolist():
                raise CheckpointError(
                    f"checkpoint {name}: its a_max is {told.a_max}, not {self.a_max.tolist()}"
                )
            if (there := options.get("residual_at")) != (here := self.config.residual_at):
                raise CheckpointError(
                    f"checkpoint {name}: its actor corrects the action at {there}, not at {here}"
                )
        states, acted = found.states, options.get("policy", "actor")
        if acted != self.config.policy and acted in states:
            policy = _with_counts(states[acted], states["actor"])
            states = states | {"actor": policy, "actor_target": policy}
        self._take(name, states)
        if self.config.weight_norm and not options.get("weight_norm"):
            normalize_weights(
                [part for part in self._parts().values() if isinstance(part, nn.Module)]
            )

    def _take(self, name: str | Path, states: dict[str, dict]) -> None:
        try:
            self.load_state_dicts(states)
        except CheckpointError as error:
            raise CheckpointError(f"checkpoint {name}: {error}") from None


def _with_counts(state: dict[str, Any], online: dict[str, Any]) -> dict[str, Any]:
    """A target's state with what an average leaves out: the batches that renormalisation has seen,
    and the like.
    """

    def whole(value):
        return isinstance(value, Tensor) and not value.is_floating_point()

    return {
        name: online.get(name, value) if whole(value) else value for name, value in state.items()
    }
