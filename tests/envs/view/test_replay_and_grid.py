"""One episode at any of its moments, and many arms beside each other, without drawing them."""

from itertools import islice

import numpy as np
import pytest
import torch

import envs
from envs.controllers import ResolvedRate
from envs.view.grid import compute_width, play_grid
from envs.view.replay import Player
from envs.view.scene import Frame


@pytest.fixture
def player(monkeypatch):
    player = Player([Frame(np.zeros(7), text=str(number), dt=0.05) for number in range(5)])
    monkeypatch.setattr(
        player, "_toggle_pause", lambda: setattr(player, "paused", not player.paused)
    )
    return player


def test_an_episode_is_played_to_its_end_held_there_and_begun_again(player):
    shown = [(player.frame.text, player.advance())[0] for _ in range(60)]
    assert (
        shown[:5] == list("01234") and set(shown[4:25]) == {"4"} and shown[25:30] == list("01234")
    )


def test_the_slider_stops_at_a_moment_and_steps_go_on_from_there(player):
    player._shown["time"] = 0.15
    player._seek()
    player.advance()
    assert (
        player.paused
        and player.frame.text == "3"
        and player.get_values() == {"time": pytest.approx(0.15)}
    )
    player.step()
    assert player.frame.text == "4"
    player.step()
    assert player.frame.text == "0"


def test_every_arm_of_a_grid_stands_apart_and_goes_to_its_own_goal():
    env = envs.make("panda", "reach", num_envs=5)
    frames = list(islice(play_grid(ResolvedRate(env), env, seed=3), env.task.horizon + 1))
    env.reset(3)
    goals = env.goal.clone()
    last = frames[env.task.horizon - 1]
    places = [(0.0, 0.0, 0.0), *(arm.base for arm in last.ghosts)]
    apart = np.linalg.norm(np.array(places)[:, None] - places, axis=2) + 10 * np.eye(5)
    assert apart.min() > 1.0 and all(arm.solid for arm in last.ghosts)
    assert compute_width(env) == pytest.approx(np.abs(places).max())
    for place, goal, q, shape in zip(
        places, goals, [last.q, *(arm.q for arm in last.ghosts)], last.shapes
    ):
        np.testing.assert_allclose(shape.T_bs[:3, 3], goal + torch.tensor(place), atol=1e-6)
        assert np.linalg.norm(env.robot.rtb.fkine(q).t - goal.numpy()) < 0.01
    assert frames[0].text == "panda, reach, 5 arms, 0.00 s\npolicy: 0 of 5 succeed now"
    assert last.text.startswith("panda, reach, 5 arms, 2.95 s\npolicy: 5 of 5 succeed now")
    assert frames[-1].text.endswith("; 5 of 5 episodes did")
