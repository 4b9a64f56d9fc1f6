"""Files that are complete or absent, whatever happens while they are written."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from td3_robot.errors import ConfigError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` to write to; it takes the place of `path` when the block ends well, and else is removed.

    Raises:
        ConfigError: it cannot be written.
    """
    new = path.parent / f".{os.getpid()}-{path.name}"
    try:
        yield new
        os.replace(new, path)
    except OSError as error:
        raise ConfigError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            new.unlink()
