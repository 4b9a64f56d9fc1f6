"""Environments in contact physics: the same starts and goals, exact resuming, and what is said
where it cannot be.
"""

import sys
import types

import pytest
import torch

from envs.config.env_options import EnvOptions
from envs.controllers import make_baseline
from envs.registry import make, make_from_config
from envs.simulation.disturbances import Disturbances
from td3_robot.errors import ConfigError
from td3_robot.evaluation.rollout import evaluate


@pytest.fixture(scope="module")
def env():
    return make("panda", "pick_place", 3, seed=1, engine="mujoco")


def actions(env, count):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(count, env.num_envs, env.a_dim, generator=generator) * 2 - 1


def test_starts_goals_observations_and_actions_are_the_kinematic_engine_s(env):
    other = make("panda", "pick_place", 3, seed=1)
    torch.testing.assert_close(env.reset(1), other.reset(1), atol=1e-5, rtol=0)
    assert (env.o_dim, env.a_dim) == (other.o_dim, other.a_dim)


def test_a_world_is_taken_up_again_to_the_bit(env):
    env.reset(3)
    chosen = actions(env, 12)
    for action in chosen[:6]:
        env.step(action)
    saved = env.state_dict()
    first = [env.step(action).observation for action in chosen[6:]]
    env.reset(4)
    env.load_state_dict(saved)
    again = [env.step(action).observation for action in chosen[6:]]
    assert all(torch.equal(a, b) for a, b in zip(first, again))


def test_the_same_seed_is_the_same_run_over_episodes_too(env):
    def run():
        env.reset(5)
        still = torch.zeros(3, env.a_dim)
        return [env.step(still).observation for _ in range(env.task.horizon + 3)]

    assert all(torch.equal(a, b) for a, b in zip(run(), run()))


def test_a_delay_that_is_known_costs_no_grasp():
    """Of cubes that lie turned, and so are held by their corners too."""
    env = make("panda", "pick_turned", 24, engine="mujoco", disturbances=Disturbances(latency=0.05))
    assert evaluate(make_baseline("pick", env), env, 777)["success_rate"] >= 0.95


def test_one_flag_makes_it_physics():
    env = make_from_config(EnvOptions(task="reach", engine="mujoco"), 2)
    env.step(torch.zeros(2, env.a_dim))
    assert env.moment.scene["physics"].dtype == torch.float64


def test_what_is_missing_is_said_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(
        ConfigError,
        match=r"engine mujoco needs mujoco, which is not installed: pip install 'td3-robot",
    ):
        make("panda", "reach", engine="mujoco")
    monkeypatch.setitem(sys.modules, "mujoco", types.SimpleNamespace(__version__="5.0.1"))
    with pytest.raises(
        ConfigError, match="needs MuJoCo 3.8 or newer, below 5, and 5.0.1 is installed"
    ):
        make("panda", "reach", engine="mujoco")


def test_what_excludes_each_other_is_refused():
    with pytest.raises(ConfigError, match="engine mujoco and servo_lag exclude each other"):
        EnvOptions(engine="mujoco", servo_lag=0.02)
    for given in ({"servo_lag": 0.02}, {"disturbances": Disturbances(servo_lag=0.02)}):
        with pytest.raises(ConfigError, match="engine mujoco and servo_lag exclude each other"):
            make("panda", "reach", engine="mujoco", **given)
    with pytest.raises(ConfigError, match="env and engine exclude each other"):
        EnvOptions(env="Hopper-v5", engine="mujoco")


@pytest.mark.slow
def test_a_policy_learns_and_is_measured_in_physics(in_process, tmp_path):
    few = "--steps 200 --num_envs 2 --evaluation.episodes 2 --evaluation.every 200"
    line = f"--robot panda --engine mujoco --run short {few}"
    code, _, err = in_process(tmp_path, "train", *line.split())
    assert code == 0, err
    code, out, err = in_process(
        tmp_path, "evaluate", "--checkpoint", "short", "--episodes", "2", "--baseline", "rrmc"
    )
    assert code == 0 and "engine mujoco" in out, err
    code, out, _ = in_process(
        tmp_path, "evaluate", "--checkpoint", "short", "--episodes", "2", "--engine", "kinematic"
    )
    assert code == 0 and "engine" not in out


def test_gymnasium_s_ids_take_the_engine():
    import gymnasium as gym

    import envs.gymnasium_ids  # noqa: F401  registers them

    one = gym.make("td3_robot/PandaReachGoal-v0", engine="mujoco", disable_env_checker=True)
    one.reset(seed=0)
    assert one.unwrapped._arm.engine is not None


def test_what_many_arms_cost_is_said_before():
    options = EnvOptions(engine="mujoco")
    assert options.describe_cost(64) == EnvOptions().describe_cost(4096) == []
    (line,) = options.describe_cost(4096)
    assert line == "4096 arms in contact physics take about 1.2 s of CPU a control step, 123 MB"
