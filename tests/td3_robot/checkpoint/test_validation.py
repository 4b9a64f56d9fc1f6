"""What an agent takes from state dicts of strangers: its own names, shapes and dtypes, all finite,
or nothing.
"""

import copy
import math

import pytest
import torch

from td3_robot import TD3, Batch
from td3_robot.errors import CheckpointError


def trained(seed: int = 0, **options) -> TD3:
    agent = TD3(3, 2, hidden=(16,), seed=seed, policy_delay=1, **options)
    for _ in range(2):
        learn(agent)
    return agent


def learn(agent: TD3) -> None:
    generator = torch.Generator().manual_seed(agent.gradient_steps)

    def draw(width):
        return torch.rand(16, width, generator=generator) - 0.5

    agent.update(Batch(draw(3), draw(2), draw(1), draw(3), torch.zeros(16, 1)))


def flat(agent: TD3) -> list[torch.Tensor]:
    """Every weight and moment, copied."""
    tensors = []
    for state in agent.state_dicts().values():
        moments = [value for entry in state.get("state", {}).values() for value in entry.values()]
        tensors += [
            value.clone()
            for value in (*state.values(), *moments)
            if isinstance(value, torch.Tensor)
        ]
    return tensors


def first_weight(value: object):
    """A change of one network's state: its first weight becomes `value`, or what `value` makes of
    it.
    """
    name = "layers.0.weight"
    return lambda state: state.update({name: value(state[name]) if callable(value) else value})


def first_moment(value, key: str = "exp_avg"):
    return lambda state: state["state"][0].update({key: value(state["state"][0][key])})


NETWORK = {
    "NaN": first_weight(lambda w: w * math.nan),
    "one inf": first_weight(lambda w: w.index_fill(0, torch.tensor([3]), math.inf)),
    "1e38": first_weight(lambda w: torch.full_like(w, 1e38)),
    "-1e38": first_weight(lambda w: torch.full_like(w, -1e38)),
    "float64": first_weight(lambda w: w.double()),
    "float16": first_weight(lambda w: w.half()),
    "int": first_weight(lambda w: w.int()),
    "complex": first_weight(lambda w: w.to(torch.complex64)),
    "turned": first_weight(lambda w: w.T.contiguous()),
    "wider": first_weight(lambda w: torch.cat((w, w))),
    "sparse": first_weight(lambda w: w.to_sparse()),
    "meta": first_weight(lambda w: w.to("meta")),
    "a number": first_weight(1.0),
    "missing": lambda state: state.pop("layers.0.weight"),
    "unknown": lambda state: state.update(more=torch.zeros(1)),
}
OPTIMIZER = {
    "NaN": first_moment(lambda m: m * math.nan),
    "infinite step": first_moment(lambda s: s + math.inf, "step"),
    "shorter": first_moment(lambda m: m[:1].clone()),
    "one row for all": first_moment(
        lambda m: m[:1].expand(m.shape).flip(0)[:, :1].expand(m.shape[0], 1)
    ),
    "float64": first_moment(lambda m: m.double()),
    "negative square": first_moment(lambda m: m - 1.0, "exp_avg_sq"),
    "a step for each weight": first_moment(lambda s: s.expand(16), "step"),
    "a moment too few": lambda state: state["state"][0].pop("exp_avg"),
    "a moment too many": lambda state: state["state"][0].update(max_exp_avg_sq=torch.zeros(1)),
    "a weight too few": lambda state: state["state"].pop(0),
    "a weight too many": lambda state: state["state"].update({4: state["state"][0]}),
    "no state": lambda state: state.pop("state"),
    "a list": lambda state: state.update(state=[]),
}
CASES = [
    (part, kind, change)
    for part in ("actor", "Q1", "Q2_target")
    for kind, change in NETWORK.items()
]
CASES += [
    (part, kind, change)
    for part in ("actor_optimizer", "Q1_optimizer")
    for kind, change in OPTIMIZER.items()
]


@pytest.mark.parametrize(
    "part, kind, change", CASES, ids=[f"{part}: {kind}" for part, kind, _ in CASES]
)
def test_what_does_not_fit_is_named_and_changes_nothing(part, kind, change):
    agent = trained()
    states = copy.deepcopy(trained(seed=9).state_dicts())
    change(states[part])
    before = flat(agent)
    with pytest.raises(
        CheckpointError, match=f"^{part} does not fit an agent with o_dim 3, a_dim 2"
    ) as caught:
        agent.load_state_dicts(states)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 300
    assert all(map(torch.equal, before, flat(agent)))
    learn(agent)  # and it learns on


def test_one_optimizers_file_over_anothers_is_refused():
    """The fused Adam takes the moments' lengths on trust and would write beyond their end."""
    agent = trained()
    states = trained(seed=9).state_dicts()
    for source, target in (("actor", "Q1"), ("Q1", "actor")):
        with pytest.raises(
            CheckpointError, match=rf"{target}_optimizer does not fit .* must be \[16, "
        ):
            agent.load_state_dicts(states | {f"{target}_optimizer": states[f"{source}_optimizer"]})


def test_moments_that_share_memory_are_taken_apart():
    """A file can hold one row for all rows, or one tensor twice; the update writes into each number
    for itself.
    """
    agent = trained()
    plain = trained()
    states = trained(seed=9).state_dicts()
    entry = states["Q1_optimizer"]["state"][0]
    row = entry["exp_avg_sq"][:1].clone()
    entry["exp_avg"] = entry["exp_avg_sq"] = row.expand(16, 5)
    agent.load_state_dicts(states)
    entry["exp_avg"] = row.repeat(16, 1)
    entry["exp_avg_sq"] = row.repeat(16, 1)
    plain.load_state_dicts(states)
    learn(agent)
    learn(plain)
    assert all(map(torch.equal, flat(agent), flat(plain)))


def test_learning_rates_are_the_agents_own_not_the_files(tmp_path):
    """A file holds the rate to which the schedule had fallen."""
    decayed = trained(actor_lr=1e-3)
    decayed.scale_learning_rates(0.02)
    decayed.save(tmp_path / "run")
    agent = TD3(3, 2, hidden=(16,), seed=1, actor_lr=1e-3)
    agent.load(tmp_path / "run")
    assert agent.actor_optimizer.param_groups[0]["lr"] == 1e-3


def test_statistics_of_no_observation_yet_can_be_taken():
    agent = TD3(3, 2, normalize_observations=True)
    states = TD3(3, 2, normalize_observations=True).state_dicts()
    agent.load_state_dicts(states)
    states["normalizer"]["moments.mean"] = torch.full((3,), math.inf, dtype=torch.float64)
    with pytest.raises(
        CheckpointError,
        match="normalizer does not fit .*moments.mean has a value that is NaN or inf",
    ):
        agent.load_state_dicts(states)
