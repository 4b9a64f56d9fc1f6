"""The latency estimate of deploy is that of the simulator, and an arm's."""

import numpy as np
import pytest
import torch

from envs.arm_env.arm_env import ArmEnv
from envs.export.robot_description import describe
from envs.robots import make_robot
from envs.simulation import latency_estimator as simulated
from envs.simulation.disturbances import Disturbances
from envs.tasks.registry import make_task
from td3_robot.deploy import Robot
from td3_robot.deploy.runtime import latency_estimator
from td3_robot.deploy.runtime.latency_compensation import LatencyCompensator
from td3_robot.deploy.runtime.latency_estimator import LatencyEstimator

DT = 0.05
ARMS = 5
PANDA = Robot.load("panda")


def test_it_is_the_simulators_on_the_same_data():
    given = Disturbances(latency=DT, latency_spread=DT, noise=0.0005)
    env = ArmEnv(make_robot("panda"), make_task("reach"), ARMS, "cpu", 0, disturbances=given)
    robot = Robot.from_dict(describe(env.robot))
    each = [LatencyEstimator(LatencyCompensator(robot, DT, 1.0 / DT)) for _ in range(ARMS)]
    measured = env._disturbed.measure(env.model, env.state, env.scene)
    generator = torch.Generator().manual_seed(0)
    for step in range(25):
        for row, estimator in enumerate(each):
            estimator.see(*(x[row].double().numpy() for x in (measured.q, measured.qd)), step * DT)
        action = 2.0 * torch.rand(ARMS, 7, generator=generator) - 1.0
        env.step(0.3 * action)
        sent = (env.scene["sent"][:, -1, :7] * env.model.qdlim).double().numpy()
        for command, estimator in zip(sent, each):
            estimator._compensator.record_command(command, step * DT)
        measured = env._disturbed.measure(env.model, env.state, env.scene)
    for row, estimator in enumerate(each):
        estimator.see(*(x[row].double().numpy() for x in (measured.q, measured.qd)), 25 * DT)
    found = np.array([estimator.latency for estimator in each])
    expected = DT * env._disturbed.estimator.estimate(env.scene["evidence"]).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_its_constants_are_those_of_the_simulator():
    names = ("SPACING", "PRIOR", "SIGMA", "CLIP", "MEMORY")
    for name in names:
        assert getattr(latency_estimator, name) == getattr(simulated, name)
    assert latency_estimator.LONGEST_CANDIDATE == simulated.LONGEST


@pytest.mark.parametrize("speed", [1.0, 0.1])
@pytest.mark.parametrize("late", [0.0, 0.034, 0.1, 0.15])
def test_a_fast_loop_finds_the_latency_in_a_few_seconds(late, speed):
    """250 Hz; the arm follows exactly what was sent `late` before, jerk-free."""
    rate = 250.0
    compensator = LatencyCompensator(PANDA, 0.05, rate)
    estimator = LatencyEstimator(compensator, speed)
    compensator.record_command(np.zeros(7), 0.0)

    def swing(t):
        """Positions and velocities of a smooth motion that begins at 0.2 s."""
        t = max(t - 0.2, 0.0)
        size = 0.3 * speed
        phase = np.linspace(2.0, 5.0, 7)
        return PANDA.home + size * (1.0 - np.cos(phase * t)), size * phase * np.sin(phase * t)

    for tick in range(int(3.0 * rate)):
        now = tick / rate
        estimator.see(*swing(now - late), now)
        compensator.record_command(swing(now + 0.5 / rate)[1], now)
    assert compensator.latency == estimator.latency
    assert estimator.latency == pytest.approx(late, abs=0.006)


def test_an_arm_at_rest_keeps_the_first_guess():
    estimator = LatencyEstimator(LatencyCompensator(PANDA, 0.07, 250.0))
    for tick in range(500):
        estimator.see(PANDA.home, np.zeros(7), tick / 250.0)
        estimator._compensator.record_command(np.zeros(7), tick / 250.0)
    assert estimator.latency == pytest.approx(0.07, abs=0.002)


def test_an_arm_that_is_held_against_the_noise_of_its_encoders_keeps_the_first_guess():
    estimator = LatencyEstimator(LatencyCompensator(PANDA, 0.07, 250.0))
    noise = np.random.default_rng(0).normal(0.0, 0.001, (5000, 7))
    for tick, error in enumerate(noise):
        estimator.see(PANDA.home + error, np.zeros(7), tick / 250.0)
        estimator._compensator.record_command(-8.0 * error, tick / 250.0)
    assert estimator.latency == pytest.approx(0.07, abs=0.002)


def test_states_with_gaps_are_not_compared():
    estimator = LatencyEstimator(LatencyCompensator(PANDA, 0.05, 250.0))
    first = estimator.evidence.copy()
    for second in range(5):
        estimator._compensator.record_command(np.ones(7), float(second))
        estimator.see(PANDA.home + second, np.zeros(7), second + 0.5)
    assert (estimator.evidence == first).all()
