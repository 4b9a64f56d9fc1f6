"""Contact physics: the registered robots, their grippers and a cube in MuJoCo, behind the `Engine`
of every task.
"""

from envs.simulation.mujoco.contacts import Contacts, read_contacts
from envs.simulation.mujoco.engine import MujocoEngine

__all__ = ["Contacts", "MujocoEngine", "read_contacts"]
