"""The error and the warning of this folder, which knows nothing of the rest of the package."""

import shlex
from pathlib import Path

_LONGEST = 280  # of a message, in characters


class DeployError(ValueError):
    """A file, value or message cannot be what it has to be.

    The message is one printable line for the user, short whatever a file put into it.
    """

    def __str__(self):
        words = " ".join(super().__str__().split())
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words)
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 105]} ... {text[-100:]}"


class OldExport(UserWarning):
    """The checkpoint next to an exported policy was trained on since the export."""

    def __init__(self, path: Path, checkpoint: Path):
        super().__init__(f"{path} is not the policy of {checkpoint} any more; export it again")
        self.checkpoint = checkpoint


def explain_export(folder: Path) -> str:
    """Return the command that writes a checkpoint's policy, for the end of a message."""
    if (folder / "config.yaml").is_file():
        return f"; write it with: python export.py --checkpoint {shlex.quote(str(folder))}"
    return "; export.py writes one, see: python export.py --help"


def summarize(error: Exception) -> str:
    """Return the message of an error of anybody's code, in one line that is never empty."""
    return " ".join(str(error).split()) or type(error).__name__
