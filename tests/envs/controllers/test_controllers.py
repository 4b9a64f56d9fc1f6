"""Laws of the classical controllers."""

import dataclasses

import pytest
import torch

import envs
from envs.controllers import FollowSolution, ResolvedRate, make_baseline
from envs.kinematics.least_squares import damped_least_squares
from envs.kinematics.rotations import to_matrix
from td3_robot.errors import ConfigError


@pytest.fixture
def env():
    return envs.make("panda", "reach", num_envs=100, seed=3)


def speeds(env, action):
    return action * env.model.qdlim


def test_damped_least_squares_is_the_minimum():
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    J = draw(20, 3, 7)
    velocity = draw(20, 3)
    damping = 0.3
    qd = damped_least_squares(J, velocity, damping)

    def cost(qd):
        residual = (J @ qd[:, :, None])[:, :, 0] - velocity
        return residual.square().sum(1) + damping**2 * qd.square().sum(1)

    for _ in range(10):
        assert (cost(qd + 1e-3 * draw(20, 7)) > cost(qd)).all()


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_singular_jacobians_give_finite_and_bounded_velocities(rank):
    generator = torch.Generator().manual_seed(rank)
    J = torch.randn(50, 3, rank, generator=generator) @ torch.randn(
        50, rank, 7, generator=generator
    )
    velocity = torch.randn(50, 3, generator=generator)
    damping = 0.1
    qd = damped_least_squares(J, velocity, damping)
    # sigma / (sigma^2 + damping^2) is at most 1 / (2 damping)
    assert (qd.norm(dim=1) <= velocity.norm(dim=1) / (2 * damping) * 1.001).all()


@pytest.mark.parametrize("name", ["panda", "ur5e", "wx250s"])
def test_a_motion_to_joint_positions_brakes_in_time(name):
    """Whatever its gain and the arm's accelerations: beyond what it goes to by less than a step at
    half speed.
    """
    env = envs.make(name, "reach_pose", 64, "cpu", 3)
    for gain in (4.0, 8.0):
        policy = FollowSolution(env, gain)
        observation = env.reset(3)
        target = env.moment.scene["solution"]
        begin = env.state.q
        beyond = torch.zeros_like(begin)
        for _ in range(env.task.horizon - 1):
            env.step(policy(observation))
            beyond = torch.maximum(beyond, torch.sign(target - begin) * (env.state.q - target))
        assert (beyond < 0.5 * env.model.qdlim * env.model.dt * 1.01).all()
        assert (env.state.q - target).abs().max() < 1e-3


def test_error_falls_at_every_step_with_a_small_gain(env):
    env.model = dataclasses.replace(env.model, dqd=torch.full_like(env.model.dqd, torch.inf))
    policy = ResolvedRate(env, gain=1.0)
    observation = env.reset(3)
    before = first = (env.goal - env.tcp).norm(dim=1)
    for _ in range(env.task.horizon):
        step = env.step(policy(observation))
        error = step.info["position_error"]
        observation = step.observation
        assert (error < before).all()
        before = error
    assert (error < 0.2 * first).all()


def test_the_tcp_sets_out_straight_for_the_goal(env):
    v = (
        env.jacob0(env.state.q)[:, :3]
        @ speeds(env, ResolvedRate(env, damping=1e-3)(None))[:, :, None]
    )
    towards = torch.nn.functional.cosine_similarity(v[:, :, 0], env.goal - env.tcp)
    assert (towards > 0.999).all()


def test_velocities_are_scaled_together_and_never_over_a_limit(env):
    slow = ResolvedRate(env, gain=0.01)(None)
    fast = ResolvedRate(env, gain=1000.0)(None)
    assert (slow.abs().amax(1) < 1).all()
    torch.testing.assert_close(fast.abs().amax(1), torch.ones(env.num_envs))
    assert (
        torch.nn.functional.cosine_similarity(speeds(env, slow), speeds(env, fast)) > 0.9999
    ).all()


def test_it_solves_reach_within_the_limits_of_the_arm(env):
    policy = ResolvedRate(env)
    observation = env.reset(3)
    for _ in range(env.task.horizon):
        step = env.step(policy(observation))
        observation = step.observation
        assert (step.info["qd"].abs() <= env.model.qdlim).all()
    assert step.info["success"].float().mean() >= 0.99  # 100% of 4,000 episodes of another seed


@pytest.mark.parametrize("task", ["reach_pose", "track"])
@pytest.mark.parametrize("name", ["rrmc", "neo"])
def test_batched_equals_looped(name, task):
    env = envs.make("panda", task, num_envs=5, seed=3)
    single = envs.make("panda", task)
    batched = make_baseline(name, env)(None)
    policy = make_baseline(name, single)
    for row in range(env.num_envs):
        single.moment = env.arrived.each(lambda x, row=row: x[row : row + 1])
        torch.testing.assert_close(policy(None)[0], batched[row], atol=1e-4, rtol=1e-4)


def test_a_pose_is_approached_straight_and_turned_to_about_a_fixed_axis():
    env = envs.make("panda", "reach_pose", num_envs=100, seed=3)
    action = ResolvedRate(env, gain=0.1, damping=1e-4)(None)
    v = (env.moment.J.double() @ speeds(env, action).double()[:, :, None])[:, :, 0]
    torch.testing.assert_close(
        v[:, :3], 0.1 * (env.goal[:, :3] - env.tcp).double(), atol=1e-4, rtol=1e-3
    )
    angle = torch.linalg.vector_norm(v[:, 3:], dim=1) / 0.1
    turned = (
        rodrigues(v[:, 3:] / (0.1 * angle[:, None]), angle) @ env.moment.T_be[:, :3, :3].double()
    )
    torch.testing.assert_close(turned, to_matrix(env.goal[:, 3:]).double(), atol=5e-3, rtol=0)


def rodrigues(axis, angle):
    """(B, 3, 3) of rotations by angles (B,) about unit vectors (B, 3)."""
    x, y, z = axis.T
    o = torch.zeros_like(x)
    K = torch.stack([torch.stack(row, 1) for row in ((o, -z, y), (z, o, -x), (-y, x, o))], 1)
    s = angle.sin()[:, None, None]
    c = angle.cos()[:, None, None]
    return torch.eye(3) + s * K + (1 - c) * K @ K


def test_resolved_rate_reaches_most_poses():
    env = envs.make("panda", "reach_pose", num_envs=200, seed=3)
    policy = ResolvedRate(env)
    observation = env.reset(3)
    for _ in range(env.task.horizon):
        step = env.step(policy(observation))
        observation = step.observation
    assert step.info["success"].float().mean() > 0.78  # 84.8% of 1,000


def test_feed_forward_removes_the_lag():
    """Without it a goal at constant speed is followed at a distance of speed / gain; with it, of
    almost nothing.
    """
    error = {}
    for known in (True, False):
        env = envs.make("panda", "track", num_envs=50, seed=3)
        policy = ResolvedRate(env if known else Without(env, "goal_velocity"), gain=4.0)
        for _ in range(60):
            step = env.step(policy(None))
        error[known] = step.info["position_error"].median().item()
    assert error[False] == pytest.approx(env.task.speed / 4.0, rel=0.25)
    assert error[True] < 0.1 * error[False]


class Without:
    """An environment whose controller is not told a part of the scene."""

    def __init__(self, env, name):
        self._env = env
        self._name = name
        self.model = env.model

    @property
    def moment(self):
        told = {name: value for name, value in self._env.moment.scene.items() if name != self._name}
        return dataclasses.replace(self._env.moment, scene=told)


def test_names(env):
    assert isinstance(make_baseline("rrmc", env), ResolvedRate)
    with pytest.raises(
        ConfigError,
        match="did you mean .rrmc..* valid choices: ik, insert_spiral, .*, neo, pick, push, "
        "reactive, replan, rrmc$",
    ):
        make_baseline("rmc", env)


def test_who_cannot_grasp_is_told_apart_from_who_only_grasps(env):
    with pytest.raises(
        ConfigError, match="'pick' cannot do this task; valid choices for it: rrmc, neo, reactive$"
    ):
        make_baseline("pick", env)
    with pytest.raises(ConfigError, match="'neo' cannot do this task; valid choices for it: pick$"):
        make_baseline("neo", envs.make("panda", "pick_place"))
