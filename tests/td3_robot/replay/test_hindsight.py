"""Hindsight goals: which may be chosen and how often, by a search through Python lists, and what
becomes of a row.
"""

import pytest
import torch

from td3_robot.errors import ConfigError
from td3_robot.replay import STRATEGIES, Hindsight, Prioritized, ReplayBuffer

DRAWS = 3000


def relabel(state, action, next_state, goal):
    """An observation is (time, env, goal); the reward says how far the new goal is, in time."""
    state, next_state = (torch.cat((x[:, :2], goal), 1) for x in (state, next_state))
    distance = goal[:, 0] - next_state[:, 0]
    return state, next_state, -distance, distance == 0


def achieved_goal(observation):
    return observation[:, :1]


def ring(
    slots: int, envs: int, strategy: str = "future", ratio: float = 1.0, sampler=None
) -> ReplayBuffer:
    reader = Hindsight(relabel, achieved_goal, lambda memory: memory, strategy, ratio)
    return ReplayBuffer(
        slots * envs, envs, 3, 1, "cpu", torch.Generator().manual_seed(0), sampler, reader
    )


def trajectory(seed: int, count: int, envs: int, with_invalid: bool) -> list[dict]:
    """For each time step who terminates, is truncated and is valid, (envs,) each; episodes of 1 to
    about 10 steps.
    """
    chance = torch.rand(count, 3, envs, generator=torch.Generator().manual_seed(seed))
    return [
        {"terminated": a < 0.1, "truncated": b < 0.15, "valid": c < 0.9 if with_invalid else None}
        for a, b, c in chance
    ]


def transition(time: int, envs: int) -> tuple[torch.Tensor, ...]:
    """State (time, env, -1), next state (time + 1, env, -1), reward 100."""
    env = torch.arange(float(envs))
    state = torch.stack((torch.full_like(env, time), env, torch.full_like(env, -1)), 1)
    return state, state[:, :1], torch.full_like(env, 100.0), state + torch.tensor([1.0, 0.0, 0.0])


def put(buffer: ReplayBuffer, steps: list[dict], first: int = 0) -> None:
    for time, ends in enumerate(steps, first):
        buffer.add(*transition(time, buffer.num_envs), **ends)


def episodes(steps: list[dict], slots: int) -> dict[tuple[int, int], list[int]]:
    """(time, env) of every stored transition -> the stored time steps of its episode, in order."""
    found = {}
    oldest = len(steps) - slots
    for env in range(len(steps[0]["terminated"])):
        episode: list[int] = []
        for time, step in enumerate(steps):
            if step["valid"] is not None and not step["valid"][env]:
                episode = []
                continue
            if time >= oldest:
                episode.append(time)
                found[time, env] = episode
            if step["terminated"][env] or step["truncated"][env]:
                episode = []
    return found


def candidates(episode: list[int], time: int, strategy: str) -> list[int]:
    return {"future": [t for t in episode if t >= time], "final": episode[-1:], "episode": episode}[
        strategy
    ]


def goals_of(buffer: ReplayBuffer, time: int, env: int) -> torch.Tensor:
    """The time steps that many draws for one row choose."""
    stored = buffer.rows[: len(buffer)]
    (row,) = ((stored[:, 0] == time) & (stored[:, 1] == env)).nonzero().flatten().tolist()
    index = torch.full((DRAWS,), row)
    chosen = buffer.rows[buffer.reader.choose_goal_rows(buffer, index)]
    assert (chosen[:, 1] == env).all(), "a goal of another environment"
    return chosen[:, 0].long()


def assert_chosen(buffer: ReplayBuffer, steps: list[dict], strategy: str) -> None:
    """For every stored transition exactly the right time steps, and by a chi-square test each as
    often.
    """
    stored = episodes(steps, buffer.slots)
    assert stored
    for (time, env), episode in stored.items():
        expected = candidates(episode, time, strategy)
        times, counts = goals_of(buffer, time, env).unique(return_counts=True)
        assert times.tolist() == expected, (time, env)
        freedom = max(len(expected) - 1, 1)
        mean = DRAWS / len(expected)
        chi = ((counts - mean).square() / mean).sum()
        # quantile 1 - 1e-6
        assert chi < freedom * (1 - 2 / (9 * freedom) + 4.75 * (2 / (9 * freedom)) ** 0.5) ** 3


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("envs", "slots", "count"),
    [(1, 20, 7), (3, 12, 12), (2, 9, 40), (3, 5, 33), (2, 1, 6), (1, 2, 9)],
)
@pytest.mark.parametrize("with_invalid", [False, True])
def test_goals_are_of_the_same_episode_and_equally_often(
    strategy, envs, slots, count, with_invalid
):
    """Rings that are not full, just full, gone round often, with room for less than an episode."""
    steps = trajectory(slots + count, count, envs, with_invalid)
    if with_invalid:  # a last row that is a transition in all environments, so that there is one
        steps[-1]["valid"] = torch.ones(envs, dtype=torch.bool)
    buffer = ring(slots, envs, strategy)
    put(buffer, steps)
    assert_chosen(buffer, steps, strategy)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_episodes_of_one_step_fill_the_ring_with_as_many_episodes_as_it_has_slots(strategy):
    ends = {"terminated": torch.tensor([True]), "truncated": torch.tensor([False]), "valid": None}
    buffer = ring(4, 1, strategy)
    for time in range(23):
        put(buffer, [ends], time)
        for t in range(max(0, time - 3), time + 1):
            assert goals_of(buffer, t, 0).unique().tolist() == [t]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_episode_longer_than_the_ring_has_the_rows_left_of_it(strategy):
    no = torch.tensor([False])
    steps = [{"terminated": no, "truncated": no, "valid": None}] * 30
    buffer = ring(6, 1, strategy)
    put(buffer, steps)
    assert_chosen(buffer, steps, strategy)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("count", [4, 7, 8, 30])
def test_after_filling_in_at_once_and_after_restoring_episodes_are_the_same(strategy, count):
    steps = trajectory(count, count, 2, True)
    later = trajectory(1, 5, 2, False)
    steps[-1]["valid"][:] = True
    filled = ring(7, 2, strategy)
    restored = ring(7, 2, strategy)
    put(filled, steps[:2])
    parts = [
        torch.stack(parts) for parts in zip(*(transition(time, 2) for time in range(2, count)))
    ]
    filled.fill(*parts, *(torch.stack([step[name] for step in steps[2:]]) for name in steps[0]))
    restored.load_state_dict(filled.state_dict())
    for buffer in (filled, restored):
        assert_chosen(buffer, steps, strategy)
        put(buffer, later, count)
        assert_chosen(buffer, steps + later, strategy)


@pytest.mark.parametrize("slots", [4, 15])
def test_restored_into_another_capacity_episodes_are_those_of_what_fits(slots):
    steps = trajectory(5, 24, 2, False)
    original = ring(9, 2, "episode")
    restored = ring(slots, 2, "episode")
    put(original, steps)
    restored.load_state_dict(original.state_dict())
    left = episodes(steps, min(slots, 9))
    for (time, env), episode in left.items():
        assert goals_of(restored, time, env).unique().tolist() == episode


def test_restored_before_its_first_step_it_begins_as_a_new_one():
    """A run may be stopped in the evaluation of what it starts from."""
    steps = trajectory(3, 12, 2, False)
    buffer = ring(9, 2, "episode")
    buffer.load_state_dict(ring(9, 2, "episode").state_dict())
    put(buffer, steps)
    assert_chosen(buffer, steps, "episode")


def test_an_interruption_ends_every_episode_and_one_right_after_an_end_changes_nothing():
    no = torch.zeros(2, dtype=torch.bool)
    yes = torch.tensor([True, False])
    running = {"terminated": no, "truncated": no, "valid": None}
    steps = [running, running, {**running, "truncated": yes}, running, running]
    buffer = ring(10, 2, "episode")
    put(buffer, steps[:3])
    buffer.end_episodes()
    put(buffer, steps[3:], 3)
    steps[2] = {**running, "truncated": ~no}
    assert_chosen(buffer, steps, "episode")


def test_a_relabelled_row_is_what_the_environment_says_and_all_others_stay():
    buffer = ring(30, 3, ratio=0.8)
    put(buffer, trajectory(2, 50, 3, False))
    batch = buffer.sample(256)
    new = batch.state[:, 2] >= 0
    assert new.sum() == 205  # 0.8 x 256 = 204.8
    assert torch.equal(batch.state[:, 2], batch.next_state[:, 2])
    assert torch.equal(batch.action, batch.state[:, :1]) and torch.equal(
        batch.next_state[:, 0], batch.state[:, 0] + 1
    )
    distance = batch.state[:, 2:] - batch.next_state[:, :1]
    assert torch.equal(batch.reward[new], -distance[new]) and torch.equal(
        batch.done[new], (distance[new] == 0).float()
    )
    assert (distance[new] >= 0).all() and (distance[new] == 0).any() and (distance[new] > 0).any()
    assert (batch.reward[~new] == 100).all() and (batch.state[~new, 2] == -1).all()
    assert batch.discount is None and batch.weight is None


def test_what_is_stored_keeps_its_goals():
    buffer = ring(8, 2)
    put(buffer, trajectory(3, 8, 2, False))
    before = buffer.rows.clone()
    buffer.sample(100)
    assert torch.equal(buffer.rows, before)


@pytest.mark.parametrize(("ratio", "count"), [(0.0, 0), (0.5, 5), (1.0, 10)])
def test_the_ratio_is_the_share_of_a_batch_with_another_goal(ratio, count):
    buffer = ring(8, 2, ratio=ratio)
    put(buffer, trajectory(3, 8, 2, False))
    assert (buffer.sample(10).state[:, 2] >= 0).sum() == count


def test_prioritised_rows_are_relabelled_as_well():
    buffer = ring(8, 2, sampler=Prioritized())
    put(buffer, trajectory(3, 20, 2, True))
    batch = buffer.sample(50)
    assert (batch.state[:, 2] >= 0).all() and batch.weight.shape == (50, 1)


def test_bad_options_are_refused():
    with pytest.raises(
        ConfigError,
        match=r"strategy must be one of future, final, episode, got 'futur'; "
        r"did you mean 'future'\?",
    ):
        Hindsight(relabel, achieved_goal, lambda memory: memory, "futur")
    for ratio in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConfigError, match="^ratio must be in"):
            Hindsight(relabel, achieved_goal, lambda memory: memory, ratio=ratio)
