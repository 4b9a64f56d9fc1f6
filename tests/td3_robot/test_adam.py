import copy

import pytest
import torch
from torch import nn

from td3_robot.adam import adam_step


def networks(seed=0):
    torch.manual_seed(seed)
    return nn.Linear(5, 7), nn.Linear(3, 2)


def weights(nets):
    return [p for net in nets for p in net.parameters()]


def optimizers(nets, fused=True, lrs=(1e-2, 1e-2)):
    return [torch.optim.Adam(net.parameters(), lr, fused=fused) for net, lr in zip(nets, lrs)]


@pytest.mark.parametrize("fused, lrs", [(True, (1e-2, 1e-2)), (True, (1e-2, 3e-3)), (False, (1e-2, 1e-2))])
def test_equal_to_each_optimizer_s_own_step(fused, lrs):
    ours, theirs = networks(), networks()
    our_optimizers, their_optimizers = optimizers(ours, fused, lrs), optimizers(theirs, fused, lrs)
    for step in range(5):
        torch.manual_seed(100 + step)
        for p, q in zip(
            (*ours[0].parameters(), *ours[1].parameters()), (*theirs[0].parameters(), *theirs[1].parameters())
        ):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        if step == 3:  # a schedule, or a checkpoint that was loaded
            for optimizer in (*our_optimizers, *their_optimizers):
                optimizer.param_groups[0]["lr"] *= 0.5
            for optimizer in our_optimizers:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        adam_step(our_optimizers)
        for optimizer in their_optimizers:
            optimizer.step()
    for a, b in zip(weights(ours), weights(theirs)):
        assert torch.equal(a, b)
    for a, b in zip(our_optimizers, their_optimizers):
        for x, y in zip(a.state.values(), b.state.values()):
            assert all(torch.equal(x[name], y[name]) for name in ("step", "exp_avg", "exp_avg_sq"))
