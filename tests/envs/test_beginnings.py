"""Episodes begun ahead: handed out once each, in the order they were made, and no more made than is needed."""

import pytest
import torch

import envs
from envs.beginnings import Beginnings


@pytest.fixture(scope="module")
def env():
    return envs.make("panda", "reach", num_envs=2)


class Counted:
    """Makes beginnings whose observations are numbered, and remembers how many it was asked for."""

    def __init__(self, env):
        self._env, self.asked = env, []

    def __call__(self, count):
        begun = self._env._begin(count)
        begun.observation[:, 0] = torch.arange(count) + float(sum(self.asked))
        self.asked.append(count)
        return begun


@pytest.mark.parametrize("block, asked", [(4, [4, 4, 4]), (0, [1, 2, 3, 6])])
def test_each_is_handed_out_once_and_in_order(env, block, asked):
    made = Counted(env)
    beginnings = Beginnings(made, block)
    taken = [beginnings.take(count) for count in (1, 2, 0, 3, 6)]
    assert torch.cat([begun.observation[:, 0] for begun in taken]).tolist() == list(range(12))
    assert [len(begun.true.steps) for begun in taken] == [1, 2, 0, 3, 6] and made.asked == asked


def test_what_is_left_comes_back(env):
    made = Counted(env)
    left, again = (Beginnings(made, 5) for _ in range(2))
    again.load_state_dict(left.state_dict(), env.device)
    left.take(3)
    again.load_state_dict(left.state_dict(), env.device)
    expected, found = left.take(2), again.take(2)
    assert found.observation[:, 0].tolist() == [3.0, 4.0] and len(made.asked) == 1
    torch.testing.assert_close(found.true.tensors(), expected.true.tensors(), rtol=0, atol=0)
    torch.testing.assert_close(found.known.tensors(), expected.known.tensors(), rtol=0, atol=0)
    assert left.state_dict() == {}


def test_what_is_forgotten_is_not_handed_out(env):
    beginnings = Beginnings(Counted(env), 5)
    beginnings.take(2)
    beginnings.clear()
    assert beginnings.take(1).observation[0, 0] == 5.0
