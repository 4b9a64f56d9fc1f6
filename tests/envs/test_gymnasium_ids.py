"""Our tasks as Gymnasium ids: what Gymnasium and Stable-Baselines3 check, and agreement with envs.make."""

import re
import warnings

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.env_checker import check_env as check_env_for_sb3

import envs
import envs.gymnasium_ids
from envs.gymnasium_api import GymnasiumEnv, make_gymnasium
from envs.gymnasium_ids import NAMESPACE, id_of, register
from envs.registry import TASKS
from envs.robots import robot_names
from td3_robot.errors import ConfigError, NotFiniteError

REACH = "td3_robot/PandaReach-v0"


def actions(steps: int, num_envs: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(steps, num_envs, 7, generator=generator) * 2 - 1


def test_every_robot_and_task_has_an_id():
    ours = {env_id for env_id in gym.registry if env_id.startswith(f"{NAMESPACE}/")}
    assert len(ours) == len(robot_names()) * len(TASKS)
    assert id_of("panda", "reach") == REACH and REACH in ours
    assert id_of("frankie_omni", "reach_pose") == "td3_robot/FrankieOmniReachPose-v0"


def test_registering_again_changes_nothing():
    before = dict(gym.registry)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register()
    assert dict(gym.registry) == before


def test_gymnasium_finds_no_fault():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(gym.make(REACH).unwrapped)
    # observations have no bounds: said of the lower and of the upper one
    faults = [str(warning.message) for warning in caught if "gymnasium" in warning.filename]
    assert len(faults) == 2 and all("infinity" in fault for fault in faults), faults


def test_stable_baselines3_finds_no_fault():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env_for_sb3(gym.make(REACH).unwrapped)


def test_stable_baselines3_learns_on_it():
    small = {"net_arch": [16, 16]}
    model = stable_baselines3.TD3(
        "MlpPolicy", gym.make(REACH), learning_starts=100, batch_size=32, seed=0, policy_kwargs=small
    )
    before = [weight.clone() for weight in model.actor.parameters()]
    model.learn(200)
    assert model.num_timesteps == 200
    assert not any(torch.equal(old, new) for old, new in zip(before, model.actor.parameters()))


def test_one_arm_is_the_arm_of_envs_make():
    env, arm = gym.make(REACH), envs.make("panda", "reach", 1)
    observation, info = env.reset(seed=7)
    assert info == {} and np.array_equal(observation, arm.reset(7)[0])
    ends = []
    for i, action in enumerate(actions(130)):
        observation, reward, terminated, truncated, info = env.step(action[0].numpy())
        step = arm.step(action)
        assert np.array_equal(observation, step.next_observation[0]) and reward == step.reward.item()
        assert (terminated, truncated) == (step.terminated.item(), step.truncated.item())
        assert info["is_success"] == step.info["success"].item()
        assert info["position_error"] == step.info["position_error"].item()
        assert np.array_equal(info["tcp"], step.info["tcp"][0])
        if truncated:
            ends.append(i + 1)
            observation, _ = env.reset()
            assert np.array_equal(observation, step.observation[0])
    assert ends == [arm.task.horizon, 2 * arm.task.horizon]


def test_a_reset_in_mid_episode_starts_another():
    env, arm = gym.make(REACH), envs.make("panda", "reach", 1)
    env.reset(seed=1), arm.reset(1)
    env.step(np.zeros(7, np.float32)), arm.step(torch.zeros(1, 7))
    assert np.array_equal(env.reset()[0], arm.reset()[0])
    assert np.array_equal(env.reset(seed=1)[0], arm.reset(1)[0])
    for _ in range(arm.task.horizon):
        env.step(np.zeros(7, np.float32)), arm.step(torch.zeros(1, 7))
    env.reset()  # the episode that has begun
    assert np.array_equal(env.reset()[0], arm.reset()[0])


def test_without_a_seed_episodes_differ():
    first, second = gym.make(REACH), gym.make(REACH)
    starts = [env.reset()[0] for env in (first, second, first, second)]
    assert len(np.unique(starts, axis=0)) == 4
    many, more = (gym.make_vec(REACH, num_envs=2) for _ in range(2))
    assert len(np.unique(np.concatenate([env.reset()[0] for env in (many, more, many)]), axis=0)) == 6


def test_many_arms_are_those_of_envs_make():
    vector = gym.make_vec(REACH, num_envs=64, vectorization_mode="vector_entry_point")
    assert vector.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    arms = envs.make("panda", "reach", 64)
    observation, _ = vector.reset(seed=3)
    assert observation in vector.observation_space and np.array_equal(observation, arms.reset(3))
    for action in actions(125, 64):
        observation, reward, terminated, truncated, infos = vector.step(action.numpy())
        step = arms.step(action)
        for value, wanted in zip((observation, reward, terminated, truncated), step):
            assert np.array_equal(value, wanted) and value.dtype == wanted.numpy().dtype
        if truncated.any():
            assert np.array_equal(np.stack(infos["final_obs"]), step.next_observation)
            assert np.array_equal(infos["final_info"]["is_success"], step.info["success"])
            assert infos["_final_obs"].all() and not infos["_is_success"].any()
        else:
            assert "final_obs" not in infos
            assert np.array_equal(infos["is_success"], step.info["success"]) and infos["_is_success"].all()


def test_there_and_back_is_the_same_environment():
    back = GymnasiumEnv(gym.make_vec(REACH, num_envs=4))
    arms = envs.make("panda", "reach", 4)
    assert back.name == REACH and (back.o_dim, back.a_dim) == (arms.o_dim, arms.a_dim)
    assert torch.equal(back.reset(3), arms.reset(back._stream()))
    for action in actions(70, 4):
        step, wanted = back.step(action), arms.step(action)
        assert all(torch.equal(value, other) for value, other in zip(step[:5], wanted[:5]))
        assert torch.equal(step.info["success"], wanted.info["success"])


def test_our_ids_are_found_without_an_import():
    env = make_gymnasium(REACH, 2)
    assert env.step(torch.zeros(2, 7)).info["success"].shape == (2,)


def test_what_was_handed_out_does_not_change_later():
    for env, shape in ((gym.make(REACH), (7,)), (gym.make_vec(REACH, num_envs=2), (2, 7))):
        handed = [env.reset(seed=0)[0]]
        for _ in range(61):
            step = env.step(np.ones(shape, np.float32))
            handed += [step[0], *(value for value in step[4].values() if isinstance(value, np.ndarray))]
            kept = [np.copy(value) for value in handed]
            if step[3] is True:
                env.reset()
        assert all(np.array_equal(now, then) for now, then in zip(handed, kept) if now.dtype != object)


@pytest.mark.filterwarnings("ignore:.*render_mode='human'")  # which Gymnasium says first
@pytest.mark.parametrize("make", [gym.make, gym.make_vec])
def test_there_are_no_pictures(make):
    with pytest.raises(ConfigError, match=re.escape("render_mode must be None, got 'human'; evaluate.py --swift")):
        make(REACH, render_mode="human")


def test_an_action_that_is_not_a_number_is_refused():
    env = gym.make(REACH)
    env.reset(seed=0)
    with pytest.raises(NotFiniteError, match="NaN or infinite"):
        env.step(np.full(7, np.nan, np.float32))
