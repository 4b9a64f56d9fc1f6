"""The configuration of a run: typed, frozen, checked. td3_robot/cli/arguments.py reads it.

To add an option, add a field and its line under "Attributes:"; the flag, the YAML key, the help and
the type check follow from them. An option that only works together with another one is refused
without it, never ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from td3_robot.config.field import (
    NOT_NEGATIVE,
    PART,
    POSITIVE,
    SEED,
    SHARE,
    STEPS,
    Range,
    Requires,
    check,
    option,
)
from td3_robot.config.schedules import SCHEDULES
from td3_robot.config.td3 import BATCHED, TD3Config
from td3_robot.errors import ConfigError
from td3_robot.utils.device import check_device

NOISES = ("gaussian", "ou", "pink")
HINDSIGHT = ("none", "future", "final", "episode")
PRECISIONS = ("highest", "high", "medium")

CAPACITY = Range(1, 10**12, "no memory holds more")
BATCH = Range(1, 10**7, "each update reads as many transitions")
N_STEP = Range(1, 10_000, "each transition of a batch reads as many rows")
PINK_STEPS = Range(1, 10**6, "so many steps are drawn ahead for every environment")
ENVS = Range(1, 10**6, "all of them step at once, in memory")
THREADS = Range(1, 1024, "systems refuse to start more")
SECONDS = Range(0, 1e9, "thirty years", above=True)

_COLLECTING = Requires("collecting, which a dataset replaces", lambda c: c.dataset is None)
_NOISE = Requires("exploration.noise above 0", lambda c: c.exploration.noise > 0)
_EXPERT = Requires(
    "exploration.expert, for example solution", lambda c: c.exploration.expert is not None
)
_PRIORITIES = Requires("replay.prioritized true", lambda c: c.replay.prioritized)
_MIXED = Requires("replay.dataset", lambda c: c.replay.dataset is not None)
_HINDSIGHT = Requires(
    "replay.hindsight future, final or episode", lambda c: c.replay.hindsight != "none"
)
_OU = Requires("exploration.kind ou", lambda c: c.exploration.kind == "ou")
_PINK = Requires("exploration.kind pink", lambda c: c.exploration.kind == "pink")
_LR_FALLS = Requires("schedule.lr linear or cosine", lambda c: c.schedule.lr != "constant")
_NOISE_FALLS = Requires("schedule.noise linear or cosine", lambda c: c.schedule.noise != "constant")


@dataclass(frozen=True)
class ReplayConfig:
    """Replay buffer.

    Which transitions are kept, and how the batches of gradient steps are sampled from them.

    Attributes:
        capacity: Transitions kept; the oldest are overwritten.
        batch_size: Transitions of one gradient step.
        n_step: Rewards summed before bootstrapping.
        prioritized: Sample transitions in proportion to their TD error, with importance weights.
        priority_alpha: How much the TD error counts, from 0 (not at all) to 1; needs prioritized.
        priority_beta: Initial exponent of the importance weights, rising to 1 over the run; needs
            prioritized.
        dataset: File of transitions that a share of each batch is sampled from; the rest is
            collected.
        dataset_share: Share of each batch that comes from it, rounded to whole transitions; needs
            dataset.
        hindsight: Goals to relabel with: none, future, final or episode (environments with goals
            only).
        hindsight_ratio: Share of each batch that is relabelled; needs hindsight.
        hindsight_still: Sampling weight of transitions of episodes whose achieved goal never moved;
            that of all others is 1; needs hindsight.
    """

    capacity: int = option(1_000_000, CAPACITY, needs=(_COLLECTING,))
    batch_size: int = option(256, BATCH)
    n_step: int = option(1, N_STEP)
    prioritized: bool = False
    priority_alpha: float = option(0.6, SHARE, fixed=True, needs=(_PRIORITIES,))
    priority_beta: float = option(0.4, SHARE, needs=(_PRIORITIES,))
    dataset: Path | None = option(None, fixed=bool, needs=(_COLLECTING,))
    dataset_share: float = option(0.5, PART, fixed=True, needs=(_MIXED,))
    # on or off stays: with hindsight other rows are kept
    hindsight: str = option(
        "none", HINDSIGHT, fixed=lambda kind: kind != "none", needs=(_COLLECTING,)
    )
    hindsight_ratio: float = option(0.8, SHARE, needs=(_HINDSIGHT,))
    hindsight_still: float = option(1.0, PART, fixed=True, needs=(_HINDSIGHT,))

    def __post_init__(self):
        check(self)
        if self.batch_size > self.capacity:
            raise ConfigError(
                f"batch_size must be at most capacity, got {self.batch_size} > {self.capacity}"
            )
        if self.dataset is not None and self.prioritized:
            raise ConfigError(
                "dataset and prioritized exclude each other: set prioritized "
                "false, or leave dataset out"
            )
        if self.dataset is not None and not 0 < self.dataset_rows < self.batch_size:
            rows = f"{self.dataset_rows} of {self.batch_size}"
            raise ConfigError(
                f"dataset_share must leave both parts a transition of each batch, got {rows}"
            )
        if self.hindsight != "none" and (self.prioritized or self.n_step > 1):
            other = "prioritized" if self.prioritized else "n_step"
            raise ConfigError(
                f"hindsight and {other} exclude each other: set n_step 1 and prioritized false, or "
                "hindsight none"
            )

    @property
    def dataset_rows(self) -> int:
        """Transitions of each batch that come from the dataset."""
        return round(self.dataset_share * self.batch_size)


@dataclass(frozen=True)
class RewardConfig:
    """Rewards for the learner.

    How rewards are scaled before they are stored; evaluations report them unscaled.

    Attributes:
        scale: Factor of every reward that is stored.
        clip: Largest magnitude of a reward, after scaling; null for no limit.
        normalize: Divide by the running standard deviation of the discounted return.
    """

    scale: float = option(1.0, POSITIVE, fixed=True)
    clip: float | None = option(None, POSITIVE, fixed=True)
    normalize: bool = option(False, fixed=True)

    def __post_init__(self):
        check(self)


@dataclass(frozen=True)
class ExplorationConfig:
    """Exploration.

    How the agent acts while it collects: random steps first, then noise, and an expert's episodes.

    Attributes:
        start_steps: Environment steps of uniformly random actions before the policy acts.
        random_share: Share of the later steps whose actions are uniformly random, too.
        kind: Noise on actions: gaussian (independent), ou (Ornstein-Uhlenbeck) or pink (1/f).
        noise: Standard deviation of the noise on actions, as a fraction of a_max.
        per_env: Sample each environment's own deviation uniformly from 0 to twice `noise`, in every
            episode.
        uncertainty: Scale the noise, from half to twice, by how far the two critics disagree about
            the action.
        ou_theta: Share of Ornstein-Uhlenbeck noise that decays each step; needs kind ou.
        pink_steps: Length of the sequences of pink noise, about that of an episode; needs kind
            pink.
        expert: Controller that acts in a share of the episodes, for the policy to learn from; null
            for none.
        expert_share: Initial share of the episodes that the expert acts in; needs expert.
        expert_until: Share of the run over which `expert_share` falls linearly to zero; needs
            expert.
        expert_delay: Most steps that the policy makes first in an episode of the expert; needs
            expert.
    """

    start_steps: int = option(25_000, Range(0, *STEPS[1:]), needs=(_COLLECTING,))
    random_share: float = option(0.0, SHARE, needs=(_COLLECTING,))
    kind: str = option("gaussian", NOISES, fixed=True, needs=(_NOISE, _COLLECTING))
    noise: float = option(0.1, NOT_NEGATIVE, needs=(_COLLECTING,))
    per_env: bool = option(False, needs=(_NOISE, _COLLECTING))
    uncertainty: bool = option(False, needs=(_NOISE, _COLLECTING))
    ou_theta: float = option(0.15, PART, needs=(_OU,))
    pink_steps: int = option(1000, PINK_STEPS, fixed=True, needs=(_PINK,))
    expert: str | None = option(None, needs=(_COLLECTING,), aliases=("guide",))
    expert_share: float = option(0.25, SHARE, needs=(_EXPERT,), aliases=("guide_share",))
    expert_until: float = option(1.0, PART, needs=(_EXPERT,), aliases=("guide_until",))
    expert_delay: int = option(0, Range(0, *STEPS[1:]), needs=(_EXPERT,), aliases=("guide_delay",))

    def __post_init__(self):
        check(self)


@dataclass(frozen=True)
class ScheduleConfig:
    """Schedules.

    Learning rates and exploration noise over the run: constant, linear or cosine.

    Attributes:
        lr: Schedule of all learning rates.
        lr_floor: Share of the initial learning rates that stays, in [0, 1].
        noise: Schedule of the exploration noise.
        noise_floor: Share of the initial noise that stays, in [0, 1].
    """

    lr: str = option("constant", tuple(SCHEDULES))
    lr_floor: float = option(0.0, SHARE, needs=(_LR_FALLS,))
    noise: str = option("constant", tuple(SCHEDULES), needs=(_NOISE, _COLLECTING))
    noise_floor: float = option(0.0, SHARE, needs=(_NOISE_FALLS,))

    def __post_init__(self):
        check(self)


@dataclass(frozen=True)
class EvaluationConfig:
    """Periodic evaluation.

    How often the policy is evaluated during training, on how many episodes, and what is kept.

    Attributes:
        every: Environment steps from one evaluation to the next.
        episodes: Episodes of each evaluation; with 0 the training episodes judge the policy.
        keep: Evaluations from one permanently kept checkpoint, step_N in the run folder, to the
            next; 0 keeps none.
    """

    REMOVED: ClassVar[Mapping[str, str]] = {"process": "evaluations take place between two steps"}

    every: int = option(50_000, STEPS, basic=True)
    # none or some: what is best goes by it
    episodes: int = option(1000, Range(0, *ENVS[1:]), fixed=bool)
    keep: int = option(0, Range(0, *STEPS[1:]))

    def __post_init__(self):
        check(self)


@dataclass(frozen=True)
class Config:
    """Run.

    Name, length, seed and device of a training.

    Attributes:
        dataset: Transitions to learn from offline (.npz, .hdf5, or a Minari or LeRobot dataset);
            nothing is collected, and steps counts gradient steps.
        start_from: Run, checkpoint folder or older file prefix whose networks this run begins with.
        run: Name of the new folder in checkpoints; by default the next free runN.
        seed: Seed of everything random.
        seeds: Train a run for each of these seeds, in the folders seedN of one folder, as many in
            parallel as there are cores; empty for one run.
        device: Device of networks and simulation: cpu, cuda, cuda:N, mps, or auto for the fastest
            available.
        cuda_graph: Record each kind of gradient step as a CUDA graph and replay it; needs device
            cuda.
        threads: CPU threads of torch; as many as cores stall when one of them is busy elsewhere.
        matmul_precision: Precision of float32 products, as in torch.set_float32_matmul_precision:
            highest; high, TF32 on GPUs; or medium, bfloat16 if the processor multiplies in it.
            Results stay float32.
        num_envs: Environments that step together.
        steps: Environment steps of the whole training, all environments counted.
        updates_per_step: Gradient steps each time that all environments have made one step.
        stop_when_solved: End the run at the first evaluation with a success rate of 99% or more.
        save_every: Seconds between saves of the resume point.
        mlflow: Log to MLflow, too.
        td3: The learning algorithm.
        replay: The replay buffer.
        reward: Scaling of the rewards for the learner.
        exploration: Exploration while the agent collects.
        schedule: Schedules of learning rates and noise.
        evaluation: The periodic evaluation.
    """

    dataset: Path | None = option(None, fixed=bool)
    start_from: Path | None = option(None, fixed=True, basic=True)
    run: str | None = option(None, basic=True)
    seed: int = option(0, SEED, fixed=True, basic=True)
    seeds: tuple[int, ...] = option((), SEED, fixed=True, basic=True)
    device: str = option("cpu", basic=True)
    cuda_graph: bool = False
    threads: int = option(1, THREADS)
    matmul_precision: str = option("highest", PRECISIONS)
    num_envs: int = option(
        64, ENVS, fixed=True, needs=(_COLLECTING,), aliases=("envs",), basic=True
    )
    steps: int = option(1_000_000, STEPS, basic=True)
    updates_per_step: int = option(1, STEPS, needs=(_COLLECTING,), basic=True)
    stop_when_solved: bool = False
    save_every: float = option(60.0, SECONDS)
    mlflow: bool = False
    td3: TD3Config = field(default_factory=TD3Config)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    exploration: ExplorationConfig = field(default_factory=ExplorationConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self):
        check(self)
        check_device(self.device)
        # auto is resolved before anything runs
        if self.cuda_graph and not self.device.startswith(("cuda", "auto")):
            raise ConfigError(
                f"cuda_graph needs device cuda or cuda:N, got {self.device!r}: "
                "set it false elsewhere"
            )
        if self.seeds and self.seed:
            raise ConfigError(
                "seed and seeds exclude each other: leave seed out, since "
                "seeds names that of each run"
            )
        if len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"seeds must differ from each other, got {self.seeds}")
        if self.reward.normalize and self.dataset is not None:
            raise ConfigError(
                "reward.normalize and dataset exclude each other; set reward.scale instead"
            )
        scaled = "reward.normalize" if self.reward.normalize else "reward.scale"
        if (self.reward.normalize or self.reward.scale != 1) and (
            (self.td3.r_min, self.td3.r_max) != (None, None)
        ):
            raise ConfigError(
                f"{scaled} and td3.r_min or r_max exclude each other: the bounds are of rewards as "
                "the environment gives them; leave one of them out"
            )
        if self.reward.normalize and self.replay.dataset is not None:
            raise ConfigError(
                "reward.normalize and replay.dataset exclude each other; set reward.scale instead"
            )
        if self.td3.norm in BATCHED and self.replay.batch_size < 2:
            raise ConfigError(
                f"td3.norm {self.td3.norm} needs replay.batch_size above 1, "
                f"got {self.replay.batch_size}"
            )
        if self.exploration.uncertainty and not self.td3.twin_critics:
            raise ConfigError(
                "exploration.uncertainty needs two critics: "
                "set td3.twin_critics true, or leave it out"
            )
        if self.num_envs > self.replay.capacity:
            raise ConfigError(
                f"num_envs must be at most replay.capacity, "
                f"got {self.num_envs} > {self.replay.capacity}"
            )

    def require_steps_to_learn(self) -> None:
        """Check that the steps of random actions leave some to learn in.

        Raises:
            ConfigError: they are all steps of the training.
        """
        start = self.exploration.start_steps
        if self.dataset is None and self.steps <= start:
            raise ConfigError(
                "steps must be above exploration.start_steps, "
                f"before which nothing is learned, got {self.steps} <= {start}"
            )
