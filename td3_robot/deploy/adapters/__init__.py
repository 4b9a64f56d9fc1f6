"""Arms by name. A vendor's package is imported when its adapter is made, and nowhere else.

None of those has been tried on hardware yet: they are tested against stand-ins for the vendors'
    documented calls.
"""

from collections.abc import Callable

from td3_robot.deploy.arm import Arm
from td3_robot.deploy.errors import DeployError


def _ur_rtde(host: str, joints: tuple[str, ...]) -> Arm:
    from td3_robot.deploy.adapters.ur_rtde_arm import UrRtdeArm

    return UrRtdeArm(host)


def _franky(host: str, joints: tuple[str, ...]) -> Arm:
    from td3_robot.deploy.adapters.franky_arm import FrankyArm

    return FrankyArm(host)


def _ros2_control(host: str, joints: tuple[str, ...]) -> Arm:
    from td3_robot.deploy.adapters.ros2_arm import Ros2Arm

    return Ros2Arm(host, joints)


ARMS: dict[str, Callable[[str, tuple[str, ...]], Arm]] = {
    "ur_rtde": _ur_rtde,
    "franky": _franky,
    "ros2_control": _ros2_control,
}
PACKAGES = {
    "rtde_control": "ur_rtde",
    "rtde_receive": "ur_rtde",
    "franky": "franky-control",
    "rclpy": "ROS 2",
}


def connect(name: str, host: str, joints: tuple[str, ...]) -> Arm:
    """An arm by the name of its adapter.

    Args:
        host: its address; for ros2_control the controller's name.
        joints: their names, in the policy's order.

    Raises:
        DeployError: no such adapter, its package is missing, or the arm cannot be reached.
    """
    if name not in ARMS:
        raise DeployError(f"no arm {name!r}; valid choices: {', '.join(sorted(ARMS))}")
    try:
        return ARMS[name](host, joints)
    except ModuleNotFoundError as error:
        package = PACKAGES.get(error.name or "", error.name)
        raise DeployError(f"arm {name!r} needs {package}, which is not installed") from None
    except DeployError:
        raise
    except Exception as error:  # vendors raise what they like
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DeployError(f"arm {name!r} at {host!r} cannot be reached: {reason}") from None
