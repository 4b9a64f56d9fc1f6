"""What the exported half foresees is what the simulator's half does, and what an arm then comes
to.
"""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

import envs
from envs.arm_env.arm_env import ArmEnv
from envs.export.robot_description import describe
from envs.export.simulated_arm import SimulatedArm
from envs.robots import make_robot
from envs.simulation.disturbances import Disturbances
from envs.tasks.registry import make_task
from td3_robot.commands import export
from td3_robot.deploy import DeployError, Policy, Robot, SafetyFilter, Watchdog, measure_latency
from td3_robot.deploy.arm import Reading
from td3_robot.deploy.runtime import control_loop, latency
from td3_robot.deploy.runtime.latency_compensation import KEPT, LatencyCompensator
from td3_robot.deploy.runtime.latency_estimator import SPACING
from td3_robot.deploy.runtime.motion_log import Log

RATE = 20.0
ARMS = 4
PANDA = Robot.load("panda")


@pytest.fixture(scope="module")
def arms():
    made = {name: make_robot(name) for name in ("panda", "ur5e")}

    def arms(name="panda", task="reach", count=ARMS, **given):
        return ArmEnv(
            made[name], make_task(task), count, "cpu", 0, disturbances=Disturbances(**given)
        )

    return arms


def rows(*tensors):
    """One arm after the other, in double precision."""
    return zip(*(tensor.double().numpy() for tensor in tensors))


def pushes(env, steps):
    """Random actions that last for a while."""
    generator = torch.Generator().manual_seed(0)
    push = torch.zeros(env.num_envs, env.a_dim)
    for _ in range(steps):
        push = 0.8 * push + 0.9 * (torch.rand(push.shape, generator=generator) * 2.0 - 1.0)
        yield push


@pytest.mark.parametrize(
    ("name", "latency"),
    [("panda", 0.0), ("ur5e", 0.02), ("panda", 0.05), ("panda", 0.087), ("ur5e", 0.1)],
)
def test_it_is_what_the_simulator_foresees(arms, name, latency):
    """Over random motions at full speed into the limits, the gripper opening and shutting."""
    # without any nothing stands between arm and controller
    env = arms(name, "pick_place", latency=latency or 1e-12)
    each = [
        LatencyCompensator(Robot.from_dict(describe(env.robot)), latency, RATE) for _ in range(ARMS)
    ]
    scale = torch.cat((env.model.qdlim, torch.ones(1)))
    moved = 0.0
    for step, push in enumerate(pushes(env, 45)):
        env.step(push)
        state = env.arrived.state
        known = env.moment.state
        measured = rows(state.q, state.qd, state.gripper)
        seen = []
        for compensator, (command,), arm in zip(
            each, rows(env.moment.scene["sent"][:, -1] * scale), measured
        ):
            compensator.record_command(command, step / RATE)
            q, qd, gripper = compensator(*arm, (step + 1) / RATE)
            bound = np.clip(q + 0.5 / RATE * qd, *env.model.qlim.double().numpy())
            seen.append(np.hstack((bound, qd, gripper)))
        expected = torch.cat((known.q, known.qd, known.gripper[:, None]), 1).numpy()
        np.testing.assert_allclose(seen, expected, rtol=0, atol=1e-5)
        moved = max(moved, (known.q - state.q).abs().max().item())
    assert moved >= 0.5 * latency * env.model.qdlim.max().item()


def test_at_constant_speed_it_is_that_much_further():
    """Whatever the times at which it is told, and however old the state is."""
    compensator = LatencyCompensator(PANDA, 0.06, 250.0)
    speed = np.full(7, 0.1)
    for now in np.cumsum(np.random.default_rng(0).uniform(0.001, 0.03, 40)):
        compensator.record_command(speed, now)
    for age in (0.0, 0.0123):
        q, qd, gripper = compensator(PANDA.home, speed, None, now + 0.001, age)
        np.testing.assert_allclose(q, PANDA.home + (0.06 + age) * speed, atol=1e-9)
        np.testing.assert_allclose(qd, speed, atol=1e-9)
        assert gripper is None


def test_an_answer_that_is_left_out_leaves_the_one_before_in_force():
    told, skipped = (LatencyCompensator(PANDA, 0.1, RATE) for _ in range(2))
    for step, speed in enumerate((0.1, 0.2, 0.2, 0.2, 0.3)):
        told.record_command(np.full(7, speed), step / RATE)
        if step != 2:
            skipped.record_command(np.full(7, speed), step / RATE)
    state = (PANDA.home, np.full(7, 0.2), 0.04, 5 / RATE)
    np.testing.assert_allclose(told(*state)[0], skipped(*state)[0], atol=1e-12)


def test_what_is_said_again_replaces_what_was_said():
    once, again = (LatencyCompensator(PANDA, 0.1, RATE) for _ in range(2))
    again.record_command(np.full(7, 2.0), 0.0)
    for compensator in (once, again):
        compensator.record_command(np.full(7, 0.1), 0.0)
    state = (PANDA.home, np.zeros(7), 0.04, 0.05)
    assert np.array_equal(once(*state)[0], again(*state)[0])


def test_after_a_reset_nothing_is_on_its_way():
    compensator = LatencyCompensator(PANDA, 0.1, RATE)
    compensator.record_command(np.ones(7), 0.0)
    compensator.reset()
    assert np.array_equal(compensator(PANDA.home, np.zeros(7), 0.04, 0.05)[0], PANDA.home)
    compensator.record_command(np.zeros(7), 0.1)  # and before it stood still
    assert np.array_equal(compensator(PANDA.home, np.zeros(7), 0.04, 0.15)[0], PANDA.home)


def test_it_remembers_no_more_than_it_needs():
    compensator = LatencyCompensator(PANDA, 0.1, RATE)
    for tick in range(3000):
        compensator.record_command(np.zeros(7), tick / 1000.0)
    assert len(compensator._sent) <= 1000.0 * (0.1 + KEPT) + 2


@pytest.mark.parametrize("latency", [-0.01, 0.6, float("nan")])
def test_what_no_arm_has_is_refused(latency):
    with pytest.raises(DeployError, match="latency must be from 0 to 0.5 s"):
        LatencyCompensator(PANDA, latency, RATE)


@pytest.mark.parametrize("command", [np.zeros(6), np.full(7, np.nan), np.zeros((1, 7))])
def test_what_cannot_have_been_sent_is_refused(command):
    with pytest.raises(DeployError, match="what was sent must be 7 finite numbers"):
        LatencyCompensator(PANDA, 0.05, RATE).record_command(command, 0.0)


@pytest.mark.parametrize(
    ("task", "run", "latency"),
    [
        ("reach", "run1", 0.05),
        pytest.param("reach_pose", "reach_pose", 0.087, marks=pytest.mark.slow),
        ("track", "track", 0.02),
        pytest.param("track", "track", 0.025, marks=pytest.mark.slow),
        pytest.param("pick_place", "pick_place", 0.1, marks=pytest.mark.slow),
    ],
)
def test_a_policy_sees_what_the_simulators_does(arms, task, run, latency, exported, monkeypatch):
    """Of arm, gripper, goal that moves and cube in the hand. Where a goal will go after this step,
    no policy is told: latency and the half period of the ramp together are one step at most there.
    """
    env = arms(task=task, latency=latency)
    if task == "pick_place":
        there = env.arrived
        held = torch.ones(ARMS, dtype=torch.bool)
        # a Panda hand's fingers on a cube of 4 cm
        shut = replace(there.state, gripper=torch.full((ARMS,), 0.02))
        sent = torch.zeros_like(there.scene["sent"])
        env.moment = replace(
            there,
            state=shut,
            scene={**there.scene, "object": there.tcp, "held": held, "sent": sent},
        )
    each = [Policy.load(exported(run), latency) for _ in range(ARMS)]
    for policy in each:
        infer = policy._evaluate
        outputs = ["observation", *policy._commands]

        def evaluate(_, *state, policy=policy, infer=infer, outputs=outputs):
            policy.seen, *command = infer(outputs, *state)
            return command

        monkeypatch.setattr(policy, "_evaluate", evaluate)
    # it will have turned
    unknown = [name for name in ("goal_velocity", "resolved_rate") if task == "track"]
    for step, push in enumerate(pushes(env, 15)):
        if task == "pick_place":
            push = torch.cat((0.3 * push[:, :-1], -torch.ones(ARMS, 1)), 1)  # it holds on
        shown = env.step(push).observation.numpy()
        state = env.arrived.state
        sent = env.arrived.scene["sent"][:, -1].double().numpy()
        scene = {name: env.arrived.scene[name].double().numpy() for name in each[0].scene}
        for row, (policy, arm) in enumerate(zip(each, rows(state.q, state.qd, state.gripper))):
            policy.record_command(sent[row, :7] * env.robot.qdlim, sent[row, 7])
            policy(
                *arm, **{name: value[row] for name, value in scene.items()}, at=(step + 1) / RATE
            )
        seen = np.array([policy.seen for policy in each])
        for name in unknown:
            seen[:, env.layout[name]] = shown[:, env.layout[name]]
        if step > 2:  # a policy takes grippers for open in the beginning
            np.testing.assert_allclose(seen, shown, rtol=0, atol=2e-4)
    assert task != "pick_place" or env.moment.scene["held"].all()


class Way(torch.nn.Module):
    """Answer with the action that follows the planned path."""

    def __init__(self, columns):
        super().__init__()
        self.columns = columns

    def forward(self, observation):
        return observation[:, self.columns]


@pytest.mark.slow
def test_a_policy_passes_the_corner_when_the_simulators_does(arms, tmp_path):
    """At a latency of two periods the prediction passes it before the arm does."""
    env = arms(task="reach_avoid", count=1, latency=0.1)
    path, way = tmp_path / "policy.onnx", env.layout["way"]
    plain = envs.make(env.robot, "reach_avoid", 1, seed=0)
    export.write_policy(path, plain, "reach_avoid", Way(way))
    policy, shown, early = Policy.load(path, 0.1), env.reset(3), 0
    for step in range(40):
        state = env.now.state
        scene = {name: env.now.scene[name][0].double().numpy() for name in policy.scene}
        before = scene["passed"].copy().reshape(1)
        arm = next(rows(state.q, state.qd, state.gripper))
        command = policy(*arm, **{**scene, "passed": before}, at=step / RATE)
        expected = (shown[0, way].clamp(-1.0, 1.0) * env.model.qdlim).numpy()
        np.testing.assert_allclose(command, expected, rtol=0, atol=2e-3)
        assert before == scene["passed"]  # the scene that was given stays as it was
        early += bool(env.moment.scene["passed"][0]) and not before
        shown = env.step(shown[:, way]).observation
    assert early


@pytest.fixture(scope="module")
def policy(exported):
    return Policy.load(exported("run1"))


def success(policy, env, latency):
    """The share of arms that the policy brings to their goals, each by a policy of its own."""
    env.reset(11)
    each = [copy.copy(policy) for _ in range(env.num_envs)]
    for one in each:
        one.reset()
        one.latency = latency
    for _ in range(env.task.horizon):
        state = env.arrived.state
        asked = zip(each, rows(state.q, state.qd, state.gripper, env.goal))
        qd = np.array([one(*row) for one, row in asked], np.float32)
        step = env.step(torch.from_numpy(qd) / env.model.qdlim)
    return step.info["success"].float().mean().item()


def test_an_exported_policy_reaches_as_often_as_without_a_delay(policy, arms):
    prompt, late = (arms(count=25, latency=latency, assumed_latency=0.0) for latency in (0.0, 0.1))
    assert success(policy, prompt, 0.0) >= 0.95 and success(policy, late, 0.1) >= 0.95
    assert success(policy, late, 0.0) < 0.3


def test_a_policy_takes_its_answers_for_sent_unless_it_is_told_otherwise(policy):
    late = copy.copy(policy)
    asked = (PANDA.home, np.zeros(7), 0.04, np.array([0.5, 0.2, 0.4]))
    late.reset()
    late.latency = 0.1
    prompt = policy(*asked)
    for _ in range(3):  # nothing is sent, so that nothing will have changed
        assert np.array_equal(late(*asked), prompt)
        late.record_command(np.zeros(7))
    late(*asked)
    assert np.abs(late(*asked) - prompt).max() > 0.01
    late.reset()
    assert np.array_equal(late(*asked), prompt)


@pytest.mark.parametrize("first", [0.0, 0.02, 0.1])
def test_a_latency_set_in_mid_motion_forgets_no_command(policy, first):
    """The next answer is that of a policy that assumed this latency from the beginning and was sent
    the same, whatever was assumed before.
    """
    at_first = copy.copy(policy)
    later = copy.copy(policy)
    at_first.reset()
    later.reset()
    at_first.latency = 0.08
    later.latency = first
    q = PANDA.home
    goal = np.array([0.5, 0.2, 0.4])
    for _ in range(6):
        command = later(q, np.zeros(7), 0.04, goal)
        at_first(q, np.zeros(7), 0.04, goal)
        at_first.record_command(command)
    later.latency = 0.08
    expected = at_first(q, np.zeros(7), 0.04, goal)
    assert np.array_equal(later(q, np.zeros(7), 0.04, goal), expected)
    at_first.reset()
    assert not np.array_equal(at_first(q, np.zeros(7), 0.04, goal), expected)
    with pytest.raises(DeployError, match="from 0 to 0.5"):
        later.latency = 0.6
    assert later.latency == 0.08


def test_the_old_name_of_record_command_still_records(policy):
    compensator = LatencyCompensator(PANDA, 0.05, RATE)
    with pytest.warns(FutureWarning, match="LatencyCompensator.sent is now record_command"):
        compensator.sent(np.zeros(7), 0.0)
    assert compensator.has_sent
    with pytest.warns(FutureWarning, match="Policy.sent is now record_command"):
        copy.copy(policy).sent(np.zeros(7))


class Late:
    """The simulated arm behind a delay, half of it each way, by a clock of its own."""

    rate = 250.0
    period = 0.005

    def __init__(self, robot, q, delay):
        self.arm = SimulatedArm(robot, self.period)
        self.half = delay / 2.0
        self.now = 100.0
        self.done = 100.0
        self.arm.state = replace(self.arm.state, q=torch.tensor(q, dtype=torch.float32)[None])
        self.there, self.back, self.qd = [], [], np.zeros(self.arm.n)

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += max(seconds, 1e-4)
        while self.done + self.period <= self.now:
            while self.there and self.there[0][0] <= self.done:
                self.qd = self.there.pop(0)[1]
            self.arm.step(self.qd)
            self.done += self.period
            self.back.append((self.done + self.half, self.arm.reading()))

    def read(self):
        newest = None
        while self.back and self.back[0][0] <= self.now:
            newest = np.array(self.back.pop(0)[1])
        return None if newest is None else Reading(newest[:7], newest[7:14], newest[14], self.now)

    def send(self, qd):
        self.there.append((self.now + self.half, qd))

    def stop(self):
        pass


class AtOnce:
    """A policy that answers in the tick in which it is asked."""

    failure = ""

    def __init__(self, policy, clock):
        self.policy = policy
        self.clock = clock
        self.reply = None

    def ask(self, reading, scene):
        self.reply = self.clock.now, self.policy(reading.q, reading.qd, reading.gripper, **scene)

    def answer(self):
        reply = self.reply
        self.reply = None
        return reply


def drive_late(policy, env, monkeypatch, **known):
    """Return the share of episodes that end at the goal, at full speed, 50 ms late, by the loop of
    run_policy.py.
    """
    near = []
    # the filter's looks for what is near take most of the time
    bare = replace(policy.robot, capsules=None)
    for q, goal in rows(env.moment.state.q, env.goal):
        arm = Late(env.robot, q, 0.05)
        monkeypatch.setattr(control_loop, "time", arm)
        watch = Watchdog(SafetyFilter(bare, arm.rate, policy.rate))
        watch.reset(q, arm.now)
        how = {
            "policy_rate": policy.rate,
            "speed": 1.0,
            "seconds": 3.0,
            "log": Log(None, bare.joints),
        }
        end = control_loop.run_control_loop(
            arm, AtOnce(policy, arm), watch, {"goal": goal}, **how, **known
        )
        assert end == "the time is up"
        tcp = bare.chain.frames(arm.arm.state.q.double().numpy())[0, -1, :3, 3]
        near.append(np.linalg.norm(tcp - goal) < env.task.tolerance)
    return np.mean(near)


@pytest.mark.parametrize(
    ("known", "least", "most"), [(0.05 + Late.period, 1.0, 1.0), (0.0, 0.0, 0.7)]
)
def test_the_loop_foresees_by_what_the_filter_sent(policy, arms, monkeypatch, known, least, most):
    assert least <= drive_late(policy, arms(count=8), monkeypatch, latency=known) <= most


def test_the_loop_finds_a_latency_that_is_not_known(policy, arms, monkeypatch):
    found = []
    share = drive_late(policy, arms(count=8), monkeypatch, latency=0.0, estimate=found.append)
    assert share == 1.0
    # to a spacing of the candidates, and a period in which a reading waits
    np.testing.assert_allclose(found, 0.05 + Late.period, atol=SPACING + Late.period)


@pytest.mark.parametrize("delay", [0.0, 0.037, 0.1])
def test_an_arm_is_as_late_as_it_is_measured_to_be(arms, monkeypatch, delay):
    arm = Late(arms(count=1).robot, PANDA.home, delay)
    monkeypatch.setattr(latency, "time", arm)
    measured = measure_latency(arm, replace(PANDA, capsules=None), joint=3)
    assert (
        measured == pytest.approx(delay + 1.5 * arm.period, abs=0.003)
        and not arm.there[-1][1].any()
    )


def test_no_arm_is_measured_to_move_before_it_is_told(arms, monkeypatch):
    """Clocks that differ show it ahead of its commands by a millisecond."""
    arm = Late(arms(count=1).robot, PANDA.home, 0.0)
    monkeypatch.setattr(latency, "time", arm)
    read = arm.read

    def read_ahead():
        seen = read()
        moving = seen is not None and seen.qd[3] > 0.0
        return seen._replace(q=seen.q + 1e-2 * seen.qd) if moving else seen

    monkeypatch.setattr(arm, "read", read_ahead)
    assert measure_latency(arm, replace(PANDA, capsules=None), joint=3) == 0.0


@pytest.mark.parametrize("seconds", [1.0, 0.5])
def test_a_joint_that_does_not_follow_has_no_latency(arms, monkeypatch, seconds):
    arm = Late(arms(count=1).robot, PANDA.home, 0.0)
    monkeypatch.setattr(latency, "time", arm)
    monkeypatch.setattr(arm, "read", lambda: Reading(PANDA.home, np.zeros(7), None, arm.now))
    with pytest.raises(
        DeployError, match="joint 4 was sent .* far and went 0.000: it does not follow"
    ):
        measure_latency(arm, replace(PANDA, capsules=None), joint=3, seconds=seconds)


def test_a_joint_that_cannot_hold_the_speed_has_no_latency(arms, monkeypatch):
    """Near its limit the filter slows it down, and what it was sent is not what was asked for."""
    q = PANDA.home.copy()
    q[3] = PANDA.limits.upper[3] - 0.05
    arm = Late(arms(count=1).robot, q, 0.0)
    monkeypatch.setattr(latency, "time", arm)
    with pytest.raises(DeployError, match="joint 4 is slowed down to"):
        measure_latency(arm, replace(PANDA, capsules=None), joint=3)


def test_ctrl_c_brakes_an_arm_whose_latency_is_measured(arms, monkeypatch):
    arm = Late(arms(count=1).robot, PANDA.home, 0.0)
    monkeypatch.setattr(latency, "time", arm)
    left = [60]
    sent = []
    sleep = arm.sleep
    send = arm.send

    def pressed(seconds):
        sleep(seconds)
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    monkeypatch.setattr(arm, "sleep", pressed)
    monkeypatch.setattr(arm, "send", lambda qd: (sent.append(np.array(qd)), send(qd)))
    with pytest.raises(KeyboardInterrupt):
        measure_latency(arm, replace(PANDA, capsules=None), joint=3)
    assert np.max(sent) > 0.05 and not sent[-1].any()


def test_an_arm_that_says_nothing_is_told_of(arms, monkeypatch):
    arm = Late(arms(count=1).robot, PANDA.home, 0.0)
    monkeypatch.setattr(latency, "time", arm)
    monkeypatch.setattr(arm, "read", lambda: None)
    with pytest.raises(DeployError, match="the arm sends no states"):
        measure_latency(arm, PANDA)


WRONG = [("speed", -0.1), ("speed", 0.0), ("speed", "1"), ("seconds", 0.0), ("joint", 7)]


@pytest.mark.parametrize("wrong", [{name: value} for name, value in WRONG])
def test_a_motion_that_measures_no_latency_is_refused_before_it_begins(wrong):
    with pytest.raises(DeployError, match=f"^{min(wrong)} must be "):
        measure_latency(None, PANDA, **wrong)
