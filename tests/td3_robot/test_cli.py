"""Exit codes and the one line of an error."""

import pytest

from td3_robot.cli import exit_code
from td3_robot.errors import ConfigError, NotFiniteError


def outcome(error):
    raise error


@pytest.mark.parametrize(
    "main, code, stderr",
    [
        (lambda argv: None, 0, ""),
        (lambda argv: 3, 3, ""),
        (lambda argv: outcome(ConfigError("a\nb")), 2, "error: a b\n"),
        (lambda argv: outcome(NotFiniteError("loss")), 1, "error: loss\n"),
        (lambda argv: outcome(KeyboardInterrupt()), 130, ""),
    ],
)
def test_exit_codes(main, code, stderr, capsys):
    assert exit_code(main, []) == code
    assert capsys.readouterr().err == stderr
