"""Twin Delayed Deep Deterministic policy gradient: six networks and one update rule.

Fujimoto, van Hoof & Meger, "Addressing Function Approximation Error in Actor-Critic Methods", ICML
2018. This file is the order; the formulas are in losses.py, value_heads.py and actor_terms.py,
checkpoints in kept.py.
"""

import copy
import threading
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from td3_robot.config.td3 import TD3Config
from td3_robot.errors import ConfigError
from td3_robot.networks.backward import (
    ByAutograd,
    JointPass,
    ManualMLPPass,
    clip_gradients,
    forward,
    frozen_forward,
)
from td3_robot.networks.fused_adam import JointStep, MakeOptimizer, adam
from td3_robot.networks.mlp import MakeNetworks, check_networks, followed, mlps, trainable
from td3_robot.networks.normalization import RunningNormalizer, normalizer_of
from td3_robot.networks.weight_norm import normalize_weights
from td3_robot.replay import Batch
from td3_robot.td3.actor_losses import ActorStep, actor_terms
from td3_robot.td3.agent_io import Kept
from td3_robot.td3.losses import smoothed_target_action
from td3_robot.td3.value_heads import value_head
from td3_robot.utils.seeding import derive_seed

_DRAWING = threading.Lock()  # held by the thread that draws the weights of an agent


class Due(NamedTuple):
    """What a gradient step moves beside the critics."""

    targets: bool
    actor: bool


class TD3(Kept):
    """The agent: `actor`, `Q1`, `Q2`, their targets `*_target`, and one Adam optimizer for each of
    the first three.

    With `critic` crossq a target is the network itself, but for an `actor_target` that is the
    policy.

    Args:
        o_dim: width of an observation.
        a_dim: width of an action.
        a_max: bound of the actions, a scalar or one value a joint; actions lie in [-a_max, a_max].
        device: where the networks live.
        seed: of the initial weights and of the target noise.
        networks: makes the actor and both critics, as `networks.mlps` does; docs/library.md has
            others.
        optimizer: makes the optimizer of each network from its weights and learning rate, as
            `adam.adam` does.
        options: the fields of `TD3Config`; without any it is the TD3 of the paper. docs/td3.md says
            what each does.

    Attributes:
        config: the options, resolved.
        normalizer: running statistics of observations, the identity without
            `normalize_observations`.
        policy: normalizer and what is deployed, one after the other: the actor or its target
            (`config.policy`).
        gradient_steps: updates made.

    Raises:
        ConfigError: a_max is not positive and finite, or not of shape () or (a_dim,); an option is
            out of its range or contradicts another; the networks do not take and give what they
            should.
    """

    def __init__(
        self,
        o_dim: int,
        a_dim: int,
        a_max: float | Sequence[float] | Tensor = 1.0,
        device: torch.device | str = "cpu",
        *,
        seed: int = 0,
        networks: MakeNetworks = mlps,
        optimizer: MakeOptimizer = adam,
        **options,
    ):
        for name in {"hidden", "critic_hidden"} & options.keys():
            widths = options[name]
            options[name] = (widths,) if isinstance(widths, int) else tuple(widths)
        self.config = config = TD3Config(**options)
        self.o_dim, self.a_dim = o_dim, a_dim
        self.device = torch.device(device)
        self.a_max = torch.as_tensor(a_max, dtype=torch.float32, device=self.device)
        if (
            self.a_max.shape not in ((), (a_dim,))
            or not ((self.a_max > 0) & self.a_max.isfinite()).all()
        ):
            raise ConfigError(
                f"a_max must be positive and finite, one value or {a_dim}, got {self.a_max.tolist()}"
            )
        self.value = value_head(config, self.device)
        self.actor_terms = actor_terms(config, self.a_max)
        self.gradient_steps = 0
        self.generator = torch.Generator(self.device).manual_seed(derive_seed(seed, "target noise"))
        self.normalizer = normalizer_of(config, o_dim, self.device)
        self._make_networks(networks, seed)
        self._make_optimizers(optimizer)

    def _make_networks(self, networks: MakeNetworks, seed: int) -> None:
        # The global generator is of all threads; and it is left as the caller had it.
        with _DRAWING, torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive_seed(seed, "weights"))
            made = networks(self.o_dim, self.a_dim, self.a_max, self.value.out_dim, self.config)
        check_networks(made, self.device, self.o_dim, self.a_dim, self.value.out_dim)
        self.actor, self.Q1, self.Q2 = made
        self.actor_target, self.Q1_target, self.Q2_target = made
        if self.config.weight_norm:
            normalize_weights(made)
        for name in self.config.targets:
            setattr(
                self, f"{name}_target", copy.deepcopy(getattr(self, name)).requires_grad_(False)
            )
        self.policy = nn.Sequential(self.normalizer, getattr(self, self.config.policy)).eval()

    def _make_optimizers(self, optimizer: MakeOptimizer) -> None:
        self.actor_optimizer = optimizer(trainable(self.actor), self.config.actor_lr)
        self.Q1_optimizer = optimizer(trainable(self.Q1), self.config.critic_lr)
        self.Q2_optimizer = optimizer(trainable(self.Q2), self.config.critic_lr)
        self._critics_step, self._actor_step = JointStep(), JointStep()
        self._learning_rates = [
            [group["lr"] for group in each.param_groups] for each in self._optimizers
        ]

    def observe(self, o: Tensor) -> None:
        """Take observations (B, o_dim) into the running statistics, where the agent keeps any."""
        if isinstance(self.normalizer, RunningNormalizer):
            self.normalizer.update(o)

    def select_action(self, o: np.ndarray | Tensor) -> Tensor:
        """The policy's action, without noise: (o_dim,) -> (a_dim,) or (B, o_dim) -> (B, a_dim)."""
        return self._action(getattr(self, self.config.policy), o)

    def explored(self, o: np.ndarray | Tensor) -> Tensor:
        """What exploration adds its noise to, shapes as above: the actor's action, also where its
        average acts.
        """
        return self._action(self.actor, o)

    @torch.no_grad()
    def _action(self, net: nn.Module, o: np.ndarray | Tensor) -> Tensor:
        o = torch.as_tensor(o, dtype=torch.float32, device=self.device)
        return net(self.normalizer(torch.atleast_2d(o))).reshape(*o.shape[:-1], self.a_dim)

    @property
    def actor_trained(self) -> bool:
        """Whether the actor has been updated; until then it is what it was made or loaded as."""
        delay = self.config.policy_delay
        return self.gradient_steps // delay * delay > self.config.burn_in

    @torch.no_grad()
    def disagreement(self, o: Tensor, action: Tensor) -> Tensor:
        """(B,) distance between what the two critics give actions (B, a_dim) in observations (B,
        o_dim).
        """
        x = torch.cat((self.normalizer(o), action), 1)
        return (self.value.mean(self.Q1(x)) - self.value.mean(self.Q2(x))).abs()[:, 0]

    def update(self, batch: Batch) -> dict[str, Tensor]:
        """One gradient step of both critics; every `policy_delay` of them also one of the targets
        and, once the first `burn_in` are over, of the actor.

        Args:
            batch: observations as the environment gives them; they are normalised here.

        Returns:
            Named 0-d tensors, left on the device so that nothing waits for it: `Q1_loss`, `Q2_loss`
            (with twin critics), `Q1` (mean value of the batch) and, when the actor was updated,
            `actor_loss`; with importance weights also `td_error` (B,), each sample's new priority.

        Raises:
            ValueError: reward or done is not (B, 1); as (B,) it would silently broadcast to (B, B).
        """
        metrics = self.learn(batch, self.due)
        self.gradient_steps += 1
        return metrics

    @property
    def due(self) -> Due:
        """What the next gradient step moves beside the critics."""
        step = self.gradient_steps + 1
        targets = step % self.config.policy_delay == 0
        return Due(targets, targets and step > self.config.burn_in)

    def learn(self, batch: Batch, due: Due) -> dict[str, Tensor]:
        """The arithmetic of `update`, which counts: nothing here depends on a number that changes
        on the host, but for learning rates (`joint_steps`)."""
        column = (len(batch.state), 1)
        if batch.reward.shape != column or batch.done.shape != column:
            raise ValueError(
                f"reward and done must be {column}, got {batch.reward.shape} and {batch.done.shape}"
            )
        batch = batch._replace(
            state=self.normalizer(batch.state), next_state=self.normalizer(batch.next_state)
        )
        metrics = self._update_critics(batch)
        if due.actor:
            metrics["actor_loss"] = self._update_actor(batch.state, batch.action)
        if due.targets:
            self._update_targets()
        return metrics

    def _update_critics(self, batch: Batch) -> dict[str, Tensor]:
        """Both critics descend their loss to y."""
        passes, following = self._passes(batch)
        y = self._target(batch, following)
        outputs = [each.output.detach() for each in passes]
        for each, output in zip(passes, outputs):
            each.backward(self.value.slope(output, y, batch.weight))
        self._limit_gradients(self._critics, self.config.critic_grad_clip)
        self._critics_step(self._critic_optimizers)
        if self.config.weight_norm:
            normalize_weights(self._critics)
        metrics = {
            f"Q{i}_loss": self.value.loss(output, y, batch.weight)
            for i, output in enumerate(outputs, 1)
        }
        metrics["Q1"] = self.value.mean(outputs[0]).mean()
        if batch.weight is not None:
            errors = [self.value.error(output, y) for output in outputs]
            metrics["td_error"] = reduce(torch.add, errors) / len(errors)
        return metrics

    def _passes(
        self, batch: Batch
    ) -> tuple[Sequence[ManualMLPPass | ByAutograd | JointPass], list[Tensor]]:
        """Each critic's pass of (s, a), to learn from, and what (s', a') is worth: Q1'(s', a'),
        Q2'(s', a').
        """
        x = torch.cat((batch.state, batch.action), 1)
        with torch.no_grad():
            actor = self.actor if self.config.critic == "crossq" else self.actor_target
            action = self._smoothed(
                actor(batch.next_state)
            )  # a' = clip(pi'(s') + clip(eps, -c, c))
            next_x = torch.cat((batch.next_state, action), 1)
        if self.config.critic == "crossq":
            joint = [JointPass(Q, x, next_x) for Q in self._critics]
            return joint, [each.following for each in joint]
        with torch.no_grad():
            following = [Q(next_x) for Q in self._critic_targets]
        return [forward(Q, x) for Q in self._critics], following

    def _target(self, batch: Batch, following: list[Tensor]) -> Tensor:
        """What both critics are to give, y = r + gamma (1 - done) min(Q1', Q2')."""
        gamma = self.config.gamma if batch.discount is None else batch.discount
        return self.value.target(batch.reward, gamma, batch.done, *following)

    def _smoothed(self, action: Tensor) -> Tensor:
        """Target actions with noise eps ~ N(0, policy_noise); none is drawn where there is none."""
        if not self.config.policy_noise:
            return action
        noise = (
            torch.randn(action.shape, generator=self.generator, device=self.device)
            * self.config.policy_noise
        )
        return smoothed_target_action(action, noise, self.config.noise_clip, self.a_max)

    def _update_actor(self, state: Tensor, data_action: Tensor) -> Tensor:
        """The actor descends the sum of its terms, in the paper -mean Q1(s, pi(s)) alone."""
        passed = forward(self.actor, state)
        action = passed.output
        step = ActorStep(state, action, data_action, self._ascended(state, action), self._ascended)
        loss = reduce(torch.add, [term(step) for term in self.actor_terms])
        passed.backward_from(loss)
        self._limit_gradients((self.actor,), self.config.actor_grad_clip)
        self._actor_step((self.actor_optimizer,))
        if self.config.weight_norm:
            normalize_weights((self.actor,))
        return loss.detach()

    def _limit_gradients(self, nets: Sequence[nn.Module], norm: float | None) -> None:
        """The last before a step: the gradient of each network has at most this norm."""
        clip_gradients(nets, norm)

    def _ascended(self, state: Tensor, action: Tensor) -> Tensor:
        """(B, 1) the value that the actor ascends: Q1's, or the lower of both critics' with
        `actor_min_q`.
        """
        x = torch.cat((state, action), 1)
        critics = self._critics[: 1 + self.config.actor_min_q]
        return reduce(torch.min, [self.value.mean(frozen_forward(Q, x)) for Q in critics])

    # Without `twin_critics` Q2 stays as it was made.
    _critics = property(lambda self: (self.Q1, self.Q2)[: 1 + self.config.twin_critics])
    _critic_targets = property(
        lambda self: (self.Q1_target, self.Q2_target)[: 1 + self.config.twin_critics]
    )
    _optimizers = property(
        lambda self: (self.actor_optimizer, self.Q1_optimizer, self.Q2_optimizer)
    )
    _critic_optimizers = property(
        lambda self: (self.Q1_optimizer, self.Q2_optimizer)[: 1 + self.config.twin_critics]
    )

    @property
    def joint_steps(self) -> list[tuple[JointStep, Sequence[Optimizer]]]:
        """How the critics and the actor take a step, and the optimizers whose step that is."""
        return [
            (self._critics_step, self._critic_optimizers),
            (self._actor_step, (self.actor_optimizer,)),
        ]

    @torch.no_grad()
    def _update_targets(self) -> None:
        """Polyak averaging: target <- tau * network + (1 - tau) * target, batch statistics
        included.
        """
        names = [name for name in self.config.targets if name != "Q2" or self.config.twin_critics]
        online = [each for name in names for each in followed(getattr(self, name))]
        target = [each for name in names for each in followed(getattr(self, f"{name}_target"))]
        if names:
            torch._foreach_lerp_(target, online, self.config.tau)

    def scale_learning_rates(self, factor: float) -> None:
        """Set every learning rate to `factor` times the one given at the start."""
        for optimizer, rates in zip(self._optimizers, self._learning_rates):
            for group, lr in zip(optimizer.param_groups, rates):
                group["lr"] = lr * factor
