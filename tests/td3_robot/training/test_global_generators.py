"""Environments that draw from the global generators of Python and numpy resume exactly, too."""

import random
import signal

import numpy as np
import pytest
import torch

from td3_robot.utils.seeding import seed_global_generators

pytestmark = pytest.mark.usefixtures("no_fsync")


@pytest.fixture
def windy(point_env):
    class Windy(point_env):
        """The toy environment in a wind that no seed of its own fixes."""

        def step(self, action):
            wind = random.gauss() + np.random.standard_normal() + torch.randn(()).item()
            return super().step((action + 0.1 * wind).clamp(-1, 1))

    return Windy


def test_a_resume_goes_on_with_their_states(tmp_path, train, windy, assert_same):
    def run(folder, stop=None, resume=False):
        seed_global_generators(7 if not resume else 8, "environments")
        stops = [lambda made: signal.raise_signal(signal.SIGINT) if made == stop else None]
        evaluation_env = windy(8, 1)
        trainer = train(folder, make=windy, evaluation_env=evaluation_env, on_step=stops, steps=200)
        if resume:
            trainer.resume()
        trainer.run()
        return trainer

    whole = run(tmp_path / "whole")
    run(tmp_path / "parts", stop=124)
    parts = run(tmp_path / "parts", resume=True)
    assert_same(parts.agent.state_dicts(), whole.agent.state_dicts())
    rows = [row["episode_return"] for row in whole.trackers[0]]
    assert [row["episode_return"] for row in parts.trackers[0]] == rows[-len(parts.trackers[0]) :]
