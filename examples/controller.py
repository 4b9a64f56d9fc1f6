"""Control an arm from an exported policy alone: numpy and onnxruntime, nothing of this project.

    python examples/controller.py policy.onnx 0.4 0.1 0.4

Reads a state a line, joint positions, velocities and the gripper's driver coordinate, and answers
each with a line of joint velocities and the gripper's opening. The goal is in the base frame.
"""

import sys

import numpy as np
import onnxruntime


def main() -> None:
    """Answer each state with a command."""
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    path, *goal = sys.argv[1:]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    shapes = {value.name: value.shape for value in session.get_inputs()}
    if set(shapes) - {"q", "qd", "gripper", "goal"}:
        sys.exit(f"this program knows joints, gripper and goal; the policy needs {list(shapes)}")
    n = shapes["q"][0]
    for line in sys.stdin:
        state = np.array(line.split(), np.float32)
        given = {"q": state[:n], "qd": state[n : 2 * n], "gripper": state[2 * n :]}
        given["goal"] = np.array(goal, np.float32)
        command, opening = session.run(["command", "opening"], {x: given[x] for x in shapes})
        print(*command, *opening, flush=True)


if __name__ == "__main__":
    main()
