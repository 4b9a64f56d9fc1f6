"""Our tasks as Gymnasium ids: what Gymnasium and Stable-Baselines3 check, and agreement with
envs.make.
"""

import warnings

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3
import torch
from gymnasium.envs.classic_control import PendulumEnv
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.env_checker import check_env as check_env_for_sb3

import envs
import envs.gymnasium_ids
from envs.config.env_options import EnvOptions
from envs.controllers import make_baseline
from envs.from_gymnasium import GymnasiumEnv, make_gymnasium
from envs.from_gymnasium.adapter import GOAL_KEYS
from envs.gymnasium_ids import KINDS, NAMESPACE, make_env_id, make_env_spec, register
from envs.gymnasium_ids.observations import select_row
from envs.robots import make_robot, robot_names, shipped_robots
from envs.tasks.episodes import ScenePool
from envs.tasks.registry import find_task_class, list_tasks
from td3_robot.errors import ConfigError, NotFiniteError
from td3_robot.vec_env import GoalVecEnv
from tests.support import each_task, mark_slow

REACH = "td3_robot/PandaReach-v0"
EVERY = [
    "td3_robot/PandaReachSparse-v0",
    *(
        mark_slow(task, make_env_id("panda", task, kind))
        for task in list_tasks("kinematic")
        for kind in ("", "goal")
    ),
]
GOALS = [mark_slow(task, make_env_id("panda", task, "goal")) for task in list_tasks("kinematic")]
every_id = pytest.mark.parametrize("env_id", EVERY)
every_goal = pytest.mark.parametrize("env_id", GOALS)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Episodes drawn ahead are few, for speed."""
    monkeypatch.setattr(ScenePool, "BLOCK", 1024)


def actions(steps: int, num_envs: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(steps, num_envs, 7, generator=generator) * 2 - 1


def test_every_robot_and_task_has_an_make_env_id_each_kind():
    ours = {env_id for env_id in gym.registry if env_id.startswith(f"{NAMESPACE}/")}
    easy = [task for task in list_tasks("kinematic") if not find_task_class(task).needs_hand]
    assert {
        make_env_id(robot, task, kind) for robot in robot_names() for task in easy for kind in KINDS
    } <= ours
    assert make_env_id("panda", "reach") == REACH and REACH in ours
    assert (
        make_env_id("frankie_omni", "reach_pose", "sparse")
        == "td3_robot/FrankieOmniReachPoseSparse-v0"
    )
    assert make_env_id("panda", "reach", "goal") == "td3_robot/PandaReachGoal-v0"


def test_only_robots_that_can_grasp_have_ids_of_tasks_that_grasp():
    """Which do those is in test_registry.py."""
    for robot in shipped_robots():
        hand = make_robot(robot).gripper
        can = hand is not None and hand.pads is not None
        for task in (task for task in list_tasks("kinematic") if find_task_class(task).needs_hand):
            assert [make_env_id(robot, task, kind) in gym.registry for kind in KINDS] == [
                can
            ] * 3, robot


@pytest.mark.parametrize("robot", ["", "panda"])
def test_a_task_that_needs_physics_is_made_in_it(robot):
    assert gym.spec(make_env_id(robot, "insert")).kwargs["engine"] == "mujoco"
    assert "engine" not in gym.spec(make_env_id(robot, "push")).kwargs


def test_registering_again_changes_nothing():
    register()  # another test may have added a task
    before = dict(gym.registry)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register()
    assert dict(gym.registry) == before


@every_id
def test_gymnasium_finds_no_fault(env_id):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # a page would wait for a browser
        check_env(gym.make(env_id).unwrapped, skip_render_check=True)
    # observations have no bounds: said of the lower and of the upper one, of each space that is no
    # dictionary
    faults = [str(warning.message) for warning in caught if "gymnasium" in warning.filename]
    assert len(faults) in (2, 6) and all("infinity" in fault for fault in faults), faults


@every_id
def test_stable_baselines3_finds_no_fault(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env_for_sb3(gym.make(env_id).unwrapped)


def test_one_robot_of_another_kind_has_goals_too():
    observation, _ = gym.make("td3_robot/Ur5eReachPoseGoal-v0").reset(seed=0)
    assert observation["desired_goal"].shape == observation["achieved_goal"].shape == (7,)


def test_stable_baselines3_learns_on_it():
    small = {"net_arch": [16, 16]}
    model = stable_baselines3.TD3(
        "MlpPolicy",
        gym.make(REACH),
        learning_starts=100,
        batch_size=32,
        seed=0,
        policy_kwargs=small,
    )
    before = [weight.clone() for weight in model.actor.parameters()]
    model.learn(200)
    assert model.num_timesteps == 200
    assert not any(torch.equal(old, new) for old, new in zip(before, model.actor.parameters()))


def test_stable_baselines3_learns_from_hindsight_on_it():
    model = stable_baselines3.TD3(
        "MultiInputPolicy",
        gym.make("td3_robot/PandaReachGoal-v0"),
        learning_starts=130,
        batch_size=64,
        seed=0,
        policy_kwargs={"net_arch": [16, 16]},
        replay_buffer_class=stable_baselines3.HerReplayBuffer,
    )
    before = [weight.clone() for weight in model.actor.parameters()]
    model.learn(200)
    assert not any(torch.equal(old, new) for old, new in zip(before, model.actor.parameters()))
    rewards = model.replay_buffer.sample(2000).rewards
    assert set(rewards.unique().tolist()) == {-1.0, 0.0}  # in hindsight some goals were met


# Goals


def side_by_side(env, arms, steps: int):
    """What a vector environment and the arms of envs.make give for the same random actions."""
    env.reset(seed=3)
    arms.reset(3)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(steps, arms.num_envs, arms.a_dim, generator=generator) * 2 - 1
    for action in drawn:
        yield env.step(action.numpy()), arms.step(action)


@pytest.mark.parametrize("task", each_task())
def test_goal_environments_show_the_arms_of_envs_make(task):
    env = gym.make_vec(make_env_id("panda", task, "goal"), num_envs=3)
    arms = envs.make("panda", task, 3)
    rule = gym.make(make_env_id("panda", task, "goal")).unwrapped.compute_reward
    # an automatic reset of a point, of one among obstacles, and of things that are moved
    whole = task in ("reach", "reach_avoid", "pick_place")
    steps = arms.task.horizon + 5 if whole else 20
    for (shown, reward, _, truncated, infos), step in side_by_side(env, arms, steps):
        assert shown in env.observation_space
        now, arrived = (arms.achieved_goal(arms.memory(arrived)) for arrived in (False, True))
        for seen, observation, achieved in (
            (shown, step.observation, now),
            *ended(infos, step, arrived),
        ):
            torch.testing.assert_close(
                torch.from_numpy(seen["achieved_goal"]), achieved, rtol=1e-5, atol=1e-6
            )
            assert np.array_equal(seen["desired_goal"], observation[:, arms.layout["goal"]])
        desired = step.next_observation[:, arms.layout["goal"]]
        assert np.array_equal(reward, rule(arrived.numpy(), desired.numpy(), {}))
        assert np.array_equal(truncated, step.truncated)


def ended(infos: dict, step, achieved: torch.Tensor) -> list[tuple]:
    """The last observations of the episodes that ended in this step, what they show and what was
    achieved.
    """
    if "final_obs" not in infos:
        return []
    rows = np.flatnonzero(infos["_final_obs"])
    assert np.array_equal(rows, np.flatnonzero(step.terminated | step.truncated))
    shown = {key: np.stack([infos["final_obs"][row][key] for row in rows]) for key in GOAL_KEYS}
    return [(shown, step.next_observation[rows], achieved[rows])]


@every_goal
def test_the_reward_is_that_of_the_goals_alone_however_many_at_once(env_id):
    env = gym.make(env_id).unwrapped
    starts = [env.reset(seed=seed)[0]["achieved_goal"] for seed in range(4)]
    achieved = np.stack([*starts, *starts])
    desired = np.stack([*starts, *starts[::-1]])
    together = env.compute_reward(achieved, desired, [{}] * 8)
    assert together.tolist() == [env.compute_reward(a, d, {}) for a, d in zip(achieved, desired)]
    assert together[:4].tolist() == [0] * 4
    assert (env.compute_reward(achieved, achieved + 0.1, None) == -1).all()


@pytest.mark.parametrize("task", each_task())
def test_the_rest_of_the_observation_tells_nothing_of_the_goal_and_leaves_out_nothing_else(task):
    """Or else hindsight would leave the old goal to be seen. Along episodes in which things are
    grasped.
    """
    arms = envs.make("panda", task, 8)
    view = gym.make_vec(make_env_id("panda", task, "goal"), num_envs=1).unwrapped._observations
    policy = make_baseline(arms.task.controllers[0], arms)
    observation = arms.reset(0)
    columns = set(range(arms.o_dim))
    moved = set()
    for _ in range(arms.task.horizon - 1):
        observation = arms.step(policy(observation)).observation
        moved_on = arms.task.replace_goal(arms.world, arms.moment, arms.goal.roll(1, 0))
        other = arms.task.observe(arms.world, moved_on)
        shown = [
            view.make(seen, moment)["observation"]
            for seen, moment in ((other, moved_on), (observation, arms.moment))
        ]
        assert np.array_equal(*shown)
        moved |= set((other != observation).any(0).nonzero().squeeze(1).tolist())
    places = [range(arms.o_dim)[arms.layout[name]] for name in arms.layout]
    # by whole columns
    told = {element for place in places if moved & set(place) for element in place}
    goal = arms.layout["goal"]  # of which the height may be that of all
    assert set(view._rest) == columns - told - set(range(goal.start, goal.stop))


def test_make_gymnasium_gives_hindsight_on_it():
    env = make_gymnasium("td3_robot/PandaReachGoal-v0", 3)
    assert isinstance(env, GoalVecEnv)
    env.reset(0)
    before = env.memory()
    step = env.step(torch.zeros(3, 7))
    after = env.memory(arrived=True)
    goal = env.achieved_goal(env.memory(arrived=True))
    _, after, reward, terminated = env.relabel(before, torch.zeros(3, 7), after, goal)
    assert (reward == 0).all() and not terminated.any() and (step.reward == -1).all()
    assert torch.equal(after[:, -3:], goal)


def test_the_sparse_kind_pays_for_success_alone():
    env = gym.make("td3_robot/PandaReachSparse-v0")
    dense = gym.make(REACH)
    assert np.array_equal(env.reset(seed=1)[0], dense.reset(seed=1)[0])
    for action in actions(5):
        observation, reward, _, _, info = env.step(action[0].numpy())
        assert np.array_equal(observation, dense.step(action[0].numpy())[0])
        assert reward == float(info["is_success"]) - 1


# The same arms as those of envs.make


def test_one_arm_is_the_arm_of_envs_make():
    env = gym.make(REACH)
    arm = envs.make("panda", "reach", 1)
    observation, info = env.reset(seed=7)
    assert info == {} and np.array_equal(observation, arm.reset(7)[0])
    ends = []
    for i, action in enumerate(actions(130)):
        observation, reward, terminated, truncated, info = env.step(action[0].numpy())
        step = arm.step(action)
        assert np.array_equal(observation, step.next_observation[0])
        assert reward == step.reward.item()
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
    env = gym.make(REACH)
    arm = envs.make("panda", "reach", 1)
    env.reset(seed=1)
    arm.reset(1)
    env.step(np.zeros(7, np.float32))
    arm.step(torch.zeros(1, 7))
    assert np.array_equal(env.reset()[0], arm.reset()[0])
    assert np.array_equal(env.reset(seed=1)[0], arm.reset(1)[0])
    for _ in range(arm.task.horizon):
        env.step(np.zeros(7, np.float32))
        arm.step(torch.zeros(1, 7))
    env.reset()  # the episode that has begun
    assert np.array_equal(env.reset()[0], arm.reset()[0])


def test_without_a_seed_episodes_differ():
    first, second = (gym.make(REACH) for _ in range(2))
    starts = [env.reset()[0] for env in (first, second, first, second)]
    assert len(np.unique(starts, axis=0)) == 4
    many, more = (gym.make_vec(REACH, num_envs=2) for _ in range(2))
    starts = [env.reset()[0] for env in (many, more, many)]
    assert len(np.unique(np.concatenate(starts), axis=0)) == 6


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
            assert np.array_equal(infos["is_success"], step.info["success"])
            assert infos["_is_success"].all()


def test_there_and_back_is_the_same_environment():
    back = GymnasiumEnv(gym.make_vec(REACH, num_envs=4))
    arms = envs.make("panda", "reach", 4)
    assert back.name == REACH and (back.o_dim, back.a_dim) == (arms.o_dim, arms.a_dim)
    assert torch.equal(back.reset(3), arms.reset(back._derive_seed()))
    for action in actions(70, 4):
        step = back.step(action)
        wanted = arms.step(action)
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
            handed += [
                step[0],
                *(value for value in step[4].values() if isinstance(value, np.ndarray)),
            ]
            kept = [np.copy(value) for value in handed]
            if step[3] is True:
                env.reset()
        assert all(
            np.array_equal(now, then) for now, then in zip(handed, kept) if now.dtype != object
        )


def test_an_action_that_is_not_a_number_is_refused():
    env = gym.make(REACH)
    env.reset(seed=0)
    with pytest.raises(NotFiniteError, match="NaN or infinite"):
        env.step(np.full(7, np.nan, np.float32))


def test_a_specification_of_options_makes_their_environment_after_a_file_has_held_it():
    """As Minari's datasets do it: by JSON, in another program."""
    named = {"gripper": "none", "sparse": True, "randomize": "lab", "latency": 0.05}
    options = EnvOptions("ur5e", "reach_pose", **named)
    written = make_env_spec(options).to_json()
    spec = gym.envs.registration.EnvSpec.from_json(written)
    assert spec.kwargs == {"robot": "ur5e", "task": "reach_pose"} | named
    made = gym.make(spec)
    own = envs.make_from_config(options)
    action = np.full(own.a_dim, 0.1, np.float32)
    first, _ = made.reset(seed=3)
    assert np.array_equal(first, own.reset(3)[0])
    observation, reward, *_ = made.step(action)
    step = own.step(torch.from_numpy(action)[None])
    assert np.array_equal(observation, step.next_observation[0]) and reward == step.reward.item()


def test_a_specification_of_an_environment_of_others_makes_it_as_it_was_trained(monkeypatch):
    """Its module is named before its id, its class is no text, and its limit may be another."""
    monkeypatch.setattr(gym.envs.registration, "registry", gym.registry.copy())
    assert make_env_spec(EnvOptions(env="Pendulum-v1")).max_episode_steps == 200
    gym.register("Mine-v0", PendulumEnv, max_episode_steps=5)
    written = make_env_spec(EnvOptions(env="tests.support:Mine-v0", time_limit=3)).to_json()
    made = gym.make(gym.envs.registration.EnvSpec.from_json(written))
    made.reset(seed=0)
    ends = [made.step(np.zeros(1, np.float32))[3] for _ in range(3)]
    assert isinstance(made.unwrapped, PendulumEnv) and ends == [False, False, True]


@pytest.mark.parametrize("kind", ["", "goal"])
@pytest.mark.parametrize(("task", "engine"), [("reach", "kinematic"), ("push", "mujoco")])
def test_next_step_autoreset_plays_the_episodes_of_same_step_and_one_step_more_each(
    task, engine, kind
):
    """That step ignores its action, pays nothing and returns what the next episode begins with."""
    name = make_env_id("panda", task, kind)
    same, late = (
        gym.make_vec(name, num_envs=3, engine=engine, autoreset_mode=mode)
        for mode in (AutoresetMode.SAME_STEP, "NextStep")
    )
    assert late.metadata["autoreset_mode"] == late.autoreset_mode == AutoresetMode.NEXT_STEP
    assert same.metadata["autoreset_mode"] == same.autoreset_mode == AutoresetMode.SAME_STEP

    def flat(observation):
        return gym.spaces.flatten(late.observation_space, observation)

    assert np.array_equal(flat(same.reset(seed=3)[0]), flat(late.reset(seed=3)[0]))
    horizon = envs.make("panda", task, engine=engine).task.horizon
    for number, action in enumerate(actions(horizon + 5, 3).numpy()):
        one = same.step(action)
        other = late.step(action)
        for value, wanted in zip(other[1:4], one[1:4]):
            assert np.array_equal(value, wanted)
        assert "final_obs" not in other[4] and other[4]["_is_success"].all()
        if number != horizon - 1:
            assert np.array_equal(flat(one[0]), flat(other[0]))
            continue
        assert other[3].all()
        for row, final in enumerate(one[4]["final_obs"]):
            assert np.array_equal(
                gym.spaces.flatten(late.single_observation_space, final),
                gym.spaces.flatten(late.single_observation_space, select_row(other[0], row)),
            )
        reset, reward, terminated, truncated, infos = late.step(-action)
        assert np.array_equal(flat(reset), flat(one[0])) and not reward.any()
        assert not (terminated | truncated | infos["_is_success"]).any()


def test_arms_that_end_at_other_times_wait_alone():
    env = gym.make_vec(REACH, num_envs=3, autoreset_mode=AutoresetMode.NEXT_STEP)
    env.reset(seed=0)
    arms = env.unwrapped._arms
    arms._lengths = torch.tensor([2, 3, 60])
    for number, action in enumerate(actions(6, 3).numpy(), 1):
        now = env.step(action)
        assert now[3].tolist() == [number == 2, number == 3, False]
        waited = [number == 3, number == 4, False]
        assert (now[1] == 0.0).tolist() == waited and (~now[4]["_is_success"]).tolist() == waited
    assert arms.now.steps.tolist() == [3, 2, 6]  # 2 + wait + 3, 3 + wait + 2


@pytest.mark.parametrize("mode", ["Disabled", "soon", AutoresetMode.DISABLED])
def test_another_autoreset_mode_is_refused(mode):
    with pytest.raises(ConfigError, match="autoreset_mode must be SameStep or NextStep"):
        gym.make_vec(REACH, num_envs=2, autoreset_mode=mode)
