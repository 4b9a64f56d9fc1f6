"""Run one of the commands: `td3-robot train --robot panda`, or `python train.py --robot panda`."""

import time

STARTED = time.perf_counter()  # [s] before the imports, which are part of what the user waits for

import importlib  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import NoReturn  # noqa: E402

from td3_robot.errors import ConfigError, unknown  # noqa: E402
from td3_robot.utils.signals import exit_on_signal  # noqa: E402

COMMANDS = {
    "train": "Train a policy.",
    "evaluate": "Measure, watch or record a trained policy.",
    "export": "Write a policy as one ONNX graph, for a robot.",
    "run": "Drive an arm, simulated or real, with an exported policy.",
    "sweep": "Search the options of trainings.",
}
SCRIPTS = {name: f"{name}.py" for name in COMMANDS} | {"run": "run_policy.py"}
ROOT = Path(__file__).resolve().parents[2]  # where the package lies: a checkout or site-packages


def main() -> NoReturn:
    """Run the command that the first argument names, and end the process."""
    from td3_robot.utils.console import run_script

    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        run_script(lambda argv: print(describe_commands()))
    if words[0] not in COMMANDS:
        run_script(lambda argv: refuse_command(words[0]))
    sys.argv = [f"td3-robot {words[0]}", *words[1:]]
    run_command(words[0])


def run_command(name: str) -> NoReturn:
    """Run a command on the arguments of this process, and end the process with its exit code."""
    exit_on_signal()  # on a signal during the imports; `run_script` takes over
    from td3_robot.utils.console import run_script

    run_script(importlib.import_module(f"td3_robot.commands.{name}").main)


def describe_commands() -> str:
    """Return the help of `td3-robot` itself."""
    lines = [f"  {name:<10}{sentence}" for name, sentence in COMMANDS.items()]
    usage = "usage: td3-robot COMMAND [--help] ..."
    return "\n".join([usage, "", *lines, "", "td3-robot COMMAND --help lists its options."])


def refuse_command(name: str) -> int:
    """Raise the error of a command that does not exist."""
    raise unknown("command", name, COMMANDS)


def command_line(name: str) -> str:
    """Return how the user starts a command: by its script in a checkout, else by `td3-robot`."""
    return f"python {SCRIPTS[name]}" if (ROOT / SCRIPTS[name]).is_file() else f"td3-robot {name}"


def child_command(name: str) -> list[str]:
    """Return the words that start a command in a process of its own.

    Raises:
        ConfigError: no Python interpreter is known to start it with.
    """
    if not sys.executable:
        raise ConfigError("the path of the Python interpreter is not known (sys.executable)")
    return [sys.executable, "-m", "td3_robot", name]


def child_environment() -> dict[str, str]:
    """Return the environment in which a child process finds these packages."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


if __name__ == "__main__":
    main()
