"""Contact dynamics by MuJoCo: robots, their grippers and cubes as an `Engine`."""

from envs.simulation.mujoco.contacts import Contacts, read_contacts
from envs.simulation.mujoco.engine import MujocoEngine

__all__ = ["Contacts", "MujocoEngine", "read_contacts"]
