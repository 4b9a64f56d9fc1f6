"""An exported policy without training: along the simulator's joint_error, by one matrix; made in a
moment.
"""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import envs
from envs.export.robot_description import describe, describe_task
from td3_robot.deploy import Policy, Robot
from td3_robot.deploy.observation.observation import Observation
from td3_robot.deploy.policy import FORMAT, KEY

GAIN = 2.0  # [rad/s] for each unit of joint_error


def write(path: Path, name: str = "panda") -> Path:
    """A file as export.py writes it, for `reach`."""
    env = envs.make(name, "reach", 1)
    metadata = {"format": FORMAT, "robot": describe(env.robot), **describe_task("reach", env)}
    see, n = Observation(Robot.of(metadata["robot"]), metadata), env.robot.n
    gains = np.zeros((see.size, n), np.float32)
    columns = env.layout["joint_error"]
    gains[columns, : columns.stop - columns.start] = GAIN * np.eye(columns.stop - columns.start)
    q, goal = env.robot.home, np.array([0.45, 0.1, 0.4])
    seen = see(q, np.zeros(n), 0.0, {"goal": goal})
    commanded = np.clip(seen @ gains, -env.robot.qdlim, env.robot.qdlim)
    vector = {"q": q, "qd": np.zeros(n), "observation": seen, "qd_commanded": commanded}
    vector = {key: value.tolist() for key, value in vector.items()} | {
        "gripper": 0.0,
        "scene": {"goal": goal.tolist()},
    }

    limit = env.robot.qdlim.astype(np.float32)
    weights = {"gains": gains, "limit": limit, "lower": -limit}
    nodes = [
        helper.make_node("MatMul", ["observation", "gains"], ["wanted"]),
        helper.make_node("Min", ["wanted", "limit"], ["less"]),
        helper.make_node("Max", ["less", "lower"], ["command"]),
    ]

    def value(name, width):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width])

    tensors = [numpy_helper.from_array(value, key) for key, value in weights.items()]
    graph = helper.make_graph(
        nodes, "straight", [value("observation", see.size)], [value("command", n)], tensors
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, {KEY: json.dumps(metadata | {"test_vectors": [vector]})})
    onnx.save(model, str(path))
    Policy.load(path)
    return path
