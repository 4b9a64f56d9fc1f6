"""A simulated Panda that another program controls: the program reads states from its standard input
and answers each with velocities and the gripper's opening.

    python examples/simulated_arm.py python examples/controller.py policy.onnx 0.4 0.1 0.4
    python examples/simulated_arm.py ./controller policy.onnx 0.4 0.1 0.4

Prints where the TCP is in the end, and its distance from the goal, which is the last three words.
"""

import subprocess
import sys

import torch

import envs
from envs.simulation.engine import Command, make_rest_state
from envs.simulation.kinematic import KinematicEngine

STEPS = 60  # of 0.05 s


def main(command: list[str]) -> float:
    """Run the program for an episode. Returns the distance that is left [m]."""
    env = envs.make("panda", "reach")
    state = make_rest_state(env.model, env.world.home[None])
    engine = KinematicEngine()
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert program.stdin and program.stdout
    for _ in range(STEPS):
        numbers = (*state.q[0].tolist(), *state.qd[0].tolist(), state.gripper.item())
        print(*numbers, file=program.stdin, flush=True)
        answer = torch.tensor([float(word) for word in program.stdout.readline().split()])
        joints = answer[None, : env.robot.n] / env.model.qdlim
        state, _ = engine.step(env.model, state, Command(joints, answer[env.robot.n :]), {})
    program.stdin.close()
    program.wait()
    tcp = env.fkine(state.q)[0, :3, 3]
    distance = (tcp - torch.tensor([float(word) for word in command[-3:]])).norm().item()
    print(f"TCP at {tcp.tolist()}, {1e3 * distance:.2f} mm from the goal")
    return distance


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0.01)
