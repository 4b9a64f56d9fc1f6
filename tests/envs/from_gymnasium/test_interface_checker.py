"""Environments that break the rules: one line that names the environment, the step, the seed and
what was expected.
"""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from envs.from_gymnasium import GymnasiumEnv, make_gymnasium
from td3_robot.errors import ConfigError, EnvError, Td3RobotError
from td3_robot.evaluation.rollout import rollout


class Tame(gym.Env):
    """Keeps the rules; `at` changes what it returns from its third step on, or from a reset."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Box(-1, 1, (1,))

    def __init__(self, at_step=None, at_reset=None, late=3):
        self.at_step = at_step
        self.at_reset = at_reset
        self.late = late
        self.time = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        right = np.zeros(2, np.float32), {}
        return right if self.at_reset is None else self.at_reset(*right)

    def step(self, action):
        self.time += 1
        right = np.zeros(2, np.float32), 0.5, False, False, {}
        return right if self.at_step is None or self.time < self.late else self.at_step(*right)


gym.register("toys/Tame-v0", Tame)


def fail(*_):
    raise RuntimeError("the\nmotor is hot")


@pytest.fixture
def toy(monkeypatch):
    """Makes the toy environment, changed as told, as `make_gymnasium` gives it."""

    def build(num_envs=2, space=None, actions=None, **given):
        monkeypatch.setattr(Tame, "observation_space", space or spaces.Box(-1, 1, (2,)))
        monkeypatch.setattr(Tame, "action_space", actions or spaces.Box(-1, 1, (1,)))
        monkeypatch.setitem(gym.registry, "toys/Tame-v0", gym.spec("toys/Tame-v0"))
        gym.registry["toys/Tame-v0"].kwargs = given
        return make_gymnasium("toys/Tame-v0", num_envs, seed=3)

    return build


STEPS = {
    "raises": (fail, "step raised RuntimeError: the motor is hot"),
    "four values": (
        lambda o, r, t, c, i: (o, r, t, i),
        "step must return (observation, reward, terminated, ",
    ),
    "nothing": (
        lambda *_: None,
        "step must return (observation, reward, terminated, truncated, info), got NoneType None",
    ),
    "another shape": (
        lambda o, *rest: (np.zeros(3), *rest),
        "observation must be of Box(-1.0, 1.0, (2,), float32), "
        "got an array of float64 of shape (3,)",
    ),
    "ragged": (lambda o, *rest: ([[1], [1, 2]], *rest), "observation must be of Box"),
    "text": (lambda o, *rest: (np.array(["a", "b"]), *rest), "observation must be of Box"),
    "no observation": (lambda o, *rest: (None, *rest), "observation must be of Box"),
    "rewards": (
        lambda o, r, *rest: (o, np.ones(2), *rest),
        "reward must be one real number, got an array of float64 of shape (2,)",
    ),
    "complex": (
        lambda o, r, *rest: (o, 1j, *rest),
        "reward must be one real number, got complex 1j",
    ),
    "no reward": (
        lambda o, r, *rest: (o, None, *rest),
        "reward must be one real number, got NoneType None",
    ),
    "terminated": (
        lambda o, r, t, *rest: (o, r, "no", *rest),
        "terminated must be one real number, got str 'no'",
    ),
    "success in words": (
        lambda *parts: (*parts[:4], {"success": "no"}),
        "info['success'] must be true or false, got str 'no'",
    ),
    "success of several tasks": (
        lambda *parts: (*parts[:4], {"is_success": {"lift": True}}),
        "info['is_success'] must be true or false, got dict {'lift': True}",
    ),
    "no info": (lambda *parts: (*parts[:4], None), "info must be a dict, got NoneType None"),
}


@pytest.mark.parametrize("what", STEPS)
def test_a_step_that_breaks_the_rules_is_one_line(toy, what):
    at_step, message = STEPS[what]
    env = toy(at_step=at_step)
    env.step(torch.zeros(2, 1))
    env.step(torch.zeros(2, 1))
    with pytest.raises(EnvError) as caught:
        env.step(torch.zeros(2, 1))
    text = str(caught.value)
    assert "env 'toys/Tame-v0', step 3 of episode 1 after reset(seed=" in text and message in text
    assert "\n" not in text and len(text) < 300
    env.close()


@pytest.mark.parametrize(
    "at_reset, message",
    [
        (fail, "reset raised RuntimeError: the motor is hot"),
        (
            lambda o, i: o,
            "reset must return (observation, info), got an array of float32 of shape (2,)",
        ),
        (lambda o, i: (o, None), "info must be a dict, got NoneType None"),
        (lambda o, i: (o[:1], i), "observation must be of Box(-1.0, 1.0, (2,), float32)"),
    ],
)
def test_a_reset_that_breaks_the_rules_is_one_line(toy, at_reset, message):
    with pytest.raises(EnvError) as caught:
        toy(at_reset=at_reset)
    text = str(caught.value)
    assert "env 'toys/Tame-v0', step 0 of episode 1 after reset(seed=0)" in text and message in text


def test_the_line_tells_how_to_see_it_again(toy):
    """The seed and the step it names, given to the environment alone, lead to the same end."""
    env = toy(num_envs=1, at_step=fail, late=4)
    with pytest.raises(EnvError, match=r"step 4 of episode 1 after reset\(seed=(\d+)\)") as caught:
        for _ in range(4):
            env.step(torch.zeros(1, 1))
    alone = Tame(at_step=fail, late=4)
    alone.reset(seed=int(str(caught.value).split("seed=")[1].split(")")[0]))
    for _ in range(3):
        alone.step(None)
    with pytest.raises(RuntimeError):
        alone.step(None)


def test_numbers_may_come_as_arrays_of_one(toy):
    env = toy(
        at_step=lambda o, r, t, c, i: (o, np.array([2.0]), np.array([False]), np.bool_(False), i),
        late=1,
    )
    step = env.step(torch.zeros(2, 1))
    assert step.reward.tolist() == [2.0, 2.0] and not step.terminated.any()


@pytest.mark.parametrize(
    "space, observation, width",
    [
        (
            spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Discrete(3))),
            (np.ones(2, np.float32), 2),
            5,
        ),
        (
            spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Discrete(2)),
            {"a": np.ones(2, np.float32), "b": 1},
            4,
        ),
        (spaces.Text(3), "ab", 3),
    ],
)
def test_structured_observations_are_flattened_and_checked(toy, space, observation, width):
    right = {"space": space, "at_reset": lambda o, i: (observation, i), "late": 1}
    assert toy(**right, at_step=lambda o, *rest: (observation, *rest)).o_dim == width
    with pytest.raises(EnvError, match="observation must be of "):
        toy(**right, at_step=lambda o, *rest: ((1,), *rest))


@pytest.mark.parametrize(
    "space", [spaces.Sequence(spaces.Discrete(2)), spaces.Graph(spaces.Box(0, 1), None)]
)
def test_observations_that_are_no_numbers_are_refused(toy, space):
    with pytest.raises(
        ConfigError, match="env 'toys/Tame-v0': observation space .* is not supported"
    ) as caught:
        toy(space=space, at_reset=lambda o, i: (space.sample(), i))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "actions", [spaces.Text(5), spaces.Tuple((spaces.Discrete(2),)), spaces.MultiBinary(3)]
)
def test_actions_that_are_no_numbers_are_refused(toy, actions):
    with pytest.raises(ConfigError, match="env 'toys/Tame-v0': action space .* is not supported"):
        toy(actions=actions)


def test_what_a_vector_environment_of_yours_raises_is_one_line_too():
    vector = gym.vector.SyncVectorEnv(
        [lambda: Tame(at_step=fail)], autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
    )
    env = GymnasiumEnv(vector, seed=8, name="mine")
    with pytest.raises(
        EnvError,
        match=r"env 'mine', step 3 after reset\(seed=8\): raised RuntimeError: the motor is hot",
    ):
        for _ in range(3):
            env.step(torch.zeros(1, 1))


# Episodes that never end


def test_an_episode_that_never_ends_is_not_evaluated_for_ever(toy):
    env = toy()
    with pytest.raises(
        Td3RobotError,
        match="env 'toys/Tame-v0': an episode is still running after 500 steps.*--time_limit",
    ):
        rollout(lambda o: torch.zeros(2, 1), env, env.reset(0), limit=500)


def test_a_time_limit_ends_every_episode():
    gym.registry["toys/Tame-v0"].kwargs = {}
    env = make_gymnasium("toys/Tame-v0", 2, time_limit=5)
    played = rollout(lambda o: torch.zeros(2, 1), env, env.reset(0))
    assert played.alive.shape == (5, 2)
    env = make_gymnasium("Pendulum-v1", 1, time_limit=7)
    ends = [env.step(torch.zeros(1, 1)) for _ in range(8)]
    assert [bool(step.truncated) for step in ends] == [False] * 6 + [True, False]
    assert not any(step.terminated for step in ends)
