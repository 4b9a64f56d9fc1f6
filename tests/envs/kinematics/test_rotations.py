"""Rotations: round trips, and agreement with scipy, over random rotations and those where formulas
break.
"""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from envs.kinematics.rotations import (
    from_vector,
    rotation_error,
    rotation_vector,
    to_matrix,
    to_quaternion,
)

ANGLES = {
    "none": 0.0,
    "tiny": 1e-5,
    "small": 1e-3,
    "right": math.pi / 2,
    "almost half a turn": math.pi - 1e-3,
    "half a turn": math.pi,
}


def vectors(angle: float, dtype=torch.float64) -> torch.Tensor:
    """(106, 3) rotation vectors of an angle [rad], about random axes and along those of the
    frame.
    """
    generator = torch.Generator().manual_seed(0)
    axes = torch.cat(
        (torch.randn(100, 3, generator=generator, dtype=torch.float64), torch.eye(3), -torch.eye(3))
    )
    return (angle * axes / axes.norm(dim=1, keepdim=True)).to(dtype)


def scipy_matrix(vectors: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(Rotation.from_rotvec(vectors.numpy()).as_matrix())


@pytest.fixture(scope="module")
def random() -> Rotation:
    return Rotation.random(1000, random_state=0)


def test_quaternions_are_those_of_scipy_with_w_first_and_positive(random):
    quaternion = to_quaternion(torch.from_numpy(random.as_matrix()))
    np.testing.assert_allclose(
        quaternion, random.as_quat(canonical=True, scalar_first=True), atol=1e-12
    )
    assert (quaternion[:, 0] >= 0).all()


def test_matrices_are_those_of_scipy(random):
    quaternion = torch.from_numpy(random.as_quat(scalar_first=True))
    np.testing.assert_allclose(to_matrix(quaternion), random.as_matrix(), atol=1e-12)
    assert torch.equal(to_matrix(quaternion), to_matrix(-quaternion))  # the same rotation


def test_rotation_vectors_are_those_of_scipy(random):
    np.testing.assert_allclose(
        rotation_vector(torch.from_numpy(random.as_matrix())), random.as_rotvec(), atol=1e-9
    )


@pytest.mark.parametrize("angle", ANGLES.values(), ids=ANGLES)
def test_round_trips_at_every_angle(angle):
    R = scipy_matrix(vectors(angle))
    torch.testing.assert_close(to_matrix(from_vector(vectors(angle))), R, atol=1e-12, rtol=0)
    quaternion = to_quaternion(R)
    torch.testing.assert_close(quaternion.norm(dim=1), torch.ones(106, dtype=torch.float64))
    torch.testing.assert_close(to_matrix(quaternion), R, atol=1e-12, rtol=0)
    found = rotation_vector(R)
    torch.testing.assert_close(
        found.norm(dim=1), torch.full((106,), angle, dtype=torch.float64), atol=1e-7, rtol=0
    )
    if angle < math.pi:  # at half a turn both signs of the axis are right
        torch.testing.assert_close(found, vectors(angle), atol=1e-7, rtol=0)
    torch.testing.assert_close(scipy_matrix(found), R, atol=1e-7, rtol=0)


@pytest.mark.parametrize("angle", ANGLES.values(), ids=ANGLES)
def test_single_precision_is_good_to_a_thousandth_of_a_degree_and_never_above_half_a_turn(angle):
    found = rotation_vector(scipy_matrix(vectors(angle)).float())
    assert torch.isfinite(found).all() and found.dtype == torch.float32
    assert (found.norm(dim=1) - angle).abs().max() < 2e-5
    assert found.norm(dim=1).max() <= math.pi + 1e-6


def test_the_error_turns_one_orientation_into_the_other_in_the_frame_of_both(random):
    R = torch.from_numpy(random.as_matrix())
    R_goal = torch.from_numpy(random.as_matrix()).roll(1, 0)
    error = rotation_error(R, R_goal)
    torch.testing.assert_close(scipy_matrix(error) @ R, R_goal, atol=1e-9, rtol=0)
    assert (error.norm(dim=1) <= math.pi + 1e-9).all()
    torch.testing.assert_close(rotation_error(R_goal, R), -error, atol=1e-9, rtol=0)
    assert rotation_error(R, R).abs().max() < 1e-7


def test_by_hand():
    """A quarter turn about z takes x to y."""
    R = torch.tensor([[[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]])
    torch.testing.assert_close(
        to_quaternion(R), torch.tensor([[math.sqrt(0.5), 0, 0, math.sqrt(0.5)]])
    )
    torch.testing.assert_close(rotation_vector(R), torch.tensor([[0.0, 0, math.pi / 2]]))
    torch.testing.assert_close(
        to_matrix(torch.tensor([[0.0, 1, 0, 0]])), torch.diag(torch.tensor([1.0, -1, -1]))[None]
    )
