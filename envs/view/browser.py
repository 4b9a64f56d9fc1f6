"""Finding a web browser, without waiting for anything that draws in it."""

import os
import shlex
import shutil
import sys

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
    """The command that opens a page on this machine's desktop, or None where the system opens it itself.

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
        raise ViewerError(f"no web browser found; {HOW_TO_INSTALL}, or name yours in the variable BROWSER")
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise ViewerError(
            f"no display to open {found} on (neither DISPLAY nor WAYLAND_DISPLAY is set); run on a desktop, "
            "or write a recording instead: evaluate.py --record"
        )
    return [found]
