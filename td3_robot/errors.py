"""Every error that this project raises on purpose, each with a one-line message."""

import difflib
import importlib.util
from collections.abc import Iterable
from numbers import Integral
from typing import Any, TypeVar

T = TypeVar("T")

_LONGEST = 280  # of a message, in characters
_WORD = 24  # of a word that is left out of a longer message rather than cut; paths are cut

EXTRAS = {  # module of an optional package -> the extra of this distribution that installs it
    "coal": "collision",
    "collada": "collision",
    "gymnasium_robotics": "fetch",
    "h5py": "data",
    "imageio": "record",
    "imageio_ffmpeg": "record",
    "minari": "data",
    "mlflow": "mlflow",
    "mujoco": "mujoco",
    "onnx": "deploy",
    "onnxruntime": "deploy",
    "onnxscript": "deploy",
    "panda_gym": "bench",
    "playwright": "record",
    "pyarrow": "data",
    "qpsolvers": "neo",
    "quadprog": "neo",
    "ray": "sweep",
    "stable_baselines3": "bench",
    "trimesh": "collision",
}


class Td3RobotError(Exception):
    """Base of all errors below. The command line prints the message and exits with `exit_code`.

    The message is one printable line of at most 280 characters.
    """

    exit_code = 2

    def __str__(self):
        words = " ".join(super().__str__().split())
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words)
        if len(text) <= _LONGEST:
            return text
        start = text[: _LONGEST - 105]
        end = text[-100:]
        if " " in start[-_WORD:]:
            start = start[: start.rindex(" ")]
        if " " in end[:_WORD]:
            end = end[end.index(" ") + 1 :]
        return f"{start} ... {end}"


class ConfigError(Td3RobotError):
    """A name, option or value that the user gave is not valid."""


class KeywordError(ConfigError, TypeError):
    """A function was called with a keyword that it does not have."""


class CheckpointError(Td3RobotError):
    """A checkpoint folder is missing, incomplete, damaged or of other networks."""


class EnvError(Td3RobotError):
    """A third-party environment raised, ended or broke the interface during a run."""


class ViewerError(Td3RobotError):
    """The browser view cannot be shown on this machine."""


class NotFiniteError(Td3RobotError):
    """A loss, action or observation became NaN or infinite; the run stops before it is stored.

    Attributes:
        evidence: tensors to look into, by name.
    """

    exit_code = 1

    def __init__(self, message: str, evidence: dict[str, Any] | None = None):
        super().__init__(message)
        self.evidence = evidence or {}


class RanksError(Td3RobotError):
    """A distributed training has lost a process, or its processes no longer agree."""

    exit_code = 1


class FirstProcessError(RanksError):
    """Process 0 has failed before it sent what the others need; it reports the cause itself."""


def not_none(value: T | None) -> T:
    """Return a value that earlier checks have shown to be there."""
    assert value is not None
    return value


def get_first_line(error: BaseException) -> str:
    """Return the first line of a third-party error's message, or its class if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def unknown(what: str, given: object, choices: Iterable[str]) -> ConfigError:
    """Return the error of a name that is not among the valid ones.

    Args:
        what: the kind of thing, for example "run".
        given: what the user wrote.
        choices: every valid name.

    Returns:
        A ConfigError that names the input, the nearest valid name and all valid names.
    """
    names = sorted(choices)
    by_lower_case = {name.lower(): name for name in names}
    near = difflib.get_close_matches(str(given).lower(), by_lower_case, n=1)
    hint = f"did you mean {by_lower_case[near[0]]!r}? " if near else ""
    return ConfigError(f"unknown {what} {given!r}; {hint}valid choices: {', '.join(names)}")


def require_integer(name: str, value: object, least: int, most: int) -> int:
    """Return an integer, one of numpy's as Python's.

    Raises:
        ConfigError: the value is no integer from `least` to `most`.
    """
    number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
    if number is None or not least <= number <= most:
        raise ConfigError(f"{name} must be an integer in [{least}, {most}], got {value!r}")
    return number


def install_command(module: str) -> str:
    """Return the command that installs the package of a module, by our extra if one brings it."""
    package = module.split(".")[0]
    extra = EXTRAS.get(package)
    return f"pip install 'td3-robot[{extra}]'" if extra else f"pip install {package}"


def missing_package(what: str, module: str | None) -> ConfigError:
    """Return the error of an optional package that is not installed.

    Args:
        what: the feature that needs the package, for example "baseline neo".
        module: the package's module, as `ImportError.name` has it.

    Returns:
        A ConfigError that names the package and the command that installs it.
    """
    name = (module or "a package").split(".")[0]
    return ConfigError(f"{what} needs {name}, which is not installed: {install_command(name)}")


def require_packages(what: str, *modules: str) -> None:
    """Check that optional packages are installed, without importing them.

    Raises:
        ConfigError: one is missing; it names the feature `what` and the command that installs it.
    """
    for module in modules:
        try:
            found = importlib.util.find_spec(module) is not None
        except ValueError:  # it is hidden: None in sys.modules
            found = False
        if not found:
            raise missing_package(what, module)
