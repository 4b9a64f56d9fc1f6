"""Run one of the commands: `td3-robot train --robot panda`, or `python train.py --robot panda`."""

import time

STARTED = time.perf_counter()  # [s] before the imports, which are part of what the user waits for

import importlib.util  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import NoReturn  # noqa: E402

from td3_robot.errors import ConfigError, unknown  # noqa: E402
from td3_robot.utils.signals import exit_on_signal  # noqa: E402

COMMANDS = {
    "train": "Train a policy.",
    "evaluate": "Measure, watch or record a trained policy.",
    "export": "Write a policy as an ONNX graph, for a robot.",
    "run": "Drive an arm, simulated or real, with an exported policy.",
    "sweep": "Search the options of trainings.",
}
EXAMPLES = {
    "train --robot panda --run mine": "train a Panda to reach, into checkpoints/mine",
    "evaluate --checkpoint mine --swift": "watch it in the browser, and drag its goal",
    "export --checkpoint mine": "write checkpoints/mine/policy.onnx, for td3-robot run",
}


def main() -> NoReturn:
    """Run the command that the first argument names, and end the process."""
    from td3_robot.utils.console import run_script

    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name not in COMMANDS:
        run_script(describe_commands)
    sys.argv = [f"td3-robot {name}", *sys.argv[2:]]
    run_command(name)


def run_command(name: str) -> NoReturn:
    """Run a command on the arguments of this process, and end the process with its exit code."""
    exit_on_signal()  # during the imports; `run_script` takes over
    from td3_robot.utils.console import run_script

    if (folder := find_other_envs()) is not None:
        run_script(lambda argv: refuse_other_envs(folder))
    try:
        command = importlib.import_module(f"td3_robot.commands.{name}").main
    except ModuleNotFoundError as error:
        missing = error.name
        if missing is None or missing.split(".")[0] in ("td3_robot", "envs"):
            raise
        run_script(lambda argv: refuse_missing(missing))
    run_script(command)


def refuse_missing(package: str) -> int:
    """Raise the error of a package that every command needs."""
    raise ConfigError(
        f"{package} is not installed for {sys.executable}: run `make setup` once, then "
        "`. .venv/bin/activate`"
    )


def find_other_envs() -> Path | None:
    """Return the folder of another package `envs` that hides the simulator, if there is one."""
    spec = importlib.util.find_spec("envs")
    ours = Path(__file__).resolve().parents[2] / "envs"
    places = [Path(place).resolve() for place in (spec and spec.submodule_search_locations) or ()]
    return None if not places or ours in places else places[0]


def refuse_other_envs(folder: Path) -> int:
    """Raise the error of a package `envs` that hides the simulator."""
    raise ConfigError(
        f"{folder} hides the simulator's package `envs`: start td3-robot from another folder, or "
        f"take {folder.parent} out of PYTHONPATH"
    )


def describe_commands(argv: list[str]) -> int:
    """Print the commands.

    Raises:
        ConfigError: the first argument is another word than a request for help.
    """
    if argv and argv[0] not in ("-h", "--help", "--help-all"):
        raise unknown("command", argv[0], COMMANDS)
    print("usage: td3-robot COMMAND [--option value ...]\n\nexamples:")
    for words, sentence in EXAMPLES.items():
        print(f"  # {sentence}\n  td3-robot {words}")
    print("\ncommands:")
    for name, sentence in COMMANDS.items():
        print(f"  {name:<10}{sentence}")
    print(
        "\ntd3-robot COMMAND --help lists the most used options of a command, "
        "--help-all all of them."
    )
    return 0


if __name__ == "__main__":
    main()
