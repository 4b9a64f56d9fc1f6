"""make_gymnasium: Gymnasium ids as VecEnvs, and ids that cannot be had."""

import dataclasses
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from envs.from_gymnasium import make_gymnasium
from envs.from_gymnasium.make import find_pictures
from td3_robot.errors import ConfigError
from td3_robot.vec_env import VecEnv
from tests.support import needs_fetch


@pytest.mark.parametrize(
    ("env_id", "o_dim", "a_dim"),
    [
        ("HalfCheetah-v5", 17, 6),
        ("CartPole-v1", 4, 2),
        ("FrozenLake-v1", 16, 4),
        pytest.param("FetchReach-v4", 16, 4, marks=needs_fetch),
    ],
)
def test_an_id_becomes_a_vec_env(env_id, o_dim, a_dim):
    env = make_gymnasium(env_id, 2)
    assert isinstance(env, VecEnv) and (env.num_envs, env.o_dim, env.a_dim) == (2, o_dim, a_dim)
    step = env.step(torch.zeros(2, a_dim))
    assert step.observation.shape == (2, o_dim) and step.reward.shape == (2,)
    env.close()


def test_a_time_limit_truncates_and_does_not_terminate():
    env = make_gymnasium("Pendulum-v1", 1)
    steps = [env.step(torch.zeros(1, 1)) for _ in range(400)]
    assert [i for i, step in enumerate(steps) if step.truncated] == [199, 399]
    assert not any(step.terminated for step in steps)
    assert not torch.equal(steps[199].observation, steps[199].next_observation)


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("HalfCheetha-v5", "unknown env 'HalfCheetha-v5'; did you mean 'HalfCheetah-v5'"),
        ("FetchRaech-v4", "unknown env 'FetchRaech-v4'; did you mean 'FetchReach-v4'"),
        ("td3_robot/PandaRaech-v0", "did you mean 'td3_robot/PandaReach-v0'"),
        ("HalfCheetah", "unknown env 'HalfCheetah'; did you mean 'HalfCheetah-v5'"),
        ("FetchReach-v9", "env 'FetchReach-v9': VersionNotFound: .*`v4`"),
        ("FetchReach-v2", "env 'FetchReach-v2': DeprecatedEnv: .*`FetchReach-v4`"),
        ("qqqqqq", "unknown env 'qqqqqq'; gymnasium.pprint_registry"),
        ("", "unknown env ''"),
        (
            "no_such_module:Fetch-v0",
            "env 'no_such_module:Fetch-v0' needs no_such_module .*no_such_module.\\)$",
        ),
    ],
)
def test_an_id_that_is_not_there_is_named_with_what_is_near(env_id, message):
    with pytest.raises(ConfigError, match=message) as caught:
        make_gymnasium(env_id)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("env_id", "module", "message"),
    [
        ("FetchReach-v4", "gymnasium_robotics", r"pip install 'td3-robot\[fetch\]'"),
        ("PandaReach-v3", "panda_gym", r"pip install 'td3-robot\[bench\]'"),
    ],
)
def test_what_is_not_installed_is_named(monkeypatch, env_id, module, message):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(gym.registry, env_id, raising=False)  # of a test before
    with pytest.raises(ConfigError, match=f"env '{env_id}' needs {module} .*{message}"):
        make_gymnasium(env_id)


def test_an_id_of_one_s_own_may_begin_like_a_family_s(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", None)
    monkeypatch.setitem(
        gym.registry, "HandOpen-v0", dataclasses.replace(gym.spec("Pendulum-v1"), id="HandOpen-v0")
    )
    assert make_gymnasium("HandOpen-v0").a_dim == 1


@pytest.mark.parametrize(
    ("env_id", "version", "hint"),
    [
        ("FetchReach-v4", "3.11.0", ""),
        ("FetchReach-v4", "3.12.0", "; it needs MuJoCo below 3.12, and 3.12.0 is installed; pip"),
        ("HandReach-v3", "4.0.0", "; it needs MuJoCo below 3.12, and 4.0.0 is installed; pip"),
        ("HalfCheetah-v5", "4.0.0", ""),
    ],
)
def test_a_mujoco_too_new_for_fetch_is_named(monkeypatch, env_id, version, hint):
    pytest.importorskip("mujoco")
    monkeypatch.setattr("importlib.metadata.version", lambda name: version)

    def fail(*args, **options):
        raise AssertionError("broken")

    monkeypatch.setattr(gym, "make", fail)
    with pytest.raises(ConfigError, match=f"env '{env_id}' cannot be made: .*broken{hint}") as why:
        make_gymnasium(env_id)
    assert ("td3-robot[fetch]" in str(why.value)) == bool(hint)


def test_without_mujoco_its_package_is_named(monkeypatch):
    for name in [
        name for name in sys.modules if name.startswith(("gymnasium.envs.mujoco", "mujoco"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(
        ConfigError,
        match=r"env 'HalfCheetah-v5' cannot be made: .*; pip install 'td3-robot\[mujoco\]'",
    ):
        make_gymnasium("HalfCheetah-v5")


class Unbounded(gym.Env):
    observation_space = action_space = spaces.Box(-np.inf, 1, (2,))


def test_errors_name_the_id():
    gym.register("toys/Unbounded-v0", Unbounded)
    with pytest.raises(
        ConfigError, match="env 'toys/Unbounded-v0': action dimension 0 has no finite bounds"
    ):
        make_gymnasium("toys/Unbounded-v0")


@pytest.mark.parametrize(
    "space, shapes",
    [
        (spaces.Box(0, 255, (96, 96, 3), np.uint8), [(96, 96, 3)]),
        (spaces.Box(0, 255, (84, 84), np.uint8), [(84, 84)]),
        (spaces.Box(0, 1, (3, 64, 64), np.float32), [(3, 64, 64)]),
        (spaces.Box(0, 255, (128,), np.uint8), []),  # the memory of an Atari console
        (spaces.Box(-1, 1, (4, 7), np.float32), []),
        (spaces.Dict(q=spaces.Box(-1, 1, (7,)), eye=spaces.Box(0, 255, (8, 8, 1), np.uint8)), [(8, 8, 1)]),
    ],
)  # fmt: skip
def test_pictures_are_told_from_vectors(space, shapes):
    assert find_pictures(space) == shapes


def test_whoever_trains_on_pictures_reads_what_becomes_of_them(monkeypatch, in_process, tmp_path):
    class Camera(gym.Env):
        observation_space = spaces.Dict(eye=spaces.Box(0, 255, (8, 8, 3), np.uint8))
        action_space = spaces.Box(-1, 1, (1,), np.float32)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return {"eye": np.zeros((8, 8, 3), np.uint8)}, {}

        def step(self, action):
            return {"eye": np.zeros((8, 8, 3), np.uint8)}, 0.0, False, True, {}

    spec = gym.envs.registration.EnvSpec("Camera-v0", Camera)
    monkeypatch.setitem(gym.registry, spec.id, spec)
    line = "--env Camera-v0 --steps 8 --td3.hidden 8 --replay.capacity 100 --replay.batch_size 8"
    code, out, err = in_process(tmp_path, "train", *line.split())
    assert (code, err) == (0, "")
    assert (
        "env 'Camera-v0' observes pictures (8, 8, 3): they enter the networks flat, as 192 numbers "
        "without convolutions, from which TD3 hardly learns\n"
    ) in out
