"""Episodes begun ahead: handed out once each, in the order they were made, and no more made than is
needed.
"""

import gc
import weakref
from dataclasses import replace

import pytest
import torch

import envs
from envs.arm_env.arm_env import ArmEnv
from envs.arm_env.reset_buffer import AsyncResetBuffer, ResetBuffer
from envs.arm_env.time_limits import TimeLimits
from envs.robots import make_robot
from envs.tasks.registry import make_task


@pytest.fixture(scope="module")
def env():
    return envs.make("panda", "reach", num_envs=2)


class Counted:
    """Makes beginnings whose observations are numbered, and remembers how many it was asked for."""

    def __init__(self, env):
        self._env = env
        self.asked = []

    def __call__(self, count):
        begun = self._env._begin(count)
        begun.observation[:, 0] = torch.arange(count) + float(sum(self.asked))
        self.asked.append(count)
        return begun


@pytest.mark.parametrize("block, asked", [(4, [4, 4, 4]), (0, [1, 2, 3, 6])])
def test_each_is_handed_out_once_and_in_order(env, block, asked):
    made = Counted(env)
    beginnings = ResetBuffer(made, block)
    taken = [beginnings.take(count) for count in (1, 2, 0, 3, 6)]
    assert torch.cat([begun.observation[:, 0] for begun in taken]).tolist() == list(range(12))
    assert [len(begun.true.steps) for begun in taken] == [1, 2, 0, 3, 6] and made.asked == asked


def test_what_is_left_comes_back(env):
    made = Counted(env)
    left, again = (ResetBuffer(made, 5) for _ in range(2))
    again.load_state_dict(left.state_dict(), env.device)
    left.take(3)
    again.load_state_dict(left.state_dict(), env.device)
    expected = left.take(2)
    found = again.take(2)
    assert found.observation[:, 0].tolist() == [3.0, 4.0] and len(made.asked) == 1
    torch.testing.assert_close(found.true.tensors(), expected.true.tensors(), rtol=0, atol=0)
    torch.testing.assert_close(found.known.tensors(), expected.known.tensors(), rtol=0, atol=0)
    assert left.state_dict() == {}


def test_what_is_forgotten_is_not_handed_out(env):
    beginnings = ResetBuffer(Counted(env), 5)
    beginnings.take(2)
    beginnings.clear()
    assert beginnings.take(1).observation[0, 0] == 5.0


@pytest.mark.parametrize("block, count", [(3, 2), (0, 2)])
def test_blocks_that_are_used_up_are_let_go(env, block, count):
    one = env._begin(3)
    refs = []

    def begin(wanted):
        made = one.each(lambda x: x[:wanted].clone())
        refs.append(weakref.ref(made.true.T_be))
        return made

    beginnings = ResetBuffer(begin, block)
    for _ in range(1000):
        taken = beginnings.take(count)
    gc.collect()
    # Their Jacobians are still to be had, at no depth of calls that grows with the blocks.
    assert taken.true.J.shape == (count, 6, env.joints)
    beginnings.state_dict()
    assert len(refs) > 600 and sum(ref() is not None for ref in refs) <= 2


def test_steps_that_are_taken_back_are_let_go(env):
    rows = torch.tensor([True, False])
    refs = []
    for _ in range(5):
        true, known = env.now, env.moment
        expected = [true.J[0], known.J[0]]
        env.step(torch.full((2, env.a_dim), 0.5))
        refs.append(weakref.ref(env.arrived.T_be))
        env.hold(rows, true, known)
        torch.testing.assert_close([env.now.J[0], env.moment.J[0]], expected, rtol=0, atol=0)
    del true, known
    gc.collect()
    assert sum(ref() is not None for ref in refs) == 1  # that of the latest step


def test_a_step_that_is_taken_back_leaves_shortened_first_episodes_as_short():
    """Episodes end when those of arms that never made the step do."""
    task = replace(make_task("reach"), horizon=7)
    panda = make_robot("panda")
    plain, held = (ArmEnv(panda, task, 8, "cpu", 3, training=True) for _ in range(2))
    action = torch.zeros(8, plain.a_dim)
    true, known = held.now, held.moment
    held.step(action)
    held.hold(torch.ones(8, dtype=torch.bool), true, known)
    ends = [[env.step(action).truncated for _ in range(15)] for env in (plain, held)]
    assert torch.equal(*map(torch.stack, ends))
    first = torch.stack(ends[0]).long().argmax(0) + 1
    assert len(first.unique()) > 2  # they are cut short, each by itself
    assert not plain.cut_short.any()
    plain.reset(3)
    assert torch.equal(plain.cut_short, first < 7)


def handed_out(unasked, asking):
    """The numbers of the beginnings that so many of six arms got."""
    asked = torch.arange(6) < asking
    return unasked.take(asked).observation[asked, 0].tolist()


def test_who_is_not_counted_gets_the_next_ones_and_a_new_block_before_they_run_out(env):
    made = Counted(env)
    unasked = AsyncResetBuffer(made, 6)
    assert (
        handed_out(unasked, 2) == [0, 1]
        and handed_out(unasked, 0) == []
        and handed_out(unasked, 3) == [2, 3, 4]
    )
    assert handed_out(unasked, 3) == [5, 0, 1]  # more than there are: the first ones again
    for _ in range(4):
        handed_out(unasked, 0)
    # a block lasts eight steps at first
    assert handed_out(unasked, 1) == [6] and made.asked == [6, 6]
    for _ in range(6):
        handed_out(unasked, 1)
    # eight of six were handed out in eight steps: then one lasts six
    assert made.asked == [6, 6, 6]


def test_what_nobody_counted_goes_on_where_it_was(env):
    made = Counted(env)
    unasked = AsyncResetBuffer(made, 6)
    again = AsyncResetBuffer(made, 6)
    handed_out(unasked, 4)
    again.load_state_dict(unasked.state_dict(), env.device)
    assert [handed_out(each, 2) for each in (unasked, again)] == [[4.0, 5.0]] * 2
    unasked.clear()
    assert unasked.state_dict() == {}


def test_endings_are_those_of_counters_that_a_step_takes_down():
    generator = torch.Generator().manual_seed(0)
    horizon = 7
    # 0 and less have ended, and do so with the next
    left = torch.randint(-1, horizon + 1, (40,), generator=generator)
    endings = TimeLimits(left, horizon)
    left = left.clamp_min(1)
    for _ in range(3 * horizon):
        left = left - 1
        ended = (left == 0).nonzero()[:, 0]
        assert torch.equal(endings.step(), ended)
        left[ended] = horizon
