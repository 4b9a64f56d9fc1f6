"""Exploration noise: its own for every environment and joint, of one standard deviation whatever
its kind.
"""

import pytest
import torch

from td3_robot.data.action_noise import (
    NOISES,
    GaussianNoise,
    UncertaintyScale,
    compute_pink_gain,
    make_noise,
)
from td3_robot.errors import CheckpointError, ConfigError


def gaussian(shape=(50, 7), sigma=0.2, per_env=False, seed=0):
    return GaussianNoise(shape, sigma, per_env, torch.Generator().manual_seed(seed))


def test_every_environment_joint_and_step_gets_its_own():
    noise = gaussian()
    steps = torch.stack([noise.sample() for _ in range(2000)])  # (steps, B, a_dim)
    assert steps.shape == (2000, 50, 7)
    # float32 repeats a value now and then
    assert steps[:100].unique().numel() > 0.99 * steps[:100].numel()
    series = steps.flatten(1).T  # one row an environment and joint
    correlation = torch.corrcoef(series) - torch.eye(len(series))
    # 1 / sqrt(2000) = 0.022; the largest of 61,000 pairs lies near 0.1
    assert correlation.abs().max() < 0.13
    following = torch.corrcoef(torch.stack((steps[:-1].flatten(), steps[1:].flatten())))[0, 1]
    assert abs(following) < 0.01


def test_it_is_gaussian_with_the_sigma_asked_for():
    sample = gaussian((10_000, 7), sigma=0.2).sample()
    assert sample.mean().item() == pytest.approx(0, abs=0.003)
    assert sample.std().item() == pytest.approx(0.2, rel=0.02)
    assert (sample.abs() < 0.2).float().mean().item() == pytest.approx(0.683, abs=0.01)
    assert (sample.abs() < 0.4).float().mean().item() == pytest.approx(0.954, abs=0.005)


def test_per_env_sigmas_spread_evenly_from_zero_to_twice_sigma():
    sigmas = gaussian((20_000, 2), sigma=0.1, per_env=True).sigmas
    assert 0 <= sigmas.min() < 0.001 and 0.199 < sigmas.max() <= 0.2
    shares = torch.histc(sigmas, 4, 0, 0.2) / len(sigmas)
    torch.testing.assert_close(shares, torch.full((4,), 0.25), atol=0.015, rtol=0)


def test_an_environments_noise_has_its_own_sigma():
    noise = gaussian((20, 3), sigma=0.1, per_env=True)
    measured = torch.stack([noise.sample() for _ in range(2000)]).std((0, 2))
    torch.testing.assert_close(measured, noise.sigmas[:, 0], rtol=0.06, atol=0)


def test_a_new_episode_gets_a_new_sigma_and_no_other_does():
    noise = gaussian((6, 2), per_env=True)
    before = noise.sigmas.clone()
    done = torch.tensor([True, False, False, True, False, True])
    noise.end_episodes(done)
    assert torch.equal((noise.sigmas != before)[:, 0], done)


def test_one_sigma_for_all_stays_so():
    noise = gaussian((6, 2), sigma=0.3)
    noise.end_episodes(torch.ones(6, dtype=torch.bool))
    assert (noise.sigmas == torch.tensor(0.3)).all()


@pytest.mark.parametrize("per_env", [False, True])
def test_a_resumed_noise_has_the_sigma_that_it_is_given(per_env):
    before = gaussian((500, 2), sigma=0.1, per_env=per_env)
    after = gaussian((500, 2), sigma=0.9, per_env=per_env)
    after.load_state_dict(before.state_dict())
    torch.testing.assert_close(after.sigmas, 9.0 * before.sigmas)
    alike = gaussian((500, 2), sigma=0.9, per_env=False)
    alike.load_state_dict(before.state_dict())
    assert (alike.sigmas == torch.tensor(0.9)).all()


def test_no_sigma_no_noise():
    for per_env in (False, True):
        assert (gaussian(sigma=0.0, per_env=per_env).sample() == 0).all()


def test_a_seed_fixes_it():
    assert torch.equal(gaussian(per_env=True).sample(), gaussian(per_env=True).sample())
    assert not torch.equal(gaussian(seed=1).sample(), gaussian(seed=2).sample())


# All kinds

KINDS = pytest.mark.parametrize("kind", NOISES)


def make(kind, shape=(6, 3), sigma=1.0, per_env=False, seed=0, **options):
    return make_noise(kind, shape, sigma, per_env, torch.Generator().manual_seed(seed), **options)


def series(noise, steps):
    """(steps, B, a_dim) of an episode without an end."""
    return torch.stack([noise.sample() for _ in range(steps)])


@KINDS
def test_the_deviation_is_sigma_at_every_step(kind):
    # 10 of them in the second pink sequence
    steps = series(make(kind, (4000, 2), sigma=0.3, horizon=50), 60)
    deviation = steps.flatten(1).std(1)  # one standard error is 0.3 / sqrt(2 * 8000) = 0.0024
    torch.testing.assert_close(deviation, torch.full((60,), 0.3), atol=0.011, rtol=0)
    assert steps.flatten(1).mean(1).abs().max() < 0.017  # standard error 0.3 / sqrt(8000) = 0.0034


@KINDS
def test_a_new_episode_explores_as_widely_from_its_first_step_on(kind):
    noise = make(kind, (8000, 1), horizon=20)
    series(noise, 5)
    done = torch.arange(8000) % 2 == 0
    noise.end_episodes(done)
    for sample in series(noise, 6):
        assert sample[done].std().item() == pytest.approx(1, abs=0.06)
        assert sample[~done].std().item() == pytest.approx(1, abs=0.06)


@KINDS
def test_environments_and_joints_are_independent(kind):
    noise = make(kind, (40, 5), horizon=30)
    chances = []
    for _ in range(800):
        noise.end_episodes(torch.ones(40, dtype=torch.bool))
        chances.append(series(noise, 2)[1].flatten())
    correlation = torch.corrcoef(torch.stack(chances).T) - torch.eye(200)
    # 1 / sqrt(800) = 0.035; the largest of 19,900 pairs lies near 0.15
    assert correlation.abs().max() < 0.19


@KINDS
def test_an_ended_episode_leaves_no_trace_and_others_go_on(kind):
    noise = make(kind, (5000, 1))
    twin = make(kind, (5000, 1))
    before = noise.sample(), twin.sample()
    assert torch.equal(*before)
    done = torch.arange(5000) < 2500
    noise.end_episodes(done)
    twin.end_episodes(torch.zeros(5000, dtype=torch.bool))
    after = noise.sample()
    uncut = twin.sample()
    cut = torch.corrcoef(torch.stack((before[0][done, 0], after[done, 0])))[0, 1]
    assert abs(cut) < 0.08  # standard error 0.02
    same = torch.corrcoef(torch.stack((before[0][~done, 0], after[~done, 0])))[0, 1]
    plain = torch.corrcoef(torch.stack((before[0][~done, 0], uncut[~done, 0])))[0, 1]
    assert same.item() == pytest.approx(plain.item(), abs=0.08)


@KINDS
@pytest.mark.parametrize("per_env", [False, True])
def test_a_resumed_noise_goes_on_exactly(kind, per_env):
    done = torch.rand(200, 6, generator=torch.Generator().manual_seed(3)) < 0.05

    def play(noise, steps):
        samples = []
        for step in steps:
            samples.append(noise.sample())
            noise.end_episodes(done[step])
        return samples

    noise = make(kind, per_env=per_env, horizon=30)
    play(noise, range(100))
    state = noise.state_dict()
    drawn = noise.generator.get_state()
    expected = play(noise, range(100, 200))

    resumed = make(kind, per_env=per_env, horizon=30, seed=9)
    resumed.load_state_dict(state)
    resumed.generator.set_state(drawn)
    assert all(map(torch.equal, play(resumed, range(100, 200)), expected))
    resumed.load_state_dict(state)  # neither noise has written into the state
    resumed.generator.set_state(drawn)
    assert all(map(torch.equal, play(resumed, range(100, 200)), expected))


@KINDS
def test_a_state_of_another_kind_or_shape_is_refused_whole(kind):
    noise = make(kind)
    before = noise.state_dict()
    for other in (make("ou" if kind == "gaussian" else "gaussian"), make(kind, (7, 3))):
        with pytest.raises(CheckpointError, match="state of the exploration noise"):
            noise.load_state_dict(other.state_dict())
    assert all(torch.equal(value, before[name]) for name, value in noise.state_dict().items())


@KINDS
def test_sigmas_are_drawn_anew_whatever_the_kind(kind):
    noise = make(kind, (500, 2), per_env=True)
    before = noise.sigmas.clone()
    done = torch.arange(500) % 3 == 0
    noise.end_episodes(done)
    assert torch.equal((noise.sigmas != before)[:, 0], done)
    assert before.mean().item() == pytest.approx(1, abs=0.1) and before.max() <= 2


def test_gaussian_noise_draws_what_it_always_drew():
    generator = torch.Generator().manual_seed(5)
    noise = make("gaussian", (2, 3), sigma=0.5, per_env=True, seed=5)
    sigmas = torch.rand(2, 1, generator=generator)  # of [0, 2 * 0.5)
    assert torch.equal(noise.sample(), sigmas * torch.randn(2, 3, generator=generator))
    noise.end_episodes(torch.tensor([True, False]))
    sigmas[0] = torch.rand(2, 1, generator=generator)[0]
    assert torch.equal(noise.sample(), sigmas * torch.randn(2, 3, generator=generator))


# Ornstein-Uhlenbeck


def test_ou_forgets_by_the_power_of_the_lag():
    steps = series(make("ou", (4000, 5), theta=0.3), 12)
    for lag in (1, 2, 5, 10):
        measured = (steps[1] * steps[1 + lag]).mean().item()
        # standard error 1 / sqrt(20,000) = 0.007
        assert measured == pytest.approx(0.7**lag, abs=0.03)


def test_ou_with_theta_1_is_white():
    assert torch.equal(series(make("ou", theta=1.0), 5), series(make("gaussian"), 5))


# Pink


def spectrum(steps):
    """(T // 2 + 1,) mean power at frequencies k / T of (T, B, a_dim)."""
    return torch.fft.rfft(steps, dim=0).abs().square().mean((1, 2)) / len(steps)


@pytest.mark.parametrize("horizon", [256, 255])
def test_power_falls_as_one_over_the_frequency(horizon):
    power = spectrum(series(make("pink", (500, 8), horizon=horizon), horizon))[1:]
    frequency = torch.fft.rfftfreq(horizon)[1:]
    product = power * frequency
    torch.testing.assert_close(
        product / product.mean(), torch.ones(len(product)), atol=0.12, rtol=0
    )
    x = frequency.log() - frequency.log().mean()
    y = power.log() - power.log().mean()
    assert ((x * y).sum() / x.square().sum()).item() == pytest.approx(-1, abs=0.02)


def test_power_of_the_mean_is_that_of_the_lowest_frequency():
    power = spectrum(series(make("pink", (500, 8), horizon=64), 64))
    assert (power[0] / power[1]).item() == pytest.approx(1, abs=0.12)


@pytest.mark.parametrize("horizon", [1, 2, 3, 8, 1001])
def test_gains_keep_the_variance(horizon):
    # the mean square of both signs of every frequency: those of 0 and, for an even length, of 1/2
    # count once
    power = compute_pink_gain(horizon).square()
    once = power[0] + (power[-1] if horizon % 2 == 0 else 0)
    assert ((2 * power.sum() - once) / horizon).item() == pytest.approx(1, rel=1e-5)


def test_a_used_up_sequence_is_replaced_by_a_new_one():
    steps = series(make("pink", (400, 5), horizon=10), 30).unflatten(0, (3, 10))
    correlation = torch.corrcoef(steps.flatten(1))
    assert (correlation - torch.eye(3)).abs().max() < 0.08  # a repetition would give 1


def test_an_environment_keeps_its_sequence_for_the_whole_horizon():
    # Ended after 4 of 10 steps, a sequence goes on over the end of its buffer: still pink over its
    # own 10 steps.
    noise = make("pink", (4000, 1), horizon=10)
    series(noise, 4)
    noise.end_episodes(torch.ones(4000, dtype=torch.bool))
    steps = series(noise, 10)
    power = spectrum(steps)[1:] * torch.arange(1, 6)
    torch.testing.assert_close(power / power.mean(), torch.ones(5), atol=0.1, rtol=0)
    following = torch.corrcoef(torch.stack((steps[9, :, 0], noise.sample()[:, 0])))[0, 1]
    assert abs(following) < 0.08


# Where the critics disagree


def test_noise_grows_with_the_disagreement_over_its_mean_from_half_to_twice():
    scale = UncertaintyScale("cpu")
    # mean 5
    assert scale(torch.tensor([1.0, 3.0, 4.0, 12.0]))[:, 0].tolist() == pytest.approx(
        [0.5, 0.6, 0.8, 2.0]
    )
    # 1% of the newest mean goes into the running one: 0.99 * 5 + 0.01 * 105 = 6
    assert scale(torch.tensor([6.0, 9.0, 200.0, 205.0]))[:, 0].tolist() == pytest.approx(
        [1.0, 1.5, 2.0, 2.0]
    )


def test_critics_that_agree_leave_finite_noise():
    assert UncertaintyScale("cpu")(torch.zeros(3))[:, 0].tolist() == [0.5] * 3


def test_a_resumed_scale_goes_on_exactly():
    first = UncertaintyScale("cpu")
    second = UncertaintyScale("cpu")
    first(torch.rand(5))
    second.load_state_dict(first.state_dict())
    later = torch.rand(5)
    assert torch.equal(first(later), second(later))


# Choice


def test_a_wrong_choice_is_named():
    with pytest.raises(
        ConfigError, match="kind must be one of gaussian, ou, pink, got 'pnk'; did you mean 'pink'"
    ):
        make("pnk")
    for theta in (0.0, 1.1, float("nan")):
        with pytest.raises(ConfigError, match="theta must be in"):
            make("ou", theta=theta)
    with pytest.raises(ConfigError, match="horizon must be in \\[1, 1_000_000\\], got 0"):
        make("pink", horizon=0)


def test_pink_sequences_that_do_not_fit_are_refused_before_they_are_drawn():
    with pytest.raises(ConfigError, match=r"pink noise of 1000000 steps needs 280,000.0 GB"):
        make("pink", (10_000_000, 7), horizon=1_000_000)
