"""The command lines of train.py and evaluate.py, and the configuration files they lead to.

Later wins: defaults of config.py < the preset, `configs/<task>.yaml` or `configs/gymnasium/*.yaml` < `--config FILE`
< flags. Paths are seen from the working directory, but configs/ lies beside this package.
"""

import dataclasses
import functools
import operator
import os
import re
import reprlib
from dataclasses import dataclass
from pathlib import Path

from td3_robot.checkpoint import RUNS, find
from td3_robot.config import Config, check_device
from td3_robot.errors import ConfigError, unknown
from td3_robot.fields import NOT_NEGATIVE, SEED, Range, check, leaves, option
from td3_robot.options import Schema, build, write_yaml

CONFIG_NAME = "config.yaml"  # in a run folder
CONFIGS = Path(__file__).resolve().parent.parent / "configs"

_GOALS = ("AntMaze", "Fetch", "Hand", "Panda", "PointMaze")  # ids of gymnasium-robotics and panda-gym with goals
_PLAIN_ID = re.compile(r"([\w.-]+/)?[\w.-]+", re.ASCII)  # of a Gymnasium id that imports nothing


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
        env: The checkpoint's own Gymnasium id with the module that registers it, module:id; a module is never taken
            from the checkpoint itself.
        episodes: Episodes to roll out.
        seed: Seed of the starts and goals.
        device: Where the networks and the simulation run: cpu, cuda, cuda:N, mps, or auto for the fastest there is.
        json: File for the results; by default they are only printed.
        baseline: Controllers to measure on the same starts and goals, separated by commas: random (uniformly random
            actions) and, for robots, rrmc (resolved-rate motion control), neo (a reactive controller that keeps clear
            of joint limits and obstacles; needs the extra neo), reactive (nearly neo, without a solver) and pick (the
            scripted pick); empty for none. They act without the guard that the policy may have, unless +guard is added
            to the name.
        guard: Whether the guard acts on the policy, in place of what it was trained with; robots only.
        report: Folder for a page, index.html, with the table, charts, paths and every failure; robots only.
        episode: Number, from 0, of the one of these episodes to measure, and to show with swift, record or plot;
            robots only.
        swift: Show the robot in the browser.
        record: File for a recording of the browser view: .png (end of the first episode), .gif or .mp4 (three).
        plot: File for a picture (.png) of reward and actions over one episode, beside random actions.
        dataset: File for transitions of the policy (.npz), for `train.py --dataset`.
        transitions: Transitions of the dataset.
        noise: Standard deviation of the Gaussian noise on the actions of the dataset, as a fraction of a_max.
    """

    checkpoint: Path
    env: str | None = None
    episodes: int = option(1000, Range(1, 10**7, "the figures of all are kept in memory"))
    seed: int = option(12345, SEED)
    device: str = "cpu"
    json: Path | None = None
    baseline: tuple[str, ...] = ("random",)
    guard: bool | None = None
    report: Path | None = None
    episode: int | None = None
    swift: bool = False
    record: Path | None = None
    plot: Path | None = None
    dataset: Path | None = None
    transitions: int = option(100_000, Range(1, 10**9, "all are kept in memory"))
    noise: float = option(0.0, NOT_NEGATIVE)

    def __post_init__(self):
        check(self)
        check_device(self.device)
        if self.episode is not None:
            _check_episode(self)


def _check_episode(asked: EvaluateArguments) -> None:
    """Refuse a number that is none of the episodes, and what is about all of them."""
    if not 0 <= asked.episode < asked.episodes:
        raise ConfigError(f"episode must be from 0 to {asked.episodes - 1}, one of the episodes, got {asked.episode}")
    for name in ("report", "dataset"):
        if getattr(asked, name) is not None:
            raise ConfigError(f"episode and {name} exclude each other: {name} is about all episodes")


def parse_train(argv: list[str]) -> TrainArguments:
    """Read the command line of `train.py`, the configuration files it leads to included.

    Raises:
        ConfigError, CheckpointError: anything wrong, in one line.
        SystemExit: after --help.
    """
    given = Schema("train.py", "Train a policy.", _TrainFlags, Config).read_flags(argv)
    flags = build(_TrainFlags, given)
    file, own = _read_file(flags.config) if flags.config else {}, _is_of_run(flags.config)
    if own and file.get("run") == flags.config.absolute().parent.name:
        del file["run"]  # that run has its name already
    asked = file | given
    resume = None
    if flags.resume is None:
        base = _preset(asked)
    elif asked.get("run") is None:
        resume = _run_folder(flags.resume)
        base = _read_file(resume / CONFIG_NAME)
    else:
        raise ConfigError("run and resume exclude each other: a run that is continued stays in its folder")
    config = build(Config, base | asked)
    _refuse_module(config.env, given.get("env"))
    _refuse_idle(config, given if own else asked, flags.swift)
    if resume is not None:
        _refuse_changes(build(Config, base), config, resume.name)
    if config.start_from is not None and resume is None:
        config = dataclasses.replace(config, start_from=find(config.start_from))
    return TrainArguments(dataclasses.replace(config, device=resolve_device(config.device)), resume, flags.swift)


def _is_of_run(path: Path | None) -> bool:
    """Whether a file is what a run wrote: all options are in it, those too that wait for their switch."""
    return path is not None and path.name == CONFIG_NAME


def _refuse_module(env: str | None, named: str | None) -> None:
    """Hold an environment that a file gives to a plain id: only the command line may name a module, which then runs.

    Raises:
        ConfigError: the file gives anything else, and the command line does not name it.
    """
    if env is not None and named is None and not _PLAIN_ID.fullmatch(env):
        shown = reprlib.repr(env)
        raise ConfigError(f"env {shown} comes from a file and is no plain id; if you trust it, say so: --env {shown}")


def _id_of(env: str | None) -> str | None:
    """An environment's id without the module that registers it."""
    return env and env.rpartition(":")[2]


def _refuse_changes(before: Config, now: Config, run: str) -> None:
    """Hold a run that is resumed to what it is about.

    Raises:
        ConfigError: names an option that stays.
    """
    for name, item in leaves(Config):
        old, new = (operator.attrgetter(name)(config) for config in (before, now))
        same = old == new or (name == "env" and _id_of(old) == _id_of(new))
        if item.metadata.get("fixed") and not same:
            raise ConfigError(f"{name} of run {run!r} is {old!r} and stays so when it is resumed")


def _refuse_idle(config: Config, asked: dict[str, object], swift: bool) -> None:
    """Refuse options that would do nothing, unless they have their default; in a preset they wait for their switch.

    Raises:
        ConfigError: names the option and what it needs.
    """
    for name, item in leaves(Config):
        for need in item.metadata.get("needs", ()):
            if asked.get(name, item.default) != item.default and not need.there(config):
                raise ConfigError(f"{name} has no effect without {need.text}")
    if config.env is not None:
        for name in ("robot", "task", "gripper", "tcp", "sparse", "guard"):
            if getattr(config, name) != getattr(Config, name):
                raise ConfigError(f"env and {name} exclude each other: a Gymnasium environment brings its own")
        if config.exploration.guide is not None:
            raise ConfigError("exploration.guide has no effect without a robot and its task")
        if swift:
            raise ConfigError("swift shows our own robots; it cannot show a Gymnasium environment")


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
    for name in ("transitions", "noise"):
        if getattr(arguments, name) != getattr(EvaluateArguments, name) and arguments.dataset is None:
            raise ConfigError(f"{name} has no effect without dataset, the file to write")
    device = resolve_device(arguments.device)
    return dataclasses.replace(arguments, checkpoint=find(arguments.checkpoint), device=device)


def load_config(path: str | Path) -> Config:
    """Read a configuration file; what it leaves out has its default.

    Raises:
        ConfigError: the file is missing, is no YAML mapping, or holds an unknown option or a wrong value.
    """
    return build(Config, _read_file(Path(path)))


def config_of(checkpoint: Path, env: str | None = None) -> Config:
    """The configuration that a checkpoint was trained with: in its folder, or in the one above.

    Args:
        checkpoint: its folder, or prefix.
        env: the same environment as the user names it, maybe with a module to import; one that only the checkpoint
            names is refused.

    Raises:
        ConfigError: there is none, it is damaged, or it is of another environment.
    """
    for folder in (checkpoint, checkpoint.parent):
        if (folder / CONFIG_NAME).is_file():
            config = load_config(folder / CONFIG_NAME)
            break
    else:
        raise ConfigError(f"no config.yaml in or above {str(checkpoint)!r} says what it was trained on")
    _refuse_module(config.env, env)
    if env is not None and _id_of(env) != _id_of(config.env):
        raise ConfigError(f"env of {str(checkpoint)!r} is {config.env!r}, not {env!r}")
    return config if env is None else dataclasses.replace(config, env=env)


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


def _preset(asked: dict[str, object]) -> dict[str, object]:
    """The options shipped with a task or a Gymnasium id; none where there is no such file."""
    if asked.get("env") is not None:
        path = _gymnasium_preset(str(asked["env"]))
    else:
        path = CONFIGS / f"{asked.get('task', Config.task)}.yaml"
        if path.parent != CONFIGS or not os.path.isfile(path):
            return {}
    return _read_file(path)


def _gymnasium_preset(env_id: str) -> Path:
    """The file whose name begins the id (without its module), the longest; else that of its family, or the default."""
    name, folder = env_id.split(":")[-1], CONFIGS / "gymnasium"
    files = sorted(folder.glob("*.yaml"), key=lambda path: len(path.stem))
    family = folder / ("goals.yaml" if name.startswith(_GOALS) else "default.yaml")
    return [family, *(path for path in files if name.startswith(path.stem))][-1]


def _run_folder(name: str) -> Path:
    """The folder of an existing run, given by its name or path.

    Raises:
        ConfigError: there is none.
    """
    for folder in (Path(name), RUNS / name):
        if os.path.isfile(folder / CONFIG_NAME):
            return folder
    runs = [path.parent.name for path in RUNS.glob("*/config.yaml")]
    raise unknown("run", name, runs) if runs else ConfigError(f"cannot resume {name!r}: no run in {str(RUNS)!r}")
