"""The numpy observation beside the simulator's, over many states of every task."""

import dataclasses

import numpy as np
import pytest
import torch

import envs
from envs.export.robot_description import describe, describe_task
from envs.world import make_moment
from td3_robot.deploy import DeployError, Robot
from td3_robot.deploy.observation.observation import Observation, scene_of

PAIRS = [
    ("panda", "reach"),
    ("panda", "reach_pose"),
    ("panda", "reach_avoid"),
    ("panda", "track"),
    ("panda", "pick_place"),
    ("panda", "pick_turned"),
    ("panda", "push"),
    ("ur5e", "reach"),
]


def exact_shape(model):
    """A robot's capsules in double precision."""
    if model is None:
        return None
    points = tuple((body, local.double()) for body, local in model.points)
    return dataclasses.replace(
        double(model), chain=model.chain.to(dtype=torch.float64), points=points
    )


def double(thing):
    """A dataclass of tensors, or a dictionary, in double precision."""

    def of(x):
        return x.double() if torch.is_tensor(x) and x.is_floating_point() else x

    if isinstance(thing, dict):
        return {name: of(value) for name, value in thing.items()}
    return dataclasses.replace(
        thing, **{part.name: of(getattr(thing, part.name)) for part in dataclasses.fields(thing)}
    )


@pytest.mark.parametrize(("name", "task"), PAIRS)
def test_it_is_the_simulators(name, task):
    compare(name, task, states=1_000)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "task"), [*PAIRS, ("ur5e", "reach_avoid")])
def test_it_is_over_many_states(name, task):
    compare(name, task, states=10_000)


# What the simulator's own 32 bits make of a column: near singularities the inverse of resolved
# rates rounds coarsely, and the programme of reactive control everywhere.
ROUNDED = {
    "track": 2e-3,
    "push": 2e-3,
    "pick_place": 2e-3,
    "pick_turned": 2e-3,
    "reach_avoid": np.inf,
}


def compare(name: str, task: str, states: int) -> None:
    """To 1e-6 of its formulas in double precision; beside that is what the simulator rounds to 32
    bits itself.
    """
    count = 50
    env = envs.make(name, task, count, "cpu", 0)
    metadata = describe_task(task, env)
    see = Observation(Robot.of(describe(env.robot)), metadata)
    hand = double(env.model.hand) if env.model.hand else None
    model = dataclasses.replace(
        double(env.model), chain=env.model.chain.to(dtype=torch.float64), hand=hand
    )
    world = dataclasses.replace(env.world, model=model, collision=exact_shape(env.world.collision))
    generator = torch.Generator().manual_seed(0)
    for _ in range(states // count):
        rounded = env.step(
            torch.rand(count, env.a_dim, generator=generator) * 2 - 1
        ).observation.numpy()
        state, scene = double(env.moment.state), double(env.moment.scene)
        moment = env.task.sense(world, make_moment(world, state, scene, env.moment.steps))
        exact = env.task.observe(world, moment).numpy()
        rows = zip(state.q.numpy(), state.qd.numpy(), state.gripper.numpy())
        told = [
            {part: np.atleast_1d(scene[part][i].numpy()) for part in scene_of(task)}
            for i in range(count)
        ]
        seen = np.array([see(*row, told[i]) for i, row in enumerate(rows)])
        size = np.maximum(np.abs(exact), 1.0)
        assert (np.abs(seen - exact) / size).max() < (1e-6 if task != "reach_avoid" else 1e-5)
        assert (np.abs(seen - rounded) / size).max() < ROUNDED.get(task, 5e-5)


def test_a_column_that_nobody_can_work_out_is_named():
    with pytest.raises(DeployError, match="reach.*warmth"):
        columns = [("q", 7), ("warmth", 9)]
        Observation(
            Robot.load("panda"), {"task": {"name": "reach"}, "observation": {"columns": columns}}
        )
