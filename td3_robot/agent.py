"""Twin Delayed Deep Deterministic policy gradient: six networks and one update rule.

Fujimoto, van Hoof & Meger, "Addressing Function Approximation Error in Actor-Critic Methods", ICML 2018.
The formulas are in losses.py; this file is their order.
"""

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from td3_robot import checkpoint
from td3_robot.errors import CheckpointError, ConfigError
from td3_robot.losses import actor_loss, clipped_double_q_target, critic_loss, smoothed_target_action
from td3_robot.networks import MLP
from td3_robot.replay import Batch


class TD3:
    """The agent: `actor`, `Q1`, `Q2`, their targets `*_target`, and one Adam optimizer for each of the three.

    Args:
        o_dim: width of an observation.
        a_dim: width of an action.
        a_max: bound of the actions, a scalar or one value a joint; actions lie in [-a_max, a_max].
        device: where the networks live.
        hidden: units of each hidden layer.
        actor_lr, critic_lr: learning rates.
        gamma: discount a step.
        tau: share of the networks in each Polyak step of the targets.
        policy_noise, noise_clip: standard deviation and bound of the noise on target actions, in units of a_max.
        policy_delay: critic updates for each update of the actor and the targets.
        seed: of the initial weights and of the target noise.

    Raises:
        ConfigError: a_max is not positive and finite, or not of shape () or (a_dim,).
    """

    def __init__(
        self,
        o_dim: int,
        a_dim: int,
        a_max: float | Sequence[float] | Tensor = 1.0,
        device: torch.device | str = "cpu",
        *,
        hidden: Sequence[int] = (256, 256),
        actor_lr: float = 3e-4,
        critic_lr: float = 3e-4,
        gamma: float = 0.99,
        tau: float = 0.005,
        policy_noise: float = 0.2,
        noise_clip: float = 0.5,
        policy_delay: int = 2,
        seed: int = 0,
    ):
        self.o_dim, self.a_dim = o_dim, a_dim
        self.device = torch.device(device)
        self.a_max = torch.as_tensor(a_max, dtype=torch.float32, device=self.device)
        if self.a_max.shape not in ((), (a_dim,)) or not ((self.a_max > 0) & self.a_max.isfinite()).all():
            raise ConfigError(f"a_max must be positive and finite, one value or {a_dim}, got {self.a_max.tolist()}")
        self.gamma, self.tau = gamma, tau
        self.policy_noise, self.noise_clip, self.policy_delay = policy_noise, noise_clip, policy_delay
        self.gradient_steps = 0
        self.generator = torch.Generator(self.device).manual_seed(seed)

        with torch.random.fork_rng(devices=[]):  # leave the caller's global generators as they were
            torch.default_generator.manual_seed(seed)
            self.actor = MLP(o_dim, a_dim, self.a_max, hidden=hidden).to(self.device)
            self.Q1 = MLP(o_dim + a_dim, 1, output_activation=None, hidden=hidden).to(self.device)
            self.Q2 = MLP(o_dim + a_dim, 1, output_activation=None, hidden=hidden).to(self.device)
        self.actor_target, self.Q1_target, self.Q2_target = map(copy.deepcopy, (self.actor, self.Q1, self.Q2))
        for target in (self.actor_target, self.Q1_target, self.Q2_target):
            target.requires_grad_(False)

        self._learning_rates = (actor_lr, critic_lr, critic_lr)
        adam = lambda net, lr: torch.optim.Adam(net.parameters(), lr, fused=self.device.type != "mps")  # noqa: E731
        self.actor_optimizer = adam(self.actor, actor_lr)
        self.Q1_optimizer = adam(self.Q1, critic_lr)
        self.Q2_optimizer = adam(self.Q2, critic_lr)

    @torch.no_grad()
    def select_action(self, o: np.ndarray | Tensor) -> Tensor:
        """The policy's action, without noise: (o_dim,) -> (a_dim,) or (B, o_dim) -> (B, a_dim)."""
        return self.actor(torch.as_tensor(o, dtype=torch.float32, device=self.device))

    def update(self, batch: Batch) -> dict[str, Tensor]:
        """One gradient step of both critics; every `policy_delay` of them also one of the actor and the targets.

        Returns:
            Named 0-d tensors, left on the device so that nothing waits for it: `Q1_loss`, `Q2_loss`, `Q1`
            (mean value of the batch) and, when the actor was updated, `actor_loss`.

        Raises:
            ValueError: reward or done is not (B, 1); as (B,) it would silently broadcast to (B, B).
        """
        column = (len(batch.state), 1)
        if batch.reward.shape != column or batch.done.shape != column:
            raise ValueError(f"reward and done must be {column}, got {batch.reward.shape} and {batch.done.shape}")
        self.gradient_steps += 1
        metrics = self._update_critics(batch)
        if self.gradient_steps % self.policy_delay == 0:
            metrics["actor_loss"] = self._update_actor(batch.state)
            self._update_targets()
        return metrics

    @torch.no_grad()
    def _target(self, batch: Batch) -> Tensor:
        shape, device = batch.action.shape, self.device
        noise = torch.randn(shape, generator=self.generator, device=device) * self.policy_noise
        action = smoothed_target_action(self.actor_target(batch.next_state), noise, self.noise_clip, self.a_max)
        x = torch.cat((batch.next_state, action), 1)
        discount = self.gamma if batch.discount is None else batch.discount
        return clipped_double_q_target(batch.reward, discount, batch.done, self.Q1_target(x), self.Q2_target(x))

    def _update_critics(self, batch: Batch) -> dict[str, Tensor]:
        target = self._target(batch)
        x = torch.cat((batch.state, batch.action), 1)
        q1, q2 = self.Q1(x), self.Q2(x)
        loss1, loss2 = critic_loss(q1, target, batch.weight), critic_loss(q2, target, batch.weight)
        self.Q1_optimizer.zero_grad()
        self.Q2_optimizer.zero_grad()
        (loss1 + loss2).backward()
        self.Q1_optimizer.step()
        self.Q2_optimizer.step()
        return {"Q1_loss": loss1.detach(), "Q2_loss": loss2.detach(), "Q1": q1.detach().mean()}

    def _update_actor(self, state: Tensor) -> Tensor:
        loss = actor_loss(self.Q1, state, self.actor(state))
        self.actor_optimizer.zero_grad()
        loss.backward(inputs=list(self.actor.parameters()))  # through Q1, into the actor alone
        self.actor_optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def _update_targets(self) -> None:
        """Polyak averaging: target <- tau * network + (1 - tau) * target."""
        online = [p for net in (self.actor, self.Q1, self.Q2) for p in net.parameters()]
        target = [p for net in (self.actor_target, self.Q1_target, self.Q2_target) for p in net.parameters()]
        torch._foreach_lerp_(target, online, self.tau)

    def scale_learning_rates(self, factor: float) -> None:
        """Set every learning rate to `factor` times the one given at the start."""
        optimizers = (self.actor_optimizer, self.Q1_optimizer, self.Q2_optimizer)
        for optimizer, lr in zip(optimizers, self._learning_rates):
            optimizer.param_groups[0]["lr"] = lr * factor

    def state_dicts(self) -> dict[str, dict]:
        """The state dicts of the six networks and three optimizers, by their file names."""
        return {name: part.state_dict() for name, part in self._parts().items()}

    def _parts(self) -> dict[str, MLP | torch.optim.Optimizer]:
        networks = ("Q1", "Q2", "actor")
        names = (*networks, *(f"{name}_optimizer" for name in networks), *(f"{name}_target" for name in networks))
        return {name: getattr(self, name) for name in names}

    def load_state_dicts(self, states: dict[str, dict]) -> None:
        """Take back what `state_dicts` gave; a target that is missing becomes a copy of its network.

        Raises:
            CheckpointError: a state does not fit this agent's networks; the agent is left as it was.
        """
        before = copy.deepcopy(self.state_dicts())
        for name, part in self._parts().items():
            state = states.get(name, states[name.removesuffix("_target")])
            try:
                part.load_state_dict(state)
            except (RuntimeError, ValueError, KeyError, AttributeError, TypeError) as error:
                for other, old in before.items():
                    self._parts()[other].load_state_dict(old)
                raise CheckpointError(
                    f"{name} does not fit an agent with {self._shape()}: {_reason(state, error)}"
                ) from None

    def _shape(self) -> str:
        hidden = [layer.out_features for layer in self.actor.layers[:-1]]
        return f"o_dim {self.o_dim}, a_dim {self.a_dim}, hidden {hidden}"

    def save(self, name: str | Path) -> None:
        """Write the nine state dicts into the checkpoint folder `name`, all or none."""
        checkpoint.write(name, self.state_dicts())

    def load(self, name: str | Path) -> None:
        """Read a checkpoint folder, or six older files that begin with `name`, onto this agent's device.

        Raises:
            CheckpointError: nothing there, damaged, unsafe, or of networks of another shape.
        """
        states = checkpoint.read(name, self.device)
        try:
            self.load_state_dicts(states)
        except CheckpointError as error:
            raise CheckpointError(f"checkpoint {name}: {error}") from None


def _reason(state: object, error: Exception) -> str:
    """Why a state does not fit: the widths of its layers where it is an MLP's, otherwise what torch said."""
    weights = [value for name, value in state.items() if name.endswith(".weight")] if isinstance(state, dict) else []
    if weights:
        return f"its layers are {'-'.join(str(n) for n in (weights[0].shape[1], *(len(w) for w in weights)))}"
    return " ".join(str(error).split())[:200]
