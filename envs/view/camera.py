"""Where a scene is looked at from."""

import numpy as np

from td3_robot.errors import ConfigError

Camera = str  # a name of VIEWS, or six numbers in its place

CORNER = "corner"
# By name: from what is looked at to the camera, in units of the reach.
VIEWS = {
    CORNER: (1.02, -1.4, 0.54),
    "front": (1.75, 0.0, 0.25),
    "side": (0.0, -1.75, 0.25),
    "top": (0.0, -0.02, 1.75),  # not quite: straight down, the picture would have no way up
}
_FORWARD, _UP = (
    0.25,
    0.88,
)  # where what is looked at lies, of the reach and of the workspace's middle
# Where arms stand beside each other, of how far apart: how the camera goes back, and where it looks
# for all to be seen.
_SPREAD, _NEARER = (1.35, -1.8, 1.5), (0.3, -0.4, 0.0)


def placed(
    camera: Camera, workspace: np.ndarray, wide: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Where the camera is, and what it looks at, each (3,) in the base frame [m].

    Args:
        camera: name of a view, or both positions as "x,y,z,x,y,z".
        workspace: (2, 3) corners [m].
        wide: how far on the first arm's sides others stand [m].

    Raises:
        ConfigError: it is neither.
    """
    reach = float(np.linalg.norm(np.abs(workspace).max(0)))
    if camera in VIEWS:
        middle, away = (
            np.array([_FORWARD * reach, 0.0, _UP * workspace[:, 2].mean()]),
            np.array(VIEWS[camera]),
        )
        back = np.array(_SPREAD) if camera == CORNER else 2.0 * away
        middle += wide * np.array(_NEARER) * (camera == CORNER)
        return middle + away * reach + back * wide, middle
    numbers = _numbers(camera)
    return numbers[:3], numbers[3:]


def check_camera(camera: Camera) -> None:
    """Refuse what `placed` would."""
    if camera not in VIEWS:
        _numbers(camera)


def _numbers(camera: Camera) -> np.ndarray:
    try:
        numbers = np.array([float(word) for word in camera.split(",")])
    except ValueError:
        numbers = np.empty(0)
    if len(numbers) != 6 or not np.isfinite(numbers).all() or np.allclose(numbers[:3], numbers[3:]):
        ways = f"{', '.join(VIEWS)}, or where it is and what it looks at in metres, x,y,z,x,y,z"
        raise ConfigError(f"camera must be {ways}, got {camera!r}")
    return numbers
