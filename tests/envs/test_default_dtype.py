"""Simulated arms are float32 whatever torch's default dtype is: a user's plugin may set it."""

import pytest
import torch

import envs
from envs.simulation.disturbances import Disturbances
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
