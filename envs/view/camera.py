"""Camera views of a scene."""

import numpy as np

from td3_robot.errors import ConfigError

Camera = str  # a name of VIEWS, or six numbers "x,y,z,x,y,z"

CORNER = "corner"
# Vector from the target to the camera, in units of the reach.
VIEWS = {
    CORNER: (1.02, -1.4, 0.54),
    "front": (1.75, 0.0, 0.25),
    "side": (0.0, -1.75, 0.25),
    "top": (0.0, -0.02, 1.75),  # not straight down, where "up" is undefined
}
# The camera's target: forward as a share of the reach, up as one of the workspace's middle.
_FORWARD = 0.25
_UP = 0.88
# For a grid of arms, per metre of its half width: offsets of the camera and of its target.
_CAMERA_OFFSET = (1.35, -1.8, 1.5)
_TARGET_OFFSET = (0.3, -0.4, 0.0)


def compute_camera_pose(
    camera: Camera, workspace: np.ndarray, wide: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the positions (3,) of the camera and of its target in the base frame [m].

    Args:
        camera: name of a view, or both positions as "x,y,z,x,y,z".
        workspace: (2, 3) corners [m].
        wide: half width of a grid of arms [m].

    Raises:
        ConfigError: the camera is neither.
    """
    reach = float(np.linalg.norm(np.abs(workspace).max(0)))
    if camera in VIEWS:
        target = np.array([_FORWARD * reach, 0.0, _UP * workspace[:, 2].mean()])
        direction = np.array(VIEWS[camera])
        offset = np.array(_CAMERA_OFFSET) if camera == CORNER else 2.0 * direction
        target += wide * np.array(_TARGET_OFFSET) * (camera == CORNER)
        return target + direction * reach + offset * wide, target
    numbers = _parse_positions(camera)
    return numbers[:3], numbers[3:]


def check_camera(camera: Camera) -> None:
    """Check that `compute_camera_pose` accepts the camera.

    Raises:
        ConfigError: it is no view and no six numbers.
    """
    if camera not in VIEWS:
        _parse_positions(camera)


def _parse_positions(camera: Camera) -> np.ndarray:
    try:
        numbers = np.array([float(word) for word in camera.split(",")])
    except ValueError:
        numbers = np.empty(0)
    if len(numbers) != 6 or not np.isfinite(numbers).all() or np.allclose(numbers[:3], numbers[3:]):
        choices = f"{', '.join(VIEWS)}, or where it is and what it looks at in metres, x,y,z,x,y,z"
        raise ConfigError(f"camera must be {choices}, got {camera!r}")
    return numbers
