"""Finding a web browser, without waiting for anything that draws in it."""

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
    """The command that opens a page on this machine's desktop, or None where the system opens it
    itself.

    Raises:
        ViewerError: a Linux machine without a display or without a browser.
    """
    if not sys.platform.startswith("linux"):
        return None  # macOS and Windows come with a browser and a way to ask for it
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
    """Whether this machine can show a page; where it cannot, say on stderr what is missing."""
    try:
        find_browser()
    except ViewerError as error:
        print(error, file=sys.stderr)
        return False
    return True


def how_to_open(url: str) -> str:
    """The address of a page on this machine, and how to get to it from another one."""
    port = url.split("/")[2].rsplit(":", 1)[1]
    away = f"from another machine, after: ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}"
    return f"open {url} in a browser ({away})"


# Ends a browser once whoever started it is gone, killed too: then nobody holds the other end of its
# standard input.
_WATCH = 'read -r _; kill -s TERM -- "-$0"'


class Browser:
    """A browser that was started to show a page, in a session of its own: Ctrl-C in the terminal is
    not for it.

    Args:
        command: that starts it.
        url: of the page.
        complaints: file that takes what it says.

    Raises:
        ViewerError: it cannot be run.
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
        """What to say of one that has ended with an error; empty of any other."""
        code = self._process.poll()
        return f"the browser {self._name!r} stopped with exit code {code}" if code else ""

    def end(self) -> None:
        """Stop it, unless it has ended by itself."""
        running = self._process.poll() is None
        self.leave()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if running:
                os.killpg(self._process.pid, signal.SIGTERM)

    def leave(self) -> None:
        """Let it stay, whatever becomes of us."""
        self._watch.kill()
        self._watch.wait()
