"""An actor that corrects a controller's action: what it starts as, how far it goes, what it learns,
how it is kept.
"""

import numpy as np
import onnxruntime
import pytest
import torch

from envs import make
from td3_robot import MLP, TD3, Batch
from td3_robot.config.td3 import NORMS, TD3Config
from td3_robot.errors import CheckpointError, ConfigError
from td3_robot.networks.backward import forward
from td3_robot.networks.residual import Residual, resolve_residual_column
from td3_robot.td3.onnx_export import make_onnx

BOUND = torch.tensor([1.0, 0.5])
COLUMN = slice(3, 5)
SCALE = 0.25
OPTIONS = {"residual_at": 3, "residual_scale": SCALE, "hidden": (16,)}


def observations(count: int = 200, seed: int = 0) -> torch.Tensor:
    """(B, 6), a controller's action in COLUMN: inside the bounds, and in half of them at one."""
    o = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))
    o[:, COLUMN] = torch.minimum(torch.maximum(o[:, COLUMN], -BOUND), BOUND)
    return o


def batch_of(seed: int, count: int = 64) -> Batch:
    s, s2, a = (observations(count, 3 * seed + part) for part in range(3))
    return Batch(s, a[:, COLUMN], s2[:, :1], s2, torch.zeros(count, 1))


def trained(updates: int = 200, **options) -> TD3:
    agent = TD3(6, 2, BOUND, **{**OPTIONS, "actor_lr": 1e-2, "critic_lr": 1e-2, **options})
    for seed in range(updates):
        agent.update(batch_of(seed))
    return agent


@pytest.fixture(scope="module")
def agent() -> TD3:
    return trained()


@pytest.mark.parametrize("options", [*({"norm": norm} for norm in NORMS), {"init": "orthogonal"}])
def test_at_first_the_policy_is_the_controller_to_the_bit(options):
    o = observations()
    for seed in (0, 1):
        agent = TD3(6, 2, BOUND, seed=seed, **OPTIONS, **options)
        assert torch.equal(agent.select_action(o), o[:, COLUMN])
        assert torch.equal(agent.select_action(o[0]), o[0, COLUMN])


def test_a_drawn_last_layer_is_as_small_as_asked():
    o = observations()
    moved = (
        (TD3(6, 2, BOUND, final_bound=1e-3, **OPTIONS).select_action(o) - o[:, COLUMN]).abs().max()
    )
    assert 0.0 < moved < 1e-2


def test_it_stays_within_the_scale_of_the_controller_and_inside_the_bounds(agent):
    o = observations(2000)
    action = agent.select_action(o)
    moved = (action - o[:, COLUMN]).abs() / BOUND
    assert 0.5 * SCALE < moved.max() <= SCALE + 1e-6
    assert (action.abs() <= BOUND).all() and (action.abs() == BOUND).any()
    # where every tanh is at its end, and the controller's action beyond the bounds
    far = agent.select_action(1e6 * o)
    assert (far.abs() <= BOUND).all()


def net_of(at: float) -> Residual:
    """One that corrects by about `at` times the scale everywhere, in float64."""
    net = Residual(
        MLP(6, 2, BOUND, hidden=(8,)), BOUND, TD3Config(residual_at=3, residual_scale=SCALE), 6, 2
    )
    torch.nn.init.uniform_(net.net.layers[-1].weight, -0.1, 0.1)
    torch.nn.init.constant_(net.net.layers[-1].bias, np.arctanh(at))
    return net.double()


@pytest.mark.parametrize("joints", [None, 1])
def test_a_fading_correction_never_stops_the_controller(joints):
    """It is at most scale / fade of the controller's speed, none of an arm at rest, and the same as
    without a fade where the controller is faster than that.
    """
    fade = 0.5
    plain = net_of(0.99)
    config = {"residual_fade": fade, "residual_joints": joints}
    faded = Residual(
        plain.net, BOUND, TD3Config(residual_at=3, residual_scale=SCALE, **config), 6, 2
    ).double()
    o = observations(500).double()
    o[:, COLUMN] *= torch.linspace(0.0, 0.6, 500)[:, None]
    controller = o[:, COLUMN] / BOUND
    speed = controller[:, :joints].abs().amax(1)
    moved = (faded(o) - o[:, COLUMN]) / BOUND
    asked = (plain(o) - o[:, COLUMN]) / BOUND
    assert torch.equal(faded(o[:1]), o[:1, COLUMN]) and speed[0] == 0.0
    assert (moved.abs().amax(1) <= SCALE / fade * speed + 1e-12).all()
    fast = speed >= fade
    assert 20 < fast.sum() < 480
    assert torch.equal(moved[fast], asked[fast])
    slow = (~fast) & (speed > 0.0)
    torch.testing.assert_close(moved[slow], asked[slow] * (speed[slow] / fade)[:, None])


def gradients(net: Residual, o: torch.Tensor, grad_output: torch.Tensor) -> list[torch.Tensor]:
    forward(net, o).backward(grad_output)
    return [weight.grad.clone() for weight in net.parameters()]


def test_inside_the_bounds_the_gradient_is_that_of_finite_differences():
    net = net_of(0.5)
    o = observations(20).double()
    o[:, COLUMN] *= 0.7  # so that nothing is clamped
    grad_output = torch.randn(20, 2, dtype=torch.float64)
    found = gradients(net, o, grad_output)
    for weight, gradient in zip(net.parameters(), found):
        for index in np.ndindex(*weight.shape):
            values = []
            for step in (1e-6, -1e-6):
                with torch.no_grad():
                    weight[index] += step
                    values.append((net(o) * grad_output).sum())
                    weight[index] -= step
            assert gradient[index].item() == pytest.approx(
                ((values[0] - values[1]) / 2e-6).item(), abs=1e-7
            )


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_beyond_a_bound_only_the_way_back_is_learnt(side):
    """The controller is at the bound and is corrected outwards: descending may lead back in, and no
    further out.
    """
    net = net_of(0.5 * side)
    o = observations(20).double()
    o[:, COLUMN] = side * BOUND
    assert torch.equal(net(o), o[:, COLUMN])
    inwards = torch.full((20, 2), side, dtype=torch.float64)
    assert all(gradient.abs().max() > 0 for gradient in gradients(net, o, inwards))
    assert all(gradient.abs().max() == 0 for gradient in gradients(net, o, -inwards))


def test_a_joint_at_its_bound_can_learn_to_be_slower():
    """Against a value that is best at half of what the controller does, which is the bound
    everywhere.
    """
    net = net_of(0.5)
    o = observations(100).double()
    o[:, COLUMN] = BOUND
    adam = torch.optim.Adam(net.parameters(), 3e-2)
    for _ in range(60):
        adam.zero_grad()
        (net(o) - 0.9 * BOUND).square().mean().backward()
        adam.step()
    torch.testing.assert_close(net(o), (0.9 * BOUND).double().expand(100, 2), atol=2e-2, rtol=0)


def test_it_is_kept_with_all_that_makes_it(agent, tmp_path):
    agent.save(tmp_path / "run")
    back = TD3.from_checkpoint(tmp_path / "run")
    o = observations()
    assert torch.equal(back.select_action(o), agent.select_action(o))
    assert back.config == agent.config and torch.equal(back.actor_target(o), agent.actor_target(o))
    again = trained(0)
    again.load(tmp_path / "run")
    for one in (again, back, agent):  # and learns on as if it had never been away
        one.generator.manual_seed(0)
        one.gradient_steps = 0
        one.update(batch_of(1000))
        one.update(batch_of(1001))
    assert torch.equal(again.select_action(o), agent.select_action(o))
    assert torch.equal(back.select_action(o), agent.select_action(o))
    for other in ({**OPTIONS, "residual_at": 2}, {"hidden": (16,)}):
        with pytest.raises(
            CheckpointError,
            match="its actor corrects the controller in observation column 3, this one corrects ",
        ):
            TD3(6, 2, BOUND, **other).load(tmp_path / "run")


@pytest.mark.parametrize(
    ("saved", "here", "why"),
    [
        (OPTIONS, OPTIONS | {"residual_scale": 0.1}, f"residual_scale is {SCALE}, not 0.1"),
        (OPTIONS, OPTIONS | {"residual_fade": 0.1}, "residual_fade is 0.0, not 0.1"),
        (
            OPTIONS | {"residual_fade": 0.1},
            OPTIONS | {"residual_fade": 0.1, "residual_joints": 1},
            "residual_joints is 2, not 1",
        ),
        (
            {"normalize_observations": True},
            {"normalize_observations": True, "normalize_clip": 5.0},
            "normalize_clip is 10.0, not 5.0",
        ),
    ],
)
def test_networks_that_would_be_another_policy_are_refused(saved, here, why, tmp_path):
    """The same weights, with what makes other actions of them; elsewhere options are free."""
    agent = TD3(6, 2, BOUND, **saved)
    agent.save(tmp_path / "run")
    free = {"residual_joints": 1} if "residual_at" in saved and "residual_fade" not in saved else {}
    again = TD3(6, 2, BOUND, **saved | {"gamma": 0.9, "normalize_epsilon": 1e-8} | free)
    again.load(tmp_path / "run")
    o = observations()
    assert torch.equal(again.select_action(o), agent.select_action(o))
    with pytest.raises(CheckpointError, match=f"its td3.{why}, with which its networks are ano"):
        TD3(6, 2, BOUND, **here).load(tmp_path / "run")


def test_its_file_for_robots_gives_the_same_actions(agent):
    o = observations()
    model = make_onnx(agent.policy.eval(), {"observation": o}, ["action"])
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (found,) = session.run(None, {"observation": o.numpy()})
    np.testing.assert_allclose(found, agent.select_action(o), atol=1e-6)


# Where the controller's action is


class Named:
    """An environment that names its columns."""

    o_dim = 6
    a_dim = 2
    layout = {"q": slice(0, 2), "goal": slice(2, 3), "scripted": slice(3, 5), "rest": slice(5, 6)}


def test_the_joints_of_an_action_are_those_of_the_environment():
    """A gripper's element always moves at full speed and must not count."""
    env = make("panda", "pick_place", num_envs=1)
    assert (env.a_dim, env.joints) == (8, 7)
    found = resolve_residual_column(TD3Config(residual="scripted"), env)
    assert found.residual_joints == 7
    given = TD3Config(residual="scripted", residual_joints=3)
    assert resolve_residual_column(given, env).residual_joints == 3
    assert resolve_residual_column(TD3Config(residual="scripted"), Named()).residual_joints is None


def test_a_column_is_found_by_its_name_and_by_nothing_else():
    config = TD3Config(residual="scripted")
    there = resolve_residual_column(config, Named())
    assert (
        there.residual_at,
        resolve_residual_column(there, Named()),
        resolve_residual_column(TD3Config(), Named()),
    ) == (3, there, TD3Config())
    for wrong, why in (
        (
            TD3Config(residual="scirpted"),
            "unknown td3.residual 'scirpted'; did you mean 'scripted'.* choices: q, scripted",
        ),
        (
            TD3Config(residual="goal"),
            "'goal' has 1 elements, an action has 2; valid choices: q, scripted$",
        ),
        (
            TD3Config(residual="scripted", residual_at=1),
            "residual_at is 1, but 'scripted' begins at 3",
        ),
    ):
        with pytest.raises(ConfigError, match=why):
            resolve_residual_column(wrong, Named())
    with pytest.raises(ConfigError, match="this environment names no columns; set td3.residual_at"):
        resolve_residual_column(config, object())


@pytest.mark.parametrize(
    "options, why",
    [
        (
            {"residual_at": 5},
            r"residual_at must be in \[0, 4\], where an action begins in the observation, got 5",
        ),
        ({"residual": "scripted"}, "got null"),
        ({"residual_at": -1}, "residual_at must be in"),
        ({"residual_at": 3, "residual_scale": 1.5}, r"residual_scale must be in \(0, 1\], got 1.5"),
        (
            {"residual_at": 3, "normalize_observations": True},
            "residual and normalize_observations exclude each other",
        ),
    ],
)
def test_what_cannot_be_is_one_line(options, why):
    with pytest.raises(ConfigError, match=why) as caught:
        TD3(6, 2, **options)
    assert str(caught.value).count("\n") == 0
