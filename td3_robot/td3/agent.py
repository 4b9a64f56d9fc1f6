"""Twin Delayed Deep Deterministic policy gradient: six networks and one update rule.

Fujimoto, van Hoof & Meger, "Addressing Function Approximation Error in Actor-Critic Methods", ICML
2018. The formulas are in losses.py, value_heads.py and actor_losses.py, checkpoints in agent_io.py.
"""

import copy
import functools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from td3_robot.config.td3 import TD3Config, resolve_config
from td3_robot.networks.backward import (
    AutogradPass,
    JointPass,
    ManualMLPPass,
    clip_gradients,
    forward,
    frozen_forward,
)
from td3_robot.networks.fused_adam import JointStep, MakeOptimizer, make_adam
from td3_robot.networks.mlp import (
    MakeNetworks,
    check_networks,
    get_trainable,
    make_mlps,
    polyak_tensors,
)
from td3_robot.networks.normalization import RunningNormalizer, make_normalizer
from td3_robot.networks.weight_norm import normalize_weights
from td3_robot.replay import Batch
from td3_robot.td3 import agent_io
from td3_robot.td3.actor_losses import ActorStep, make_actor_terms
from td3_robot.td3.losses import require_columns, smooth_target_action
from td3_robot.td3.value_heads import make_value_head
from td3_robot.utils.communicator import SINGLE_PROCESS, Communicator
from td3_robot.utils.legacy import TD3_ATTRIBUTES, keep_old_names
from td3_robot.utils.seeding import derive_seed
from td3_robot.vec_env import draw_normal

_WEIGHTS_LOCK = threading.Lock()  # drawing weights seeds the generator of all threads
_Passes = Sequence[ManualMLPPass | AutogradPass | JointPass]


class UpdateSchedule(NamedTuple):
    """The networks that a gradient step updates in addition to the critics."""

    targets: bool
    actor: bool


@keep_old_names(**TD3_ATTRIBUTES)
class TD3:
    """A TD3 agent: `actor`, `Q1`, `Q2`, their `*_target` networks and `*_optimizer` optimizers.

    With `critic` crossq a target is the network itself, but for an `actor_target` that acts.

    Args:
        o_dim: width of an observation.
        a_dim: width of an action.
        a_max: bound of the actions, a scalar or one value a joint; actions lie in [-a_max, a_max].
        device: device of the networks.
        seed: seed of the initial weights and of the target noise.
        networks: makes the actor and both critics, like `networks.mlp.make_mlps`.
        optimizer: makes the optimizer of each network from its weights and learning rate, like
            `networks.fused_adam.make_adam`.
        config: all options; the default is the TD3 of the paper.
        communicator: of the processes that train this agent; all step by their mean gradients.
        options: single fields of `TD3Config`, over `config`: docs/reference/td3-options.md.

    Attributes:
        config: the resolved options.
        privileged: number of values that critics alone see, after an observation.
        normalizer: running statistics of observations, or the identity.
        policy: normaliser, then the deployed network: the actor or its target (`config.policy`).
        gradient_steps: number of updates.
        actor_trained: the actor has been updated; before, it is as made or loaded.

    Raises:
        ConfigError: a_max is not positive and finite, or not of shape () or (a_dim,); an option is
            out of its range or contradicts another; a network has a wrong input or output.
    """

    def __init__(
        self,
        o_dim: int,
        a_dim: int,
        a_max: float | Sequence[float] | Tensor = 1.0,
        device: torch.device | str = "cpu",
        *,
        seed: int = 0,
        networks: MakeNetworks = make_mlps,
        optimizer: MakeOptimizer = make_adam,
        config: TD3Config | None = None,
        communicator: Communicator = SINGLE_PROCESS,
        **options,
    ):
        self.config = resolve_config(config, options)
        self.privileged = self.config.privileged or 0
        self.device = torch.device(device)
        self.a_max = torch.as_tensor(a_max, dtype=torch.float32, device=self.device)
        agent_io.check_spaces(o_dim, a_dim, self.a_max)
        self.o_dim = int(o_dim)
        self.a_dim = int(a_dim)
        self.value = make_value_head(self.config, self.device)
        self.actor_terms = make_actor_terms(self.config, self.a_max)
        self.gradient_steps = 0
        self.actor_trained = False
        self.communicator = communicator
        stream = communicator.name_stream("target noise")
        self.generator = torch.Generator(self.device).manual_seed(derive_seed(seed, stream))
        self.normalizer = make_normalizer(self.config, o_dim, self.device, communicator)
        self._make_networks(networks, seed)
        self._make_optimizers(optimizer)

    def _make_networks(self, networks: MakeNetworks, seed: int) -> None:
        # the global generator belongs to all threads, and the caller gets it back unchanged
        with _WEIGHTS_LOCK, torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive_seed(seed, "weights"))
            made = networks(self.o_dim, self.a_dim, self.a_max, self.value.out_dim, self.config)
        widths = (self.o_dim, self.o_dim + self.privileged, self.a_dim, self.value.out_dim)
        check_networks(made, self.device, *widths)
        self.actor, self.Q1, self.Q2 = made
        self.actor_target, self.Q1_target, self.Q2_target = made
        if self.config.weight_norm:
            normalize_weights(made)
        for name in self.config.targets:
            target = copy.deepcopy(getattr(self, name)).requires_grad_(False)
            setattr(self, f"{name}_target", target)
        self.policy = nn.Sequential(self.normalizer, getattr(self, self.config.policy)).eval()

    def _make_optimizers(self, optimizer: MakeOptimizer) -> None:
        self.actor_optimizer = optimizer(get_trainable(self.actor), self.config.actor_lr)
        self.Q1_optimizer = optimizer(get_trainable(self.Q1), self.config.critic_lr)
        self.Q2_optimizer = optimizer(get_trainable(self.Q2), self.config.critic_lr)
        self._critics_step = JointStep()
        self._actor_step = JointStep()
        self._learning_rates = [
            [group["lr"] for group in made.param_groups] for made in self._optimizers
        ]

    def observe(self, o: np.ndarray | Tensor) -> None:
        """Add observations, (o_dim,) or (B, o_dim), to the running statistics, if there are any."""
        if isinstance(self.normalizer, RunningNormalizer):
            self.normalizer.update(agent_io.read_observations(self, o).reshape(-1, self.o_dim))

    def select_action(self, o: np.ndarray | Tensor) -> Tensor:
        """Return the noiseless action, (o_dim,) -> (a_dim,) or (B, o_dim) -> (B, a_dim)."""
        return self._run(getattr(self, self.config.policy), o)

    def select_exploratory_action(self, o: np.ndarray | Tensor) -> Tensor:
        """Return the actor's action, even if its target is deployed; shapes as `select_action`."""
        return self._run(self.actor, o)

    @torch.no_grad()
    def _run(self, net: nn.Module, o: np.ndarray | Tensor) -> Tensor:
        o = agent_io.read_observations(self, o)
        return net(self.normalizer(torch.atleast_2d(o))).reshape(*o.shape[:-1], self.a_dim)

    @torch.no_grad()
    def compute_disagreement(self, o: Tensor, action: Tensor) -> Tensor:
        """Compute the distance (B,) of both critics' values, of o (B, o_dim + privileged)."""
        x = torch.cat((self.normalizer(o), action), 1)
        return (self.value.mean(self.Q1(x)) - self.value.mean(self.Q2(x))).abs()[:, 0]

    def update(self, batch: Batch) -> dict[str, Tensor]:
        """Take a gradient step of both critics and, if due, of targets and actor.

        Targets move every `policy_delay` steps, and with them the actor after the first `burn_in`.

        Args:
            batch: observations before normalisation, (B, o_dim + privileged).

        Returns:
            Named 0-d tensors, left on the device so that nothing waits for it: `Q1_loss`, `Q2_loss`
            (with twin critics), `Q1` (mean value of the batch) and, when the actor was updated,
            `actor_loss`; with importance weights also `td_error` (B,), each sample's new priority.

        Raises:
            ValueError: reward, done, discount or weight is not (B, 1); as (B,) it would silently
                broadcast to (B, B).
        """
        schedule = self.next_update
        metrics = self.learn(batch, schedule)
        self.gradient_steps += 1
        self.actor_trained |= schedule.actor
        return metrics

    @property
    def next_update(self) -> UpdateSchedule:
        """The networks that the next gradient step updates in addition to the critics."""
        step = self.gradient_steps + 1
        targets = step % self.config.policy_delay == 0
        return UpdateSchedule(targets, targets and step > self.config.burn_in)

    def learn(self, batch: Batch, schedule: UpdateSchedule) -> dict[str, Tensor]:
        """Compute an update without counting it.

        Nothing here depends on a number that changes on the host, except the learning rates
        (`joint_steps`), so that it can be captured as a graph.
        """
        require_columns(batch)
        batch = batch._replace(
            state=self.normalizer(batch.state), next_state=self.normalizer(batch.next_state)
        )
        metrics = self._update_critics(batch)
        if schedule.actor:
            metrics["actor_loss"] = self._update_actor(batch.state, batch.action)
        if schedule.targets:
            self._update_targets()
        return metrics

    def _update_critics(self, batch: Batch) -> dict[str, Tensor]:
        """Take a step of both critics down their loss to the target y."""
        passes, next_outputs = self._forward_critics(batch)
        gamma = self.config.gamma if batch.discount is None else batch.discount
        # y = r + gamma (1 - done) min(Q1', Q2')
        y = self.value.target(batch.reward, gamma, batch.done, *next_outputs)
        outputs = [critic_pass.output.detach() for critic_pass in passes]
        for critic_pass, output in zip(passes, outputs):
            critic_pass.backward(self.value.grad(output, y, batch.weight))
        self._limit_gradients(self._critics, self.config.critic_grad_clip)
        self._critics_step(self._critic_optimizers)
        if self.config.weight_norm:
            normalize_weights(self._critics)
        losses = [self.value.loss(output, y, batch.weight) for output in outputs]
        metrics = {f"Q{i}_loss": loss for i, loss in enumerate(losses, 1)}
        metrics["Q1"] = self.value.mean(outputs[0]).mean()
        if batch.weight is not None:
            errors = [self.value.error(output, y) for output in outputs]
            metrics["td_error"] = functools.reduce(torch.add, errors) / len(errors)
        return metrics

    def _forward_critics(self, batch: Batch) -> tuple[_Passes, list[Tensor]]:
        """Run each critic on (s, a), to be trained, and its target on (s', a')."""
        x = torch.cat((batch.state, batch.action), 1)
        with torch.no_grad():
            actor = self.actor if self.config.critic == "crossq" else self.actor_target
            # a' = clip(pi'(s') + clip(eps, -c, c))
            action = self._smooth(actor(batch.next_state[:, : self.o_dim]))
            next_x = torch.cat((batch.next_state, action), 1)
        if self.config.critic == "crossq":
            passes = [JointPass(Q, x, next_x) for Q in self._critics]
            return passes, [joint.next_output for joint in passes]
        with torch.no_grad():
            next_outputs = [Q(next_x) for Q in self._critic_targets]
        return [forward(Q, x) for Q in self._critics], next_outputs

    def _smooth(self, action: Tensor) -> Tensor:
        """Add clipped noise eps ~ N(0, policy_noise) to target actions; 0 draws none."""
        if not self.config.policy_noise:
            return action
        noise = self.config.policy_noise * draw_normal(self.generator, *action.shape)
        return smooth_target_action(action, noise, self.config.noise_clip, self.a_max)

    def _update_actor(self, state: Tensor, data_action: Tensor) -> Tensor:
        """Take a step of the actor down the sum of its terms, in the paper -mean Q1(s, pi(s))."""
        passed = forward(self.actor, state[:, : self.o_dim])
        action = passed.output
        q = self._estimate_value(state, action)
        step = ActorStep(state, action, data_action, q, self._estimate_value)
        loss = functools.reduce(torch.add, [term(step) for term in self.actor_terms])
        passed.backward_from(loss)
        self._limit_gradients((self.actor,), self.config.actor_grad_clip)
        self._actor_step((self.actor_optimizer,))
        if self.config.weight_norm:
            normalize_weights((self.actor,))
        return loss.detach()

    def _limit_gradients(self, nets: Sequence[nn.Module], norm: float | None) -> None:
        clip_gradients(nets, norm, self.communicator)

    def _estimate_value(self, state: Tensor, action: Tensor) -> Tensor:
        """Return the value (B, 1) that the actor ascends: Q1, or the lower with `actor_min_q`."""
        x = torch.cat((state, action), 1)
        critics = self._critics[: 1 + self.config.actor_min_q]
        return functools.reduce(torch.min, [self.value.mean(frozen_forward(Q, x)) for Q in critics])

    @property
    def _critics(self) -> tuple[nn.Module, ...]:
        """The critics that learn; without `twin_critics` Q2 is never updated."""
        return (self.Q1, self.Q2) if self.config.twin_critics else (self.Q1,)

    @property
    def _critic_targets(self) -> tuple[nn.Module, ...]:
        """The targets of the critics that learn."""
        return (self.Q1_target, self.Q2_target) if self.config.twin_critics else (self.Q1_target,)

    @property
    def _critic_optimizers(self) -> tuple[Optimizer, ...]:
        """The optimizers of the critics that learn."""
        both = (self.Q1_optimizer, self.Q2_optimizer)
        return both if self.config.twin_critics else both[:1]

    @property
    def _optimizers(self) -> tuple[Optimizer, ...]:
        """All optimizers, in the order of their learning rates."""
        return self.actor_optimizer, self.Q1_optimizer, self.Q2_optimizer

    @property
    def joint_steps(self) -> list[tuple[JointStep, Sequence[Optimizer]]]:
        """The joint steps of critics and of the actor, each with its optimizers."""
        critics = (self._critics_step, self._critic_optimizers)
        return [critics, (self._actor_step, (self.actor_optimizer,))]

    @torch.no_grad()
    def _update_targets(self) -> None:
        """Average: target <- tau * network + (1 - tau) * target, batch statistics included."""
        names = [name for name in self.config.targets if name != "Q2" or self.config.twin_critics]
        online = [x for name in names for x in polyak_tensors(getattr(self, name))]
        target = [x for name in names for x in polyak_tensors(getattr(self, f"{name}_target"))]
        if names:
            torch._foreach_lerp_(target, online, self.config.tau)

    def scale_learning_rates(self, factor: float) -> None:
        """Set every learning rate to `factor` times its initial value."""
        for optimizer, rates in zip(self._optimizers, self._learning_rates):
            for group, lr in zip(optimizer.param_groups, rates):
                group["lr"] = lr * factor

    def state_dicts(self) -> dict[str, dict]:
        """Return the state dicts of networks, optimizers and normaliser, if any, by file name."""
        return agent_io.get_states(self)

    def load_state_dicts(self, states: dict[str, dict]) -> None:
        """Restore the result of `state_dicts`; learning rates stay as they are.

        A missing target is initialised as a copy of its network, unless it is the policy.

        Raises:
            CheckpointError: a state does not fit this agent: names, shapes, dtypes, or values that
                are not finite; the agent is left as it was.
        """
        agent_io.load_states(self, states)

    def require(self, o_dim: int, a_dim: int, what: str) -> None:
        """Check the widths of this agent against those of an environment.

        Raises:
            CheckpointError: they differ; the message begins with `what`.
        """
        agent_io.require_widths(self, o_dim, a_dim, what)

    def metadata(self) -> dict[str, object]:
        """Return what a checkpoint stores of this agent, from which `from_checkpoint` makes it."""
        return agent_io.get_metadata(self)

    def save(self, name: str | Path, notes: dict[str, object] | None = None) -> None:
        """Write the state dicts into the checkpoint folder `name`, all or none.

        Args:
            name: the folder.
            notes: further entries of its file `checkpoint.json`, values that JSON can hold.
        """
        agent_io.save_agent(self, name, notes)

    def load(self, name: str | Path) -> None:
        """Load a checkpoint folder, or six older files with the prefix `name`, onto this device.

        If its policy is the actor and this agent's is `actor_target`, or the reverse, both start
        from the deployed network.

        Raises:
            CheckpointError: it is missing, damaged, unsafe, or of another a_max, networks or what
                bounds them.
        """
        agent_io.load_agent(self, name)

    @classmethod
    def from_checkpoint(
        cls,
        name: str | Path,
        device: torch.device | str = "cpu",
        *,
        networks: MakeNetworks = make_mlps,
        optimizer: MakeOptimizer = make_adam,
    ) -> Self:
        """Make the agent of a checkpoint folder, or of six older files with the prefix `name`.

        Args:
            name: the folder or prefix.
            device: device of the networks.
            networks, optimizer: those that the saved agent was made with.

        Raises:
            CheckpointError: nothing there, damaged, unsafe, or not of one agent.
        """
        return agent_io.load_agent_from_checkpoint(cls, name, device, networks, optimizer=optimizer)
