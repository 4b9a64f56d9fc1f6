"""The configuration of a run: typed, frozen, read from YAML files and the command line.

Later wins: defaults below < `configs/<task>.yaml` < `--config FILE` < flags. To add an option, add a field and
its line under "Attributes:"; the flag, the YAML key, the help and the type check follow from them.
Paths are seen from the working directory, but configs/ lies beside this package.
"""

import dataclasses
import functools
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from td3_robot.checkpoint import RUNS, find
from td3_robot.errors import ConfigError, unknown
from td3_robot.options import Schema, build, write_yaml
from td3_robot.schedules import SCHEDULES

CONFIGS = Path(__file__).resolve().parent.parent / "configs"

_POSITIVE = ("positive", lambda x: x > 0)
_NOT_NEGATIVE = ("zero or more", lambda x: x >= 0)


@dataclass(frozen=True)
class TD3Config:
    """The learning algorithm; the defaults are those of the authors' code, https://github.com/sfujim/TD3.

    Attributes:
        hidden: Units of each hidden layer, in the actor and in both critics.
        actor_lr: Learning rate of the actor.
        critic_lr: Learning rate of both critics.
        gamma: Discount of the reward one control step later, in [0, 1].
        tau: Share of the networks that goes into their targets at each target update, in (0, 1].
        policy_noise: Standard deviation of the noise on target actions, as a fraction of a_max.
        noise_clip: Largest noise on target actions, as a fraction of a_max.
        policy_delay: Critic updates for each update of the actor and the targets.
    """

    hidden: tuple[int, ...] = (256, 256)
    actor_lr: float = 3e-4
    critic_lr: float = 3e-4
    gamma: float = 0.99
    tau: float = 0.005
    policy_noise: float = 0.2
    noise_clip: float = 0.5
    policy_delay: int = 2

    def __post_init__(self):
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(f"td3.hidden must be one or more positive numbers, got {list(self.hidden)}")
        _check(self, "td3.", _POSITIVE, "actor_lr", "critic_lr", "policy_delay")
        _check(self, "td3.", _NOT_NEGATIVE, "policy_noise", "noise_clip")
        _check(self, "td3.", ("in [0, 1]", lambda x: 0 <= x <= 1), "gamma")
        _check(self, "td3.", ("in (0, 1]", lambda x: 0 < x <= 1), "tau")


@dataclass(frozen=True)
class ReplayConfig:
    """The replay buffer.

    Attributes:
        capacity: Transitions kept; the oldest go first.
        batch_size: Transitions of one gradient step.
    """

    capacity: int = 1_000_000
    batch_size: int = 256

    def __post_init__(self):
        _check(self, "replay.", _POSITIVE, "capacity", "batch_size")
        if self.batch_size > self.capacity:
            raise ConfigError(
                f"replay.batch_size must be at most replay.capacity, got {self.batch_size} > {self.capacity}"
            )


@dataclass(frozen=True)
class ExplorationConfig:
    """How the agent explores while it collects.

    Attributes:
        start_steps: Environment steps of uniformly random actions before the policy acts.
        noise: Standard deviation of the Gaussian noise on actions, as a fraction of a_max.
        per_env: Draw each environment's own deviation uniformly from 0 to twice `noise`, anew every episode.
    """

    start_steps: int = 25_000
    noise: float = 0.1
    per_env: bool = False

    def __post_init__(self):
        _check(self, "exploration.", _NOT_NEGATIVE, "start_steps", "noise")


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
            if getattr(self, name) not in SCHEDULES:
                raise unknown(f"schedule.{name}", getattr(self, name), SCHEDULES)
        _check(self, "schedule.", ("in [0, 1]", lambda x: 0 <= x <= 1), "lr_floor", "noise_floor")


@dataclass(frozen=True)
class EvaluationConfig:
    """The periodic evaluation during training.

    Attributes:
        every: Environment steps from one evaluation to the next.
        episodes: Episodes of each evaluation.
    """

    every: int = 50_000
    episodes: int = 1000

    def __post_init__(self):
        _check(self, "evaluation.", _POSITIVE, "every", "episodes")


@dataclass(frozen=True)
class Config:
    """The run.

    Attributes:
        robot: Robot to train, a file of configs/robots.
        task: Task to learn.
        run: Name of the new folder in checkpoints; by default the next free runN.
        seed: Seed of everything random.
        device: Where the networks and the simulation run: cpu, cuda, cuda:N, mps, or auto for the fastest there is.
        threads: CPU threads of torch; as many as cores stall when one of them is busy elsewhere.
        envs: Environments that step together.
        steps: Environment steps of the whole training, all environments counted.
        updates_per_step: Gradient steps each time that all environments have made one step.
        save_every: Seconds between saves of the resume point.
        td3: The learning algorithm.
        replay: The replay buffer.
        exploration: How the agent explores.
        schedule: How learning rates and noise fall over the run.
        evaluation: The periodic evaluation.
    """

    robot: str = "panda"
    task: str = "reach"
    run: str | None = None
    seed: int = 0
    device: str = "cpu"
    threads: int = 1
    envs: int = 64
    steps: int = 1_000_000
    updates_per_step: int = 1
    save_every: float = 60.0
    td3: TD3Config = field(default_factory=TD3Config)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    exploration: ExplorationConfig = field(default_factory=ExplorationConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self):
        _check(self, "", _POSITIVE, "threads", "envs", "steps", "updates_per_step", "save_every")
        _check(self, "", ("in [0, 2**32)", lambda x: 0 <= x < 2**32), "seed")
        _check_device(self.device)
        if self.envs > self.replay.capacity:
            raise ConfigError(f"envs must be at most replay.capacity, got {self.envs} > {self.replay.capacity}")


@dataclass(frozen=True)
class TrainArguments:
    """What `train.py` was asked to do.

    Attributes:
        config: The resolved configuration; its device is one that is there.
        resume: Folder of the run to continue, or None for a new run.
        swift: Show the robot in the browser.
    """

    config: Config
    resume: Path | None
    swift: bool


@dataclass(frozen=True)
class _TrainFlags:
    """What to start from.

    Attributes:
        config: YAML file of options; flags win over it.
        resume: Name or folder of a run to continue with its own configuration; flags win over it.
        swift: Show the robot in the browser while it learns.
    """

    config: Path | None = None
    resume: str | None = None
    swift: bool = False


@dataclass(frozen=True)
class EvaluateArguments:
    """What to measure, and how to show it.

    Attributes:
        checkpoint: Required: run name, checkpoint folder, or common prefix of the older checkpoint files.
        episodes: Episodes to roll out.
        seed: Seed of the starts and goals.
        device: Where the networks and the simulation run: cpu, cuda, cuda:N, mps, or auto for the fastest there is.
        json: File for the results; by default they are only printed.
        baseline: Controllers to measure on the same starts and goals, separated by commas: rrmc (resolved-rate
            motion control), random (uniformly random actions).
        swift: Show the robot in the browser.
        record: File for a recording of the browser view: .png (end of the first episode), .gif or .mp4 (three).
    """

    checkpoint: Path
    episodes: int = 1000
    seed: int = 12345
    device: str = "cpu"
    json: Path | None = None
    baseline: tuple[str, ...] = ()
    swift: bool = False
    record: Path | None = None

    def __post_init__(self):
        _check(self, "", _POSITIVE, "episodes")
        _check(self, "", ("in [0, 2**32)", lambda x: 0 <= x < 2**32), "seed")
        _check_device(self.device)


def parse_train(argv: list[str]) -> TrainArguments:
    """Read the command line of `train.py`, the configuration files it leads to included.

    Raises:
        ConfigError: anything wrong, in one line.
        SystemExit: after --help.
    """
    given = Schema("train.py", "Train a policy.", _TrainFlags, Config).read_flags(argv)
    flags = build(_TrainFlags, given)
    file = _read_file(flags.config) if flags.config else {}
    resume = None
    if flags.resume is None:
        base = _preset((file | given).get("task", Config.task))
    elif (file | given).get("run") is None:
        resume = _run_folder(flags.resume)
        base = _read_file(resume / "config.yaml")
    else:
        raise ConfigError("run and resume exclude each other: a run that is continued stays in its folder")
    config = build(Config, base | file | given)
    for name in ("robot", "task", "seed") if resume else ():
        before = base.get(name, getattr(Config, name))
        if getattr(config, name) != before:
            raise ConfigError(f"{name} of run {resume.name!r} is {before!r} and stays so when it is resumed")
    return TrainArguments(dataclasses.replace(config, device=resolve_device(config.device)), resume, flags.swift)


def parse_evaluate(argv: list[str]) -> EvaluateArguments:
    """Read the command line of `evaluate.py`; the checkpoint it names exists, the device is there.

    Raises:
        ConfigError, CheckpointError: anything wrong, in one line.
        SystemExit: after --help.
    """
    given = Schema("evaluate.py", "Measure a trained policy.", EvaluateArguments).read_flags(argv)
    if "checkpoint" not in given:
        raise ConfigError("--checkpoint is missing: name a run, a folder or a file prefix")
    arguments = build(EvaluateArguments, given)
    device = resolve_device(arguments.device)
    return dataclasses.replace(arguments, checkpoint=find(arguments.checkpoint), device=device)


def load_config(path: str | Path) -> Config:
    """Read a configuration file; what it leaves out has its default.

    Raises:
        ConfigError: the file is missing, is no YAML mapping, or holds an unknown option or a wrong value.
    """
    return build(Config, _read_file(Path(path)))


def config_of(checkpoint: Path) -> Config:
    """The configuration that a checkpoint was trained with: in its folder, or in the one above.

    Raises:
        ConfigError: there is none, or it is damaged.
    """
    for folder in (checkpoint, checkpoint.parent):
        if (folder / "config.yaml").is_file():
            return load_config(folder / "config.yaml")
    raise ConfigError(f"no config.yaml in or above {str(checkpoint)!r} says which robot and task it is for")


def save_config(config: Config, path: str | Path) -> None:
    """Write a configuration as plain YAML, complete or not at all; `load_config` gives it back equal.

    Raises:
        ConfigError: the file cannot be written.
    """
    write_yaml(dataclasses.asdict(config), Path(path))


def resolve_device(name: str) -> str:
    """The torch device that a --device means on this machine.

    Raises:
        ConfigError: it is not available; the message lists those that are.
    """
    if name == "cpu":
        return name
    import torch  # here: it takes over a second, which the common case need not wait for

    there = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    there = (["cuda"] if there else []) + there + (["mps"] if torch.backends.mps.is_available() else []) + ["cpu"]
    if name == "auto":
        return there[0]
    if name not in there:
        raise ConfigError(f"device {name!r} is not available on this machine; valid choices: {', '.join(there)}")
    return name


@functools.cache
def _file_schema() -> Schema:
    return Schema("", "", Config)


def _read_file(path: Path) -> dict[str, object]:
    return _file_schema().read_file(path)


def _preset(task: str) -> dict[str, object]:
    """The options shipped with a task; none where there is no such file."""
    path = CONFIGS / f"{task}.yaml"
    return _read_file(path) if path.parent == CONFIGS and os.path.isfile(path) else {}


def _run_folder(name: str) -> Path:
    """The folder of an existing run, given by its name or path.

    Raises:
        ConfigError: there is none.
    """
    for folder in (Path(name), RUNS / name):
        if os.path.isfile(folder / "config.yaml"):
            return folder
    runs = [path.parent.name for path in RUNS.glob("*/config.yaml")]
    raise unknown("run", name, runs) if runs else ConfigError(f"cannot resume {name!r}: no run in {str(RUNS)!r}")


def _check(part: object, prefix: str, rule: tuple[str, Callable[[float], bool]], *names: str) -> None:
    """Hold fields of a dataclass to a rule; `prefix` is how the user writes the dataclass."""
    text, test = rule
    for name in names:
        value = getattr(part, name)
        if not (abs(value) < math.inf and test(value)):  # unlike isfinite, takes any int
            raise ConfigError(f"{prefix}{name} must be {text}, got {value}")


def _check_device(name: str) -> None:
    """Hold a device to its spelling; whether it is there is `resolve_device`'s affair."""
    if not re.fullmatch(r"cpu|auto|mps|cuda(:[0-9]+)?", name):
        raise unknown("device", name, ("cpu", "cuda", "cuda:N", "mps", "auto"))
