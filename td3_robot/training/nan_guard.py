"""Detection of NaN and infinity in the step in which they appear, with a file of evidence."""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from td3_robot.checkpoint import write_state
from td3_robot.checkpoint.validation import LARGEST
from td3_robot.errors import NotFiniteError
from td3_robot.replay import Batch
from td3_robot.td3.agent import TD3
from td3_robot.vec_env import is_asynchronous

EVIDENCE = "not_finite.pt"  # in the run folder
_NETWORKS = ("Q1", "Q2", "actor")


class NanGuard:
    """A check that an agent's weights, and what else is reported or saved, are finite.

    Args:
        agent: weights beyond what a checkpoint may hold count as infinite.
        folder: of the last good checkpoint, where the evidence is written too.
    """

    def __init__(self, agent: TD3, folder: Path):
        self._agent = agent
        self._folder = folder
        self._weights = {name: [*getattr(agent, name).parameters()] for name in _NETWORKS}
        self._optimizers = {name: getattr(agent, f"{name}_optimizer") for name in _NETWORKS}

    @torch.no_grad()
    def check_update(self, batch: Batch, losses: dict[str, Tensor]) -> None:
        """Check losses, weights and moments after an update with this batch.

        On a CPU only, where it costs some hundredths of an update; elsewhere it would wait for the
        device, and the next `require_finite` finds it.

        Raises:
            NotFiniteError: names what is not finite; the batch is its evidence.
        """
        if is_asynchronous(self._agent.device):
            return
        names = _NETWORKS[: 2 + ("actor_loss" in losses)]
        weights = [weight for name in names for weight in self._weights[name]]
        # Adam's squares overflow before its means do
        squares = [
            square for name in names for square in self._collect_moments(name, ("exp_avg_sq",))
        ]
        columns = batch[:5]  # a normaliser or bounded values may clip what is infinite in them
        sums = [
            *map(torch.sum, (*squares, *columns)),
            *(loss for loss in losses.values() if not loss.ndim),
        ]
        norms = torch.stack(torch._foreach_norm(weights))
        if (norms <= LARGEST).all() and torch.stack(sums).isfinite().all():
            return
        parts = {name: value for name, value in batch._asdict().items() if value is not None}
        named = {f"{name} of the batch": value for name, value in parts.items()}
        self.require_finite(named | losses | self._collect_gradients(), parts)

    def _collect_moments(
        self, name: str, kinds: tuple[str, ...] = ("exp_avg", "exp_avg_sq")
    ) -> list[Tensor]:
        """Return Adam's moments of a network; none with another optimizer."""
        entries = self._optimizers[name].state.values()
        return [entry[kind] for entry in entries for kind in kinds if kind in entry]

    def _collect_gradients(self) -> dict[str, Tensor]:
        found = {
            name: [w.grad.flatten() for w in weights if w.grad is not None]
            for name, weights in self._weights.items()
        }
        return {
            f"a gradient of {name}": torch.cat(gradients)
            for name, gradients in found.items()
            if gradients
        }

    def require_finite(
        self, others: dict[str, Tensor], evidence: dict[str, Tensor] | None = None
    ) -> None:
        """Check weights, moments and other named tensors.

        Raises:
            NotFiniteError: names the first that is NaN or infinite, with the evidence.
        """
        values = dict(others)
        for name, weights in self._weights.items():
            flat = torch.cat([weight.detach().flatten() for weight in weights])
            values[f"a weight of {name}"] = flat.where(flat.abs() <= LARGEST, math.inf)
            if moments := [moment.flatten() for moment in self._collect_moments(name)]:
                values[f"a moment of {name}"] = torch.cat(moments)
        for name, value in values.items():
            if not torch.isfinite(value).all():
                raise NotFiniteError(
                    f"{name} became NaN or infinite by update {self._agent.gradient_steps}; "
                    f"the last good checkpoint is intact in {self._folder}; lower td3.critic_lr, "
                    "set td3.critic_grad_clip or check the reward",
                    evidence,
                )

    @contextlib.contextmanager
    def write_evidence(self) -> Iterator[None]:
        """Write the file EVIDENCE where a NotFiniteError ends the block.

        `torch.load` reads it: `error`, `evidence`, `gradient_steps` and the state dicts of the
        `agent`.
        """
        try:
            yield
        except NotFiniteError as error:
            found = {
                "error": str(error),
                "evidence": error.evidence,
                "gradient_steps": self._agent.gradient_steps,
            }
            # a full disk: what is wrong is told all the same
            with contextlib.suppress(OSError, RuntimeError):
                write_state(self._folder / EVIDENCE, {**found, "agent": self._agent.state_dicts()})
            raise
