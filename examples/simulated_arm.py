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
    try:
        goal = torch.tensor([float(word) for word in command[-3:]])
    except ValueError:
        sys.exit(f"the last three words must be the goal x y z [m], got: {' '.join(command[-3:])}")
    env = envs.make("panda", "reach")
    state = make_rest_state(env.model, env.world.home[None])
    engine = KinematicEngine()
    try:
        program = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    except OSError as error:
        sys.exit(f"{command[0]!r} cannot be started: {error.strerror}")
    assert program.stdin and program.stdout
    for _ in range(STEPS):
        numbers = (*state.q[0].tolist(), *state.qd[0].tolist(), state.gripper.item())
        try:
            print(*numbers, file=program.stdin, flush=True)
            line = program.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:  # it has said why
            sys.exit("the program ended before the episode did")
        answer = torch.tensor([float(word) for word in line.split()])
        joints = answer[None, : env.robot.n] / env.model.qdlim
        state, _ = engine.step(env.model, state, Command(joints, answer[env.robot.n :]), {})
    program.stdin.close()
    program.wait()
    tcp = env.fkine(state.q)[0, :3, 3]
    distance = (tcp - goal).norm().item()
    print(f"TCP at {tcp.tolist()}, {1e3 * distance:.2f} mm from the goal")
    return distance


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]) > 0.01)
