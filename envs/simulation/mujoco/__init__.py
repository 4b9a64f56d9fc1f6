"""Contact physics: the registered robots, their grippers and a cube in MuJoCo, behind the `Engine`
of every task.
"""

from envs.simulation.mujoco.contacts import Contacts, read_contacts
from envs.simulation.mujoco.engine import Mujoco

__all__ = ["Contacts", "Mujoco", "read_contacts"]
