"""Arms in contact physics: models are dear to make, so tests share them."""

import pytest

from envs.robots import make_robot
from envs.simulation.engine import compile_robot
from envs.simulation.mujoco import MujocoEngine

DT = 0.05
CUBE = 0.04


class Lab:
    """A robot, its tensors, and its engine; with a cube."""

    def __init__(self, name: str):
        self.robot = make_robot(name)
        self.model = compile_robot(self.robot, DT, "cpu", CUBE)
        self.engine = MujocoEngine(self.robot, DT, CUBE)


@pytest.fixture(scope="session")
def panda_lab():
    return Lab("panda")


@pytest.fixture(scope="session", params=["panda", "ur5e"])
def lab(request, panda_lab):
    return panda_lab if request.param == "panda" else Lab(request.param)
