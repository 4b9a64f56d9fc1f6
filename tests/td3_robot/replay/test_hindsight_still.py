"""Episodes whose achieved goal stayed where it began are drawn less often; which they are, by a
search in lists.
"""

import pytest
import torch

from td3_robot.errors import ConfigError
from td3_robot.replay import Hindsight, Prioritized, ReplayBuffer

REACH = 1.5  # how near a goal is met


def relabel(state, action, next_state, goal):
    """An observation is (time, env, cube); the reward is 0 where the cube is at the goal and -1
    elsewhere.
    """
    met = (next_state[:, 2:] - goal).abs()[:, 0] < REACH
    return state, next_state, met.float() - 1.0, torch.zeros_like(met)


def ring(slots: int, envs: int, still: float = 0.25, sampler=None) -> ReplayBuffer:
    reader = Hindsight(relabel, lambda memory: memory[:, 2:], lambda memory: memory, still=still)
    return ReplayBuffer(
        slots * envs, envs, 3, 1, "cpu", torch.Generator().manual_seed(0), sampler, reader
    )


def walk(seed: int, count: int, envs: int) -> list[tuple[torch.Tensor, ...]]:
    """What `add` takes for each of `count` steps; a cube makes steps of -1, 0 or 1, in half of the
    episodes.
    """
    draw = torch.Generator().manual_seed(seed)
    steps = []
    cube = torch.zeros(envs)
    pushed = torch.rand(envs, generator=draw) < 0.5
    env = torch.arange(float(envs))
    for time in range(count):
        after = cube + torch.randint(-1, 2, (envs,), generator=draw) * pushed
        chance = torch.rand(3, envs, generator=draw)
        rows = [
            torch.stack((torch.full_like(env, time + i), env, place), 1)
            for i, place in enumerate((cube, after))
        ]
        valid = chance[2] < 0.9 if time < count - 1 else torch.ones(envs, dtype=torch.bool)
        steps.append(
            (rows[0], torch.zeros(envs, 1), -env, rows[1], chance[0] < 0.1, chance[1] < 0.1, valid)
        )
        ended = steps[-1][4] | steps[-1][5] | ~valid
        cube = torch.where(ended, torch.randn(envs, generator=draw), after)
        pushed = torch.where(ended, torch.rand(envs, generator=draw) < 0.5, pushed)
    return steps


def expected(steps: list[tuple], still: float = 0.25) -> dict[tuple[int, int], float]:
    """(time, env) of every step -> its weight, as long as the ring holds all of them."""
    found = {}
    for env in range(len(steps[0][2])):
        episode: list[int] = []
        for time, (*_, terminated, truncated, valid) in enumerate(steps):
            episode = [*episode, time] if valid[env] else []
            found[time, env] = 0.0
            if valid[env]:
                began = steps[episode[0]][0][env, 2]
                left = any(abs(steps[t][3][env, 2] - began) >= REACH for t in episode)
                found |= {(t, env): 1.0 if left else still for t in episode}
            if terminated[env] or truncated[env]:
                episode = []
    return found


def drawn(buffer: ReplayBuffer, count: int = 40_000) -> dict[tuple[int, int], float]:
    """(time, env) -> share of many draws."""
    index, _ = buffer.sampler.draw(count)
    times = torch.bincount(index, minlength=len(buffer.rows)) / count
    return {
        (int(time), int(env)): share.item() for (time, env, *_), share in zip(buffer.rows, times)
    }


def assert_drawn(buffer: ReplayBuffer, weight: dict[tuple[int, int], float]) -> None:
    total = sum(weight.values())
    shares = drawn(buffer)
    assert {0.0, 0.25, 1.0} == set(weight.values())
    for row, share in shares.items():
        p = weight[row] / total
        assert abs(share - p) <= 5 * (p * (1 - p) / 40_000) ** 0.5, (row, p, share)


def test_rows_are_drawn_by_whether_their_episode_left_the_goal_it_began_with():
    steps = walk(0, 40, 3)
    buffer = ring(40, 3)
    for step in steps:
        buffer.add(*step)
    assert_drawn(buffer, expected(steps))


def test_filled_in_at_once_and_restored_it_is_the_same_to_the_bit():
    steps = walk(1, 40, 2)
    filled = ring(40, 2)
    restored = ring(40, 2)
    for step in steps[:3]:
        filled.add(*step)
    filled.fill(*map(torch.stack, zip(*steps[3:])))
    assert_drawn(filled, expected(steps))
    restored.load_state_dict(filled.state_dict())
    assert_drawn(restored, expected(steps))
    more = walk(2, 30, 2)  # and the ring goes round
    for buffer in (filled, restored):
        buffer.end_episodes()
        for step in more:
            buffer.add(*step)
        buffer.generator.manual_seed(3)
    a, b = (buffer.sample(500) for buffer in (filled, restored))
    assert all(torch.equal(x, y) for x, y in zip(a[:5], b[:5]))


def test_without_it_rows_are_drawn_as_ever():
    one = ring(20, 2, still=1.0)
    other = ring(20, 2, still=0.999)
    for buffer in (one, other):
        for step in walk(4, 20, 2):
            buffer.add(*step[:6])
    assert one.sampler.state_dict(one.index_by_time()) == {"by_weight": False}
    assert other.sampler.state_dict(other.index_by_time())["by_weight"]


def test_it_needs_the_uniform_sampler_and_a_share():
    with pytest.raises(ConfigError, match="needs the sampler Uniform"):
        ring(4, 2, sampler=Prioritized())
    with pytest.raises(ConfigError, match="^still must be in"):
        ring(4, 2, still=0.0)


@pytest.mark.parametrize("seed", range(20))
def test_restored_with_the_start_of_an_episode_overwritten_it_goes_on_to_the_bit(seed):
    """A running episode has left the goal of a start that only the original has seen."""
    steps = walk(seed, 60, 2)
    original = ring(8, 2)
    restored = ring(8, 2)
    for step in steps[: 20 + seed]:
        original.add(*step)
    restored.load_state_dict(original.state_dict())
    for step in steps[20 + seed :]:
        for buffer in (original, restored):
            buffer.add(*step)
        states = [buffer.state_dict() for buffer in (original, restored)]
        assert torch.equal(*(each["sampler"]["weights"] for each in states))
        assert torch.equal(*(each["reader"]["left_age"] for each in states))
