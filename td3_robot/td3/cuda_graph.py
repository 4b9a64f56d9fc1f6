"""Gradient steps captured as CUDA graphs: launched kernel by kernel once, then replayed as a whole.

A graph is a list of operations on fixed memory. So each kind of step (critics alone, with targets,
with the actor) has its own graph, batch and learning rates are copied into its inputs, and each
replay draws new noise from the agent's generator
(https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs). In the tests, tests/tape.py
stands in for a GPU.
"""

import itertools
import operator
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from td3_robot.errors import ConfigError, get_first_line
from td3_robot.networks.fused_adam import find_joint_rule
from td3_robot.replay import Batch
from td3_robot.td3.agent import TD3, UpdateSchedule

WARM_UP = 3  # steps of each kind before it is captured; PyTorch's notes take 3

Metrics = dict[str, Tensor]
Step = Callable[[], Metrics]


class GraphCapture(Protocol):
    """A way to capture a step for replay."""

    def warm_up(self, step: Step) -> Metrics:
        """Take the step eagerly, so that nothing remains to be set up in the capture."""
        ...

    def capture(self, step: Step, generator: torch.Generator) -> tuple[Callable[[], None], Metrics]:
        """Capture the step without taking it.

        Args:
            generator: the source of the step's noise, which every replay advances.

        Returns:
            The replay, a function that takes the step, and the metrics that it overwrites.
        """
        ...


class CudaGraphCapture:
    """A `GraphCapture` of CUDA graphs on a device."""

    def __init__(self, device: torch.device):
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def warm_up(self, step: Step) -> Metrics:
        """Take the step on the capturing stream, which has its own memory and workspaces."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            metrics = step()
        current.wait_stream(self._stream)
        return metrics

    def capture(self, step: Step, generator: torch.Generator) -> tuple[Callable[[], None], Metrics]:
        """Capture the step as a CUDA graph."""
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(generator)
        with torch.cuda.device(self._device), torch.cuda.graph(graph, stream=self._stream):
            metrics = step()
        return graph.replay, metrics


class _GraphedStep:
    """One kind of step, with fixed schedule and shapes: warmed up, then captured and replayed."""

    def __init__(self, agent: TD3, capture: GraphCapture, schedule: UpdateSchedule):
        self._agent = agent
        self._capture = capture
        self._schedule = schedule
        self._warm = 0
        self._replay: Callable[[], None] | None = None

    def __call__(self, batch: Batch) -> Metrics:
        """Take the step with this batch and return a copy of its metrics."""
        if self._warm < WARM_UP:
            self._warm += 1
            return self._capture.warm_up(lambda: self._agent.learn(batch, self._schedule))
        if self._replay is None:
            self._replay = self._capture_step(batch)
        torch._foreach_copy_(self._inputs, [x for x in batch if x is not None])
        self._replay()
        return {name: value.clone() for name, value in self._metrics.items()}

    def _capture_step(self, batch: Batch) -> Callable[[], None]:
        """Capture a step that reads batches of this shape from `_inputs` and fills `_metrics`."""
        fixed = {
            name: torch.empty_like(x, memory_format=torch.contiguous_format)
            for name, x in batch._asdict().items()
            if x is not None
        }
        self._inputs = list(fixed.values())

        def step():
            return self._agent.learn(batch._replace(**fixed), self._schedule)

        try:
            replay, self._metrics = self._capture.capture(step, self._agent.generator)
        except RuntimeError as error:
            reason = get_first_line(error)
            raise ConfigError(
                f"cuda_graph: the step cannot be recorded, leave cuda_graph out: {reason}"
            ) from error
        return replay


class CudaGraphUpdates:
    """A replacement of `agent.update` that captures gradient steps and replays them.

    Each kind of step, by schedule and shapes of the batch, is taken `WARM_UP` times eagerly, then
    captured. All are captured again after the agent gets other networks, weights at another place,
    optimizer states (loading replaces them), options of Adam or terms of the actor's loss. Learning
    rates may change, in float32. A number that your own networks or terms change on the host keeps
    its captured value.

    Args:
        agent: its optimizers are plain fused Adam, the critics' with the same options.
        capture: by default CUDA graphs on the agent's device.

    Raises:
        ConfigError: the agent is on another device or has other optimizers; or, when a step is
            captured, the step waits for the device or does something else that cannot be captured.
    """

    def __init__(self, agent: TD3, capture: GraphCapture | None = None):
        if capture is None and agent.device.type != "cuda":
            raise ConfigError(f"cuda_graph needs device cuda or cuda:N, got {str(agent.device)!r}")
        self._agent = agent
        self._capture = capture or CudaGraphCapture(agent.device)
        # () float32 on every device
        zero = torch.zeros((), device=agent.device, dtype=torch.float32)
        self._rates = [zero.clone() for _ in agent.joint_steps]
        self._lrs: list[float | None] = [None for _ in self._rates]
        self._reset(self._find_rules())

    def __call__(self, batch: Batch) -> Metrics:
        """Take an update and return its metrics, as `TD3.update`."""
        rules = self._find_rules()
        if rules != self._rules or not self._is_valid():
            self._reset(rules)
        schedule = self._agent.next_update
        kind = (schedule, *(None if x is None else (x.shape, x.dtype) for x in batch))
        if kind not in self._graphed:
            self._graphed[kind] = _GraphedStep(self._agent, self._capture, schedule)
        steps = [step for step, _ in self._agent.joint_steps]
        try:
            for step, rate in zip(steps, self._rates):
                step.rate = rate
            metrics = self._graphed[kind](batch)
        finally:
            for step in steps:
                step.rate = None
        self._agent.gradient_steps += 1
        self._agent.actor_trained |= schedule.actor
        return metrics

    def _find_rules(self) -> list[dict[str, Any]]:
        """Return the options of Adam in each joint step; learning rates go to the graphs' inputs.

        Raises:
            ConfigError: an optimizer is not plain fused Adam.
        """
        rules = [find_joint_rule(optimizers) for _, optimizers in self._agent.joint_steps]
        for i, rule in enumerate(rules):
            if rule is None:
                raise ConfigError(
                    "cuda_graph needs optimizers that are plain fused Adam, of both critics with "
                    "the same options; leave cuda_graph or optimizer out"
                )
            if (lr := rule.pop("lr")) != self._lrs[i]:
                self._rates[i].fill_(lr)
                self._lrs[i] = lr
        return [rule for rule in rules if rule is not None]

    def _reset(self, rules: list[dict[str, Any]]) -> None:
        """Drop all captured steps and remember the agent as it is now."""
        self._graphed: dict[tuple, _GraphedStep] = {}
        self._rules = rules
        self._parts = self._list_parts()
        modules = [part for part in self._parts if isinstance(part, torch.nn.Module)]
        self._tensors = [
            x for module in modules for x in itertools.chain(module.parameters(), module.buffers())
        ]
        self._addresses = [x.data_ptr() for x in self._tensors]

    def _is_valid(self) -> bool:
        """Tell whether the agent has the captured parts; listing all tensors would be too slow."""
        now = self._list_parts()
        same = len(now) == len(self._parts) and all(map(operator.is_, now, self._parts))
        return same and [x.data_ptr() for x in self._tensors] == self._addresses

    def _list_parts(self) -> list[object]:
        agent = self._agent
        names = ("actor", "Q1", "Q2", "actor_target", "Q1_target", "Q2_target", "normalizer")
        names += ("config", "a_max", "generator", "value")
        states = [optimizer.state for _, used in agent.joint_steps for optimizer in used]
        return [*(getattr(agent, name) for name in names), *agent.actor_terms, *states]
