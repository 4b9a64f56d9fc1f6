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


def _so101(host: str, joints: tuple[str, ...], realtime: bool) -> Arm:
    from td3_robot.deploy.adapters.lerobot_arm import make_so101

    return make_so101(host, joints)


ARMS: dict[str, Callable[[str, tuple[str, ...], bool], Arm]] = {
    "ur_rtde": _ur_rtde,
    "franky": _franky,
    "ros2_control": _ros2_control,
    "so101": _so101,
}
PACKAGES = {
    "rtde_control": "ur_rtde",
    "rtde_receive": "ur_rtde",
    "franky": "franky-control",
    "rclpy": "ROS 2",
}
# [rad] by which an arm may be elsewhere than it was sent to, where that is not 0.1: an SO-101's
# motors have no integral part, and hang back by degrees under their own weight
FOLLOWING = {"so101": 0.3}


def connect(name: str, host: str, joints: tuple[str, ...], realtime: bool = True) -> Arm:
    """Connect to an arm by the name of its adapter, in this process.

    The maker's calls may block for as long as they like. `ArmProcess` bounds them.

    Args:
        host: its address; for ros2_control the controller's name, for so101 the serial port.
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
        module = (error.name or "").partition(".")[0]
        package = PACKAGES.get(module, module)
        raise DeployError(f"arm {name!r} needs {package}, which is not installed") from None
    except DeployError:
        raise
    except Exception as error:  # vendors raise what they like
        raise DeployError(
            f"arm {name!r} at {host!r} cannot be reached: {summarize(error)}"
        ) from None
