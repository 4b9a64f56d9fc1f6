"""Requirements of an evaluation before it can answer, each refused with one line."""

from collections.abc import Collection

from envs.config.env_options import EnvOptions
from td3_robot.errors import ConfigError


def require_robot(what: str, options: EnvOptions) -> None:
    """Refuse a Gymnasium environment, which lacks what an arm has."""
    if options.env is not None:
        raise ConfigError(f"{what} is for our own robots; a Gymnasium environment has none")


def require_controllers(what: str, names: Collection[str]) -> None:
    """Refuse an evaluation without controllers, or without those that are needed."""
    if not names:
        raise ConfigError(f"{what} needs a controller: add one with add or add_baseline")


def require_played(what: str, results: Collection[str], call: str = "play()") -> None:
    """Refuse what comes before the results that it is about; `call` brings them."""
    if not results:
        raise ConfigError(f"{what} needs results: call {call} first")
