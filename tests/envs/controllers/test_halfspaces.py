"""Half-spaces: the two methods end where they should, and leave what they are given."""

import pytest
import qpsolvers
import torch
from torch.testing import assert_close

from envs.controllers.halfspaces import HalfSpaces, project_agmon, project_hildreth


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def spaces():
    """Five half-spaces for each of 20 arms that all hold the origin, the last without a say."""
    h = draw(20, 5, seed=1).abs()
    h[:, 4] = torch.inf
    return HalfSpaces(draw(20, 5, 7), h)


def test_hildreth_finds_the_nearest_point_in_the_measure_that_it_is_given(spaces):
    qd = 3.0 * draw(20, 7, seed=2)
    root = draw(20, 7, 7, seed=3)
    M = root @ root.mT + torch.eye(7)
    found = project_hildreth(spaces, qd, torch.linalg.inv(M), sweeps=3000)
    for G, h, wanted, measure, x in zip(spaces.G[:, :4], spaces.h[:, :4], qd, M, found):
        arrays = (value.numpy() for value in (measure, -measure @ wanted, G, h))
        best = torch.from_numpy(qpsolvers.solve_qp(*arrays, solver="quadprog"))
        assert_close(x, best, atol=1e-5, rtol=0)


def test_agmon_ends_inside_whatever_can_be_met_and_never_leaves_the_bounds(spaces):
    qd = 3.0 * draw(20, 7, seed=2)
    bounds = (torch.full((20, 7), -2.0).double(), torch.full((20, 7), 2.0).double())
    inside = project_agmon(spaces, qd, torch.ones(7), bounds, sweeps=2000)
    assert ((spaces.G @ inside[:, :, None])[:, :, 0] <= spaces.h + 1e-4).all() and (
        inside.abs() <= 2.0
    ).all()
    wall = HalfSpaces(spaces.G, spaces.h - 100.0)  # not to be met within the bounds
    assert (project_agmon(wall, qd, torch.ones(7), bounds, sweeps=3).abs() <= 2.0).all()


@pytest.mark.parametrize("count", [1, 20])
def test_a_velocity_inside_stays_and_one_outside_is_copied_not_changed(spaces, count):
    spaces = HalfSpaces(spaces.G[:count], spaces.h[:count])
    far = (draw(count, 7) * 0 - 9.0, draw(count, 7) * 0 + 9.0)
    methods = (
        lambda qd: project_hildreth(spaces, qd, torch.eye(7).double(), sweeps=3),
        lambda qd: project_agmon(spaces, qd, torch.ones(7), far, sweeps=3),
    )
    for moved in methods:
        still = torch.zeros(count, 7).double()
        qd = 10.0 * spaces.G[:, 0]
        before = qd.clone()
        assert_close(moved(still), still)
        assert (moved(qd) != qd).any() and (qd == before).all()
