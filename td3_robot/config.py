"""The configuration of a run: typed, frozen, checked. How it is read: arguments.py.

To add an option, add a field and its line under "Attributes:"; the flag, the YAML key, the help and the type check
follow from them. An option that only works together with another one is refused without it, never ignored.
"""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from td3_robot.errors import ConfigError, unknown
from td3_robot.schedules import SCHEDULES

_POSITIVE = ("positive", lambda x: x > 0)
_NOT_NEGATIVE = ("zero or more", lambda x: x >= 0)
_SHARE = ("in [0, 1]", lambda x: 0 <= x <= 1)

NORMS = ("none", "layer", "batch")
INITS = ("default", "orthogonal")
NOISES = ("gaussian", "ou", "pink")
HINDSIGHT = ("none", "future", "final", "episode")

_COLLECTING = (  # what only matters where transitions are collected
    *("exploration.start_steps", "exploration.kind", "exploration.noise", "exploration.per_env"),
    *("exploration.uncertainty", "exploration.guide", "schedule.noise"),
    *("envs", "updates_per_step", "replay.capacity", "replay.hindsight"),
)


@dataclass(frozen=True)
class TD3Config:
    """The learning algorithm; the defaults are those of the authors' code, https://github.com/sfujim/TD3.

    Attributes:
        hidden: Units of each hidden layer, in the actor and in both critics.
        norm: Normalisation after each hidden layer: none, layer or batch.
        init: Initial weights: default (PyTorch's) or orthogonal.
        final_bound: Draw the last layers' weights uniformly from plus and minus this; 0 leaves them to `init`.
        actor_lr: Learning rate of the actor.
        critic_lr: Learning rate of both critics.
        gamma: Discount of the reward one control step later, in [0, 1].
        tau: Share of the networks that goes into their targets at each target update, in (0, 1].
        policy_noise: Standard deviation of the noise on target actions, as a fraction of a_max.
        noise_clip: Largest noise on target actions, as a fraction of a_max.
        policy_delay: Critic updates for each update of the actor and the targets.
        twin_critics: Learn two critics and bootstrap from the lower; false leaves Q2 out, as DDPG does.
        actor_min_q: The actor ascends the lower of both critics in place of Q1.
        action_l2: Weight of the mean square of the policy's actions, in fractions of a_max, in the actor's loss.
        actor_grad_clip: Largest norm of the actor's gradient; null for no limit.
        critic_grad_clip: Largest norm of each critic's gradient; null for no limit.
        atoms: Atoms of distributional critics (C51); 0 for critics that give the mean alone.
        v_min: Return at the first atom; needs atoms.
        v_max: Return at the last atom; needs atoms.
        bc_alpha: TD3+BC: weight of the value beside imitating the replay's actions; null for no imitation.
        bc_filter: Imitate only those actions that Q1 values above the policy's own; needs bc_alpha.
        normalize_observations: Give the networks observations less their running mean, over their deviation.
    """

    hidden: tuple[int, ...] = (256, 256)
    norm: str = "none"
    init: str = "default"
    final_bound: float = 0.0
    actor_lr: float = 3e-4
    critic_lr: float = 3e-4
    gamma: float = 0.99
    tau: float = 0.005
    policy_noise: float = 0.2
    noise_clip: float = 0.5
    policy_delay: int = 2
    twin_critics: bool = True
    actor_min_q: bool = False
    action_l2: float = 0.0
    actor_grad_clip: float | None = None
    critic_grad_clip: float | None = None
    atoms: int = 0
    v_min: float | None = None
    v_max: float | None = None
    bc_alpha: float | None = None
    bc_filter: bool = False
    normalize_observations: bool = False

    def __post_init__(self):
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(f"td3.hidden must be one or more positive numbers, got {list(self.hidden)}")
        _choose("td3.norm", self.norm, NORMS)
        _choose("td3.init", self.init, INITS)
        check(self, "td3.", _POSITIVE, "actor_lr", "critic_lr", "policy_delay")
        check(self, "td3.", _POSITIVE, "actor_grad_clip", "critic_grad_clip", "bc_alpha")
        check(self, "td3.", _NOT_NEGATIVE, "final_bound", "policy_noise", "noise_clip", "action_l2")
        check(self, "td3.", _SHARE, "gamma")
        check(self, "td3.", ("in (0, 1]", lambda x: 0 < x <= 1), "tau")
        if self.actor_min_q and not self.twin_critics:
            raise ConfigError("td3.actor_min_q needs two critics: set td3.twin_critics to true, or leave it out")
        self._check_atoms()

    def _check_atoms(self) -> None:
        if self.atoms == 0:
            if self.v_min is not None or self.v_max is not None:
                raise ConfigError("td3.v_min and td3.v_max have no effect without td3.atoms, for example 101")
            return
        check(self, "td3.", ("0 or at least 2", lambda x: x >= 2), "atoms")
        if self.v_min is None or self.v_max is None or not self.v_min < self.v_max:
            raise ConfigError(f"td3.atoms needs td3.v_min below td3.v_max, got {self.v_min} and {self.v_max}")


@dataclass(frozen=True)
class ReplayConfig:
    """The replay buffer.

    Attributes:
        capacity: Transitions kept; the oldest go first.
        batch_size: Transitions of one gradient step.
        n_step: Rewards summed before bootstrapping.
        prioritized: Draw transitions in proportion to their TD error, with importance weights.
        priority_alpha: How much the TD error counts, from 0 (not at all) to 1; needs prioritized.
        priority_beta: Initial exponent of the importance weights, rising to 1 over the run; needs prioritized.
        hindsight: Goals to relabel with: none, future, final or episode (environments with goals only).
        hindsight_ratio: Share of each batch that is relabelled; needs hindsight.
    """

    capacity: int = 1_000_000
    batch_size: int = 256
    n_step: int = 1
    prioritized: bool = False
    priority_alpha: float = 0.6
    priority_beta: float = 0.4
    hindsight: str = "none"
    hindsight_ratio: float = 0.8

    def __post_init__(self):
        check(self, "replay.", _POSITIVE, "capacity", "batch_size", "n_step")
        check(self, "replay.", _SHARE, "priority_alpha", "priority_beta", "hindsight_ratio")
        _choose("replay.hindsight", self.hindsight, HINDSIGHT)
        if self.batch_size > self.capacity:
            raise ConfigError(
                f"replay.batch_size must be at most replay.capacity, got {self.batch_size} > {self.capacity}"
            )
        if self.hindsight != "none" and (self.prioritized or self.n_step > 1):
            other = "replay.prioritized" if self.prioritized else "replay.n_step"
            raise ConfigError(
                f"replay.hindsight and {other} exclude each other: errors and returns of a former goal say nothing "
                "about the new one"
            )


@dataclass(frozen=True)
class RewardConfig:
    """What the learner makes of rewards; evaluations report them as the environment gives them.

    Attributes:
        scale: Factor of every reward that is stored.
        clip: Largest magnitude of a reward, after scaling; null for no limit.
        normalize: Divide by the running standard deviation of the discounted return.
    """

    scale: float = 1.0
    clip: float | None = None
    normalize: bool = False

    def __post_init__(self):
        check(self, "reward.", _POSITIVE, "scale", "clip")


@dataclass(frozen=True)
class ExplorationConfig:
    """How the agent explores while it collects.

    Attributes:
        start_steps: Environment steps of uniformly random actions before the policy acts.
        kind: Noise on actions: gaussian (independent), ou (Ornstein-Uhlenbeck) or pink (1/f).
        noise: Standard deviation of the noise on actions, as a fraction of a_max.
        per_env: Draw each environment's own deviation uniformly from 0 to twice `noise`, anew every episode.
        uncertainty: Scale the noise, from half to twice, by how far the two critics disagree about the action.
        ou_theta: Share of Ornstein-Uhlenbeck noise that decays each step; needs kind ou.
        pink_steps: Length of the sequences of pink noise, about that of an episode; needs kind pink.
        guide: Controller that acts in a share of the episodes, for the policy to learn from; null for none.
        guide_share: Share of the episodes that the guide acts in, at first; needs guide.
        guide_until: Share of the run over which `guide_share` falls linearly to zero; needs guide.
        guide_delay: Steps, up to so many, that the policy makes first in an episode of the guide; needs guide.
    """

    start_steps: int = 25_000
    kind: str = "gaussian"
    noise: float = 0.1
    per_env: bool = False
    uncertainty: bool = False
    ou_theta: float = 0.15
    pink_steps: int = 1000
    guide: str | None = None
    guide_share: float = 0.25
    guide_until: float = 1.0
    guide_delay: int = 0

    def __post_init__(self):
        check(self, "exploration.", _NOT_NEGATIVE, "start_steps", "noise", "guide_delay")
        check(self, "exploration.", _POSITIVE, "pink_steps")
        check(self, "exploration.", ("in (0, 1]", lambda x: 0 < x <= 1), "ou_theta", "guide_until")
        check(self, "exploration.", _SHARE, "guide_share")
        _choose("exploration.kind", self.kind, NOISES)


@dataclass(frozen=True)
class ScheduleConfig:
    """How learning rates and exploration noise fall over the run: constant, linear or cosine.

    Attributes:
        lr: Schedule of all learning rates.
        lr_floor: Share of the initial learning rates that stays, in [0, 1].
        noise: Schedule of the exploration noise.
        noise_floor: Share of the initial noise that stays, in [0, 1].
    """

    lr: str = "constant"
    lr_floor: float = 0.0
    noise: str = "constant"
    noise_floor: float = 0.0

    def __post_init__(self):
        for name in ("lr", "noise"):
            _choose(f"schedule.{name}", getattr(self, name), SCHEDULES)
        check(self, "schedule.", _SHARE, "lr_floor", "noise_floor")


@dataclass(frozen=True)
class EvaluationConfig:
    """The periodic evaluation during training.

    Attributes:
        every: Environment steps from one evaluation to the next.
        episodes: Episodes of each evaluation; 0 for none: the episodes of the training then judge the policy.
        keep: Evaluations from one checkpoint kept for good, in step_N of the run folder, to the next; 0 keeps none.
    """

    every: int = 50_000
    episodes: int = 1000
    keep: int = 0

    def __post_init__(self):
        check(self, "evaluation.", _POSITIVE, "every")
        check(self, "evaluation.", _NOT_NEGATIVE, "episodes", "keep")


@dataclass(frozen=True)
class Config:
    """The run.

    Attributes:
        robot: Robot to train, a file of configs/robots, or the path of a URDF or xacro file.
        task: Task to learn.
        gripper: Gripper to mount in place of the robot's own, or none.
        tcp: Link of the robot's URDF to control; needs a robot given by its file.
        sparse: Pay -1 for each step short of success and 0 for a success, in place of the task's dense reward.
        guard: Brake for obstacles, the ground and the arm itself, whatever the policy asks for.
        env: Gymnasium id to train on in place of a robot and its task.
        dataset: File of transitions to learn from offline; nothing is collected, and steps counts gradient steps.
        start_from: Run, checkpoint folder or older file prefix whose networks this run begins with.
        run: Name of the new folder in checkpoints; by default the next free runN.
        seed: Seed of everything random.
        device: Where the networks and the simulation run: cpu, cuda, cuda:N, mps, or auto for the fastest there is.
        threads: CPU threads of torch; as many as cores stall when one of them is busy elsewhere.
        envs: Environments that step together.
        steps: Environment steps of the whole training, all environments counted.
        updates_per_step: Gradient steps each time that all environments have made one step.
        stop_when_solved: End the run at the first evaluation with a success rate of 99% or more.
        save_every: Seconds between saves of the resume point.
        mlflow: Log to MLflow, too.
        td3: The learning algorithm.
        replay: The replay buffer.
        reward: What the learner makes of rewards.
        exploration: How the agent explores.
        schedule: How learning rates and noise fall over the run.
        evaluation: The periodic evaluation.
    """

    robot: str = "panda"
    task: str = "reach"
    gripper: str | None = None
    tcp: str | None = None
    sparse: bool = False
    guard: bool = False
    env: str | None = None
    dataset: Path | None = None
    start_from: Path | None = None
    run: str | None = None
    seed: int = 0
    device: str = "cpu"
    threads: int = 1
    envs: int = 64
    steps: int = 1_000_000
    updates_per_step: int = 1
    stop_when_solved: bool = False
    save_every: float = 60.0
    mlflow: bool = False
    td3: TD3Config = field(default_factory=TD3Config)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    exploration: ExplorationConfig = field(default_factory=ExplorationConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self):
        check(self, "", _POSITIVE, "threads", "envs", "steps", "updates_per_step", "save_every")
        check(self, "", ("in [0, 2**32)", lambda x: 0 <= x < 2**32), "seed")
        check_device(self.device)
        if self.reward.normalize and self.dataset is not None:
            raise ConfigError("reward.normalize and dataset exclude each other; set reward.scale instead")
        if self.td3.norm == "batch" and self.replay.batch_size < 2:
            raise ConfigError(f"td3.norm batch needs replay.batch_size above 1, got {self.replay.batch_size}")
        if self.exploration.uncertainty and not self.td3.twin_critics:
            raise ConfigError("exploration.uncertainty needs two critics: set td3.twin_critics true, or leave it out")
        if self.envs > self.replay.capacity:
            raise ConfigError(f"envs must be at most replay.capacity, got {self.envs} > {self.replay.capacity}")


# Options that do nothing unless another one is set: (option, what it needs, whether a Config has that).
NEEDS: tuple[tuple[str, str, Callable[[Config], bool]], ...] = (
    ("replay.priority_alpha", "replay.prioritized true", lambda c: c.replay.prioritized),
    ("replay.priority_beta", "replay.prioritized true", lambda c: c.replay.prioritized),
    ("replay.hindsight_ratio", "replay.hindsight future, final or episode", lambda c: c.replay.hindsight != "none"),
    ("exploration.ou_theta", "exploration.kind ou", lambda c: c.exploration.kind == "ou"),
    ("exploration.pink_steps", "exploration.kind pink", lambda c: c.exploration.kind == "pink"),
    ("td3.bc_filter", "td3.bc_alpha, for example 2.5", lambda c: c.td3.bc_alpha is not None),
    ("exploration.guide_share", "exploration.guide, for example solution", lambda c: c.exploration.guide is not None),
    ("exploration.guide_until", "exploration.guide, for example solution", lambda c: c.exploration.guide is not None),
    ("exploration.guide_delay", "exploration.guide, for example solution", lambda c: c.exploration.guide is not None),
    ("exploration.guide", "a robot and its task", lambda c: c.env is None),
    ("schedule.lr_floor", "schedule.lr linear or cosine", lambda c: c.schedule.lr != "constant"),
    ("schedule.noise_floor", "schedule.noise linear or cosine", lambda c: c.schedule.noise != "constant"),
    ("exploration.kind", "exploration.noise above 0", lambda c: c.exploration.noise > 0),
    ("exploration.per_env", "exploration.noise above 0", lambda c: c.exploration.noise > 0),
    ("exploration.uncertainty", "exploration.noise above 0", lambda c: c.exploration.noise > 0),
    ("schedule.noise", "exploration.noise above 0", lambda c: c.exploration.noise > 0),
    ("td3.noise_clip", "td3.policy_noise above 0", lambda c: c.td3.policy_noise > 0),
    *((name, "collecting, which a dataset replaces", lambda c: c.dataset is None) for name in _COLLECTING),
)


def check(part: object, prefix: str, rule: tuple[str, Callable[[float], bool]], *names: str) -> None:
    """Hold fields of a dataclass, null ones apart, to a rule; `prefix` is how the user writes the dataclass."""
    text, test = rule
    for name in names:
        value = getattr(part, name)
        if value is not None and not (abs(value) < math.inf and test(value)):  # unlike isfinite, takes any int
            raise ConfigError(f"{prefix}{name} must be {text}, got {value}")


def _choose(option: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        raise unknown(option, value, choices)


def check_device(name: str) -> None:
    """Hold a device to its spelling; whether it is there is `arguments.resolve_device`'s affair."""
    if not re.fullmatch(r"cpu|auto|mps|cuda(:[0-9]+)?", name):
        raise unknown("device", name, ("cpu", "cuda", "cuda:N", "mps", "auto"))
