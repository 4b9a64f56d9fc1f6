"""Simulated arms are float32 whatever torch's default dtype is: a user's plugin may set it."""

import pytest
import torch

import envs
from envs.simulation.disturbances import Disturbances
from envs.simulation.force_sensors import ForceSensors, measure_forces
from envs.tasks.registry import list_tasks
from tests.envs.playing import play, same, tensors
from tests.support import mark_slow, set_default_dtype

DISTURBED = Disturbances(latency=0.03, latency_spread=0.02, servo_lag=0.05, noise=0.01)
CASES = [
    *(mark_slow(task, (task, {})) for task in list_tasks("kinematic")),
    ("push", {"engine": "mujoco"}),
    ("reach", {"guard": True, "disturbances": DISTURBED}),
    ("pick_place", {"training": True, "sparse": True}),
]


@pytest.mark.parametrize("task, options", CASES)
def test_the_default_dtype_changes_nothing(task, options):
    def record() -> list[dict]:
        env = envs.make("panda", task, 3, seed=1, **options)
        return [{"first": env.reset(2)}, *map(tensors, play(env, 8))]

    expected = record()
    with set_default_dtype(torch.float64):
        found = record()
    assert all(map(same, expected, found))
    assert {value.dtype for row in found for value in row.values()} <= {torch.float32, torch.bool}


def test_the_default_dtype_changes_no_measured_force():
    def measure() -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        sensors = ForceSensors(Disturbances(force_noise=1.0, torque_bias=0.1), generator)
        scene = {"wrench": torch.ones(2, 6, dtype=torch.float32)}
        return measure_forces(sensors.step(sensors.begin(scene)))["wrench"]

    expected = measure()
    with set_default_dtype(torch.float64):
        found = measure()
    assert found.dtype == torch.float32 and torch.equal(found, expected)
