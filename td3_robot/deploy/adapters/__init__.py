"""Arms by name. A vendor's package is imported when its adapter is made, and nowhere else.

Each but so101 has been driven through its maker's own client, against a simulated robot; none has
been tried on hardware yet.
"""

from td3_robot.deploy.adapters.arm_process import ArmProcess
from td3_robot.deploy.adapters.vendors import ARMS, FOLLOWING, connect

__all__ = ["ARMS", "FOLLOWING", "ArmProcess", "connect"]
