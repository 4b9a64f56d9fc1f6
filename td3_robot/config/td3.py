"""Options of the learning algorithm, and which exclude each other."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from td3_robot.config.field import (
    FINITE,
    NOT_NEGATIVE,
    PART,
    POSITIVE,
    SHARE,
    STEPS,
    Range,
    Requires,
    check,
    option,
)
from td3_robot.errors import ConfigError, KeywordError, unknown

NORMS = ("none", "layer", "batch", "renorm")
BATCHED = ("batch", "renorm")  # those whose statistics are of a batch
INITS = ("default", "orthogonal")
CRITICS = ("targets", "crossq")
POLICIES = ("actor", "actor_target")
LAYERS = 64  # of a network
WIDTH = Range(1, 65_536, "the weights between two such layers take 17 GB")
ATOMS = Range(0, 10_000, "each value of a batch has as many numbers")

_DRAWN = Requires("new networks, in place of those of start_from", lambda c: c.start_from is None)
_FOLLOWING = Requires(
    "td3.critic targets or td3.policy actor_target",
    lambda c: c.td3.critic == "targets" or c.td3.policy != "actor",
)
_BC = Requires("td3.bc_alpha, for example 2.5", lambda c: c.td3.bc_alpha is not None)
_TARGET_NOISE = Requires("td3.policy_noise above 0", lambda c: c.td3.policy_noise > 0)
_RESIDUAL = Requires(
    "td3.residual, the name of a column, or residual_at", lambda c: c.td3.is_residual
)
_FADING = Requires("td3.residual_fade above 0", lambda c: c.td3.residual_fade > 0)
_NORMED = Requires(
    "td3.norm batch, renorm or td3.critic crossq",
    lambda c: c.td3.norm in BATCHED or c.td3.critic == "crossq",
)
_NORMALIZED = Requires("td3.normalize_observations true", lambda c: c.td3.normalize_observations)


@dataclass(frozen=True)
class TD3Config:
    """Learning algorithm.

    TD3 and its extensions; the defaults are those of its authors, https://github.com/sfujim/TD3.

    Attributes:
        critic: How critics bootstrap: from slow copies (targets), or in one pass of renormalised
            batches (crossq).
        policy: Which network is evaluated, kept and deployed: the actor, or actor_target, its
            moving average.
        hidden: Units of each hidden layer, in the actor and in both critics.
        critic_hidden: Units of each hidden layer of both critics; empty for those of `hidden`.
        norm: Normalisation in the networks: none, layer, batch or renorm; with crossq it is that of
            the actor.
        weight_norm: Scale hidden units back to a norm of 1 after every step; needs norm batch or
            renorm, or crossq.
        init: Initial weights: default (PyTorch's) or orthogonal.
        final_bound: Sample the last layers' weights uniformly from plus and minus this; 0 leaves
            them to `init`.
        actor_lr: Learning rate of the actor.
        critic_lr: Learning rate of both critics.
        gamma: Discount of the reward one control step later, in [0, 1].
        tau: Share of the networks that goes into their targets at each target update, in (0, 1].
        policy_noise: Standard deviation of the noise on target actions, as a fraction of a_max.
        noise_clip: Largest noise on target actions, as a fraction of a_max.
        policy_delay: Critic updates for each update of the actor and the targets.
        burn_in: Critic updates before the first update of the actor.
        twin_critics: Train two critics and bootstrap from the lower; false leaves Q2 out, as DDPG
            does.
        actor_min_q: The actor ascends the lower of both critics instead of Q1.
        action_l2: Weight of the mean square of the policy's actions, in fractions of a_max, in the
            actor's loss.
        actor_grad_clip: Largest norm of the actor's gradient; null for no limit.
        critic_grad_clip: Largest norm of each critic's gradient; null for no limit.
        atoms: Atoms of distributional critics (C51); 0 for critics that give the mean alone.
        v_min: Return at the first atom; needs atoms.
        v_max: Return at the last atom; needs atoms.
        r_min: Smallest reward of a step: no target is below the return of getting it at every step;
            null for no bound.
        r_max: Largest reward of a step: no target is above the return of getting it at every step;
            null for no bound.
        bc_alpha: TD3+BC: weight of the value against imitation of the replay's actions; null for no
            imitation.
        bc_filter: Imitate only those actions that are worth more than the policy's own; needs
            bc_alpha.
        residual: Column of the observation with the action of a controller, to which the actor adds
            a residual action; null for none.
        residual_at: Where that column begins; found by its name in the environments that name
            theirs.
        residual_scale: Largest residual action, as a fraction of a_max; needs residual.
        residual_fade: Speed of the controller, as a fraction of a_max, below which the residual
            action shrinks in proportion to that speed; 0 for none; needs residual.
        residual_joints: Number of leading elements of an action that are speeds, which
            residual_fade uses; found for the package's arms, elsewhere null for all.
        privileged: Number of values that critics see in addition to the observation, which the
            simulator knows and an arm does not; null for all that the training's environment
            offers, 0 for none.
        normalize_observations: Give the networks observations minus their running mean, divided by
            their standard deviation.
        normalize_epsilon: Added to the variance that observations are normalised by; needs
            normalize_observations.
        normalize_clip: Largest magnitude of a normalised observation; needs normalize_observations.
    """

    critic: str = option("targets", CRITICS, fixed=True)
    policy: str = option("actor", POLICIES, fixed=True)
    hidden: tuple[int, ...] = option((256, 256), WIDTH, fixed=True)
    critic_hidden: tuple[int, ...] = option((), WIDTH, fixed=True)
    norm: str = option("none", NORMS, fixed=True)
    weight_norm: bool = option(False, fixed=True, needs=(_NORMED,))
    init: str = option("default", INITS, fixed=True, needs=(_DRAWN,))
    final_bound: float = option(0.0, NOT_NEGATIVE, fixed=True, needs=(_DRAWN,))
    actor_lr: float = option(3e-4, POSITIVE)
    critic_lr: float = option(3e-4, POSITIVE)
    gamma: float = option(0.99, SHARE, basic=True)
    tau: float = option(0.005, PART, needs=(_FOLLOWING,))
    policy_noise: float = option(0.2, NOT_NEGATIVE)
    noise_clip: float = option(0.5, NOT_NEGATIVE, needs=(_TARGET_NOISE,))
    policy_delay: int = option(2, STEPS)
    burn_in: int = option(0, Range(0, *STEPS[1:]))
    twin_critics: bool = option(True, fixed=True)
    actor_min_q: bool = False
    action_l2: float = option(0.0, NOT_NEGATIVE)
    actor_grad_clip: float | None = option(None, POSITIVE)
    critic_grad_clip: float | None = option(None, POSITIVE)
    atoms: int = option(0, ATOMS, fixed=True)
    v_min: float | None = option(None, FINITE, fixed=True)
    v_max: float | None = option(None, FINITE, fixed=True)
    r_min: float | None = option(None, FINITE)
    r_max: float | None = option(None, FINITE)
    bc_alpha: float | None = option(None, POSITIVE)
    bc_filter: bool = option(False, needs=(_BC,))
    residual: str | None = option(None, fixed=True)
    residual_at: int | None = option(None, Range(0, WIDTH.most), fixed=True)
    residual_scale: float = option(0.3, PART, fixed=True, needs=(_RESIDUAL,))
    residual_fade: float = option(0.0, SHARE, fixed=True, needs=(_RESIDUAL,))
    residual_joints: int | None = option(None, Range(1, WIDTH.most), fixed=True, needs=(_FADING,))
    privileged: int | None = option(None, Range(0, WIDTH.most), fixed=True)
    normalize_observations: bool = option(False, fixed=True)
    normalize_epsilon: float = option(1e-8, POSITIVE, fixed=True, needs=(_NORMALIZED,))
    normalize_clip: float = option(10.0, POSITIVE, fixed=True, needs=(_NORMALIZED,))

    def __post_init__(self):
        check(self)
        if not 1 <= len(self.hidden) <= LAYERS:
            raise ConfigError(f"hidden must name 1 to {LAYERS} layers, got {len(self.hidden)}")
        if len(self.critic_hidden) > LAYERS:
            raise ConfigError(
                f"critic_hidden must name at most {LAYERS} layers, got {len(self.critic_hidden)}"
            )
        if self.actor_min_q and not self.twin_critics:
            raise ConfigError(
                "actor_min_q needs two critics: set twin_critics to true, or leave it out"
            )
        ends = (self.v_min, self.v_max)
        if self.atoms == 0 and ends != (None, None):
            raise ConfigError("v_min and v_max have no effect without atoms, for example 101")
        if self.atoms and (
            self.atoms < 2
            or self.v_min is None
            or self.v_max is None
            or not self.v_min < self.v_max
        ):
            raise ConfigError(
                f"atoms must be 0, or 2 and more with v_min below v_max, got {self.atoms}, {ends}"
            )
        if self.is_residual and self.normalize_observations:
            raise ConfigError(
                "residual and normalize_observations exclude each other: set "
                "normalize_observations false, since the residual's column would be normalised"
            )
        if self.privileged and self.normalize_observations:
            raise ConfigError(
                "privileged and normalize_observations exclude each other: set "
                "normalize_observations false, or privileged 0"
            )
        if self.r_min is not None or self.r_max is not None:
            self._check_bounds()

    @property
    def is_residual(self) -> bool:
        """The actor corrects a controller."""
        return (self.residual, self.residual_at) != (None, None)

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the networks that have a target, a slow copy."""
        if self.critic == "targets":
            return ("actor", "Q1", "Q2")
        return ("actor",) if self.policy == "actor_target" else ()

    @property
    def critic_layers(self) -> tuple[int, ...]:
        """Units of each hidden layer of the critics."""
        return self.critic_hidden or self.hidden

    def _check_bounds(self) -> None:
        if self.atoms:
            raise ConfigError(
                "r_min and r_max have no effect with atoms, whose targets v_min and v_max bound"
            )
        if self.gamma == 1.0:
            raise ConfigError(
                "r_min and r_max bound no return without a discount: gamma must be below 1"
            )
        if self.r_min is not None and self.r_max is not None and self.r_min > self.r_max:
            raise ConfigError(f"r_min must be at most r_max, got {self.r_min} > {self.r_max}")


def resolve_config(config: TD3Config | None, options: Mapping[str, Any]) -> TD3Config:
    """Return a configuration, by default the paper's, with single fields over it.

    Args:
        options: fields of `TD3Config`; a width of hidden layers may be one number.

    Raises:
        KeywordError: there is no such field.
        ConfigError: a value is out of its range or of another type.
    """
    if not isinstance(config, TD3Config | None):
        kind = type(config).__name__
        raise ConfigError(f"config must be a TD3Config, such as the td3 of a Config, got a {kind}")
    options = dict(options)
    known = [item.name for item in dataclasses.fields(config or TD3Config)]
    for name in options.keys() - set(known):
        raise KeywordError(str(unknown("option of TD3", name, known)))
    for name in {"hidden", "critic_hidden"} & options.keys():
        widths = options[name]
        if isinstance(widths, Integral):
            options[name] = (widths,)
        elif isinstance(widths, Iterable):
            options[name] = tuple(widths)
    if config is None:
        return TD3Config(**options)
    return dataclasses.replace(config, **options) if options else config
