"""The frames of an episode, without drawing them."""

from itertools import islice

import numpy as np
import pytest
import torch

import envs
from envs.controllers import ResolvedRate, make_baseline
from envs.view.playback import play_episodes, play_together, record_episodes


@pytest.fixture
def env():
    return envs.make("panda", "reach", num_envs=1)


def test_frames_follow_the_episodes_to_their_end(env):
    played = list(islice(play_episodes(ResolvedRate(env), env, seed=4), 2))

    env.reset(4)
    policy = ResolvedRate(env)
    for number, frames in enumerate(played, 1):
        assert len(frames) == env.task.horizon + 1
        goal = env.goal[0].clone()
        states = [env.state.q[0]]
        grips = [env.state.gripper.item()]
        for _ in range(env.task.horizon):
            step = env.step(policy(None))
            grips.append(step.info["gripper"].item())
            states.append(step.info["q"][0])
        np.testing.assert_allclose([f.q for f in frames], torch.stack(states).numpy())
        assert [f.gripper for f in frames] == grips
        assert frames[0].gripper > frames[-1].gripper == 0  # it shuts at the goal
        for f in frames:
            (shown,) = f.shapes
            assert shown.kind == "sphere"
            np.testing.assert_allclose(shown.T_bs[:3, 3], goal)
        error = f"error {1000 * step.info['position_error'].item():.1f} mm"
        assert (
            frames[-1].text == f"panda, reach, episode {number}, 3.00 s\npolicy: {error}, success"
        )
        assert frames[20].text.splitlines()[0].endswith(", 1.00 s")
        assert all(f.dt == env.task.dt for f in frames)


@pytest.mark.parametrize("task", ["track", "pick_place"])
def test_frames_show_the_scene_of_their_moment_to_the_end_of_the_episode(task):
    """In the last frame as well, when the arm has begun the next one."""
    env = envs.make("panda", task, num_envs=1)
    policy = make_baseline("pick" if task == "pick_place" else "rrmc", env)
    frames = next(play_episodes(policy, env, seed=4))
    observation = env.reset(4)
    moment = env.now
    for f in frames:
        goal, *others = f.shapes
        np.testing.assert_allclose(goal.T_bs[:3, 3], moment.scene["goal"][0])
        there = moment.scene["object"] if task == "pick_place" else moment.tcp
        error = torch.linalg.vector_norm(moment.scene["goal"] - there).item()
        assert abs(float(f.text.split("error ")[1].split()[0]) - 1000 * error) < 0.06
        (other,) = others
        if task == "pick_place":
            np.testing.assert_allclose(other.T_bs[:3, 3], moment.scene["object"][0], atol=1e-6)
        else:
            assert np.linalg.norm(np.array(other.points) - goal.T_bs[:3, 3], axis=1).min() < 1e-6
        observation = env.step(policy(observation)).next_observation
        moment = env.arrived


def test_the_text_tells_the_angle_where_the_orientation_counts():
    env = envs.make("panda", "reach_pose", num_envs=1)
    frames = next(play_episodes(lambda observation: torch.zeros(1, 7), env, seed=4))
    env.reset(4)
    last = [env.step(torch.zeros(1, 7)) for _ in range(env.task.horizon)][-1].info
    angle = np.degrees(last["rotation_error"].item())
    errors = f"error {1000 * last['position_error'].item():.1f} mm and {angle:.1f} deg"
    assert frames[-1].text == f"panda, reach_pose, episode 1, 5.00 s\npolicy: {errors}, missed"
    assert [shape.kind for shape in frames[0].shapes] == ["axes", "sphere"]


@pytest.mark.parametrize("task", ["reach", "pick_place"])
def test_others_play_the_same_episodes_as_ghosts(task):
    def make():
        return envs.make("panda", task, num_envs=1)

    def still(observation):
        return torch.zeros(1, env.a_dim)

    env = make()
    other = make()
    alone = make()
    name = "pick" if task == "pick_place" else "rrmc"
    both = play_together(
        {"policy": (still, env), name: (make_baseline(name, other), other)}, seed=4
    )
    only = play_episodes(make_baseline(name, alone), alone, seed=4)
    for number in (1, 2):
        frames = next(both)
        expected = next(only)
        assert len(frames) == len(expected)
        for frame, own in zip(frames, expected):
            (ghost,) = frame.ghosts
            np.testing.assert_array_equal(ghost.q, own.q)
            assert ghost.gripper == own.gripper
            # one goal for both
            np.testing.assert_array_equal(frame.shapes[0].T_bs, own.shapes[0].T_bs)
        title, error = own.text.split("\npolicy: ")
        assert (
            frame.text.startswith(f"{title}\npolicy: error ") and f", episode {number}, " in title
        )
        assert frame.text.endswith(f"\n{name} (see-through): {error}")
        moved = frame.shapes[len(own.shapes) :]  # the cube, where the other one brought it
        assert [shape.T_bs.tolist() for shape in moved] == [
            shape.T_bs.tolist() for shape in own.shapes[1:]
        ]
        assert all(0 < shape.colour[3] < 1 for shape in moved)


def test_a_picture_is_the_end_of_the_first_episode_and_a_video_some_episodes(
    env, monkeypatch, tmp_path
):
    drawn = {}
    monkeypatch.setattr(
        "envs.view.playback.record",
        lambda robot, frames, path, camera, count: drawn.update({path.name: list(frames)}),
    )
    for name in ("a.png", "a.gif"):
        record_episodes({"rrmc": (ResolvedRate(env), env)}, 4, tmp_path / name)
    assert len(drawn["a.png"]) == 1 and "error 0.0 mm, success" in drawn["a.png"][0].text
    assert len(drawn["a.gif"]) == 3 * (env.task.horizon + 1)


def test_where_an_arm_touches_something_is_marked_for_as_long_as_it_does():
    env = envs.make("panda", "reach_avoid", num_envs=1)
    rammed = next(
        frames
        for frames in play_episodes(lambda _: torch.ones(1, 7), env, seed=4)
        if frames[-1].contacts
    )
    assert [frame.contacts for frame in rammed[:-1]] == [()] * (len(rammed) - 1)  # contact ends it
    assert rammed[-1].text.endswith(", contact")
    balls = [shape for shape in rammed[-1].shapes if shape.kind == "sphere" and not shape.is_goal]
    for touch in rammed[
        -1
    ].contacts:  # inside of what is touched, or on the ground, or in the arm itself
        inside = any(np.linalg.norm(ball.T_bs[:3, 3] - touch) < ball.size[0] for ball in balls)
        assert (
            inside
            or any(shape.kind == "box" for shape in rammed[-1].shapes)
            or abs(touch[2]) < 1e-6
        )
