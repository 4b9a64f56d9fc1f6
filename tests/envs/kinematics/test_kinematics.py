"""Batched kinematics against roboticstoolbox, against finite differences, and against a drawing of
the Panda.
"""

import numpy as np
import pytest
import roboticstoolbox as rtb
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from spatialmath import SE3

from envs.kinematics import compile_ets, fkine, fkine_jacob0, jacob0, link_frames


@pytest.fixture(scope="module")
def panda():
    """The reference model and 1,000 joint positions spread over its limits."""
    model = rtb.models.Panda()
    lower, upper = model.qlim
    return model, np.random.default_rng(0).uniform(lower, upper, (1000, 7))


def reference_fkine(ets, q: np.ndarray) -> np.ndarray:
    return np.stack([ets.fkine(row).A for row in q])


def reference_jacob0(ets, q: np.ndarray) -> np.ndarray:
    return np.stack([ets.jacob0(row) for row in q])


def rotation_angle(R: np.ndarray) -> np.ndarray:
    """Of each (3, 3), precise near zero [rad]."""
    twice_sin = np.stack(
        (R[:, 2, 1] - R[:, 1, 2], R[:, 0, 2] - R[:, 2, 0], R[:, 1, 0] - R[:, 0, 1]), 1
    )
    return np.arctan2(np.linalg.norm(twice_sin, axis=1), np.trace(R, axis1=1, axis2=2) - 1)


def test_panda_fkine_is_roboticstoolboxs(panda):
    model, q = panda
    T = fkine(compile_ets(model.ets()), torch.tensor(q, dtype=torch.float32)).double().numpy()
    expected = reference_fkine(model.ets(), q)
    assert np.linalg.norm(T[:, :3, 3] - expected[:, :3, 3], axis=1).max() < 1e-5
    assert rotation_angle(T[:, :3, :3].transpose(0, 2, 1) @ expected[:, :3, :3]).max() < 1e-5
    assert (T[:, 3] == [0, 0, 0, 1]).all()


def test_panda_jacobian_is_roboticstoolboxs(panda):
    model, q = panda
    J = jacob0(compile_ets(model.ets()), torch.tensor(q, dtype=torch.float32))
    np.testing.assert_allclose(J, reference_jacob0(model.ets(), q), atol=1e-5)


def test_panda_stretched_out_stands_as_its_drawing_says():
    """Franka's sheet of DH parameters: d1 0.333, d3 0.316, d5 0.384, flange 0.107, a7 0.088; the
    hand adds 0.1034 m.
    """
    T = fkine(compile_ets(rtb.models.Panda().ets()), torch.zeros(1, 7))[0]
    torch.testing.assert_close(
        T[:3, 3], torch.tensor([0.088, 0.0, 0.333 + 0.316 + 0.384 - 0.107 - 0.1034])
    )
    # the hand points down
    torch.testing.assert_close(T[:3, 2], torch.tensor([0.0, 0.0, -1.0]), atol=1e-6, rtol=0)


def finite_difference_jacob0(chain, q: torch.Tensor, h: float = 1e-6) -> torch.Tensor:
    """Central differences of the position, and of the rotation through dR R^T = [w]."""
    columns = []
    for i in range(chain.n):
        dq = torch.zeros_like(q)
        dq[:, i] = h
        ahead = fkine(chain, q + dq)
        behind = fkine(chain, q - dq)
        T = fkine(chain, q)
        dT = (ahead - behind) / (2 * h)
        W = dT[:, :3, :3] @ T[:, :3, :3].transpose(1, 2)
        columns.append(
            torch.cat((dT[:, :3, 3], torch.stack((W[:, 2, 1], W[:, 0, 2], W[:, 1, 0]), 1)), 1)
        )
    return torch.stack(columns, 2)


def test_panda_jacobian_is_the_derivative_of_fkine(panda):
    model, q = panda
    chain = compile_ets(model.ets(), torch.float64)
    q = torch.tensor(q[:100])
    torch.testing.assert_close(
        jacob0(chain, q), finite_difference_jacob0(chain, q), atol=1e-8, rtol=0
    )


def test_both_at_once_are_the_same_as_each(panda):
    chain = compile_ets(panda[0].ets())
    q = torch.tensor(panda[1], dtype=torch.float32)
    T, J = fkine_jacob0(chain, q)
    assert torch.equal(T, fkine(chain, q)) and torch.equal(J, jacob0(chain, q))


def test_batched_equals_looped(panda):
    chain = compile_ets(panda[0].ets())
    q = torch.tensor(panda[1][:50], dtype=torch.float32)
    for function in (fkine, jacob0):
        looped = torch.cat([function(chain, row[None]) for row in q])
        torch.testing.assert_close(function(chain, q), looped, atol=1e-6, rtol=0)


def test_a_batch_of_any_layout_will_do(panda):
    chain = compile_ets(panda[0].ets())
    q = torch.tensor(panda[1][:6], dtype=torch.float32)
    transposed = q.T.contiguous().T
    assert not transposed.is_contiguous()
    assert torch.equal(fkine(chain, transposed), fkine(chain, q))
    assert fkine(chain, q[:0]).shape == (0, 4, 4) and jacob0(chain, q[:0]).shape == (0, 6, 7)


# Chains of every kind

angles = st.floats(-3, 3)
lengths = st.floats(-1, 1)
AXES = ("Rx", "Ry", "Rz", "tx", "ty", "tz")
joints = st.builds(
    lambda kind, flip: getattr(rtb.ET, kind)(flip=flip), st.sampled_from(AXES), st.booleans()
)
constants = st.one_of(
    st.builds(lambda kind, value: getattr(rtb.ET, kind)(value), st.sampled_from(AXES), lengths),
    st.builds(
        lambda r, p, y, x: rtb.ET.SE3(SE3.Trans(x, -x, 0.3) * SE3.RPY(r, p, y)),
        angles,
        angles,
        angles,
        lengths,
    ),
)


@st.composite
def chains(draw) -> rtb.ETS:
    """1 to 10 joints about or along any axis, some flipped, with up to two constants around
    each.
    """
    parts = draw(st.lists(constants, max_size=2))
    for joint in draw(st.lists(joints, min_size=1, max_size=10)):
        parts += [joint, *draw(st.lists(constants, max_size=2))]
    ets = rtb.ETS()
    for part in parts:
        ets = ets * part
    return ets


@settings(max_examples=150)
@given(chains(), st.integers(0, 2**31))
def test_any_serial_chain_is_as_roboticstoolbox_has_it(ets, seed):
    q = np.random.default_rng(seed).uniform(-3, 3, (4, ets.n))
    chain = compile_ets(ets, torch.float64)
    assert chain.n == ets.n
    np.testing.assert_allclose(fkine(chain, torch.tensor(q)), reference_fkine(ets, q), atol=1e-10)
    np.testing.assert_allclose(jacob0(chain, torch.tensor(q)), reference_jacob0(ets, q), atol=1e-10)
    single = fkine(chain.to(dtype=torch.float32), torch.tensor(q, dtype=torch.float32))
    np.testing.assert_allclose(single, reference_fkine(ets, q), atol=1e-4)


def test_a_joint_turns_about_its_own_axis_and_a_flipped_one_against_it():
    for row, kind in enumerate(("tx", "ty", "tz", "Rx", "Ry", "Rz")):
        for flip, sign in ((False, 1.0), (True, -1.0)):
            J = jacob0(compile_ets(rtb.ETS([getattr(rtb.ET, kind)(flip=flip)])), torch.zeros(1, 1))[
                0, :, 0
            ]
            assert torch.equal(J, sign * torch.eye(6)[row]), (kind, flip)


def test_joints_out_of_order_are_refused():
    ets = rtb.ETS([rtb.ET.Rz(jindex=1), rtb.ET.tx(0.5), rtb.ET.Rz(jindex=0)])
    with pytest.raises(ValueError, match="index 1"):
        compile_ets(ets)


def test_link_frames_stand_on_the_joints_axes_and_end_at_the_tcp(panda):
    """Frame i, after i joints: its axis and origin are joint i's, and the joints from i on leave it
    where it is.
    """
    model, q = panda
    chain = compile_ets(model.ets(), torch.float64)
    q = torch.tensor(q[:50])
    frames = torch.stack(link_frames(chain, q))  # (n+1, 3, 4, B)
    torch.testing.assert_close(frames[-1].permute(2, 0, 1), fkine(chain, q)[:, :3])
    lever = frames[-1, :, 3] - frames[:-1, :, 3]  # (n, 3, B)
    velocity = torch.linalg.cross(frames[:-1, :, 2], lever, dim=1).permute(2, 1, 0)
    torch.testing.assert_close(velocity, jacob0(chain, q)[:, :3])
    for i in range(chain.n + 1):
        later = q.clone()
        later[:, i:] += 0.5
        torch.testing.assert_close(link_frames(chain, later)[i], frames[i])
