"""The frames of an episode, without drawing them."""

from itertools import islice

import numpy as np
import pytest
import torch

import envs
from envs.baselines import ResolvedRate
from envs.playback import episodes, record_episodes


@pytest.fixture
def env():
    return envs.make("panda", "reach", num_envs=1)


def test_frames_follow_the_episodes_to_their_end(env):
    played = list(islice(episodes(ResolvedRate(env), env, seed=4), 2))

    env.reset(4)
    policy = ResolvedRate(env)
    for number, frames in enumerate(played, 1):
        assert len(frames) == env.task.horizon + 1
        goal, states, grips = env.goal[0].clone(), [env.state.q[0]], [env.state.gripper.item()]
        for _ in range(env.task.horizon):
            step = env.step(policy(None))
            grips.append(step.info["gripper"].item())
            states.append(step.info["q"][0])
        np.testing.assert_allclose([f.q for f in frames], torch.stack(states).numpy())
        assert [f.gripper for f in frames] == grips
        assert frames[0].gripper > frames[-1].gripper == 0  # it shuts at the goal
        for f in frames:
            np.testing.assert_allclose(f.T_bt[:3, 3], goal)
        assert frames[-1].text == f"episode {number}, error {1000 * step.info['position_error'].item():.1f} mm"
        assert all(f.dt == env.task.dt for f in frames)


def test_a_picture_is_the_end_of_the_first_episode_and_a_video_some_episodes(env, monkeypatch, tmp_path):
    drawn = {}
    monkeypatch.setattr("envs.playback.record", lambda robot, frames, path: drawn.update({path.name: list(frames)}))
    for name in ("a.png", "a.gif"):
        record_episodes(ResolvedRate(env), env, 4, tmp_path / name)
    assert len(drawn["a.png"]) == 1 and drawn["a.png"][0].text.startswith("episode 1, error 0.0")
    assert len(drawn["a.gif"]) == 3 * (env.task.horizon + 1)
