"""The ring buffer against the plainest model of one: the end of a Python list."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from td3_robot.replay import ReplayBuffer


def ring(capacity: int, seed: int = 0) -> ReplayBuffer:
    return ReplayBuffer(capacity, 2, 3, "cpu", torch.Generator().manual_seed(seed))


def add(buffer: ReplayBuffer, numbers: list[int]) -> None:
    """Transitions that can be told by a number in every part."""
    x = torch.tensor(numbers, dtype=torch.float32)[:, None]
    buffer.add(x + torch.tensor([0.0, 0.5]), -x.expand(-1, 3), 10 * x[:, 0], (x + 1000).expand(-1, 2), x[:, 0] % 3 == 0)


def contents(buffer: ReplayBuffer) -> list[int]:
    """The numbers of the transitions that samples are made of, each part checked against the others."""
    batch = buffer.sample(80 * len(buffer))
    x = batch.state[:, :1]
    assert torch.equal(batch.state, x + torch.tensor([0.0, 0.5]))
    assert torch.equal(batch.action, -x.expand(-1, 3))
    assert torch.equal(batch.reward, 10 * x)
    assert torch.equal(batch.next_state, (x + 1000).expand(-1, 2))
    assert torch.equal(batch.done, (x % 3 == 0).float())
    return sorted({int(number) for number in x[:, 0]})


@given(st.integers(1, 9), st.lists(st.integers(1, 20), min_size=1, max_size=8))
def test_it_holds_the_newest_transitions_whatever_the_sizes_added(capacity, sizes):
    buffer, model = ring(capacity), []
    for size in sizes:
        numbers = list(range(len(model), len(model) + size))
        model += numbers
        add(buffer, numbers)
        assert len(buffer) == min(len(model), capacity)
        assert contents(buffer) == model[-capacity:]


@given(st.integers(1, 9), st.lists(st.integers(1, 12), min_size=1, max_size=5), st.lists(st.integers(1, 12)))
def test_restored_it_draws_and_forgets_exactly_as_the_original(capacity, before, later):
    original, restored, count = ring(capacity), ring(capacity, seed=5), 0
    for size in before:
        add(original, list(range(count, count + size)))
        count += size
    restored.load_state_dict(original.state_dict())
    restored.generator.set_state(original.generator.get_state())
    for size in (*later, 1):
        assert all(torch.equal(a, b) for a, b in zip(original.sample(20)[:5], restored.sample(20)[:5]))
        for buffer in (original, restored):
            add(buffer, list(range(count, count + size)))
        count += size
    assert contents(restored) == contents(original)


def test_a_state_dict_does_not_change_when_the_buffer_does():
    buffer, restored = ring(4), ring(4)
    add(buffer, [0, 1, 2, 3])
    state = buffer.state_dict()
    add(buffer, [4, 5])
    restored.load_state_dict(state)
    assert contents(restored) == [0, 1, 2, 3]


def test_a_restored_buffer_shares_no_memory_with_what_it_was_restored_from():
    buffer, restored = ring(4), ring(4)
    add(buffer, [0, 1, 2, 3])
    state = buffer.state_dict()
    restored.load_state_dict(state)
    add(restored, [4, 5, 6, 7])
    buffer.load_state_dict(state)
    assert contents(buffer) == [0, 1, 2, 3]


def test_restored_into_more_room_it_still_holds_the_newest():
    small, large = ring(4), ring(8)
    add(small, list(range(6)))
    large.load_state_dict(small.state_dict())
    assert contents(large) == [2, 3, 4, 5]
    add(large, [6, 7, 8])
    assert contents(large) == [2, 3, 4, 5, 6, 7, 8]
    add(large, [9, 10])
    assert contents(large) == [3, 4, 5, 6, 7, 8, 9, 10]


def test_restored_into_less_room_it_holds_the_newest_that_fit():
    large, small = ring(8), ring(3)
    add(large, list(range(11)))
    small.load_state_dict(large.state_dict())
    assert contents(small) == [8, 9, 10]
    add(small, [11])
    assert contents(small) == [9, 10, 11]


def test_samples_are_uniform_with_replacement():
    buffer = ring(5)
    add(buffer, list(range(8)))
    drawn = buffer.sample(50_000).state[:, 0]
    shares = torch.bincount(drawn.long(), minlength=8) / 50_000
    torch.testing.assert_close(shares, torch.tensor([0, 0, 0, 0.2, 0.2, 0.2, 0.2, 0.2]), atol=0.01, rtol=0)


def test_a_sample_has_the_shapes_of_a_batch_and_is_a_copy():
    buffer = ring(4)
    add(buffer, [0, 1])
    batch = buffer.sample(7)
    assert [tuple(x.shape) for x in batch[:5]] == [(7, 2), (7, 3), (7, 1), (7, 2), (7, 1)]
    assert batch.discount is None and batch.weight is None
    for part in batch[:5]:
        part.fill_(-1)
    assert contents(buffer) == [0, 1]


def test_its_generator_fixes_the_draws():
    first, second, other = ring(100, seed=1), ring(100, seed=1), ring(100, seed=2)
    for buffer in (first, second, other):
        add(buffer, list(range(100)))
    drawn = [buffer.sample(50).state for buffer in (first, second, other)]
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


def test_an_empty_buffer_has_no_samples():
    with pytest.raises(ValueError, match="empty"):
        ring(4).sample(1)
