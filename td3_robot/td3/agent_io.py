"""Saving and loading of agents: state dicts, metadata and checkpoints."""

import dataclasses
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from td3_robot import checkpoint
from td3_robot.checkpoint.agent_spec import check_layers, read_agent_spec
from td3_robot.checkpoint.validation import StateMismatch, validate_state
from td3_robot.config.td3 import TD3Config
from td3_robot.errors import CheckpointError, ConfigError
from td3_robot.networks.mlp import MakeNetworks, make_mlps
from td3_robot.networks.weight_norm import normalize_weights


class Agent(Protocol):
    """The attributes of `TD3` that are saved with its networks and optimizers."""

    config: TD3Config
    o_dim: int
    a_dim: int
    a_max: Tensor
    normalizer: nn.Module
    device: torch.device


def get_parts(agent: Agent) -> dict[str, nn.Module | torch.optim.Optimizer]:
    """Return the networks, their optimizers and the normaliser, if there is one, by file name."""
    networks = ("Q1", "Q2", "actor")
    targets = (f"{name}_target" for name in networks if name in agent.config.targets)
    names = (*networks, *(f"{name}_optimizer" for name in networks), *targets)
    parts = {name: getattr(agent, name) for name in names}
    if not isinstance(agent.normalizer, nn.Identity):
        parts["normalizer"] = agent.normalizer
    return parts


def get_states(agent: Agent) -> dict[str, dict]:
    """Return the state dicts of all parts, by file name."""
    return {name: part.state_dict() for name, part in get_parts(agent).items()}


def get_metadata(agent: Agent) -> dict[str, object]:
    """Return what a checkpoint stores to make this agent again, values that JSON can hold."""
    return {
        "o_dim": agent.o_dim,
        "a_dim": agent.a_dim,
        "a_max": agent.a_max.tolist(),
        "options": dataclasses.asdict(agent.config),
    }


def save_agent(agent: Agent, name: str | Path, notes: dict[str, object] | None = None) -> None:
    """Write a checkpoint folder, see `TD3.save`."""
    checkpoint.write(name, get_states(agent), {"agent": get_metadata(agent), **(notes or {})})


def check_spaces(o_dim: int, a_dim: int, a_max: Tensor) -> None:
    """Check the sizes of observations and actions, and the bounds of actions.

    Raises:
        ConfigError: names what is wrong.
    """
    for name, value in {"o_dim": o_dim, "a_dim": a_dim}.items():
        if not isinstance(value, Integral) or value < 1:
            raise ConfigError(f"{name} must be a positive integer, got {value!r}")
    is_bound = ((a_max > 0) & a_max.isfinite()).all()
    if a_max.shape not in ((), (a_dim,)) or not is_bound:
        shape = f"one value or {a_dim}, got {a_max.tolist()}"
        raise ConfigError(f"a_max must be positive and finite, {shape}")


def read_observations(agent: Agent, o: np.ndarray | Tensor) -> Tensor:
    """Return observations (..., o_dim) as a tensor on the agent's device.

    Raises:
        ConfigError: they have another width, which running statistics could broadcast.
    """
    o = torch.as_tensor(o, dtype=torch.float32, device=agent.device)
    if o.shape[-1:] != (agent.o_dim,):
        raise ConfigError(f"observations must end in {agent.o_dim} values, got {tuple(o.shape)}")
    return o


def load_agent_from_checkpoint(
    make_agent: Any, name: str | Path, device: torch.device | str, networks: MakeNetworks, **options
) -> Any:
    """Make an agent by `make_agent`, `TD3` or a subclass, see `TD3.from_checkpoint`."""
    name = checkpoint.find(name)
    found = checkpoint.load(name)
    spec = read_agent_spec(name, found)
    if networks is make_mlps:
        check_layers(name, spec, found)
    options |= {"networks": networks, **spec.options}
    agent = make_agent(spec.o_dim, spec.a_dim, spec.a_max, device, **options)
    _load_states(agent, name, found.states)
    return agent


def load_agent(agent: Agent, name: str | Path) -> None:
    """Read a checkpoint into an existing agent, see `TD3.load`."""
    name = checkpoint.find(name)
    found = checkpoint.load(name)
    options = {}
    if "agent" in found.metadata:
        spec = read_agent_spec(name, found)
        options = spec.options
        if spec.a_dim == agent.a_dim and spec.a_max != agent.a_max.tolist():
            raise CheckpointError(
                f"checkpoint {name}: its a_max is {spec.a_max}, not {agent.a_max.tolist()}"
            )
        saved_column = options.get("residual_at")
        own_column = agent.config.residual_at
        if saved_column != own_column:
            raise CheckpointError(
                f"checkpoint {name}: its actor {_describe_residual(saved_column)}, "
                f"this one {_describe_residual(own_column)}; td3.residual must be the same"
            )
        _refuse_other_bounds(name, TD3Config(**options), agent)
    states = found.states
    deployed = options.get("policy", "actor")
    if deployed != agent.config.policy and deployed in states:
        policy = _restore_counts(states[deployed], states["actor"])
        states = states | {"actor": policy, "actor_target": policy}
    _load_states(agent, name, states)
    if agent.config.weight_norm and not options.get("weight_norm"):
        normalize_weights([p for p in get_parts(agent).values() if isinstance(p, nn.Module)])


def _describe_residual(column: int | None) -> str:
    if column is None:
        return "corrects no controller"
    return f"corrects the controller in observation column {column}"


def _refuse_other_bounds(name: Path, saved: TD3Config, agent: Agent) -> None:
    """Refuse a checkpoint whose networks would be another policy in this agent."""
    before, now = (_list_bounds(config, agent.a_dim) for config in (saved, agent.config))
    for option, value in before.items():
        if now.get(option, value) != value:
            raise CheckpointError(
                f"checkpoint {name}: its td3.{option} is {value}, not {now[option]}, with which "
                "its networks are another policy"
            )


def _list_bounds(config: TD3Config, a_dim: int) -> dict[str, Any]:
    """List the options that bound what goes into the actor's network and what comes of it."""
    names = ("residual_scale", "residual_fade") if config.is_residual else ()
    names += ("normalize_epsilon", "normalize_clip") if config.normalize_observations else ()
    bounds = {name: getattr(config, name) for name in names}
    if bounds.get("residual_fade"):
        bounds["residual_joints"] = config.residual_joints or a_dim
    return bounds


def load_states(agent: Agent, states: dict[str, dict]) -> None:
    """Load state dicts by file name, see `TD3.load_state_dicts`."""
    parts = get_parts(agent)
    if "normalizer" in states and "normalizer" not in parts:
        raise CheckpointError(
            "it normalises observations: make the agent with normalize_observations=True"
        )
    if agent.config.policy not in states:
        raise CheckpointError(f"it has no {agent.config.policy}, which is its policy")
    fitting = {}
    for name, part in parts.items():
        try:
            state = states.get(name, states.get(name.removesuffix("_target")))
            fitting[name] = validate_state(part, state)
        except StateMismatch as error:
            hidden = list(agent.config.hidden)
            shape = f"o_dim {agent.o_dim}, a_dim {agent.a_dim}, hidden {hidden}"
            raise CheckpointError(f"{name} does not fit an agent with {shape}: {error}") from None
    for name, part in parts.items():
        part.load_state_dict(fitting[name])


def require_widths(agent: Agent, o_dim: int, a_dim: int, what: str) -> None:
    """Check an agent's widths against those of an environment, see `TD3.require`."""
    if (agent.o_dim, agent.a_dim) != (o_dim, a_dim):
        here = f"o_dim {agent.o_dim} and a_dim {agent.a_dim}"
        raise CheckpointError(f"{what} has {here}, the environment o_dim {o_dim} and a_dim {a_dim}")


def _load_states(agent: Agent, name: str | Path, states: dict[str, dict]) -> None:
    """Load the state dicts of a checkpoint, whose name errors begin with."""
    try:
        load_states(agent, states)
    except CheckpointError as error:
        raise CheckpointError(f"checkpoint {name}: {error}") from None


def _restore_counts(state: dict[str, Any], online: dict[str, Any]) -> dict[str, Any]:
    """Copy into a target's state the integers that averaging leaves out, such as batch counts."""

    def is_count(value):
        return isinstance(value, Tensor) and not value.is_floating_point()

    return {
        name: online.get(name, value) if is_count(value) else value for name, value in state.items()
    }
