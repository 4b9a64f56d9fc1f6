"""Words of the command line that each give a name its value: prefix=left_."""

from collections.abc import Iterable

from td3_robot.errors import ConfigError


def parse_assignments(option: str, words: Iterable[str]) -> dict[str, str]:
    """Parse words KEY=VALUE.

    Args:
        option: the option that they were given with, for the message.

    Raises:
        ConfigError: a word is no such pair, or a key is given twice.
    """
    values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{option} must be KEY=VALUE, got {word!r}")
        if key.strip() in values:
            raise ConfigError(f"{option} has two values for {key.strip()!r}")
        values[key.strip()] = value
    return values
