"""Recorded gradient steps are the steps themselves: on a tape, a CUDA graph's stand-in, to the
bit.
"""

import copy
import dataclasses
import functools
import signal

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam

from td3_robot import TD3
from td3_robot.config.run import ScheduleConfig, TD3Config
from td3_robot.networks.mlp import MLP
from td3_robot.td3.agent import UpdateSchedule
from td3_robot.td3.cuda_graph import WARM_UP, CudaGraphCapture, CudaGraphUpdates
from tests.support import get_refusal
from tests.tape import Tape, Tapes
from tests.td3_robot.td3.test_agent import batch_of

LR = 2**-8  # the same in float32, in which it is recorded
WIDTHS = {"hidden": (16,), "critic_hidden": (12,)}


def agent_of(**options) -> TD3:
    return TD3(3, 2, (1.0, 0.1), seed=1, **{"actor_lr": LR, "critic_lr": LR, **WIDTHS, **options})


class Pair:
    """An agent whose steps are recorded and its twin, whose are not; both get the same."""

    def __init__(self, assert_same, **options):
        self.ours = agent_of(**options)
        self.twin = agent_of(**options)
        self.tapes = Tapes()
        self.update = CudaGraphUpdates(self.ours, self.tapes)
        self._assert_same = assert_same

    def step(self, *seeds, rows=32, **more):
        """An update of both with each of these batches, which is the same in all that it gives and
        leaves.
        """
        for seed in seeds:
            batch = batch_of(rows, seed=seed)._replace(
                **{name: make(rows, seed) for name, make in more.items()}
            )
            mine = self.update(batch)
            theirs = self.twin.update(batch)
            self._assert_same(mine, theirs)
            self._assert_same(self.ours.state_dicts(), self.twin.state_dicts())
            assert torch.equal(self.ours.generator.get_state(), self.twin.generator.get_state())
            assert self.ours.gradient_steps == self.twin.gradient_steps
            assert self.ours.actor_trained == self.twin.actor_trained
        return mine

    def both(self, change):
        for agent in (self.ours, self.twin):
            change(agent)


@pytest.fixture
def pair(assert_same):
    return functools.partial(Pair, assert_same)


def column(rows, seed):
    return torch.rand(rows, 1, generator=torch.Generator().manual_seed(seed)) + 0.1


# The same to the bit


@pytest.mark.parametrize(
    "options",
    [
        {},  # the paper's
        {"policy_delay": 1},
        {"policy_delay": 3, "burn_in": 8},
        {"policy_noise": 0.0},
        {"twin_critics": False},
        {"actor_min_q": True, "action_l2": 0.1},
        {"critic": "crossq"},
        {"atoms": 11, "v_min": -2.0, "v_max": 2.0},
        {"r_min": -1.0, "r_max": 0.5},
        {"critic_grad_clip": 0.1, "actor_grad_clip": 0.01},
        {"norm": "layer"},
        {"norm": "batch"},
        {"norm": "renorm", "critic": "crossq", "actor_min_q": True},
        {"norm": "renorm", "critic": "crossq", "policy": "actor_target", "weight_norm": True},
        {"residual_at": 1, "final_bound": 0.1},
        {"bc_alpha": 2.5},
        {"bc_alpha": 2.5, "bc_filter": True},
        {"optimizer": lambda weights, lr: Adam(weights, lr, weight_decay=0.125, fused=True)},
    ],
    ids=lambda options: ", ".join(
        map(str, options)
    ),  # of names: a function has another address in every process
)
def test_replayed_updates_are_eager_ones(pair, options):
    both = pair(**options)
    both.step(*range(20))
    assert both.tapes.recorded == len(dues(options))
    assert both.tapes.replayed == 20 - both.tapes.warmed > 0


def dues(options: dict) -> set[UpdateSchedule]:
    """What is due in more than the first three of 20 updates."""
    delay = options.get("policy_delay", 2)
    burn_in = options.get("burn_in", 0)
    found = [
        UpdateSchedule(step % delay == 0, step % delay == 0 and step > burn_in)
        for step in range(1, 21)
    ]
    return {due for due in found if found.count(due) > WARM_UP}


@pytest.mark.parametrize(
    "more", [{"weight": column}, {"discount": column}, {"weight": column, "discount": column}]
)
def test_weights_and_discounts_of_a_batch_are_read_anew(pair, more):
    both = pair()
    metrics = both.step(*range(12), **more)
    assert ("td_error" in metrics) == ("weight" in more)


def test_learning_rates_are_read_anew(pair):
    both = pair()
    for step in range(16):
        both.both(lambda agent, factor=0.5**step: agent.scale_learning_rates(factor))
        both.step(step)
    assert both.tapes.recorded == 2
    still = copy.deepcopy(both.ours.actor.state_dict())
    both.both(lambda agent: agent.scale_learning_rates(0.0))
    both.step(16, 17)
    assert all(
        torch.equal(still[name], value) for name, value in both.ours.actor.state_dict().items()
    )


def test_other_learning_rates_are_rounded_to_float32(pair, assert_same):
    ours = agent_of(critic_lr=1e-3, actor_lr=3e-4)
    twin = agent_of(critic_lr=1e-3, actor_lr=3e-4)
    update = CudaGraphUpdates(ours, Tapes())
    for seed in range(12):
        update(batch_of(32, seed=seed))
        twin.update(batch_of(32, seed=seed))
    for mine, theirs in zip(ours.Q1.parameters(), twin.Q1.parameters()):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_statistics_of_observations_are_read_anew(pair):
    both = pair(normalize_observations=True)
    for step in range(12):
        both.both(lambda agent, step=step: agent.observe(batch_of(8, seed=100 + step).state))
        both.step(step)


def test_every_replay_draws_noise_of_its_own(pair):
    both = pair(actor_lr=2**-120, critic_lr=2**-120, policy_delay=1, tau=1e-30)
    metrics = [both.step(0)["Q1_loss"].item() for _ in range(10)]
    assert len(set(metrics)) == 10  # nothing moves, the batch is the same


def test_metrics_are_the_callers(pair):
    both = pair(policy_delay=1)
    both.step(*range(4))
    first = both.update(batch_of(32, seed=0))
    kept = {name: value.clone() for name, value in first.items()}
    both.update(batch_of(32, seed=1))
    assert all(torch.equal(first[name], value) for name, value in kept.items())


def test_batches_of_several_kinds_take_turns(pair):
    both = pair(policy_delay=1)
    for step in range(12):
        both.step(step)
        both.step(step, rows=7)
        both.step(step, weight=column)
    assert both.tapes.recorded == 3


def test_steps_that_are_not_recorded_may_come_between(pair):
    both = pair()
    for step in range(12):
        both.step(step)
        both.both(lambda agent, factor=0.5**step: agent.scale_learning_rates(factor))
        both.both(lambda agent, step=step: agent.update(batch_of(32, seed=step)))


# What makes a record stale


def new_actor(agent):
    agent.actor = copy.deepcopy(agent.actor)
    agent.actor_optimizer = Adam(agent.actor.parameters(), LR, fused=True)


def new_generator(agent):
    agent.generator = torch.Generator().manual_seed(7)


def moved_weights(agent):
    for weight in agent.Q2.parameters():
        weight.data = weight.data.clone()


def other_momentum(agent):
    for optimizer in (agent.Q1_optimizer, agent.Q2_optimizer):
        optimizer.param_groups[0]["betas"] = (0.5, 0.999)


CHANGES = {
    "loaded": lambda agent: agent.load_state_dicts(copy.deepcopy(agent_of().state_dicts())),
    "loaded with moments": lambda agent: agent.load_state_dicts(copy.deepcopy(agent.state_dicts())),
    "another actor": new_actor,
    "another generator": new_generator,
    "weights elsewhere": moved_weights,
    "another momentum": other_momentum,
    "another term": lambda agent: agent.actor_terms.append(
        lambda step: step.action.square().mean()
    ),
    "other options": lambda agent: setattr(
        agent, "config", dataclasses.replace(agent.config, tau=0.5)
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_agent_that_was_changed_is_recorded_anew(pair, change):
    both = pair()
    both.step(*range(10))
    assert both.tapes.recorded == 2
    both.both(CHANGES[change])
    both.step(*range(10, 20))
    assert both.tapes.recorded == 4


def test_a_checkpoint_of_recorded_steps_is_like_any_other(pair, tmp_path, assert_same):
    both = pair()
    both.step(*range(11))
    both.ours.save(tmp_path / "one")
    read = TD3.from_checkpoint(tmp_path / "one")
    assert_same(read.state_dicts(), both.twin.state_dicts())
    both.step(*range(11, 15))
    both.both(lambda agent: agent.load(tmp_path / "one"))
    both.step(*range(15, 25))
    assert both.tapes.recorded == 4


# What is refused


def test_a_cpu_has_no_cuda_graphs():
    assert (
        get_refusal(CudaGraphUpdates, agent_of())
        == "cuda_graph needs device cuda or cuda:N, got 'cpu'"
    )


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda weights, lr: SGD(weights, lr),
        lambda weights, lr: Adam(weights, lr, foreach=True),
        lambda weights, lr: Adam(weights, lr, fused=True, amsgrad=True),
    ],
)
def test_optimizers_that_take_their_own_step_are_refused(optimizer):
    message = get_refusal(CudaGraphUpdates, agent_of(optimizer=optimizer), Tapes())
    assert message.startswith("cuda_graph needs optimizers that are plain fused Adam")


def test_critics_that_came_to_differ_are_refused(pair):
    both = pair()
    both.step(*range(10))
    both.ours.Q2_optimizer.param_groups[0]["lr"] = 1.0
    assert "of both critics with the same options" in get_refusal(both.update, batch_of(32))


class Reads(nn.Module):
    """A network that asks the device for a number."""

    def __init__(self, *widths):
        super().__init__()
        self.net = MLP(*widths, output_activation=None, hidden=(4,))

    def forward(self, x):
        return self.net(x) * (2.0 if x.sum().item() > 0 else 1.0)


def test_a_step_that_waits_for_the_device_is_refused_in_one_line():
    agent = agent_of(
        networks=lambda o, a, a_max, values, config: (
            MLP(o, a, a_max),
            Reads(o + a, 1),
            Reads(o + a, 1),
        )
    )
    update = CudaGraphUpdates(agent, Tapes())
    for _ in range(2 * WARM_UP):
        update(batch_of(32))
    message = get_refusal(update, batch_of(32))
    assert message.startswith("cuda_graph: the step cannot be recorded, leave cuda_graph out: ")


# A training


@pytest.fixture
def taped(monkeypatch):
    """Trainings with `cuda_graph` are recorded on these tapes."""
    tapes = Tapes()
    monkeypatch.setattr(
        "td3_robot.training.trainer.CudaGraphUpdates",
        functools.partial(CudaGraphUpdates, capture=tapes),
    )
    return tapes


@pytest.mark.usefixtures("no_fsync")
def test_a_training_is_the_same_recorded_or_not_and_may_change_that_when_it_is_resumed(
    tmp_path, train, taped, assert_same
):
    options = {
        "td3": TD3Config(hidden=(16,), actor_lr=LR, critic_lr=LR),
        "schedule": ScheduleConfig(),
    }
    # the agent stays where the tests are
    on_gpu = {**options, "device": "cuda", "cuda_graph": True}
    plain = train(tmp_path / "plain", **options)
    whole = train(tmp_path / "whole", **on_gpu)
    plain.run()
    whole.run()
    assert taped.recorded == 2 and taped.replayed == whole.agent.gradient_steps - taped.warmed > 0
    assert_same(whole.agent.state_dicts(), plain.agent.state_dicts())
    for number, sittings in enumerate(((on_gpu, options), (options, on_gpu), (on_gpu, on_gpu))):
        folder = tmp_path / str(number)
        first = train(
            folder,
            on_step=[lambda made: made == 204 and signal.raise_signal(signal.SIGINT)],
            **sittings[0],
        )
        assert not first.run()["finished"]
        second = train(folder, agent_seed=9, **sittings[1])
        second.resume()
        assert second.run()["finished"]
        assert_same(second.agent.state_dicts(), plain.agent.state_dicts())


# The stand-in, and the real one


def test_recording_computes_nothing_and_leaves_all_as_it_was(assert_same):
    agent = agent_of(critic="crossq")
    agent.update(batch_of(32))
    agent.update(batch_of(32))
    before = copy.deepcopy(agent.state_dicts())
    noise = agent.generator.get_state()
    batch = batch_of(32)
    with Tape() as tape:
        metrics = agent.learn(batch, UpdateSchedule(True, True))
    assert_same(agent.state_dicts(), before)
    assert torch.equal(agent.generator.get_state(), noise) and all(
        value.isnan() for value in metrics.values()
    )
    tape.replay()
    assert not any(value.isnan() for value in metrics.values())
    assert not torch.equal(agent.generator.get_state(), noise)


def test_a_number_of_the_host_stays_as_it_was_recorded():
    """Else the tape would prove nothing."""
    x = torch.ones(2)
    rate = [2.0]
    with Tape() as tape:
        y = x * rate[0]
    rate[0] = 3.0
    x.fill_(5.0)
    tape.replay()
    assert y.tolist() == [10.0, 10.0]


class Cuda:
    """What is asked of torch.cuda, in this order."""

    def __init__(self, monkeypatch):
        self.asked = []
        for name in ("Stream", "current_stream", "stream", "device", "CUDAGraph", "graph"):
            monkeypatch.setattr(torch.cuda, name, functools.partial(self._Thing, self, name))

    class _Thing:
        def __init__(self, cuda, name, *arguments, **options):
            self.cuda = cuda
            self.name = name

        def __enter__(self):
            self.cuda.asked.append(f"in {self.name}")

        def __exit__(self, *error):
            self.cuda.asked.append(f"out of {self.name}")

        def __getattr__(self, method):
            return lambda *arguments: self.cuda.asked.append(f"{self.name}.{method}")


def test_cuda_is_asked_for_what_its_notes_say(monkeypatch):
    """A stream of its own waits and is waited for; the generator is known to the graph before it
    records.
    """
    cuda = Cuda(monkeypatch)
    graphs = CudaGraphCapture(torch.device("cuda:1"))

    def step():
        return cuda.asked.append("step") or {}

    graphs.warm_up(step)
    waits = [
        "Stream.wait_stream",
        "in stream",
        "step",
        "out of stream",
        "current_stream.wait_stream",
    ]
    assert cuda.asked == waits
    cuda.asked.clear()
    replay, _ = graphs.capture(step, torch.Generator())
    inside = ["in device", "in graph", "step", "out of graph", "out of device"]
    assert cuda.asked == ["CUDAGraph.register_generator_state", *inside]
    replay()
    assert cuda.asked[-1] == "CUDAGraph.replay"
