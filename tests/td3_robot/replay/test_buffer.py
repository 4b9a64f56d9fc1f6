"""The ring buffer against the plainest model of one: the end of a Python list for each
environment.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from td3_robot.errors import CheckpointError, ConfigError
from td3_robot.replay import NStep, ReplayBuffer

O_DIM = 2
A_DIM = 3
sizes = st.lists(st.integers(1, 12), min_size=1, max_size=7)


def ring(capacity: int, envs: int = 1, seed: int = 0) -> ReplayBuffer:
    return ReplayBuffer(capacity, envs, O_DIM, A_DIM, "cpu", torch.Generator().manual_seed(seed))


def steps(first: int, count: int, envs: int) -> tuple[torch.Tensor, ...]:
    """Arguments of `fill` whose transitions can be told by a number, time * envs + env, in every
    part.
    """
    x = torch.arange(first * envs, (first + count) * envs, dtype=torch.float32).view(count, envs, 1)
    done = x[..., 0] % 3 == 0
    timeout = x[..., 0] % 5 == 0
    return (
        x + torch.tensor([0.0, 0.5]),
        -x.expand(-1, -1, A_DIM),
        10 * x[..., 0],
        x.expand(-1, -1, 2) + 1e3,
        done,
        timeout,
    )


def put(buffer: ReplayBuffer, first: int, count: int, valid: torch.Tensor | None = None) -> None:
    """Store time steps first to first + count - 1, one by one; valid (count, envs)."""
    for t, step in enumerate(zip(*steps(first, count, buffer.num_envs))):
        buffer.add(*step, valid=None if valid is None else valid[t])


def contents(buffer: ReplayBuffer) -> list[int]:
    """The numbers of the transitions that samples are made of, each part checked against the
    others.
    """
    batch = buffer.sample(60 * len(buffer))
    x = batch.state[:, :1]
    assert torch.equal(batch.state, x + torch.tensor([0.0, 0.5]))
    assert torch.equal(batch.action, -x.expand(-1, A_DIM))
    assert torch.equal(batch.reward, 10 * x)
    assert torch.equal(batch.next_state, (x + 1000).expand(-1, 2))
    assert torch.equal(batch.done, (x % 3 == 0).float())
    return sorted({int(number) for number in x[:, 0]})


def same_draws(one: ReplayBuffer, other: ReplayBuffer) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.sample(30)[:5], other.sample(30)[:5]))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 3), sizes)
def test_it_holds_the_newest_time_steps_whatever_was_added(envs, slots, rest, counts):
    buffer = ring(envs * slots + min(rest, envs - 1), envs)
    time = 0
    for k, count in enumerate(counts):
        if k % 2:
            buffer.fill(*steps(time, count, envs))
        else:
            put(buffer, time, count)
        time += count
        assert len(buffer) == min(time, slots) * envs
        assert contents(buffer) == list(range(max(0, time - slots) * envs, time * envs))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.integers(2, 6), sizes, sizes, st.booleans())
def test_restored_it_draws_and_forgets_exactly_as_the_original(
    envs, slots, before, later, some_invalid
):
    original = ring(slots * envs, envs)
    restored = ring(slots * envs, envs, seed=5)
    time = 0
    for count in before:
        valid = torch.arange(count * envs).view(count, envs) % 4 != 1 if some_invalid else None
        put(original, time, count, valid)
        time += count
    restored.load_state_dict(original.state_dict())
    restored.generator.set_state(original.generator.get_state())
    assert len(restored) == len(original)
    for count in (*later[:3], 1):
        assert same_draws(original, restored)
        for buffer in (original, restored):
            put(buffer, time, count)
        time += count
    assert same_draws(original, restored)


def test_a_state_dict_does_not_change_when_the_buffer_does():
    buffer = ring(4)
    restored = ring(4)
    put(buffer, 0, 4)
    state = buffer.state_dict()
    put(buffer, 4, 2)
    restored.load_state_dict(state)
    assert contents(restored) == [0, 1, 2, 3]


def test_a_restored_buffer_shares_no_memory_with_what_it_was_restored_from():
    buffer = ring(4)
    restored = ring(4)
    put(buffer, 0, 4)
    state = buffer.state_dict()
    restored.load_state_dict(state)
    put(restored, 4, 4)
    buffer.load_state_dict(state)
    assert contents(buffer) == [0, 1, 2, 3]


def test_restored_into_more_room_it_still_holds_the_newest():
    small = ring(8, 2)
    large = ring(16, 2)
    put(small, 0, 6)
    large.load_state_dict(small.state_dict())
    assert contents(large) == list(range(4, 12))
    put(large, 6, 3)
    assert contents(large) == list(range(4, 18))
    put(large, 9, 2)
    assert contents(large) == list(range(6, 22))


def test_restored_into_less_room_it_holds_the_newest_that_fit():
    large = ring(16, 2)
    small = ring(7, 2)
    put(large, 0, 11)
    small.load_state_dict(large.state_dict())
    assert contents(small) == list(range(16, 22))
    put(small, 11, 1)
    assert contents(small) == list(range(18, 24))


def test_a_replay_of_other_environments_is_refused():
    with pytest.raises(CheckpointError, match=r"\(2, 10\).*\(4, 10\)"):
        ring(16, 4).load_state_dict(ring(16, 2).state_dict())


@pytest.mark.parametrize(
    "part, name", [*enumerate(("state", "action", "reward", "next_state")), (6, "valid")]
)
def test_a_step_of_another_shape_is_refused_and_changes_nothing(part, name):
    """Written into a ring of rows it would go on in the next row."""
    buffer = ring(8, 2)
    buffer.rows.zero_()  # memory that was never written may hold NaN
    put(buffer, 0, 3)
    before = buffer.rows.clone()
    given = [*(column[0] for column in steps(3, 1, 2)), torch.tensor([True, False])]
    for wrong in (given[part][:1], torch.cat((given[part],) * 2, -1)):
        with pytest.raises(ConfigError, match=f"{name} must have shape"):
            buffer.add(*given[:part], wrong, *given[part + 1 :])
    assert torch.equal(buffer.rows, before) and contents(buffer) == list(range(6))


@pytest.mark.parametrize("part, name", [(2, "reward"), (6, "valid")])
def test_other_numbers_of_time_steps_are_told(part, name):
    given = [*steps(0, 5, 2), torch.ones(5, 2, dtype=torch.bool)]
    given[part] = given[part][:4]
    with pytest.raises(ConfigError, match=f"{name} must have 5 time steps, got 4"):
        ring(8, 2).fill(*given)


def test_a_replay_that_is_none_is_refused():
    with pytest.raises(CheckpointError, match="lacks sampler, slots"):
        ring(16, 4).load_state_dict({"rows": torch.zeros(4, 10), "head": 0, "capacity": 16})


def test_an_empty_buffer_can_be_saved_and_restored():
    buffer = ring(4)
    buffer.load_state_dict(ring(4).state_dict())
    put(buffer, 0, 2)
    assert contents(buffer) == [0, 1]


def test_samples_are_uniform_with_replacement():
    buffer = ring(12, 2)
    put(buffer, 0, 8)
    drawn = buffer.sample(60_000).state[:, 0]
    shares = torch.bincount(drawn.long(), minlength=16)[4:] / 60_000
    torch.testing.assert_close(shares, torch.full((12,), 1 / 12), atol=0.006, rtol=0)


def test_while_all_rows_are_transitions_a_draw_is_one_random_integer():
    buffer = ring(12, 2)
    put(buffer, 0, 5)
    expected = torch.randint(10, (40,), generator=torch.Generator().manual_seed(0))
    assert torch.equal(buffer.sample(40).state[:, 0].long(), expected)


@pytest.mark.parametrize("first_told_at", [0, 3, 9])
def test_rows_that_are_no_transition_are_never_drawn_and_all_others_alike(first_told_at):
    buffer = ring(24, 3)
    valid = torch.rand(20, 3, generator=torch.Generator().manual_seed(1)) < 0.7
    valid[:first_told_at] = True
    put(buffer, 0, first_told_at)
    for t in range(first_told_at, 20):
        put(buffer, t, 1, valid[t : t + 1])
        held = valid[max(0, t - 7) : t + 1]
        if held.any():
            numbers = torch.arange(max(0, t - 7) * 3, (t + 1) * 3).view(-1, 3)[held]
            assert contents(buffer) == numbers.tolist()
    shares = (
        torch.bincount(buffer.sample(60_000).state[:, 0].long(), minlength=60)[36:].view(8, 3)
        / 60_000
    )
    torch.testing.assert_close(shares, valid[12:] / valid[12:].sum(), atol=0.007, rtol=0)
    put(buffer, 20, 8)
    assert contents(buffer) == list(range(60, 84))


def test_restored_it_draws_alike_also_where_all_rows_turned_out_to_be_transitions():
    original = ring(8, 2)
    restored = ring(8, 2)
    put(original, 0, 3, torch.ones(3, 2, dtype=torch.bool))
    restored.load_state_dict(original.state_dict())
    restored.generator.set_state(original.generator.get_state())
    assert same_draws(original, restored)


@pytest.mark.parametrize("capacity", [9, 12, 60])
def test_rows_that_are_no_transition_stay_so_when_restored_or_filled_in_at_once(capacity):
    one = ring(12, 3)
    other = ring(12, 3)
    valid = torch.arange(18).view(6, 3) % 4 != 2
    put(one, 0, 6, valid)
    other.fill(*steps(0, 6, 3), valid)
    restored = ring(capacity, 3)
    restored.load_state_dict(one.state_dict())
    expected = torch.arange(18).view(6, 3)[2:][valid[2:]].tolist()
    assert contents(one) == contents(other) == expected
    assert contents(restored) == [number for number in expected if number >= 18 - capacity]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(0, 6), st.integers(1, 12))
def test_time_steps_filled_in_at_once_lie_as_if_added_one_by_one(envs, slots, before, count):
    one, other = (ring(slots * envs, envs) for _ in range(2))
    for buffer in (one, other):
        put(buffer, 0, before)
    put(one, before, count)
    other.fill(*steps(before, count, envs))
    assert torch.equal(one.state_dict()["rows"], other.state_dict()["rows"])


def test_a_sample_has_the_shapes_of_a_batch_and_is_a_copy():
    buffer = ring(4, 2)
    put(buffer, 0, 1)
    batch = buffer.sample(7)
    assert [tuple(x.shape) for x in batch[:5]] == [(7, 2), (7, 3), (7, 1), (7, 2), (7, 1)]
    assert batch.discount is None and batch.weight is None
    for part in batch[:5]:
        part.fill_(-1)
    assert contents(buffer) == [0, 1]


def test_its_generator_fixes_the_draws():
    first = ring(100, seed=1)
    second = ring(100, seed=1)
    other = ring(100, seed=2)
    for buffer in (first, second, other):
        put(buffer, 0, 100)
    drawn = [buffer.sample(50).state for buffer in (first, second, other)]
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


def test_uniform_draws_know_neither_errors_nor_progress():
    told = ring(9)
    other = ring(9)
    for buffer in (told, other):
        put(buffer, 0, 9)
        buffer.sample(5)
    told.update_priorities(torch.arange(5.0))
    told.anneal(0.5)
    assert same_draws(told, other)


def test_an_empty_buffer_has_no_samples():
    with pytest.raises(ValueError, match="empty"):
        ring(4).sample(1)


def test_errors_belong_to_the_batch_just_sampled():
    buffer = ring(4)
    put(buffer, 0, 2)
    with pytest.raises(ValueError, match="just sampled"):
        buffer.update_priorities(torch.ones(3))
    buffer.sample(3)
    with pytest.raises(ValueError, match=r"\(3,\).*\(3, 1\)"):
        buffer.update_priorities(torch.ones(3, 1))
    put(buffer, 2, 1)
    with pytest.raises(ValueError, match="just sampled"):
        buffer.update_priorities(torch.ones(3))


@pytest.mark.parametrize(
    "convert",
    (lambda x: x.numpy(), lambda x: x.tolist(), lambda x: x.double().requires_grad_() * 1.0),
)
def test_it_takes_arrays_lists_and_outputs_of_networks(convert):
    buffer = ring(12, envs=2)
    put(buffer, 0, 2)
    for step in zip(*steps(2, 2, 2)):
        buffer.add(*map(convert, step))
    buffer.fill(*map(convert, steps(4, 1, 2)))
    assert contents(buffer) == list(range(10))


def test_it_takes_rewards_of_double_precision():
    buffer = ring(4, 2)
    step = [part[0] for part in steps(0, 1, 2)]
    buffer.add(*step[:2], step[2].double(), *step[3:])
    assert contents(buffer) == [0, 1] and buffer.sample(1).reward.dtype == torch.float32


@pytest.mark.parametrize("sizes", [(1e6, 4), (100, 4.0), (100, 0), (100, True), ("100", 4)])
def test_sizes_that_are_none_are_refused(sizes):
    name = "capacity" if sizes[0] != 100 else "num_envs"
    with pytest.raises(ConfigError, match=f"^{name} must be an integer in .*, got "):
        ring(*sizes)


def test_less_capacity_than_environments_is_refused():
    with pytest.raises(ConfigError, match="^capacity .* 3 < 4"):
        ring(3, 4)


@pytest.mark.parametrize("reader", [None, NStep(3, 0.9)])
def test_more_capacity_than_memory_is_refused(reader):
    with pytest.raises(
        ConfigError, match=r"^capacity 1000000000000 needs 40,000.0 GB, more than the .* GB"
    ):
        ReplayBuffer(10**12, 4, O_DIM, A_DIM, "cpu", torch.Generator(), reader=reader)


def test_it_takes_numpy_arrays_as_it_takes_tensors():
    tensors = ring(20, 2)
    put(tensors, 0, 4, torch.tensor([[True, True], [True, False], [False, True], [True, True]]))
    arrays = ring(20, 2)
    valid = np.array([[True, True], [True, False], [False, True], [True, True]])
    for t, step in enumerate(zip(*steps(0, 4, 2))):
        arrays.add(*(np.asarray(part, float) for part in step), valid=valid[t])
    assert torch.equal(arrays.rows[:8], tensors.rows[:8])
    assert same_draws(arrays, tensors)


def test_a_step_without_the_dimension_of_environments_is_told():
    with pytest.raises(ConfigError, match=r"state must have shape \(1, 2\), got \(2,\)"):
        ring(10).add(np.zeros(O_DIM), np.zeros(A_DIM), 0.5, np.zeros(O_DIM), False, False)
