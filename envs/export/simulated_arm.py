"""The native engine behind an arm's interface: velocities in, states out, and brakes where no
command comes.
"""

import torch

from envs.robots import Robot
from envs.simulation.engine import Command, compile_robot, make_rest_state
from envs.simulation.kinematic import KinematicEngine


class SimulatedArm:
    """One arm at rest at home; a `td3_robot.deploy.adapters.udp_server.Steppable`.

    Args:
        robot: the arm.
        period: of a step [s].

    Attributes:
        n: its joints.
    """

    def __init__(self, robot: Robot, period: float):
        self.model = compile_robot(robot, period)
        self.engine = KinematicEngine()
        self.n = robot.n
        self.state = make_rest_state(
            self.model, torch.as_tensor(robot.home, dtype=torch.float32)[None]
        )

    def step(self, qd) -> None:
        """One period on with velocities (n,) [rad/s or m/s]; None is no command for too long."""
        command = torch.tensor([0.0] * self.n if qd is None else qd, dtype=torch.float32)
        joints = Command(command[None] / self.model.qdlim)
        self.state = self.engine.step(self.model, self.state, joints, {})[0]

    def reading(self) -> list[float]:
        """q, qd and the gripper's driver coordinate."""
        state = self.state
        return [*state.q[0].tolist(), *state.qd[0].tolist(), state.gripper.item()]
