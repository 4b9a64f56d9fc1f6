"""The hand that points down: what it commands away from joint limits."""

import numpy as np
import pytest
import torch

import envs
from envs.controllers.pointing import point_down

GAIN = 5.0
DAMPING = 0.05


@pytest.mark.parametrize("metres", [0.01, 0.3, 10.0])
def test_however_far_the_way_a_limit_that_is_far_changes_nothing(metres):
    """The joint speeds are those of damped least squares, slowed down together: a command that is
    too fast must not count as one into a limit. At the start all joints can still stop in time.
    """
    env = envs.make("panda", "pick_place", num_envs=32, seed=4)
    env.reset(4)
    model = env.model
    generator = torch.Generator().manual_seed(5)
    way = torch.randn(32, 3, generator=generator)
    way = metres * way / way.norm(dim=1, keepdim=True)
    room = (model.qlim[:, None] - env.moment.state.q).abs().amin(0)
    assert (GAIN * room > model.qdlim).all()
    action = point_down(env.world, env.moment, way, None, GAIN, DAMPING)

    approach = env.moment.T_be[:, :3, 2].double().numpy()  # of a Panda's hand: the flange's z
    tilt = np.cross(approach, [0.0, 0.0, -1.0])[:, :2]
    twist = GAIN * np.concatenate((way.double().numpy(), tilt), 1)
    J = env.moment.J[:, :5].double().numpy()
    square = J @ J.transpose(0, 2, 1) + DAMPING**2 * np.eye(5)
    qd = (J.transpose(0, 2, 1) @ np.linalg.solve(square, twist[:, :, None]))[:, :, 0]
    fastest = torch.minimum(model.qdlim, model.dqd / model.dt / GAIN).numpy()
    qd = qd / np.maximum(np.abs(qd / fastest).max(1, keepdims=True), 1.0)
    np.testing.assert_allclose(action * model.qdlim, qd, atol=2e-4)
