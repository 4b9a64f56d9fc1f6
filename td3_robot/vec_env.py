"""The seam between learning and simulation: all that either half knows of the other."""

import zlib
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor


class Step(NamedTuple):
    """What one control step of B environments returns.

    `observation` is what to act on next: where an episode ended it is already the first observation
    of the next one. `next_observation` is the true successor of the action, before any automatic
    reset; it is the one to learn from. Bootstrapping stops at `terminated`, never at `truncated`. A
    row of `valid` is False where the environment ignored the action, as Gymnasium's vector
    environments with NEXT_STEP autoreset do in the step after an episode's end.
    """

    observation: Tensor  # (B, o_dim)
    reward: Tensor  # (B,)
    terminated: Tensor  # (B,) bool: the task itself ended; there is no future value
    truncated: Tensor  # (B,) bool: a time limit cut the episode; the future still has value
    next_observation: Tensor  # (B, o_dim)
    info: dict[str, Tensor]  # per-env measurements, each (B, ...), of the step just made
    valid: Tensor | None = (
        None  # (B,) bool: False where the row is no transition to learn from; None: all are
    )


@runtime_checkable
class VecEnv(Protocol):
    """B environments that step together and start their next episode by themselves.

    Actions are (B, a_dim) in [-1, 1]; scaling to physical units is the environment's own affair.
    """

    num_envs: int
    o_dim: int
    a_dim: int
    device: torch.device

    def reset(self, seed: int | None = None) -> Tensor:
        """Start B new episodes; a seed makes all that follows repeatable. Returns (B, o_dim)."""
        ...

    def step(self, action: Tensor) -> Step:
        """Apply actions (B, a_dim) in [-1, 1] for one control period.

        Raises:
            NotFiniteError: an action is NaN or infinite; not on a device that this would have to
                wait for.
        """
        ...

    def state_dict(self) -> dict:
        """Everything the next step depends on, random generators included, for an exact resume."""
        ...

    def load_state_dict(self, state: dict) -> Tensor:
        """Take back what `state_dict` gave.

        Returns:
            The observation to act on (B, o_dim). An environment that cannot restore itself starts
            new episodes and gives their first observations.
        """
        ...


def waits(device: torch.device) -> bool:
    """Whether to read a tensor of the device on the host is to wait for all that was asked of it
    before.
    """
    return device.type != "cpu"


def restore_generator(generator: torch.Generator, state: Tensor) -> None:
    """Take back the state of a generator.

    One of another kind of device has other states, as when a run of a CPU goes on with CUDA; it
    then begins a stream of its own, which the state fixes.
    """
    if state.shape == generator.get_state().shape:
        generator.set_state(state)
    else:
        generator.manual_seed(zlib.crc32(bytes(state.tolist())))


@runtime_checkable
class GoalVecEnv(VecEnv, Protocol):
    """Environments with a goal that could have been another one, for hindsight replay.

    A memory (B, memory_dim) is what has to be kept of a moment to observe it and to pay for it
    again, whatever its goal. It may be the observation itself.
    """

    memory_dim: int

    def memory(self, arrived: bool = False) -> Tensor:
        """(B, memory_dim) of now, or of what the latest step led to, before any reset."""
        ...

    def observe(self, memory: Tensor) -> Tensor:
        """The observations (N, o_dim) of memories (N, memory_dim)."""
        ...

    def achieved_goal(self, memory: Tensor) -> Tensor:
        """The goal (N, g) that each memory (N, memory_dim) would have reached, in the units of the
        goal.
        """
        ...

    def relabel(
        self, memory: Tensor, action: Tensor, next_memory: Tensor, goal: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Transitions as they would have been stored had `goal` been their goal.

        Args:
            memory, next_memory: (N, memory_dim) before and after the step.
            action: (N, a_dim) in [-1, 1].
            goal: (N, g).

        Returns:
            state, next_state (N, o_dim), observations that hold the goal, reward (N,) and
            terminated (N,) bool, computed anew.
        """
        ...
