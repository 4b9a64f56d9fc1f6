"""The latency of each arm is estimated from its motion."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch.testing import assert_close

from envs.arm_env import observed_state
from envs.arm_env.arm_env import ArmEnv
from envs.kinematics import fkine
from envs.robots import make_robot
from envs.simulation.disturbances import Disturbances
from envs.simulation.latency_estimator import LONGEST, LatencyEstimator
from envs.tasks.episodes import ScenePool
from envs.tasks.reach import Reach
from envs.tasks.registry import make_task
from td3_robot.errors import ConfigError
from tests.envs.playing import leaves, play, same, tensors

DT = 0.05
PANDA = make_robot("panda")
WANDER = 0.15  # of full speed: no joint comes near its limits


def make(count=8, task="reach", **given):
    return ArmEnv(PANDA, make_task(task), count, "cpu", 0, disturbances=Disturbances(**given))


def estimate(env):
    """Return the estimates (B,) [s]."""
    return DT * env._disturbed.estimator.estimate(env.scene["evidence"])


def wander(env, steps, late=None, seed=1):
    """Move for a while with velocities that change, under latencies (B,) [s] if any are given."""
    if late is not None:
        env.now = replace(env.now, scene={**env.now.scene, "late": late / DT})
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        action = torch.rand(env.num_envs, env.a_dim, generator=generator)
        env.step(WANDER * (2.0 * action - 1.0))


def test_latencies_below_a_long_control_period_are_estimated_and_foreseen():
    """With 0.25 s no candidate is a whole step late: only the last command is still to act."""
    task = replace(make_task("reach"), dt=0.25)
    given = Disturbances(latency=0.05, latency_spread=0.05)
    env = ArmEnv(PANDA, task, 4, "cpu", 0, disturbances=given)
    late = torch.tensor([0.0, 0.05, 0.1, 0.15]) / 0.25
    env.now = replace(env.now, scene={**env.now.scene, "late": late})
    generator = torch.Generator().manual_seed(1)
    for _ in range(10):
        env.step(WANDER * (2.0 * torch.rand(4, env.a_dim, generator=generator) - 1.0))
    found = env._disturbed.estimator.estimate(env.scene["evidence"])
    assert_close(found, late, rtol=0.0, atol=0.1)
    last = env.scene["sent"][:, -1, :7]
    pending = list(env._disturbed.iter_pending(env.scene))
    assert len(pending) == 1
    assert_close(pending[0][0].joints, last)
    assert_close(pending[0][1], found)  # shares of a control step


@pytest.mark.parametrize("noise", [0.0, 0.0005, 0.001])
def test_a_moving_arm_shows_its_latency_within_a_second(noise):
    env = make(11, latency=0.05, latency_spread=0.05, noise=noise)
    late = torch.linspace(0.0, 0.1, 11)  # parts of a control step too
    wander(env, 20, late)
    assert (estimate(env) - late).abs().max() < (0.006 if noise == 0.0 else 0.012)


def test_an_arm_at_rest_keeps_the_first_guess_and_one_that_pauses_its_estimate():
    env = make(latency=0.05, latency_spread=0.05, noise=0.0)
    first = estimate(env)
    assert_close(first, torch.full((8,), 0.05), rtol=0.0, atol=0.003)
    still = torch.zeros(8, 7)
    for _ in range(20):
        env.step(still)
    assert_close(estimate(env), first)
    wander(env, 20)
    for _ in range(5):
        env.step(still)
    found = estimate(env)
    for _ in range(10):
        env.step(still)
    assert_close(estimate(env), found)


def test_an_arm_that_is_held_against_the_noise_of_its_encoders_keeps_its_estimate():
    """Commands take back what noise there seemed to be, as if they had acted at once."""
    given = Disturbances(latency=0.05, latency_spread=0.05, noise=0.001)
    task = replace(make_task("reach"), horizon=1000)
    env = ArmEnv(PANDA, task, 8, "cpu", 0, disturbances=given)
    wander(env, 20, torch.full((8,), 0.08))
    place = env.moment.state.q.clone()

    def hold(steps):
        for _ in range(steps):
            env.step((8.0 * (place - env.moment.state.q) / env.model.qdlim).clamp(-1.0, 1.0))
        return estimate(env)

    stopped = hold(10)
    assert_close(hold(100), stopped, rtol=0.0, atol=0.002)


@pytest.mark.parametrize("first, then", [(0.02, 0.09), (0.09, 0.02)])
def test_a_latency_that_jumps_is_followed_within_half_a_second(first, then):
    env = make(latency=0.05, latency_spread=0.05, noise=0.0005)
    wander(env, 20, torch.full((8,), first))
    wander(env, 10, torch.full((8,), then))
    assert (estimate(env) - then).abs().max() < 0.015


def test_a_latency_that_drifts_is_followed():
    env = make(latency=0.05, latency_spread=0.05, noise=0.0005)
    for step in range(40):
        late = 0.02 + 0.0015 * step
        wander(env, 1, torch.full((8,), late), seed=step)
    assert (estimate(env) - late).abs().max() < 0.015


def test_a_blocked_joint_leaves_the_estimate_in_bounds_and_ends_with_the_blockage():
    env = make(latency=0.05, latency_spread=0.05)
    late = torch.full((8,), 0.08)
    wander(env, 20, late)
    estimator = env._disturbed.estimator
    model = env.model
    scene = env.scene
    evidence = scene["evidence"]
    blocked = env.state
    for step in range(40):  # all joints commanded, none moves
        sent = torch.randn(8, 6, 8, generator=torch.Generator().manual_seed(step)).clamp(-1.0, 1.0)
        evidence = estimator.update(model, blocked, blocked, sent, evidence)
    found = estimator.estimate(evidence)
    assert torch.isfinite(evidence).all() and ((found >= 0.0) & (found <= LONGEST / DT)).all()
    env.now = replace(env.now, scene={**env.now.scene, "evidence": evidence})
    wander(env, 10, late)
    assert (estimate(env) - late).abs().max() < 0.015


def test_one_joint_that_stands_still_does_not_hide_the_latency():
    env = make(latency=0.05, latency_spread=0.05)
    late = torch.full((8,), 0.08)
    generator = torch.Generator().manual_seed(1)
    env.now = replace(env.now, scene={**env.now.scene, "late": late / DT})
    for _ in range(20):
        before = env.state
        env.step(WANDER * (2.0 * torch.rand(8, 7, generator=generator) - 1.0))
        stuck = env.state
        for name in ("q", "qd"):
            getattr(stuck, name)[:, 3] = getattr(before, name)[:, 3] * (name == "q")
    assert (estimate(env) - late).abs().max() < 0.015


@pytest.mark.parametrize(
    "given", [{"latency": 0.07}, {"latency": 0.05, "latency_spread": 0.05, "assumed_latency": 0.05}]
)
def test_a_known_latency_is_not_estimated(given):
    env = make(**given)
    told = make(**given, estimate_latency=False)
    assert env._disturbed.estimator is None and "evidence" not in env.scene
    assert all(same(tensors(a), tensors(b)) for a, b in zip(play(env, 20), play(told, 20)))


def test_the_option_forces_it_on_and_off():
    spread = {"latency": 0.05, "latency_spread": 0.05}
    assert "evidence" in make(**spread).scene
    assert "evidence" not in make(**spread, estimate_latency=False).scene
    forced = make(latency=0.08, assumed_latency=0.02, estimate_latency=True)
    wander(forced, 20)
    assert (estimate(forced) - 0.08).abs().max() < 0.003


def test_noise_and_offsets_are_those_drawn_without_estimation():
    given = {"latency": 0.05, "latency_spread": 0.05, "noise": 0.001, "joint_offset": 0.01}
    env = make(**given)
    plain = make(**given, estimate_latency=False)
    still = torch.zeros(8, 7)
    for _ in range(5):
        seen = env.step(still)
        expected = plain.step(still)
        assert same(tensors(seen), tensors(expected))


def test_the_bank_treats_each_arm_as_one_alone():
    env = make(5, latency=0.05, latency_spread=0.05, noise=0.001)
    wander(env, 10)
    before = env.state
    scene = env.scene
    wander(env, 1)
    sent = torch.cat((scene["sent"], env.scene["sent"][:, -1:]), 1)
    estimator: LatencyEstimator = env._disturbed.estimator
    together = estimator.update(env.model, before, env.state, sent, scene["evidence"])

    def pick(state, row):
        return replace(state, **{name: x[row : row + 1] for name, x in vars(state).items()})

    for row in range(5):
        each = slice(row, row + 1)
        alone = estimator.update(
            env.model, pick(before, row), pick(env.state, row), sent[each], scene["evidence"][each]
        )
        assert_close(alone, together[each])


@pytest.mark.parametrize("latency", [0.03, 0.05, 0.13])
@pytest.mark.parametrize("task", ["reach", "track", "pick_place", "reach_avoid"])
def test_right_estimates_foresee_what_a_known_latency_does(monkeypatch, task, latency):
    """Shares of a control step for each arm, and the one of a common latency."""
    monkeypatch.setattr(ScenePool, "BLOCK", 1024)  # for speed
    known = make(4, task, latency=latency)
    found = make(4, task, latency=latency, estimate_latency=True)
    monkeypatch.setattr(
        LatencyEstimator,
        "estimate",
        lambda self, evidence: torch.full((len(evidence),), latency / DT),
    )
    for env in (known, found):
        env.reset(3)
        play(env, 12)
    one, each = (
        observed_state.predict_command_start(env.task, env.world, env._disturbed, env.now)
        for env in (known, found)
    )
    for name in ("q", "qd", "gripper"):
        a, b = (getattr(moment.state, name) for moment in (one, each))
        assert_close(a, b, rtol=0, atol=2e-6)
    assert_close(one.scene["goal"], each.scene["goal"], rtol=0, atol=1e-6)


def test_a_state_dict_round_trip_goes_on_exactly_over_resets():
    given = {"latency": 0.05, "latency_spread": 0.05, "noise": 0.001}
    env = make(**given)
    other = make(**given)
    env.reset(4)
    other.reset(5)
    play(env, 12)
    other.load_state_dict(env.state_dict())
    assert same(leaves(env), leaves(other))
    steps = env.task.horizon
    assert all(
        same(tensors(a), tensors(b)) for a, b in zip(play(env, steps, 3), play(other, steps, 3))
    )


def test_a_new_episode_begins_with_the_first_guess():
    env = make(latency=0.05, latency_spread=0.05)
    wander(env, env.task.horizon)
    assert_close(estimate(env), torch.full((8,), 0.05), rtol=0.0, atol=0.003)


def test_a_run_saved_before_latency_was_estimated_goes_on_without():
    given = {"latency": 0.05, "latency_spread": 0.05, "noise": 0.001}
    old = make(**given, estimate_latency=False)
    new = make(**given)
    play(old, 5)
    new.load_state_dict(old.state_dict())
    steps = old.task.horizon
    assert all(
        same(tensors(a), tensors(b)) for a, b in zip(play(old, steps, 3), play(new, steps, 3))
    )


@dataclass(frozen=True)
class Remembering(Reach):
    """A task that remembers where the TCP was after the last step."""

    tcp_keys = ("last",)

    def sample_scenes(self, world, count, generator):
        """Add a place to remember."""
        scene = super().sample_scenes(world, count, generator)
        return {**scene, "last": torch.zeros_like(scene["goal"])}

    def advance(self, world, before, after):
        """Remember it."""
        return replace(after, scene={**after.scene, "last": after.tcp})


@pytest.mark.parametrize(("estimated", "error"), [(False, 1e-6), (True, 1e-4)])
def test_what_a_task_remembers_of_the_tcp_is_foreseen_with_it(estimated, error):
    """Two whole steps are foreseen, and with an estimate parts of one, which are not so straight."""
    task = Remembering(**vars(make_task("reach")))
    late = Disturbances(latency=2 * DT, estimate_latency=estimated)
    env = ArmEnv(PANDA, task, 4, "cpu", 0, disturbances=late)
    env.reset(3)
    wander(env, 12)
    known = observed_state.predict_command_start(task, env.world, env._disturbed, env.now)
    ahead = fkine(env.model.chain, known.state.q)[:, :3, 3]
    assert (ahead - env.now.tcp).norm(dim=1).min() > 1e-3
    assert_close(known.scene["last"], ahead, rtol=0, atol=error)


@pytest.mark.parametrize("other", [{"assumed_latency": 0.3}, {"noise": 0.0}])
def test_arms_saved_with_another_knowledge_of_their_latency_are_refused(other):
    """They cannot go on: commands, noise or evidence would be missing, many steps later."""
    given = {"latency": 0.05, "latency_spread": 0.05, "noise": 0.001}
    first, second = make(2, **given), make(2, **given | other)
    for saved, env in ((first, second), (second, first)):
        before = env.now
        with pytest.raises(ConfigError, match="saved arms are of another .* latency"):
            env.load_state_dict(saved.state_dict())
        assert env.now is before


def test_arms_of_a_version_without_estimates_go_on_without():
    given = {"latency": 0.05, "latency_spread": 0.05, "noise": 0.001}
    older, env = make(2, **given, estimate_latency=False), make(2, **given)
    play(older, 5)
    env.load_state_dict(older.state_dict())
    assert all(same(tensors(a), tensors(b)) for a, b in zip(play(older, 70), play(env, 70)))
