"""The interface between learning and simulation, the only one that both halves share."""

import zlib
from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

Policy = Callable[[Tensor], Tensor]  # observation (B, o_dim) -> action (B, a_dim) in [-1, 1]


class Step(NamedTuple):
    """The result of one control step of B environments.

    Act on `observation` next: after the end of an episode it is the first one of the next episode.
    Learn from `next_observation`, the true successor before any automatic reset. Bootstrapping
    stops at `terminated`, never at `truncated`. A row of `valid` is False if the environment
    ignored the action, as Gymnasium's vector environments with NEXT_STEP autoreset do in the step
    after an episode's end.
    """

    observation: Tensor  # (B, o_dim)
    reward: Tensor  # (B,)
    terminated: Tensor  # (B,) bool: the task itself ended; there is no future value
    truncated: Tensor  # (B,) bool: a time limit cut the episode; the future still has value
    next_observation: Tensor  # (B, o_dim)
    # per-env measurements, each (B, ...), of the step just made; a later one has all of an earlier
    info: dict[str, Tensor]
    # (B,) bool: False where the row is no transition to learn from; None: all are
    valid: Tensor | None = None


@runtime_checkable
class VecEnv(Protocol):
    """B environments that step together and start their next episode by themselves.

    Actions are (B, a_dim) in [-1, 1]; the environment scales them to physical units.
    """

    num_envs: int
    o_dim: int
    a_dim: int
    device: torch.device

    def reset(self, seed: int | None = None) -> Tensor:
        """Start B new episodes and return (B, o_dim); a seed makes all that follows repeatable."""
        ...

    def step(self, action: Tensor) -> Step:
        """Apply actions (B, a_dim) in [-1, 1] for one control period.

        Raises:
            NotFiniteError: an action is NaN or infinite; not checked on an asynchronous device.
        """
        ...

    def state_dict(self) -> dict:
        """Return all that the next step depends on, random generators included."""
        ...

    def load_state_dict(self, state: dict) -> Tensor:
        """Restore the result of `state_dict` and return the observation to act on (B, o_dim).

        An environment that cannot restore itself starts new episodes and returns their first
        observations.
        """
        ...


def is_asynchronous(device: torch.device) -> bool:
    """Tell whether reading a tensor on the host waits for the work queued on its device."""
    return device.type != "cpu"


def restore_generator(generator: torch.Generator, state: Tensor) -> None:
    """Restore the state of a generator.

    The state of another kind of device does not fit, for example when a CPU run resumes on CUDA. It
    then seeds a new stream.
    """
    if state.shape == generator.get_state().shape:
        generator.set_state(state)
    else:
        generator.manual_seed(zlib.crc32(bytes(state.tolist())))


def draw_uniform(generator: torch.Generator, *shape: int) -> Tensor:
    """Draw float32 numbers in [0, 1) on the generator's device, whatever torch's default dtype."""
    return torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float32)


def draw_normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Draw standard normal float32 numbers on the generator's device, as `draw_uniform` does."""
    return torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32)


@runtime_checkable
class PrivilegedVecEnv(VecEnv, Protocol):
    """Environments that know more than a policy observes. Critics may see it: they are needed in
    training alone.
    """

    privileged_dim: int

    def privileged(self, arrived: bool = False) -> Tensor:
        """Return (B, privileged_dim) of now, or with `arrived` of the latest step's successor."""
        ...


@runtime_checkable
class StaggeredVecEnv(VecEnv, Protocol):
    """Environments whose first episodes are shorter than the others, so that they are staggered.

    Their returns are no measure of a policy.
    """

    cut_short: Tensor  # (B,) bool: the present episode is one of these


@runtime_checkable
class RestartingVecEnv(VecEnv, Protocol):
    """Environments that may be unable to restore themselves, and say so.

    Of others, a first observation that equals the saved one tells that they are restored.
    """

    restored: bool  # the last `load_state_dict` continued the episodes, and began no new ones


@runtime_checkable
class HasRewardsObserved(Protocol):
    """Environments whose rewards are of the true or of the observed state.

    Hindsight can compute those of the observed state alone, and sets `rewards_observed`.
    """

    rewards_observed: bool


@runtime_checkable
class GoalVecEnv(VecEnv, Protocol):
    """Environments whose goal can be replaced afterwards, for hindsight replay.

    A memory (B, memory_dim) holds what is needed to compute the observation and reward of a moment
    for any goal. It may be the observation itself.
    """

    memory_dim: int

    def memory(self, arrived: bool = False) -> Tensor:
        """Return (B, memory_dim) of now, or with `arrived` of the latest step's successor."""
        ...

    def observe(self, memory: Tensor) -> Tensor:
        """Return the observations (N, o_dim) of memories (N, memory_dim)."""
        ...

    def achieved_goal(self, memory: Tensor) -> Tensor:
        """Return the goal (N, g) that each memory (N, memory_dim) has achieved, in goal units."""
        ...

    def relabel(
        self, memory: Tensor, action: Tensor, next_memory: Tensor, goal: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Compute the transitions as if `goal` had been their goal.

        Args:
            memory, next_memory: (N, memory_dim) before and after the step.
            action: (N, a_dim) in [-1, 1].
            goal: (N, g).

        Returns:
            state, next_state (N, o_dim), observations that hold the goal, reward (N,) and
            terminated (N,) bool.
        """
        ...
