"""One update of TD3 against a reference in numpy and float64, written from the papers, every
derivative by hand.
"""

import numpy as np
import torch

from td3_robot import TD3, Batch

NETWORKS = ("actor", "Q1", "Q2")
TARGETS = ("actor_target", "Q1_target", "Q2_target")
A_MAX = (1.0, 0.125)  # powers of two: the same in float32 and float64


class ReferenceNet:
    """A multilayer perceptron, its gradient by backpropagation, and Adam (Kingma & Ba, ICLR 2015,
    algorithm 1).
    """

    def __init__(self, net: torch.nn.Module, lr: float):
        # W0, b0, W1, b1, ...
        self.parameters = [p.detach().numpy().copy() for p in net.parameters()]
        self.lr = lr
        self.t = 0
        self.m, self.v = ([np.zeros_like(p) for p in self.parameters] for _ in range(2))

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.inputs = []
        layers = list(zip(self.parameters[::2], self.parameters[1::2]))
        for i, (W, b) in enumerate(layers):
            self.inputs.append(x)
            x = x @ W.T + b
            if i < len(layers) - 1:
                x = np.maximum(x, 0)
        return x

    def backward(self, dy: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """Gradients of the parameters and of the input, for dy at the output of the last
        forward.
        """
        gradients = []
        for i in reversed(range(len(self.inputs))):
            gradients = [dy.T @ self.inputs[i], dy.sum(0), *gradients]
            dy = dy @ self.parameters[2 * i]
            if i > 0:
                dy = dy * (self.inputs[i] > 0)
        return gradients, dy

    def descend(self, gradients: list[np.ndarray]) -> None:
        self.t += 1
        for p, g, m, v in zip(self.parameters, gradients, self.m, self.v):
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            p -= self.lr * (m / (1 - 0.9**self.t)) / (np.sqrt(v / (1 - 0.999**self.t)) + 1e-8)


class ReferenceTD3:
    """Algorithm 1 of Fujimoto, van Hoof & Meger, ICML 2018."""

    def __init__(self, agent: TD3, actor_lr: float, critic_lr: float):
        rates = {"actor": actor_lr, "Q1": critic_lr, "Q2": critic_lr}
        self.nets = {name: ReferenceNet(getattr(agent, name), lr) for name, lr in rates.items()}
        self.targets = {
            name: ReferenceNet(getattr(agent, f"{name}_target"), lr=0.0) for name in rates
        }
        self.t = 0

    def update(self, s, a, r, s2, done, epsilon, gamma, tau, sigma, c, d):
        self.t += 1
        bound = np.array(A_MAX)
        N = len(s)
        noise = np.clip(sigma * epsilon, -c, c) * bound
        a2 = np.clip(bound * np.tanh(self.targets["actor"].forward(s2)) + noise, -bound, bound)
        s2a2 = np.hstack((s2, a2))
        y = r + gamma * (1 - done) * np.minimum(
            self.targets["Q1"].forward(s2a2), self.targets["Q2"].forward(s2a2)
        )
        for name in ("Q1", "Q2"):
            error = self.nets[name].forward(np.hstack((s, a))) - y
            self.nets[name].descend(self.nets[name].backward(2 * error / N)[0])
        if self.t % d:
            return
        squashed = np.tanh(self.nets["actor"].forward(s))
        self.nets["Q1"].forward(np.hstack((s, bound * squashed)))
        dQ_da = self.nets["Q1"].backward(np.full((N, 1), 1 / N))[1][:, s.shape[1] :]
        self.nets["actor"].descend(
            self.nets["actor"].backward(-dQ_da * bound * (1 - squashed**2))[0]
        )
        for name, net in self.nets.items():
            for theta_target, theta in zip(self.targets[name].parameters, net.parameters):
                theta_target += tau * (theta - theta_target)


def transitions(count: int, seed: int) -> Batch:
    """Random ones, a third of them terminated."""
    numbers = np.random.default_rng(seed)
    state, next_state = numbers.standard_normal((2, count, 3))
    action = np.clip(numbers.standard_normal((count, 2)), -1, 1) * A_MAX
    reward = numbers.standard_normal((count, 1))
    done = (numbers.random((count, 1)) < 0.3).astype(float)
    return Batch(*map(torch.tensor, (state, action, reward, next_state, done)))


def test_ten_updates_equal_a_float64_reference_written_from_the_paper():
    settings = dict(gamma=0.97, tau=0.1, policy_noise=0.25, noise_clip=0.5, policy_delay=3)
    agent = TD3(3, 2, A_MAX, hidden=(16, 8), actor_lr=1e-2, critic_lr=2e-2, seed=3, **settings)
    for name in NETWORKS + TARGETS:
        getattr(agent, name).double()
    with (
        torch.no_grad()
    ):  # targets of their own, actions near their bounds: no term may be missed by chance
        for name in TARGETS:
            for p in getattr(agent, name).parameters():
                p += 0.5 * torch.randn(p.shape, dtype=p.dtype)
    reference = ReferenceTD3(agent, actor_lr=1e-2, critic_lr=2e-2)

    for step in range(10):
        batch = transitions(32, seed=step)
        twin = torch.Generator()
        twin.set_state(agent.generator.get_state())
        epsilon = torch.randn(batch.action.shape, generator=twin).double().numpy()
        metrics = agent.update(batch)
        assert ("actor_loss" in metrics) == (step in (2, 5, 8))
        reference.update(*(x.numpy() for x in batch[:5]), epsilon, *settings.values())
        for name in NETWORKS:
            for module, net in (
                (getattr(agent, name), reference.nets[name]),
                (getattr(agent, f"{name}_target"), reference.targets[name]),
            ):
                for p, expected in zip(module.parameters(), net.parameters, strict=True):
                    np.testing.assert_allclose(p.detach().numpy(), expected, rtol=0, atol=1e-9)
