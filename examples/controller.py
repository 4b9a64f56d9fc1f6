"""Control an arm from an exported policy alone: numpy and onnxruntime, nothing of this project.

    python examples/controller.py policy.onnx 0.4 0.1 0.4

Reads a state a line, joint positions, velocities and the gripper's driver coordinate, and answers
each with a line of joint velocities and the gripper's opening. The goal is in the base frame.
"""

import sys

import numpy as np
import onnxruntime


def read_numbers(what: str, words: list[str], count: int) -> np.ndarray:
    """Read so many finite numbers; anything else ends the program, as no command follows."""
    try:
        numbers = np.array(words, np.float32)
    except ValueError:
        numbers = np.array([np.nan])
    if len(numbers) != count or not np.isfinite(numbers).all():
        sys.exit(f"{what} must be {count} finite numbers, got: {' '.join(words)}")
    return numbers


def main() -> None:
    """Answer each state with a command."""
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    path, *goal = sys.argv[1:]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    shapes = {value.name: value.shape for value in session.get_inputs()}
    if set(shapes) - {"q", "qd", "gripper", "goal"}:
        sys.exit(f"this program knows joints, gripper and goal; the policy needs {list(shapes)}")
    if missing := [name for name in ("q", "goal") if name not in shapes]:
        sys.exit(f"this program gives joints and a goal; the policy takes no {', '.join(missing)}")
    n = shapes["q"][0]
    given = {"goal": read_numbers("the goal", goal, shapes["goal"][0])}
    for line in sys.stdin:
        state = read_numbers("a state", line.split(), 2 * n + 1)
        given |= {"q": state[:n], "qd": state[n : 2 * n], "gripper": state[2 * n :]}
        command, opening = session.run(["command", "opening"], {x: given[x] for x in shapes})
        print(*command, *opening, flush=True)


if __name__ == "__main__":
    main()
