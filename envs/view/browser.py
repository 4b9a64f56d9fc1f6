"""Search for a web browser, and the browser process."""

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from typing import Any

from td3_robot.errors import ViewerError

# Programs that show a web page on a Linux desktop, best guess first. $BROWSER goes before them all.
_BROWSERS = (
    "x-www-browser",
    "firefox",
    "google-chrome",
    "google-chrome-stable",
    "chromium",
    "chromium-browser",
    "microsoft-edge",
    "brave-browser",
    "vivaldi",
    "opera",
    "epiphany",
    "falkon",
)
HOW_TO_INSTALL = "install one, for example on Debian or Ubuntu: apt install chromium"


def find_browser() -> list[str] | None:
    """Return the command that opens a page on this desktop; None where the system opens it itself.

    Raises:
        ViewerError: a Linux machine without a display or without a browser.
    """
    if not sys.platform.startswith("linux"):
        return None  # macOS and Windows come with a browser and a means to open it
    chosen = shlex.split(os.environ.get("BROWSER", "").split(os.pathsep)[0].replace("%s", ""))
    if chosen and shutil.which(chosen[0]):
        return chosen
    found = next((name for name in _BROWSERS if shutil.which(name)), None)
    if found is None:
        raise ViewerError(
            f"no web browser found; {HOW_TO_INSTALL}, or name yours in the variable BROWSER"
        )
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise ViewerError(
            f"no display to open {found} on (neither DISPLAY nor WAYLAND_DISPLAY is set)"
        )
    return [found]


def have_browser() -> bool:
    """Return whether this machine can show a page; if not, print what is missing to stderr."""
    try:
        find_browser()
    except ViewerError as error:
        print(error, file=sys.stderr)
        return False
    return True


def explain_opening(url: str) -> str:
    """Return a sentence with the page's address, and how to reach it from another machine."""
    port = url.split("/")[2].rsplit(":", 1)[1]
    away = f"from another machine, after: ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}"
    return f"open {url} in a browser ({away})"


# Ends the browser when the process that started it is gone: its standard input then closes.
_WATCH = 'read -r _; kill -s TERM -- "-$0"'


class Browser:
    """A browser process that shows a page, in a session of its own so that Ctrl-C does not end it.

    Args:
        command: starts the browser.
        url: of the page.
        complaints: file for its standard error.

    Raises:
        ViewerError: the browser cannot be run.
    """

    def __init__(self, command: list[str], url: str, complaints):
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "start_new_session": True}
        self._name = command[0]
        try:
            self._process = subprocess.Popen([*command, url], stderr=complaints, **quiet)
        except OSError as error:
            raise ViewerError(f"cannot run the browser {shlex.join(command)!r}: {error}") from None
        watch = ["sh", "-c", _WATCH, str(self._process.pid)]
        self._watch = subprocess.Popen(
            watch, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, **quiet
        )

    @property
    def failed(self) -> str:
        """Message if the browser ended with an error, else an empty string."""
        code = self._process.poll()
        return f"the browser {self._name!r} stopped with exit code {code}" if code else ""

    def end(self) -> None:
        """Stop the browser, unless it has ended by itself."""
        running = self._process.poll() is None
        self.leave()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if running:
                os.killpg(self._process.pid, signal.SIGTERM)

    def leave(self) -> None:
        """Let the browser run on after this process."""
        self._watch.kill()
        self._watch.wait()
