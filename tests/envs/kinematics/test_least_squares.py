"""Products of many small matrices: what the batched form computes is what `torch.bmm` does."""

import pytest
import torch
from torch.testing import assert_close

from envs.kinematics.least_squares import LEAST_WORK, damped_least_squares, multiply_small


@pytest.mark.parametrize("batch_last", [False, True])
@pytest.mark.parametrize("sizes", [(6, 7, 6), (7, 6, 1), (3, 7, 3), (1, 1, 1)])
@pytest.mark.parametrize("count", [1, 37, LEAST_WORK + 1])
def test_the_product_is_that_of_each_pair(sizes, count, batch_last):
    m, k, n = sizes
    generator = torch.Generator().manual_seed(count)
    A = torch.randn(count, m, k, generator=generator)
    B = torch.randn(count, k, n, generator=generator)
    if batch_last:  # as Jacobians lie
        A, B = (x.permute(1, 2, 0).contiguous().permute(2, 0, 1) for x in (A, B))
    assert_close(multiply_small(A, B), torch.bmm(A, B), rtol=0, atol=1e-6 * k)


def test_many_equations_are_solved_as_few_are():
    J = torch.randn(3000, 6, 7, generator=torch.Generator().manual_seed(0))
    velocity = torch.ones(3000, 6)
    few = [damped_least_squares(*each, 0.1) for each in zip(J.split(10), velocity.split(10))]
    assert_close(damped_least_squares(J, velocity, 0.1), torch.cat(few), rtol=1e-5, atol=1e-6)
