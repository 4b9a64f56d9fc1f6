"""The specification of an agent in its checkpoint: shapes, bounds of actions, options."""

import math
from pathlib import Path
from typing import Any, NamedTuple

from td3_robot.checkpoint import Checkpoint
from td3_robot.checkpoint.validation import get_widths
from td3_robot.config.run import TD3Config
from td3_robot.errors import CheckpointError, ConfigError

_KEYS = ("o_dim", "a_dim", "a_max", "options")


class AgentSpec(NamedTuple):
    """The arguments that make an agent of a checkpoint's shapes."""

    o_dim: int
    a_dim: int
    a_max: float | list[float]
    options: dict[str, Any]  # of TD3Config


def read_agent_spec(path: Path, found: Checkpoint) -> AgentSpec:
    """Read the agent's specification; that of an older checkpoint is inferred from its networks.

    Raises:
        CheckpointError: it is damaged.
    """
    try:
        spec = (
            _parse_agent_spec(found.metadata["agent"])
            if "agent" in found.metadata
            else _infer_agent_spec(path, found.states)
        )
        TD3Config(**spec.options)
    except ConfigError as error:
        raise CheckpointError(f"checkpoint {str(path)!r}: {error}") from None
    return spec


def check_layers(path: Path, spec: AgentSpec, found: Checkpoint) -> None:
    """Check the networks of a checkpoint against its specification, before memory is allocated.

    Raises:
        CheckpointError: they are other MLPs.
    """
    config = TD3Config(**spec.options)
    actor = [spec.o_dim, *config.hidden, spec.a_dim]
    seen = spec.o_dim + (config.privileged or 0)
    critic = [seen + spec.a_dim, *config.critic_layers, config.atoms or 1]
    for name, layers in (("actor", actor), ("Q1", critic)):
        if get_widths(found.states[name]) != layers:
            expected = "-".join(map(str, layers))
            raise CheckpointError(
                f"checkpoint {str(path)!r}: the layers of {name} should be {expected}"
            )


def _parse_agent_spec(agent: object) -> AgentSpec:
    """Check the specification in checkpoint.json."""
    from td3_robot.config.schema import make_schema  # here: only a file from outside needs it

    if (
        not isinstance(agent, dict)
        or set(agent) != set(_KEYS)
        or not isinstance(agent["options"], dict)
    ):
        raise ConfigError(f"agent must be a mapping of {', '.join(_KEYS)}")
    for name in ("o_dim", "a_dim"):
        if type(agent[name]) is not int or agent[name] < 1:
            raise ConfigError(f"{name} must be a positive whole number")
    a_max = agent["a_max"]
    bounds = a_max if isinstance(a_max, list) else [a_max]
    count = agent["a_dim"] if isinstance(a_max, list) else 1
    if len(bounds) != count or not all(
        type(bound) in (int, float) and 0 < bound < math.inf for bound in bounds
    ):
        raise ConfigError("a_max must be a positive number or a list of them, one for each action")
    options = make_schema("", "", TD3Config).check_all(agent["options"])
    return AgentSpec(agent["o_dim"], agent["a_dim"], agent["a_max"], options)


def _infer_agent_spec(path: Path, states: dict[str, dict]) -> AgentSpec:
    """Infer an agent's specification from its networks and the config.yaml of its run."""
    from td3_robot.config.schema import read_part

    actor, Q1 = (get_widths(states[name]) for name in ("actor", "Q1"))
    if len(actor) < 3 or len(Q1) < 3:
        raise CheckpointError(f"checkpoint {str(path)!r}: its actor is no network of ours")
    files = [folder / "config.yaml" for folder in (path, path.parent)]
    options = next((read_part(file, "td3", TD3Config) for file in files if file.is_file()), None)
    if options is None:
        options = {"hidden": tuple(actor[1:-1]), "norm": _infer_norm(states["actor"])}
        options["normalize_observations"] = "normalizer" in states
    return AgentSpec(actor[0], actor[-1], 1.0, options)


def _infer_norm(state: dict) -> str:
    if not any(name.startswith("norms.") for name in state):
        return "none"
    if "norms.0.batches" in state:
        return "renorm"
    return "batch" if "norms.0.running_mean" in state else "layer"
