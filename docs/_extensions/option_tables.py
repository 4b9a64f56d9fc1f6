"""Tables of the options of a command, from the declarations that its parser reads."""

import re

from envs.command_line import EvaluateFlags, TrainFlags
from envs.config.env_options import EnvOptions
from td3_robot.cli.arguments import _Start
from td3_robot.commands import export, run, sweep
from td3_robot.config.field import iter_options
from td3_robot.config.help_text import Group, format_value
from td3_robot.config.run import Config
from td3_robot.config.schema import make_schema

CLASSES = {  # command -> the dataclasses that its flags fill
    "train": (_Start, TrainFlags, EnvOptions, Config),
    "evaluate": (EvaluateFlags,),
    "export": (export.Arguments,),
    "run": (run.Arguments,),
    "sweep": (sweep.SweepFlags,),
}


def make_options(command: str) -> str:
    """Return the options of a command as Markdown, a table for each group."""
    classes = CLASSES[command]
    fixed = {
        name for cls in classes for name, item in iter_options(cls) if item.metadata.get("fixed")
    }
    groups = make_schema(command, "", *classes).groups
    return "\n\n".join(_make_table(group, fixed) for group in groups if group.options)


def _make_table(group: Group, fixed: set[str]) -> str:
    lines = [f"**{group.title}.** {group.text}", ""]
    lines += ["| option | default | meaning |", "| --- | --- | --- |"]
    for option in group.options:
        name = f"`--{option.name}`" + (" (fixed)" if option.name in fixed else "")
        default = "" if option.default in (None, ()) else f"`{format_value(option.default)}`"
        choices = f" One of {', '.join(option.choices)}." if option.choices else ""
        text = re.sub(r"(?<!\w)(--[a-z_.]+)", r"`\1`", option.text)  # no dash of typography
        cells = (name, default, text + choices)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)
