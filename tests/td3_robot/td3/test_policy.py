"""What acts where a policy is evaluated, kept and deployed: the actor, or its moving average."""

import copy
from typing import Any

import pytest
import torch

from td3_robot import TD3
from td3_robot.errors import CheckpointError
from td3_robot.networks.mlp import polyak_tensors
from tests.td3_robot.td3.test_agent_options import batch_of

CROSSQ: dict[str, Any] = {
    "critic": "crossq",
    "norm": "renorm",
    "hidden": (8,),
    "policy_delay": 2,
    "actor_lr": 0.01,
}
both = pytest.mark.parametrize(
    "options", [CROSSQ, CROSSQ | {"critic": "targets"}], ids=["crossq", "targets"]
)


def learnt(options: dict[str, Any], updates: int = 6, **more: Any) -> TD3:
    agent = TD3(3, 2, 0.5, **options, **more)
    for seed in range(updates):
        agent.update(batch_of(seed=seed))
    return agent


@both
def test_it_is_the_average_of_the_actors_there_were(options):
    """Statistics of renormalisation included; one share of tau for each update of the actor."""
    agent = TD3(3, 2, 0.5, **options, policy="actor_target", tau=0.2)
    expected = [each.clone() for each in polyak_tensors(agent.actor)]
    for seed in range(6):
        agent.update(batch_of(seed=seed))
        if seed % 2:
            expected = [
                0.8 * old + 0.2 * new
                for old, new in zip(expected, polyak_tensors(agent.actor), strict=True)
            ]
    torch.testing.assert_close([*polyak_tensors(agent.actor_target)], expected)


@both
def test_it_is_what_acts_and_exploration_starts_from_the_actor(options):
    agent = learnt(options, policy="actor_target")
    o = torch.randn(5, 3)
    assert torch.equal(agent.select_action(o), agent.actor_target(o))
    assert torch.equal(agent.select_exploratory_action(o), agent.actor(o))
    assert not torch.equal(agent.select_exploratory_action(o), agent.select_action(o))
    plain = learnt(options)
    assert torch.equal(plain.select_action(o), plain.select_exploratory_action(o))


@both
def test_what_is_learnt_is_the_same_whatever_acts(options):
    one = learnt(options)
    other = learnt(options, policy="actor_target")
    for name in ("actor", "Q1", "Q2"):
        mine, theirs = (getattr(each, name).state_dict() for each in (one, other))
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)


def test_the_count_of_batches_is_the_actor_s_whatever_acted(tmp_path):
    """So that renormalisation does not warm up anew."""
    agent = learnt(CROSSQ, policy="actor_target")
    counts = [norm.batches.item() for norm in agent.actor.norms]
    agent.save(tmp_path / "run")
    plain = TD3(3, 2, 0.5, **CROSSQ)
    plain.load(tmp_path / "run")
    assert counts[0] > 0 and [norm.batches.item() for norm in plain.actor.norms] == counts


@both
def test_a_checkpoint_acts_and_learns_on_as_the_agent_did(options, tmp_path):
    agent = learnt(options, policy="actor_target")
    o = torch.randn(5, 3)
    agent.save(tmp_path / "run")
    again = TD3.from_checkpoint(tmp_path / "run")
    assert torch.equal(again.select_action(o), agent.select_action(o))
    for each in (agent, again):
        each.generator.manual_seed(0)
        for seed in range(4):
            each.update(batch_of(seed=seed))
    assert torch.equal(again.select_action(o), agent.select_action(o))


@both
@pytest.mark.parametrize("before, after", [("actor", "actor_target"), ("actor_target", "actor")])
def test_a_run_that_begins_with_another_begins_as_what_acted_there(
    options, before, after, tmp_path
):
    there = learnt(options, policy=before)
    o = torch.randn(5, 3)
    there.save(tmp_path / "run")
    here = TD3(3, 2, 0.5, **options, policy=after)
    here.load(tmp_path / "run")
    assert torch.equal(here.select_action(o), there.select_action(o))
    assert torch.equal(here.select_exploratory_action(o), there.select_action(o))


def test_a_checkpoint_without_what_acts_is_refused(tmp_path):
    """A target that only teaches may be missing, and is made anew."""
    for policy in ("actor", "actor_target"):
        learnt(CROSSQ | {"critic": "targets"}, policy=policy).save(tmp_path / policy)
        (tmp_path / policy / "actor_target").unlink()
    assert TD3.from_checkpoint(tmp_path / "actor").gradient_steps == 0
    for load in (
        TD3.from_checkpoint,
        learnt(CROSSQ | {"critic": "targets"}, policy="actor_target").load,
    ):
        with pytest.raises(CheckpointError, match="no actor_target, which is its policy"):
            load(tmp_path / "actor_target")


def test_what_explores_takes_what_environments_give():
    agent = learnt(CROSSQ)
    o = torch.randn(5, 3)
    assert torch.equal(
        agent.select_exploratory_action(o.double()), agent.select_exploratory_action(o)
    )
    assert torch.equal(
        agent.select_exploratory_action(o[0].numpy()), agent.select_exploratory_action(o[:1])[0]
    )


def test_copies_of_an_agent_act_by_copies_of_its_average():
    """As the judged ones of an evaluation, which the run has long left behind when the scores are
    there.
    """
    agent = learnt(CROSSQ, policy="actor_target", tau=0.5)
    o = torch.randn(5, 3)
    judged = copy.deepcopy(agent)
    before = judged.select_action(o)
    agent.update(batch_of(seed=9))
    agent.update(batch_of(seed=10))
    assert torch.equal(judged.select_action(o), before) and not torch.equal(
        agent.select_action(o), before
    )
