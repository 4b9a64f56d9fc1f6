"""Exploration noise: its own for every environment, joint and step."""

import pytest
import torch

from td3_robot.noise import GaussianNoise


def gaussian(shape=(50, 7), sigma=0.2, per_env=False, seed=0):
    return GaussianNoise(shape, sigma, per_env, torch.Generator().manual_seed(seed))


def test_every_environment_joint_and_step_gets_its_own():
    noise = gaussian()
    steps = torch.stack([noise.sample() for _ in range(2000)])  # (steps, B, a_dim)
    assert steps.shape == (2000, 50, 7)
    assert steps[:100].unique().numel() > 0.99 * steps[:100].numel()  # float32 repeats a value now and then
    series = steps.flatten(1).T  # one row an environment and joint
    correlation = torch.corrcoef(series) - torch.eye(len(series))
    assert correlation.abs().max() < 0.13  # 1 / sqrt(2000) = 0.022; the largest of 61,000 pairs lies near 0.1
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
    before, done = noise.sigmas.clone(), torch.tensor([True, False, False, True, False, True])
    noise.end_episodes(done)
    assert torch.equal((noise.sigmas != before)[:, 0], done)


def test_one_sigma_for_all_stays_so():
    noise = gaussian((6, 2), sigma=0.3)
    noise.end_episodes(torch.ones(6, dtype=torch.bool))
    assert (noise.sigmas == torch.tensor(0.3)).all()


def test_no_sigma_no_noise():
    for per_env in (False, True):
        assert (gaussian(sigma=0.0, per_env=per_env).sample() == 0).all()


def test_a_seed_fixes_it():
    assert torch.equal(gaussian(per_env=True).sample(), gaussian(per_env=True).sample())
    assert not torch.equal(gaussian(seed=1).sample(), gaussian(seed=2).sample())
