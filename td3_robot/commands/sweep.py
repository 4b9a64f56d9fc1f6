"""Search the options of trainings: `python sweep.py --plan FILE`, or `--resume NAME`.

docs/how-to/tune.md has an example.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from envs.command_line import TrainFlags, import_plugins
from envs.config.env_options import EnvOptions
from td3_robot.cli.arguments import TrainArguments, parse_train
from td3_robot.config.schema import build, make_schema
from td3_robot.errors import ConfigError
from td3_robot.sweep.runner import resume_sweep, start_sweep
from td3_robot.utils.console import find_script, get_program


@dataclass(frozen=True)
class SweepFlags:
    """Sweep.

    A plan in a YAML file, or a sweep that is continued; docs/how-to/tune.md explains the plan.

    Attributes:
        plan: YAML file of the options of train.py with their ranges, the metric, the scheduler and
            a trial's resources.
        run: Name of the sweep's folder in checkpoints/; by default the next free runN.
        resume: Name of a sweep to continue.
    """

    EXAMPLES: ClassVar = (
        ("--plan configs/sweeps/reach.yaml", "start a sweep, in checkpoints/runN"),
        ("--plan plan.yaml --run mine", "start a sweep of your own, in checkpoints/mine"),
        ("--resume mine", "continue it"),
    )

    plan: Path | None = None
    run: str | None = None
    resume: str | None = None


def main(argv: list[str]) -> int:
    """Parse the flags and run the sweep. Return the exit code."""
    flags = build(
        SweepFlags,
        make_schema(
            get_program("sweep"), "Search the options of trainings.", SweepFlags
        ).read_flags(argv),
    )
    script = find_script("train")
    if flags.plan is not None and flags.resume is None:
        return start_sweep(flags.plan, flags.run, _parse, script)
    if flags.resume is not None and flags.plan is None and flags.run is None:
        return resume_sweep(flags.resume, _parse, script)
    raise ConfigError(
        "give --plan FILE, and maybe --run NAME, for a new sweep, or --resume NAME for an old one"
    )


def _parse(words: list[str]) -> TrainArguments:
    """Parse a command line of `train.py`, with the user's own tasks imported."""
    arguments = parse_train(words, EnvOptions, TrainFlags)
    if arguments.flags != TrainFlags(plugins=arguments.flags.plugins):
        raise ConfigError(
            "a sweep cannot have swift, list, stop_at and the like: remove these options"
        )
    import_plugins(arguments.flags.plugins)
    return arguments
