"""Flags of train.py and evaluate.py for robots and their figures.

td3_robot/config/field.py describes how a field is declared.
"""

import dataclasses
import importlib
import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from envs.config.disturbance_options import DISTURBANCES, GROUP, declare_disturbance
from envs.config.env_options import CONDITIONS, ENGINES, EnvOptions
from envs.config.yaml_values import CONFIGS
from td3_robot.errors import ConfigError

if TYPE_CHECKING:
    from envs.robots import Robot

SWITCHES = ("guard", "guard_stops", "sparse")  # those of an evaluation replace the training's
_CONDITIONS = "Conditions"  # headings of --help-all
_VIEW = "View"
_FILES = "Files"
_BASIC = {"basic": True}
_PORT = {"range": (0, 65535, "there are no others")}
_LISTS = {"choices": ("robots", "tasks", "grippers", "baselines"), **_BASIC}
# What an environment of others has nothing for.
_SHOWS_ARMS = ("swift", "grid", "report", "robustness", "episode", *SWITCHES, *CONDITIONS)


def _declare(default: object, group: str, basic: bool = False, **metadata: Any) -> Any:
    """Declare an option under a heading of --help-all."""
    return field(default=default, metadata={"group": group, "basic": basic, **metadata})


@dataclass(frozen=True)
class TrainFlags:
    """View and modules.

    Watch the training in the browser, list what there is, and import modules of your own.

    Attributes:
        swift: Show the robot in the browser while it learns.
        no_browser: With swift: open no browser, only serve the page and print its address.
        port: With swift: port of the page, on this machine only; 0 takes a free one.
        list: Print the available robots, tasks, grippers or baselines, and end.
        plugins: Modules to import first, separated by commas, for example to register your own
            tasks; they are found on PYTHONPATH and never taken from a checkpoint.
        stop_at: Steps after which to stop and save. Schedules follow --steps, so a resumed run ends
            as an uninterrupted one.
    """

    EXAMPLES: ClassVar = (
        ("--robot panda", "train a Panda to reach, in a few minutes, into checkpoints/runN"),
        ("--robot ur5e --task reach_pose --run mine --swift", "watch another arm learn poses"),
        ("--resume mine --steps 2000000", "train that run on"),
    )

    swift: bool = field(default=False, metadata=_BASIC)
    no_browser: bool = False
    port: int = field(default=0, metadata=_PORT)
    list: str | None = field(default=None, metadata=_LISTS)
    plugins: tuple[str, ...] = ()
    stop_at: int | None = field(default=None, metadata={"range": (1, 10**15, "no run is longer")})

    def __post_init__(self):
        _check_page(self)


@dataclass(frozen=True)
class EvaluateFlags:
    """Measurement.

    Which policy is measured, on which episodes, and next to which controllers.

    Attributes:
        checkpoint: Required: run name, checkpoint folder, or common prefix of the older checkpoint
            files.
        verify: Measure nothing; check everything in the folder, print a table, and end with exit
            code 2 if something is wrong.
        env: The checkpoint's own Gymnasium id with the module that registers it, module:id; a
            module is never taken from the checkpoint itself.
        sparse: Whether rewards are -1 a step and 0 in success, for example for a dataset.
        guard: Whether the safety shield acts on the policy.
        guard_stops: Whether the safety shield takes only commands after which the arm can still
            stop clear of everything.
        engine: Engine that moves arms and cubes, kinematic or mujoco.
        xacro: Arguments of the robot's xacro file, KEY=VALUE ...
        randomize: What differs from episode to episode: a name in configs/randomization, the path
            of such a file, or none.
        episodes: Episodes to roll out, by default 1,000; with robustness also under each
            disturbance, by default 200.
        seed: Seed of the starts and goals.
        device: Device of networks and simulation: cpu, cuda, cuda:N, mps, or auto for the fastest
            available.
        json: File for the results; by default they are only printed.
        baseline: Controllers to measure on the same starts and goals, separated by commas: random
            (uniformly random actions), other runs and, for robots, those of --list baselines; empty
            for none. Those act without the safety shield, unless +guard is added to the name.
        report: Folder for a page, index.html, with the table, charts, paths and every failure.
        log: File that `run_policy.py --log` has written, to include in the report.
        robustness: Also measure success under latency, noise and servo lag: 17 more evaluations.
        episode: Number, from 0, of the only episode to measure, and to show with swift, record or
            plot.
        swift: Show the robot in the browser, where you can drag its goal; with episode, replay that
            one. Figures are measured meanwhile if an option asks for them.
        no_browser: With swift: open no browser, only serve the page and print its address.
        port: With swift: port of the page, on this machine only; 0 takes a free one.
        grid: With swift or record: show this many arms next to each other, each with its own goal.
        camera: With swift or record: where the camera is: corner, front, side, top, or its position
            and what it looks at, x,y,z,x,y,z in metres.
        record: File for a recording of the browser view: .png (end of the first episode), .gif,
            .mp4 or .webm (three episodes), or a folder for all pictures of three. A Gymnasium
            environment renders them itself.
        plot: File for a picture (.png) of reward and actions over one episode, next to random
            actions.
        dataset: File for transitions of the policy (.npz), for `train.py --dataset`, or a new
            Minari dataset (*-v0).
        transitions: Transitions of the dataset.
        dataset_noise: Standard deviation of the Gaussian noise on the actions of the dataset, as a
            fraction of a_max.
        list: Print the available robots, tasks, grippers or baselines, and end.
        plugins: Modules to import first, separated by commas, for example to register your own
            tasks; they are found on PYTHONPATH and never taken from a checkpoint.
    """

    GROUPS: ClassVar = {
        _CONDITIONS: "By default as the policy was trained; for robots only.",
        GROUP: "Latency, servo lag and sensor noise of the simulated arm, by default as the policy "
        "was trained. Each replaces the value of randomize, a zero too.",
        _VIEW: "Watch the policy in the browser, or record what the browser would show.",
        _FILES: "What is written besides the table.",
    }
    EXAMPLES: ClassVar = (
        ("--checkpoint run1", "measure 1,000 episodes, next to random actions"),
        ("--checkpoint run1 --swift", "watch it, and drag its goal"),
        ("--checkpoint run1 --baseline rrmc --report out", "compare, and write a page"),
    )

    checkpoint: Path | None = field(default=None, metadata=_BASIC)
    verify: bool = False
    env: str | None = None
    sparse: bool | None = _declare(None, _CONDITIONS)
    guard: bool | None = _declare(None, _CONDITIONS, basic=True)
    guard_stops: bool | None = _declare(None, _CONDITIONS)
    engine: str | None = _declare(None, _CONDITIONS, basic=True, choices=ENGINES)
    latency: float | None = declare_disturbance("latency", basic=True)
    latency_spread: float | None = declare_disturbance("latency_spread")
    servo_lag: float | None = declare_disturbance("servo_lag")
    noise: float | None = declare_disturbance("noise")
    joint_offset: float | None = declare_disturbance("joint_offset")
    tcp_offset: float | None = declare_disturbance("tcp_offset")
    object_offset: float | None = declare_disturbance("object_offset")
    base_offset: float | None = declare_disturbance("base_offset")
    base_turn: float | None = declare_disturbance("base_turn")
    force_noise: float | None = declare_disturbance("force_noise")
    force_bias: float | None = declare_disturbance("force_bias")
    torque_noise: float | None = declare_disturbance("torque_noise")
    torque_bias: float | None = declare_disturbance("torque_bias")
    assumed_latency: float | None = declare_disturbance("assumed_latency")
    estimate_latency: bool | None = declare_disturbance("estimate_latency")
    xacro: tuple[str, ...] = _declare((), _CONDITIONS)
    randomize: str | None = _declare(None, _CONDITIONS, basic=True)
    episodes: int | None = field(
        default=None,
        metadata={"range": (1, 10**7, "the figures of all are kept in memory"), **_BASIC},
    )
    seed: int = field(
        default=12345, metadata={"range": (0, 2**32 - 1, "generators take 32 bits"), **_BASIC}
    )
    device: str = field(default="cpu", metadata=_BASIC)
    json: Path | None = _declare(None, _FILES, basic=True)
    baseline: tuple[str, ...] = field(default=("random",), metadata=_BASIC)
    report: Path | None = _declare(None, _FILES, basic=True)
    log: Path | None = _declare(None, _FILES)
    robustness: bool = field(default=False, metadata=_BASIC)
    episode: int | None = field(
        default=None, metadata={"range": (0, 10**7 - 1, "there are fewer episodes"), **_BASIC}
    )
    swift: bool = _declare(False, _VIEW, basic=True)
    no_browser: bool = _declare(False, _VIEW, basic=True)
    port: int = field(default=0, metadata={**_PORT, "group": _VIEW})
    grid: int | None = _declare(None, _VIEW, basic=True, range=(2, 25, "more cannot be told apart"))
    camera: str = _declare("corner", _VIEW)
    record: Path | None = _declare(None, _VIEW, basic=True)
    plot: Path | None = _declare(None, _FILES)
    dataset: Path | None = _declare(None, _FILES)
    transitions: int = _declare(100_000, _FILES, range=(1, 10**9, "all are kept in memory"))
    dataset_noise: float = _declare(0.0, _FILES, range=(0, 1e38, "float32 ends there"))
    list: str | None = field(default=None, metadata=_LISTS)
    plugins: tuple[str, ...] = ()

    def __post_init__(self):
        if self.checkpoint is None and self.list is None:
            raise ConfigError("--checkpoint is missing: name a run, a folder or a file prefix")
        if self.episode is not None:
            self._check_episode(self.episode)
        _check_page(self)
        if self.grid and (self.episode is not None or not (self.swift or self.record)):
            raise ConfigError("grid needs swift or record, and excludes episode, which is one")
        if self.camera != EvaluateFlags.camera and not (self.swift or self.record):
            raise ConfigError("camera has no effect without swift or record")
        if self.log and not self.report:
            raise ConfigError("log has no effect without report, the page that shows it")
        for name in ("transitions", "dataset_noise"):
            if self.dataset is None and getattr(self, name) != getattr(EvaluateFlags, name):
                raise ConfigError(f"{name} has no effect without dataset, the file to write")
        if self.verify:
            self._check_verify()
        outputs = [
            path
            for name in ("json", "report", "record", "plot", "dataset")
            if (path := getattr(self, name))
        ]
        if len({path.absolute() for path in outputs}) < len(outputs):
            raise ConfigError(f"two outputs have one name: {', '.join(map(str, outputs))}")

    def _check_verify(self) -> None:
        """Refuse flags without effect on a verification."""
        for item in fields(self):
            if (
                item.name not in ("checkpoint", "verify", "env", "plugins")
                and getattr(self, item.name) != item.default
            ):
                raise ConfigError(
                    f"verify and {item.name} exclude each other: verify measures nothing"
                )

    @property
    def count(self) -> int:
        """Episodes to roll out."""
        return self.episodes or 1000

    @property
    def measures(self) -> bool:
        """True unless only the browser view is asked for."""
        outputs = (self.json, self.report, self.record, self.plot, self.dataset, self.robustness)
        chosen = (self.episodes, self.episode)
        return not self.swift or any(outputs) or chosen != (None, None)

    @property
    def count_disturbed(self) -> int:
        """Episodes behind each disturbance."""
        return self.episodes or 200

    def _check_episode(self, episode: int) -> None:
        """Refuse an episode out of range, and flags that need all episodes."""
        if not 0 <= episode < self.count:
            raise ConfigError(
                f"episode must be from 0 to {self.count - 1}, one of the episodes, got {episode}"
            )
        for name in ("report", "robustness", "dataset"):
            if getattr(self, name):
                raise ConfigError(
                    f"episode and {name} exclude each other: {name} is about all episodes"
                )


def _check_page(flags: TrainFlags | EvaluateFlags) -> None:
    """Refuse flags of a page without swift."""
    for name in ("no_browser", "port"):
        if getattr(flags, name) and not flags.swift:
            raise ConfigError(f"{name} has no effect without swift")


def describe_robot_file(robot: "Robot") -> list[str]:
    """Describe what was found in a robot's file, and what it lacks, a line each."""
    from envs.collision.files import has_capsules

    limits = "" if robot.qddlim is not None else ", no acceleration limits"
    lines = [f"{robot.file}: {robot.n} joints, TCP {robot.tcp_link}{limits}"]
    if not has_capsules(robot):
        lines.append(
            "contact is not checked, as the robot has no collision capsules: "
            f"python -m envs.collision.fitting {shlex.quote(str(robot.file))} makes them"
        )
    return lines


def import_plugins(names: Iterable[str]) -> None:
    """Import modules that a user names.

    Raises:
        ConfigError: there is none of that name, or it fails.
    """
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # code of others, which may fail in any way
            reason = " ".join(str(error).split()) or type(error).__name__
            if isinstance(error, ModuleNotFoundError) and error.name == name:
                reason = f"{reason}; is its folder on PYTHONPATH? For this one, PYTHONPATH=."
            raise ConfigError(f"plugins: cannot import {name!r}: {reason}") from error


def make_envs_with_plugins(
    plugins: tuple[str, ...], options: EnvOptions, seed: int, num_envs: int = 1
):
    """Make environments in a process that has not imported the plugins yet."""
    from envs.registry import make_from_config  # here: it takes over a second

    import_plugins(plugins)
    return make_from_config(options, num_envs, seed=seed)


def override_options(options: EnvOptions, flags: EvaluateFlags) -> EnvOptions:
    """Replace options of the training by those that the flags of an evaluation give.

    Raises:
        ConfigError: a disturbance is out of its range.
    """
    asked = {
        name: value
        for name in (*SWITCHES, *CONDITIONS)
        if (value := getattr(flags, name)) is not None
    }
    if flags.xacro:
        asked["xacro"] = flags.xacro
    if flags.randomize is not None:  # it says all disturbances but those given beside it
        asked = dict.fromkeys(DISTURBANCES) | asked
    return dataclasses.replace(options, **asked)


def check_shown(flags: TrainFlags | EvaluateFlags, options: EnvOptions) -> None:
    """Refuse flags for our own arms if the environment is a Gymnasium environment.

    Raises:
        ConfigError: names the flag.
    """
    for name in _SHOWS_ARMS if options.env is not None else ():
        value = getattr(flags, name, None)
        if value is not None and (value is not False or name in SWITCHES):
            raise ConfigError(f"{name} is for our own robots; a Gymnasium environment has none")
    if (
        options.env is not None
        and getattr(flags, "camera", EvaluateFlags.camera) != EvaluateFlags.camera
    ):
        raise ConfigError(
            "camera is for our own robots; a Gymnasium environment draws its own pictures"
        )


def check_stops(guard_stops: bool | None, options: EnvOptions, baselines: Iterable[str]) -> None:
    """Refuse a stop that is to be kept where no safety shield acts.

    Raises:
        ConfigError: says what to add.
    """
    if guard_stops and not options.guard and not any(name.endswith("+guard") for name in baselines):
        raise ConfigError("guard_stops has no effect without guard: add --guard true")


def list_choices(what: str) -> Iterator[str]:
    """Yield a line with name and description of each robot, task, gripper or baseline."""
    if what in ("robots", "grippers"):
        for path in sorted((CONFIGS / what).glob("*.yaml")):
            yield _format_line(
                path.stem, path.read_text(encoding="utf-8").removeprefix("# ").split(". ")[0]
            )
        return
    from envs.controllers import BASELINES  # here: these take seconds
    from envs.tasks.registry import find_task_class, list_tasks

    if what == "baselines":
        list_tasks()  # which register controllers of their own
        yield _format_line("random", "Uniformly random actions")
        yield from (
            _format_line(name, (cls.__doc__ or "").splitlines()[0])
            for name, cls in BASELINES.items()
        )
    else:
        for name in list_tasks():
            yield _format_line(
                name, (sys.modules[find_task_class(name).__module__].__doc__ or "").splitlines()[0]
            )


def _format_line(name: str, text: str) -> str:
    return f"{name:16}{text.rstrip('.')}"
