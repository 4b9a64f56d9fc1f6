"""Gradient steps as CUDA graphs: what the host would tell the GPU kernel by kernel, recorded once
and then replayed.

A graph is a list of operations on fixed memory. So each kind of step (critics alone, with targets,
with the actor) gets a graph of its own; batch and learning rates are copied to where it reads them;
the agent's noise is drawn anew by each replay
(https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs). Nothing here has been run on a
GPU: tests/tape.py stands in for one.
"""

import itertools
import operator
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from td3_robot.errors import ConfigError, get_first_line
from td3_robot.networks.fused_adam import joint_rule
from td3_robot.replay import Batch
from td3_robot.td3.agent import TD3, Due

WARM_UP = 3  # steps of each kind before it is recorded; PyTorch's notes take 3

Metrics = dict[str, Tensor]
Step = Callable[[], Metrics]


class Recorder(Protocol):
    """Who records a step."""

    def warm_up(self, step: Step) -> Metrics:
        """Take the step as it is, so that nothing is left to be set up when it is recorded."""
        ...

    def record(self, step: Step, generator: torch.Generator) -> tuple[Callable[[], None], Metrics]:
        """What takes the step, each time it is called, and where it leaves its metrics; not taken
        yet.

        Args:
            generator: what the step draws from, which every call advances.
        """
        ...


class CudaGraphs:
    """A `Recorder` of CUDA graphs on that device."""

    def __init__(self, device: torch.device):
        self._device, self._stream = device, torch.cuda.Stream(device)

    def warm_up(self, step: Step) -> Metrics:
        """See `Recorder.warm_up`; on the stream that records, whose memory and workspaces are its
        own.
        """
        here = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            metrics = step()
        here.wait_stream(self._stream)
        return metrics

    def record(self, step: Step, generator: torch.Generator) -> tuple[Callable[[], None], Metrics]:
        """See `Recorder.record`."""
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(generator)
        with torch.cuda.device(self._device), torch.cuda.graph(graph, stream=self._stream):
            metrics = step()
        return graph.replay, metrics


class _Kind:
    """Steps that differ in their numbers alone: warmed up, then recorded and replayed."""

    def __init__(self, agent: TD3, recorder: Recorder, due: Due):
        self._agent, self._recorder, self._due = agent, recorder, due
        self._warm = 0
        self._replay: Callable[[], None] | None = None

    def __call__(self, batch: Batch) -> Metrics:
        """The step with this batch; its metrics are the caller's."""
        if self._warm < WARM_UP:
            self._warm += 1
            return self._recorder.warm_up(lambda: self._agent.learn(batch, self._due))
        if self._replay is None:
            self._replay = self._recorded(batch)
        torch._foreach_copy_(self._inputs, [given for given in batch if given is not None])
        self._replay()
        return {name: value.clone() for name, value in self._metrics.items()}

    def _recorded(self, batch: Batch) -> Callable[[], None]:
        """What takes the step with the batch that is in `_inputs`, of the shapes of this one, and
        fills `_metrics`.
        """
        given = {name: x for name, x in batch._asdict().items() if x is not None}
        fixed = {
            name: torch.empty_like(x, memory_format=torch.contiguous_format)
            for name, x in given.items()
        }
        self._inputs = list(fixed.values())

        def step():
            return self._agent.learn(batch._replace(**fixed), self._due)

        try:
            replay, self._metrics = self._recorder.record(step, self._agent.generator)
        except RuntimeError as error:
            raise ConfigError(
                f"cuda_graph: the step cannot be recorded, leave cuda_graph out: {get_first_line(error)}"
            ) from error
        return replay


class CudaGraphUpdates:
    """`agent.update`, recorded: call it with a batch in place of that.

    Each kind of step, by what is due and the shapes of the batch, is taken `WARM_UP` times as it
    is, then recorded. All is recorded anew once the agent has other networks, weights at another
    place, optimizers' states (loading gives it others), rules of Adam or terms of the actor's loss.
    Learning rates may change, in float32. A number that networks or terms of your own change on the
    host is recorded as it was.

    Args:
        agent: its optimizers are plain fused Adam, the critics' with the same options.
        recorder: by default CUDA graphs on the agent's device.

    Raises:
        ConfigError: the agent is on another device, or has other optimizers; when it comes to
            recording a step: the step waits for the device, or does else what cannot be recorded.
    """

    def __init__(self, agent: TD3, recorder: Recorder | None = None):
        if recorder is None and agent.device.type != "cuda":
            raise ConfigError(f"cuda_graph needs device cuda or cuda:N, got {str(agent.device)!r}")
        self._agent, self._recorder = agent, recorder or CudaGraphs(agent.device)
        self._rates = [
            torch.zeros((), device=agent.device) for _ in agent.joint_steps
        ]  # () float32 on every device
        self._lrs: list[float | None] = [None for _ in self._rates]
        self._forget(self._rules())

    def __call__(self, batch: Batch) -> Metrics:
        """See `TD3.update`."""
        rules = self._rules()
        if rules != self._known or not self._in_place():
            self._forget(rules)
        due = self._agent.due
        kind = (due, *(None if x is None else (x.shape, x.dtype) for x in batch))
        if kind not in self._kinds:
            self._kinds[kind] = _Kind(self._agent, self._recorder, due)
        steps = [step for step, _ in self._agent.joint_steps]
        try:
            for step, rate in zip(steps, self._rates):
                step.rate = rate
            metrics = self._kinds[kind](batch)
        finally:
            for step in steps:
                step.rate = None
        self._agent.gradient_steps += 1
        return metrics

    def _rules(self) -> list[dict[str, Any]]:
        """What Adam does in each joint step, but for its learning rate, which goes to where the
        step reads it.

        Raises:
            ConfigError: something else than Adam is asked.
        """
        rules = [joint_rule(optimizers) for _, optimizers in self._agent.joint_steps]
        for i, rule in enumerate(rules):
            if rule is None:
                raise ConfigError(
                    "cuda_graph needs optimizers that are plain fused Adam, of both critics with the same options; "
                    "leave cuda_graph or optimizer out"
                )
            if (lr := rule.pop("lr")) != self._lrs[i]:
                self._rates[i].fill_(lr)
                self._lrs[i] = lr
        return [rule for rule in rules if rule is not None]

    def _forget(self, rules: list[dict[str, Any]]) -> None:
        """Begin anew, with the agent as it is."""
        self._kinds: dict[tuple, _Kind] = {}
        self._known, self._parts = rules, self._parts_now()
        modules = [part for part in self._parts if isinstance(part, torch.nn.Module)]
        self._tensors = [
            x for each in modules for x in itertools.chain(each.parameters(), each.buffers())
        ]
        self._places = [x.data_ptr() for x in self._tensors]

    def _in_place(self) -> bool:
        """Whether the agent is made of what it was; a pass over its modules would take longer than
        the step.
        """
        now = self._parts_now()
        same = len(now) == len(self._parts) and all(map(operator.is_, now, self._parts))
        return same and [x.data_ptr() for x in self._tensors] == self._places

    def _parts_now(self) -> list[object]:
        agent = self._agent
        nets = (
            agent.actor,
            agent.Q1,
            agent.Q2,
            agent.actor_target,
            agent.Q1_target,
            agent.Q2_target,
            agent.normalizer,
        )
        states = [
            optimizer.state for _, optimizers in agent.joint_steps for optimizer in optimizers
        ]
        return [
            *nets,
            agent.config,
            agent.a_max,
            agent.generator,
            agent.value,
            *agent.actor_terms,
            *states,
        ]
