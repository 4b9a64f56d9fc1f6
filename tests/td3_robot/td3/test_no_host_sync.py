"""Drawing a batch and learning from it never waits for the device: nothing is read back, no shape
depends on data.
"""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from td3_robot import TD3
from td3_robot.replay import NStep, Prioritized, ReplayBuffer

WAITS = (
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "is_nonzero",
    "equal",
    "unique",
    "allclose",
    "item",
)


class Watch(TorchDispatchMode):
    """Remembers operations that need their result on the host."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name = operation.overloadpacket.__name__
        if name in WAITS or (name.startswith("index") and any(self._mask(a) for a in args)):
            self.seen.append(name)
        return operation(*args, **(kwargs or {}))

    def _mask(self, argument) -> bool:
        """Whether an index is a mask, whose number of rows only the data knows."""
        indices = argument if isinstance(argument, (list, tuple)) else [argument]
        return any(
            isinstance(index, torch.Tensor) and index.dtype == torch.bool for index in indices
        )


def test_the_watch_sees_what_waits():
    x = torch.arange(3.0)
    for wait in (
        lambda: x[0].item(),
        lambda: bool((x > 1).any()),
        lambda: x[x > 1],
        lambda: float(x.sum()),
    ):
        with Watch() as watch:
            wait()
        assert watch.seen


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"twin_critics": False, "policy_noise": 0.0},
        {"norm": "layer", "critic_grad_clip": 1.0, "actor_grad_clip": 1.0, "actor_min_q": True},
        {"atoms": 11, "v_min": -1.0, "v_max": 1.0},
        {"bc_alpha": 2.5, "normalize_observations": True},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "sampler, reader", [(None, None), (Prioritized(0.6, 0.4), NStep(3, 0.9))], ids=["one", "n"]
)
def test_an_update_waits_for_nothing(options, sampler, reader):
    agent = TD3(3, 2, hidden=(16,), policy_delay=1, **options)
    replay = ReplayBuffer(100, 5, 3, 2, "cpu", torch.Generator(), sampler=sampler, reader=reader)
    flags = torch.zeros(5, dtype=torch.bool)
    for _ in range(10):
        replay.add(
            torch.randn(5, 3), torch.rand(5, 2), torch.randn(5), torch.randn(5, 3), flags, flags
        )
    agent.observe(torch.randn(50, 3))
    agent.update(replay.sample(32))  # what is made on first use
    with Watch() as watch:
        metrics = agent.update(replay.sample(32))
        if "td_error" in metrics:
            replay.update_priorities(metrics["td_error"])
    assert watch.seen == []
