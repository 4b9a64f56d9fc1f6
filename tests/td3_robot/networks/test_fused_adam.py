import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW

from td3_robot.networks.fused_adam import JointStep
from td3_robot.networks.torch_internals import load_fused_adam

ROOT = Path(__file__).resolve().parents[3]


def networks(seed=0):
    torch.manual_seed(seed)
    return nn.Linear(5, 7), nn.Linear(3, 2)


def weights(nets):
    return [p for net in nets for p in net.parameters()]


def optimizers(nets, make=Adam, lrs=(1e-2, 1e-2), **options):
    return [make(net.parameters(), lr, **options) for net, lr in zip(nets, lrs)]


def give_gradients(nets, step):
    torch.manual_seed(100 + step)
    for p in weights(nets):
        p.grad = torch.randn_like(p)


def assert_equal_steps(make=Adam, lrs=(1e-2, 1e-2), dtype=torch.float32, without=None, **options):
    """Five steps by `JointStep` and by each optimizer's own `step`, with a schedule and a reload in
    between.
    """
    ours, theirs = ([net.to(dtype) for net in networks()] for _ in range(2))
    our_optimizers, their_optimizers = (
        optimizers(nets, make, lrs, **options) for nets in (ours, theirs)
    )
    joint_step = JointStep()
    for step in range(5):
        for nets in (ours, theirs):
            give_gradients(nets, step)
            if without is not None:
                weights(nets)[without].grad = None
        if step == 3:  # a schedule, or a checkpoint that was loaded
            for optimizer in (*our_optimizers, *their_optimizers):
                optimizer.param_groups[0]["lr"] *= 0.5
            for optimizer in our_optimizers:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        joint_step(our_optimizers)
        for optimizer in their_optimizers:
            optimizer.step()
    for a, b in zip(weights(ours), weights(theirs)):
        assert torch.equal(a, b)
    for a, b in zip(our_optimizers, their_optimizers):
        for x, y in zip(a.state.values(), b.state.values(), strict=True):
            assert x.keys() == y.keys()
            assert all(
                torch.equal(x[name], y[name]) for name in x if isinstance(x[name], torch.Tensor)
            )


@pytest.mark.parametrize(
    "options",
    [
        {"fused": True},
        {"fused": True, "lrs": (1e-2, 3e-3)},
        {"fused": True, "weight_decay": 0.1, "betas": (0.8, 0.99), "eps": 1e-4, "maximize": True},
        {"fused": True, "dtype": torch.float64},
        {"fused": True, "without": 1},  # a weight that no loss reaches
        {"fused": True, "amsgrad": True},
        {"fused": False},
        {"foreach": True},
        {"make": AdamW, "fused": True, "weight_decay": 0.1},
        {"make": SGD, "momentum": 0.9},
    ],
    ids=str,
)
def test_equal_to_each_optimizer_s_own_step(options):
    assert_equal_steps(**options)


def refuses(*arguments, **options):
    raise TypeError("another signature")


@pytest.mark.parametrize("entry", [None, refuses, lambda *arguments, **options: None])
def test_without_torch_s_undocumented_entry_every_optimizer_takes_its_own_step(monkeypatch, entry):
    """Missing, with another signature or with another meaning."""
    if entry is None:
        monkeypatch.delattr(torch, "_fused_adam_")
    else:
        monkeypatch.setattr(torch, "_fused_adam_", entry)
    load_fused_adam.cache_clear()
    try:
        assert load_fused_adam() is None
        monkeypatch.undo()  # PyTorch's own step needs it
        assert_equal_steps(fused=True)
    finally:
        load_fused_adam.cache_clear()


def test_the_joint_step_is_taken_where_it_can_be(monkeypatch):
    """Else the tests above would hold two ordinary steps to each other."""
    nets = networks()
    both = optimizers(nets, fused=True)
    joint_step = JointStep()
    for step in range(2):
        give_gradients(nets, step)
        joint_step(both)
        for optimizer in both:
            monkeypatch.setattr(
                optimizer, "step", lambda: pytest.fail("an optimizer took its own step")
            )


def test_learning_leaves_the_compiler_alone_and_the_compiler_still_works():
    """Importing it takes longer than all else that an agent needs."""
    script = (
        "import sys, torch\n"
        "from td3_robot import TD3, Batch\n"
        "agent = TD3(3, 2, hidden=(8,), policy_delay=1)\n"
        "rows = [torch.randn(4, width) for width in (3, 2, 1, 3, 1)]\n"
        "for _ in range(3): agent.update(Batch(*rows))\n"
        "agent.load_state_dicts(agent.state_dicts())\n"
        "print('torch._dynamo' in sys.modules)\n"
        "import torch._dynamo\n"
        "torch.compile(lambda x: agent.actor(x), backend='eager')(rows[0])\n"
        "agent.update(Batch(*rows))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
    assert done.returncode == 0, done.stderr
