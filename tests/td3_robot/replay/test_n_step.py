"""n-step returns: by hand, and against a loop over Python numbers for random trajectories."""

import pytest
import torch

from td3_robot.errors import ConfigError
from td3_robot.replay import NStep, Prioritized, ReplayBuffer


def ring(slots: int, envs: int, reader=None, sampler=None) -> ReplayBuffer:
    """States are (time, env); the action is the time as well."""
    generator = torch.Generator().manual_seed(0)
    return ReplayBuffer(slots * envs, envs, 2, 1, "cpu", generator, sampler, reader)


def put(buffer: ReplayBuffer, time: int, reward, terminated, truncated, valid=None) -> None:
    """One time step whose next state is (time + 0.5, env)."""
    env = torch.arange(float(buffer.num_envs))
    state = torch.stack((torch.full_like(env, time), env), 1)
    flags = [
        None if flag is None else torch.as_tensor(flag, dtype=torch.bool)
        for flag in (terminated, truncated, valid)
    ]
    step = state + torch.tensor([0.5, 0.0])
    buffer.add(state, state[:, :1], torch.as_tensor(reward, dtype=torch.float32), step, *flags)


def by_state(batch) -> dict[tuple[int, int], tuple]:
    """(time, env) -> (reward, time of the last step taken, done, discount)."""
    found = {}
    for state, action, reward, step, done, discount in zip(*batch[:6]):
        time, env = state.tolist()
        assert action.item() == time and step[1].item() == env
        found[int(time), int(env)] = (
            reward.item(),
            int(step[0].item() - 0.5),
            done.item(),
            discount.item(),
        )
    return found


def test_returns_by_hand():
    """Three steps ahead, gamma 1/2; environment 0 terminates at time 1, 1 is truncated at 2, 2 runs
    on.
    """
    buffer = ring(10, 3, NStep(3, 0.5))
    for time in range(5):
        put(
            buffer,
            time,
            [1.0, 10.0, 2.0**time],
            [time == 1, False, False],
            [False, time == 2, False],
        )
    assert by_state(buffer.sample(500)) == {
        (0, 0): (1 + 0.5, 1, 1.0, 0.25),
        (1, 0): (1.0, 1, 1.0, 0.5),
        (2, 0): (1 + 0.5 + 0.25, 4, 0.0, 0.125),
        (3, 0): (1 + 0.5, 4, 0.0, 0.25),  # the newest data
        (4, 0): (1.0, 4, 0.0, 0.5),
        (0, 1): (10 + 5 + 2.5, 2, 0.0, 0.125),
        (1, 1): (10 + 5, 2, 0.0, 0.25),  # a time limit: bootstraps from there
        (2, 1): (10.0, 2, 0.0, 0.5),
        (3, 1): (10 + 5, 4, 0.0, 0.25),
        (4, 1): (10.0, 4, 0.0, 0.5),
        (0, 2): (1 + 1 + 1, 2, 0.0, 0.125),
        (1, 2): (2 + 2 + 2, 3, 0.0, 0.125),
        (2, 2): (4 + 4 + 4, 4, 0.0, 0.125),
        (3, 2): (8 + 8, 4, 0.0, 0.25),
        (4, 2): (16.0, 4, 0.0, 0.5),
    }


def reference(steps: list[dict], time: int, env: int, n: int, gamma: float) -> tuple:
    """Go forward from one step until n were taken, the episode ends, or nothing is stored or valid
    any more.
    """
    total = 0.0
    k = 0
    while True:
        total += gamma**k * float(steps[time + k]["reward"][env])
        k += 1
        last = steps[time + k - 1]
        following = steps[time + k] if time + k < len(steps) else None
        if k == n or last["terminated"][env] or last["truncated"][env] or following is None:
            break
        if not following["valid"][env]:
            break
    return total, time + k - 1, float(last["terminated"][env]), gamma**k


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("sampler", [None, Prioritized])
def test_returns_equal_those_of_a_loop(seed, sampler):
    """Random ends, both kinds at once too, rows that are no transition anywhere, any position of
    the write head.
    """
    draw = torch.Generator().manual_seed(seed)
    envs, slots, count, n = (
        int(torch.randint(1, high, (), generator=draw)) for high in (4, 13, 30, 6)
    )
    gamma = 0.9
    with_invalid = seed % 3 == 0
    buffer = ring(slots, envs, NStep(n, gamma), sampler and sampler())
    steps = []
    for time in range(count):
        chance = torch.rand(3, envs, generator=draw)
        step = {
            "reward": torch.randn(envs, generator=draw),
            "terminated": chance[0] < 0.15,
            "truncated": chance[1] < 0.15,
            "valid": (chance[2] < 0.8) | (not with_invalid),
        }
        steps.append(step)
        put(buffer, time, **{**step, "valid": step["valid"] if with_invalid else None})
    held = range(max(0, count - slots), count)
    expected = {
        (time, env): reference(steps, time, env, n, gamma)
        for time in held
        for env in range(envs)
        if steps[time]["valid"][env]
    }
    found = by_state(buffer.sample(4000))
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == pytest.approx(value, abs=1e-5), key


def test_one_step_is_the_transition_itself_with_gamma_as_its_discount():
    plain = ring(7, 2)
    one = ring(7, 2, NStep(1, 0.97))
    for buffer in (plain, one):
        draw = torch.Generator().manual_seed(3)
        for time in range(17):
            put(
                buffer,
                time,
                torch.randn(2, generator=draw),
                *(torch.rand(2, 2, generator=draw) < 0.3),
            )
    expected = plain.sample(200)
    found = one.sample(200)
    assert all(torch.equal(a, b) for a, b in zip(expected[:5], found[:5]))
    assert torch.equal(found.discount, torch.full((200, 1), 0.97))


def test_it_never_reads_beyond_the_newest_data():
    """Memory that was never written may hold NaN, and even NaN times zero is NaN."""
    buffer = ring(10, 2, NStep(4, 0.9))
    buffer.rows.fill_(torch.nan)
    for time in range(3):
        put(buffer, time, [1.0, 2.0], [False] * 2, [False] * 2)
    assert all(torch.isfinite(part).all() for part in buffer.sample(100)[:6])


def test_no_return_leads_over_an_interruption():
    """`end_episodes` after time 1: what was stored before bootstraps there; what comes later begins
    anew.
    """
    buffer = ring(10, 1, NStep(3, 0.5))
    for time in range(4):
        put(buffer, time, [1.0], [False], [False])
        if time == 1:
            buffer.end_episodes()
    last = {time: last for (time, _), (_, last, _, _) in by_state(buffer.sample(100)).items()}
    assert last == {0: 1, 1: 1, 2: 3, 3: 3}


def test_an_interruption_of_an_empty_buffer_is_none():
    buffer = ring(4, 1, NStep(2, 0.5))
    buffer.end_episodes()
    for time in range(2):
        put(buffer, time, [1.0], [False], [False])
    assert by_state(buffer.sample(50))[0, 0] == (1.5, 1, 0.0, 0.25)


@pytest.mark.parametrize("slots", [3, 5, 9])
def test_restored_the_returns_are_the_same(slots):
    buffer = ring(5, 2, NStep(3, 0.9))
    restored = ring(slots, 2, NStep(3, 0.9))
    for time in range(8):
        put(buffer, time, [1.0, time], [time == 4, False], [False, time == 5])
    restored.load_state_dict(buffer.state_dict())
    before = by_state(buffer.sample(300))
    after = by_state(restored.sample(300))
    assert after == {key: value for key, value in before.items() if key[0] >= 8 - slots}


@pytest.mark.parametrize(
    ("n", "gamma", "name"), [(0, 0.9, "n must be"), (2, 1.1, "gamma"), (2, -0.1, "gamma")]
)
def test_bad_options_are_refused(n, gamma, name):
    with pytest.raises(ConfigError, match=name):
        NStep(n, gamma)
