"""Delay, lag and noise: what they do to an arm, and that foresight sees what will be."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from envs.arm_env.arm_env import ArmEnv
from envs.robots import make_robot
from envs.simulation.disturbances import SPEED_NOISE, Disturbances, DisturbedEngine
from envs.simulation.engine import Command, compile_robot, make_rest_state
from envs.simulation.kinematic import KinematicEngine, predict_half_period_state
from envs.tasks.registry import make_task
from td3_robot import TD3
from td3_robot.errors import ConfigError
from td3_robot.evaluation.rollout import evaluate
from tests.envs.playing import actions, leaves, play, same, tensors
from tests.support import each_task

DT = 0.05


@pytest.fixture(scope="module")
def make():
    panda = make_robot("panda")

    def make(task="reach", num_envs=6, **disturbances):
        return ArmEnv(
            panda, make_task(task), num_envs, "cpu", 0, disturbances=Disturbances(**disturbances)
        )

    return make


def test_the_latency_of_an_episode_is_independent_of_its_start(make):
    """Of 200 seeds, the correlation of independent numbers is below 0.3 but for one in 10,000."""
    env = make(num_envs=1, latency=0.05, latency_spread=0.03)
    drawn = []
    for seed in range(200):
        env.reset(seed)
        drawn.append(torch.cat((env.scene["late"].flatten(), env.state.q[0], env.goal[0])))
    correlation = torch.corrcoef(torch.stack(drawn).T)[0, 1:]
    assert correlation.abs().max() < 0.3


@pytest.mark.parametrize(
    ("latency", "spread", "least", "most"),
    [(0.05, 0.03, 0.02, 0.08), (0.02, 0.05, 0.0, 0.07), (0.45, 0.1, 0.35, 0.5)],
)
def test_the_middle_of_what_is_drawn_is_compensated(make, latency, spread, least, most):
    """No latency is negative, or longer than the longest: the rest of the range remains."""
    given = {"latency": latency, "latency_spread": spread}
    drawn = make(num_envs=200, **given).scene["late"] * DT
    assert least <= drawn.min() < least + 0.005 and most - 0.005 < drawn.max() <= most + 1e-6
    assert Disturbances(**given).foresight == pytest.approx((least + most) / 2)
    env = make(estimate_latency=False, **given)
    shares = [share for _, share in env._disturbed.iter_pending(env.scene)]
    assert sum(shares) * DT == pytest.approx((least + most) / 2)


def test_without_any_nothing_stands_between(make):
    env = make()
    step = play(env, 3)[-1]
    assert not {"sent", "late", "reference"} & env.moment.scene.keys()
    # within the limits
    assert_close(env.moment.state.q, step.info["q"] + 0.5 * DT * step.info["qd"])
    assert torch.equal(step.observation, env.task.observe(env.world, env.moment))


@pytest.mark.parametrize("steps", [1, 2])
def test_a_delay_of_whole_steps_is_the_same_motion_later(make, steps):
    late = make(latency=steps * DT)
    prompt = make()
    late.reset(3)
    prompt.reset(3)
    seen = (
        [step.info["q"] for step in play(late, 30)],
        [step.info["q"] for step in play(prompt, 30)],
    )
    for after, before in zip(seen[0][steps:], seen[1]):
        assert_close(after, before, rtol=0, atol=1e-6)
    # nothing was sent yet
    assert_close(seen[0][0], prompt.reset(3)[:, prompt.layout["q"]], rtol=0, atol=0)


@pytest.mark.parametrize("latency", [0.0, 0.07])
def test_a_command_that_leaves_the_gripper_as_it_is_leaves_it(latency):
    model = compile_robot(make_robot("panda"), DT, "cpu", None)
    engine = DisturbedEngine(KinematicEngine(), Disturbances(latency=latency), DT, "cpu")
    state = make_rest_state(model, torch.zeros(3, 7))
    halfway = torch.tensor([0.0, 0.01, 0.04])
    state = replace(state, gripper=halfway)
    scene = engine.begin(model, state, {})
    for _ in range(4):
        state, scene = engine.step(model, state, Command(torch.zeros(3, 7)), scene)
    assert torch.equal(state.gripper, halfway)
    for _ in range(20):
        command = Command(torch.zeros(3, 7), torch.full((3,), 0.5))
        state, scene = engine.step(model, state, command, scene)
    assert_close(state.gripper, torch.full((3,), 0.02))


@pytest.mark.parametrize(
    ("latency", "lag"), [(0.013, 0.0), (0.05, 0.0), (0.087, 0.0), (0.0, 0.03), (0.061, 0.045)]
)
def test_at_constant_speed_an_arm_is_behind_by_delay_and_lag_together(make, latency, lag):
    late = make(latency=latency, servo_lag=lag)
    prompt = make()
    late.reset(3)
    prompt.reset(3)
    slow = torch.full((6, 7), 0.02)
    for _ in range(40):
        behind = prompt.step(slow).info["q"] - late.step(slow).info["q"]
    speed = 0.02 * late.model.qdlim
    assert_close(behind, (speed * (latency + lag)).expand(6, 7), rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("task", each_task())
def test_what_is_foreseen_is_what_will_be(make, task):
    """Whatever is chosen from now on: arms, grippers and goals two steps ahead."""
    env = make(task, latency=2 * DT)
    env.reset(1)
    foreseen = []
    for action in actions(env, 25):
        step = env.step(0.1 * action)
        if (step.terminated | step.truncated).any():
            break
        foreseen.append(env.moment)
        if len(foreseen) > 2:
            then = foreseen[-3]
            ahead = predict_half_period_state(env.model, env.arrived.state)
            for name in ("q", "qd", "gripper"):
                assert_close(getattr(then.state, name), getattr(ahead, name), rtol=0, atol=1e-5)
            assert_close(then.scene["goal"], env.task.predict(env.arrived, 0.5 * DT).scene["goal"])
            assert_close(then.tcp, env.fkine(ahead.q)[:, :3, 3], rtol=0, atol=1e-5)
    assert len(foreseen) > 4


def test_part_of_a_step_is_foreseen_too(make):
    """At constant speed the arm is seen where it is that much later, and where it is then bound
    for.
    """
    env = make(latency=0.02)
    slow = torch.full((6, 7), 0.02)
    for _ in range(20):
        env.step(slow)
    ahead = env.moment.state.q - env.arrived.state.q
    assert_close(
        ahead, (0.02 * env.model.qdlim * (0.02 + 0.5 * DT)).expand(6, 7), rtol=1e-3, atol=1e-6
    )


def test_noise_is_in_what_is_measured_alone(make):
    env = make(num_envs=2000, noise=0.003)
    step = env.step(torch.zeros(2000, 7))
    for name, deviation in (("q", 0.003), ("qd", 0.003 * SPEED_NOISE)):
        error = step.observation[:, env.layout[name]] - step.info[name]
        assert (
            error.std().item() == pytest.approx(deviation, rel=0.05)
            and abs(error.mean().item()) < 0.1 * deviation
        )
    assert torch.equal(step.info["q"], env.arrived.state.q)


def test_a_cube_in_the_hand_is_known_by_the_hand(make):
    """Or noise of a millimetre would seem to open the fingers."""
    env = make("pick_place", num_envs=50, latency=DT, noise=0.002)
    there = env.arrived
    held = torch.ones(50, dtype=torch.bool)
    # a Panda hand's fingers on a cube of 4 cm
    shut = replace(there.state, gripper=torch.full((50,), 0.02))
    sent = torch.zeros_like(there.scene["sent"])  # and they were told to
    env.moment = replace(
        there, state=shut, scene={**there.scene, "object": there.tcp, "held": held, "sent": sent}
    )
    hold = torch.zeros(50, 8)
    hold[:, -1] = -1.0
    for _ in range(10):
        env.step(hold)
        assert env.arrived.scene["held"].all() and env.moment.scene["held"].all()


@pytest.mark.parametrize("task", ["reach", "pick_place"])
def test_a_state_dict_round_trip_goes_on_exactly(make, task):
    given = {"latency": 0.07, "servo_lag": 0.02, "noise": 0.001}
    env = make(task, **given)
    other = make(task, **given)
    env.reset(4)
    other.reset(5)
    play(env, 12)
    other.load_state_dict(env.state_dict())
    assert same(leaves(env), leaves(other))
    steps = env.task.horizon  # over an automatic reset
    assert all(
        same(tensors(a), tensors(b)) for a, b in zip(play(env, steps, 3), play(other, steps, 3))
    )


def test_foresight_makes_a_delayed_arm_as_good_as_a_prompt_one(make):
    """The shipped policy has never met a delay."""
    policy = TD3.from_checkpoint("checkpoints/run1").select_action

    def success(**given):
        return evaluate(policy, make(num_envs=200, **given), seed=11)["success_rate"]

    assert success(latency=DT) >= 0.97 and success(latency=DT, servo_lag=0.02, noise=0.001) >= 0.95
    assert success(latency=2 * DT, assumed_latency=0.0) < 0.3


@pytest.mark.parametrize(
    "given", [{"latency": -0.1}, {"latency": 0.6}, {"noise": float("nan")}, {"servo_lag": 1e9}]
)
def test_what_no_arm_has_is_refused(given):
    (name,) = given
    with pytest.raises(ConfigError, match=f"{name} must be a number from 0 to"):
        Disturbances(**given)
