"""NaN, infinity and growth without bound end a run in the step in which they appear, with what led
to them.
"""

import contextlib
import math

import pytest
import torch

from td3_robot import TD3, Batch
from td3_robot.checkpoint.resume_point import LAST
from td3_robot.errors import NotFiniteError
from td3_robot.training.nan_guard import EVIDENCE, NanGuard

pytestmark = pytest.mark.usefixtures("no_fsync")


def agent_and_batch(**parts) -> tuple[TD3, Batch]:
    rows = {"state": 3, "action": 2, "reward": 1, "next_state": 3, "done": 1}
    agent = TD3(
        3, 2, hidden=(16,), policy_delay=1, **{k: v for k, v in parts.items() if k not in rows}
    )
    batch = Batch(**{name: torch.rand(8, width) for name, width in rows.items()})
    for name in rows.keys() & parts.keys():
        getattr(batch, name)[5, 0] = parts[name]
    return agent, batch


def look(agent, batch, updates=1):
    guard = NanGuard(agent, "run")
    for _ in range(updates):
        guard.check_update(batch, agent.update(batch))


def test_what_is_finite_passes():
    look(*agent_and_batch(), updates=5)


@pytest.mark.parametrize("name", ["state", "action", "reward", "next_state", "done"])
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_the_update_that_meets_it_names_it_and_has_the_batch(name, poison):
    agent, batch = agent_and_batch(**{name: poison})
    with pytest.raises(
        NotFiniteError, match=f"^{name} of the batch became NaN or infinite by update 1; "
    ) as caught:
        look(agent, batch)
    assert all(
        torch.equal(caught.value.evidence[key], getattr(batch, key)) or key == name
        for key in batch._fields[:5]
    )


def test_a_reward_whose_loss_overflows_is_caught_in_the_losses():
    with pytest.raises(NotFiniteError, match="^Q1_loss became NaN or infinite by update 1; "):
        look(*agent_and_batch(reward=1e30))


def test_growth_without_bound_is_caught_in_the_update_that_makes_it():
    with pytest.raises(
        NotFiniteError, match="^a weight of Q1 became NaN or infinite by update 1; "
    ):
        look(*agent_and_batch(critic_lr=1e7))


def test_what_a_normaliser_would_clip_is_caught_all_the_same():
    with pytest.raises(
        NotFiniteError, match="^next_state of the batch became NaN or infinite by update 1; "
    ):
        look(*agent_and_batch(next_state=math.inf, normalize_observations=True))


@pytest.mark.parametrize("name", ["Q1", "Q2", "actor"])
@pytest.mark.parametrize(
    "gradient, passes", [(1e19, True), (1e30, False)]
)  # their squares are 1e38 and too large
def test_a_gradient_whose_square_overflows_is_caught_in_its_update(
    monkeypatch, name, gradient, passes
):
    agent, batch = agent_and_batch()
    weight = next(getattr(agent, name).parameters())
    monkeypatch.setattr(
        agent, "_limit_gradients", lambda *_: weight.grad is None or weight.grad.fill_(gradient)
    )
    caught = (
        contextlib.nullcontext()
        if passes
        else pytest.raises(NotFiniteError, match=f"^a moment of {name} became")
    )
    with caught:
        look(agent, batch)


@pytest.mark.parametrize("what", ["reward", "observation"])
def test_what_an_environment_gives_is_caught_before_it_is_stored_and_kept(
    tmp_path, train, point_env, what
):
    class Poisoned(point_env):
        def step(self, action):
            step = super().step(action)
            if self.calls != 25:
                return step
            row = torch.arange(4)[:, None] == 2
            if what == "reward":
                terms = {f"reward/{name}": torch.ones(4) for name in ("near", "far")}
                terms["reward/far"] = terms["reward/far"].where(~row[:, 0], math.nan)
                return step._replace(reward=terms["reward/near"] + terms["reward/far"], info=terms)
            return step._replace(next_observation=step.next_observation.where(~row, math.inf))

    trainer = train(tmp_path, Poisoned, save_every=1e-9)
    also = "; so did reward/far of its info" if what == "reward" else ""
    with pytest.raises(
        NotFiniteError,
        match=f"^the {what} of environment 2 became NaN or infinite at env step 96 and "
        f"was not stored{also}; the last",
    ):
        trainer.run()
    kept = torch.load(tmp_path / EVIDENCE, weights_only=True)
    assert kept["gradient_steps"] == trainer.agent.gradient_steps and "Q1" in kept["agent"]
    assert kept["error"].startswith(f"the {what} of environment 2")
    shapes = {name: tuple(value.shape) for name, value in kept["evidence"].items()}
    parts = {"observation": (3,), "action": (2,), "reward": (), "next_observation": (3,)}
    info = {"reward/near": (), "reward/far": ()} if what == "reward" else {"success": ()}
    assert shapes == parts | info
    assert (
        not kept["evidence"]["reward" if what == "reward" else "next_observation"].isfinite().all()
    )
    resumed = train(tmp_path)
    resumed.resume()
    assert resumed.env_steps == 96 and (tmp_path / LAST).is_dir()
