"""Adapters by their names; the package of each is imported when it is made."""

from collections.abc import Callable

from td3_robot.deploy.arm import Arm
from td3_robot.deploy.errors import DeployError, summarize


def _ur_rtde(host: str, joints: tuple[str, ...], realtime: bool) -> Arm:
    from td3_robot.deploy.adapters.ur_rtde_arm import UrRtdeArm

    return UrRtdeArm(host)


def _franky(host: str, joints: tuple[str, ...], realtime: bool) -> Arm:
    from td3_robot.deploy.adapters.franky_arm import FrankyArm

    return FrankyArm(host, realtime=realtime)


def _ros2_control(host: str, joints: tuple[str, ...], realtime: bool) -> Arm:
    from td3_robot.deploy.adapters.ros2_arm import Ros2Arm

    return Ros2Arm(host, joints)


ARMS: dict[str, Callable[[str, tuple[str, ...], bool], Arm]] = {
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


def connect(name: str, host: str, joints: tuple[str, ...], realtime: bool = True) -> Arm:
    """Connect to an arm by the name of its adapter, in this process.

    The maker's calls may block for as long as they like. `ArmProcess` bounds them.

    Args:
        host: its address; for ros2_control the controller's name.
        joints: their names, in the policy's order.
        realtime: whether a kernel without real time is refused; for franky alone.

    Raises:
        DeployError: no such adapter, its package is missing, or the arm cannot be reached.
    """
    if name not in ARMS:
        raise DeployError(f"no arm {name!r}; valid choices: {', '.join(sorted(ARMS))}")
    try:
        return ARMS[name](host, joints, realtime)
    except ModuleNotFoundError as error:
        package = PACKAGES.get(error.name or "", error.name)
        raise DeployError(f"arm {name!r} needs {package}, which is not installed") from None
    except DeployError:
        raise
    except Exception as error:  # vendors raise what they like
        raise DeployError(
            f"arm {name!r} at {host!r} cannot be reached: {summarize(error)}"
        ) from None
