"""Collecting: what is stored, what a batch is made of, and that every option of the configuration
has its effect.
"""

import dataclasses
import math

import pytest
import torch

from td3_robot import TD3
from td3_robot.config.run import (
    Config,
    ExplorationConfig,
    ReplayConfig,
    RewardConfig,
    ScheduleConfig,
    TD3Config,
)
from td3_robot.data.collector import Collector
from td3_robot.errors import ConfigError
from td3_robot.replay import NStep, ReplayBuffer
from td3_robot.replay.factory import scale_and_clip
from tests.td3_robot.remembering import RemembersObservations

CONFIG = Config(
    num_envs=4,
    td3=TD3Config(hidden=(16,), gamma=0.5),
    replay=ReplayConfig(capacity=400, batch_size=64),
    exploration=ExplorationConfig(start_steps=0, noise=0.0),
)


@pytest.fixture
def collect(point_env):
    """Builds a collector, from CONFIG and changes to it, that has made some steps."""

    def build(steps: int = 50, env=None, expert=None, **changes) -> Collector:
        config = dataclasses.replace(CONFIG, **changes)
        env = env or point_env(config.num_envs, config.seed)
        agent = TD3(env.o_dim, env.a_dim, **dataclasses.asdict(config.td3))
        collector = Collector(agent, env, config, expert)
        for step in range(steps):
            collector.collect(step / steps)
        return collector

    return build


class Goals(RemembersObservations):
    """Makes the point's place its goal, which hindsight may move: reward 10 at the goal, -1
    elsewhere.
    """

    def achieved_goal(self, observation):
        return observation[:, :2]

    def relabel(self, state, action, next_state, goal):
        there = (next_state[:, :2] == goal).all(1)
        return state, next_state, torch.where(there, 10.0, -1.0), torch.zeros_like(there)


def test_rewards_are_scaled_then_clipped():
    reward = torch.tensor([-3.0, -0.2, 0.0, 1.0])
    assert scale_and_clip(reward, RewardConfig()).tolist() == reward.tolist()
    assert scale_and_clip(reward, RewardConfig(scale=2.0, clip=1.5)).tolist() == pytest.approx(
        [-1.5, -0.4, 0.0, 1.5]
    )


def test_stored_rewards_are_the_shaped_ones(collect):
    plain = collect()
    scaled = collect(reward=RewardConfig(scale=3.0, clip=1.0))
    torch.testing.assert_close(
        scaled.sample(0.0).reward, (3.0 * plain.sample(0.0).reward).clamp(-1, 1)
    )


def test_normalised_rewards_are_divided_by_one_positive_number_and_never_shifted(collect):
    plain = collect().sample(0.0).reward
    scaled = collect(reward=RewardConfig(normalize=True)).sample(0.0).reward
    ratio = (scaled / plain)[plain != 0]
    assert ratio.min() > 0 and ratio.std() < 1e-5 * ratio.mean()
    assert collect(reward=RewardConfig(normalize=True), steps=0).scaler.scale(torch.ones(1)) == 1


def test_observations_are_stored_raw_and_their_statistics_kept(collect):
    plain = collect()
    normal = collect(td3=dataclasses.replace(CONFIG.td3, normalize_observations=True))
    moments = normal._agent.normalizer.moments
    assert moments.count == 50 * 4
    assert normal.sample(0.0).state[:, 2].max() > 3  # steps, as the environment counts them
    assert plain._agent.normalizer(torch.ones(1, 3)).tolist() == [[1.0, 1.0, 1.0]]


def test_n_step_batches_carry_their_discounts(collect):
    assert collect().sample(0.0).discount is None
    discount = collect(replay=dataclasses.replace(CONFIG.replay, n_step=3)).sample(0.0).discount
    assert set(discount.flatten().tolist()) == {0.5, 0.25, 0.125}


def test_prioritised_batches_carry_weights_and_follow_the_errors(collect):
    collector = collect(
        replay=dataclasses.replace(CONFIG.replay, prioritized=True, priority_alpha=1.0)
    )
    assert (collector.sample(0.0).weight == 1).all()  # nothing is known of any yet
    for _ in range(20):  # errors that are the rewards' size
        collector.replay.update_priorities(collector.sample(0.0).reward[:, 0].abs())
    biased, uniform = (
        torch.cat([c.sample(0.0).reward for _ in range(50)]) for c in (collector, collect())
    )
    assert biased.mean() < uniform.mean() - 0.05
    assert collector.sample(0.0).weight.min() < 1


def test_hindsight_needs_goals_and_recomputes_rewards(collect, point_env):
    hindsight = dataclasses.replace(CONFIG.replay, hindsight="final", hindsight_ratio=0.5)
    with pytest.raises(ConfigError, match="replay.hindsight final needs an environment with goals"):
        collect(replay=hindsight)
    env = type("PointGoals", (Goals, point_env), {})(4, 0)
    reward = collect(env=env, replay=hindsight, reward=RewardConfig(scale=0.1)).sample(0.0).reward
    relabelled = torch.isin(reward[:, 0], torch.tensor([1.0, -0.1]))  # scale_and_clip, too
    assert relabelled.sum() == 32 and (reward == 1.0).any()


@pytest.mark.parametrize("kind", ["gaussian", "ou", "pink"])
def test_noise_is_added_to_the_policy_and_fades(collect, kind):
    wide = ExplorationConfig(start_steps=0, noise=0.3, kind=kind)
    fading = collect(200, exploration=wide, schedule=ScheduleConfig(noise="linear"))
    # all that 400 rows hold: the last 100 steps
    rows = fading.replay.rows.view(fading.replay.slots, 4, -1)[:100]
    state = rows[..., :3].flatten(0, 1)
    action = rows[..., 3:5].flatten(0, 1)
    deviation = (action - fading._agent.select_action(state)).view(100, 8).std(1)
    assert deviation[:20].mean() > 3 * deviation[-20:].mean()
    assert action.abs().max() <= 1


def test_noise_follows_the_disagreement_of_the_critics(collect):
    """Whatever it is about, here the first coordinate: twice the noise at one end of the field,
    half at the other.
    """
    steep = ExplorationConfig(start_steps=0, noise=0.05, uncertainty=True)
    collector = collect(
        0, exploration=steep, replay=dataclasses.replace(CONFIG.replay, capacity=8000)
    )
    collector._agent.compute_disagreement = lambda observation, action: (
        (observation[:, 0] > 0) * 1.0
    )
    for _ in range(1000):
        collector.collect(0.0)
    state, action = stored(collector, 1000)
    deviation = action - collector._agent.select_action(state.flatten(0, 1)).view_as(action)
    right = state[..., 0] > 0
    assert 100 < right.sum() < 3900
    assert deviation[right].std().item() == pytest.approx(2 * 0.05, rel=0.1)
    assert deviation[~right].std().item() == pytest.approx(0.5 * 0.05, rel=0.1)


def test_with_hindsight_the_critics_disagree_about_observations(collect, point_env):
    """What is stored is a memory, of another width than what critics see."""

    class Wide(Goals, point_env):
        memory_dim = 9

        def memory(self, arrived=False):
            seen = super().memory(arrived)
            return torch.cat((seen, seen.new_zeros(len(seen), self.memory_dim - seen.shape[1])), 1)

    unsure = ExplorationConfig(start_steps=0, noise=0.05, uncertainty=True)
    hindsight = dataclasses.replace(CONFIG.replay, hindsight="final")
    collector = collect(0, env=Wide(4, 0), exploration=unsure, replay=hindsight)
    collector.collect(0.0)
    assert len(collector.replay) == 4


def differs(action, policy):
    """Tell where no joint is the policy's; products of 4 rows and of many round apart."""
    return ((action - policy).abs() > 1e-5).all(-1)


def test_a_share_of_the_steps_is_uniformly_random(collect):
    exploration = ExplorationConfig(start_steps=0, noise=0.0, random_share=0.3)
    collector = collect(
        500, exploration=exploration, replay=dataclasses.replace(CONFIG.replay, capacity=2000)
    )
    state, action = stored(collector, 500)
    random = differs(action, collector._agent.select_action(state.flatten(0, 1)).view_as(action))
    assert abs(random.float().mean() - 0.3) < 5 * (0.3 * 0.7 / 2000) ** 0.5
    # each env for itself
    assert random.any(0).all() and not random.all(1).any() or random.float().mean(1).std() > 0
    uniform = action[random]
    assert abs(uniform.mean()) < 0.1 and uniform.var().item() == pytest.approx(1 / 3, rel=0.15)


def test_random_actions_come_first(collect):
    collector = collect(40, exploration=ExplorationConfig(start_steps=100, noise=0.0))
    action = collector.replay.rows.view(collector.replay.slots, 4, -1)[:40, :, 3:5]
    policy = collector._agent.select_action(collector.replay.rows[:, :3]).view(-1, 4, 2)[:40]
    assert differs(action[:25], policy[:25]).all() and not differs(action[25:], policy[25:]).any()
    assert not collect(25, exploration=ExplorationConfig(start_steps=100)).ready and collector.ready


def half(observation: torch.Tensor) -> torch.Tensor:
    """An expert whose actions are known by their value."""
    return torch.full((len(observation), 2), 0.5)


def stored(collector: Collector, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """States (steps, B, 3) and actions (steps, B, 2) of the first steps."""
    rows = collector.replay.rows.view(collector.replay.slots, 4, -1)[:steps]
    return rows[..., :3], rows[..., 3:5]


def test_an_expert_acts_in_whole_episodes_of_its_share_and_fades(collect):
    """The share falls from 0.8 to zero over the first half of the run."""
    leading = ExplorationConfig(
        start_steps=0, noise=0.0, expert="half", expert_share=0.8, expert_until=0.5
    )
    roomy = dataclasses.replace(CONFIG.replay, capacity=8000)
    state, action = stored(collect(2000, expert=half, exploration=leading, replay=roomy), 2000)
    guided = (action == 0.5).all(2)
    begins = state[..., 2] == 0
    assert ((guided[1:] == guided[:-1]) | begins[1:]).all()
    shares = guided.float().view(10, 200, 4).mean((1, 2))
    expected = 0.8 * (1 - torch.arange(0.05, 1.0, 0.1) / 0.5).clamp(min=0)
    torch.testing.assert_close(shares, expected, atol=0.15, rtol=0)
    assert (shares[6:] == 0).all()


def test_a_delayed_expert_takes_over_after_a_random_number_of_steps(collect):
    """Any of 0 to 3, each as often; then it leads to the end of the episode."""
    leading = ExplorationConfig(
        start_steps=0, noise=0.0, expert="half", expert_share=1.0, expert_delay=3
    )
    roomy = dataclasses.replace(CONFIG.replay, capacity=8000)
    state, action = stored(collect(2000, expert=half, exploration=leading, replay=roomy), 2000)
    guided = (action == 0.5).all(2)
    begins = state[..., 2] == 0
    assert (guided[1:] >= guided[:-1])[~begins[1:]].all()
    age = torch.zeros_like(begins, dtype=torch.long)
    for t in range(1, len(age)):
        age[t] = torch.where(begins[t], 0, age[t - 1] + 1)
    takes_over = guided & torch.cat((begins[:1], begins[1:] | ~guided[:-1]))
    counts = torch.bincount(age[takes_over])
    assert len(counts) == 4
    torch.testing.assert_close(counts / counts.sum(), torch.full((4,), 0.25), atol=0.05, rtol=0)


def test_an_expert_explores_with_the_policys_noise_and_goes_on_after_a_resume(collect):
    leading = ExplorationConfig(
        start_steps=0, noise=0.1, expert="half", expert_share=1.0, expert_until=1.0
    )
    first = collect(1, expert=half, exploration=leading)
    _, action = stored(first, 1)
    assert (action != 0.5).all() and ((action - 0.5).abs() < 0.5).all()
    assert first._expert.active.all()
    second = collect(0, expert=half, exploration=dataclasses.replace(leading, expert_share=0.0))
    assert not second._expert.active.any()
    second.load_state_dict(first.state_dict(with_replay=True))
    assert second._expert.active.all() and torch.equal(second._expert.wait, first._expert.wait)


@pytest.fixture
def forgetful(point_env):
    """An environment that cannot restore itself."""

    class Forgetful(point_env):
        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            return self.reset(99)

    return Forgetful


def test_an_environment_that_cannot_restore_itself_begins_new_episodes(collect, forgetful):
    """An n-step return never runs from before the interruption into what came after it."""
    n_step = dataclasses.replace(CONFIG.replay, n_step=5)
    first = collect(3, env=forgetful(4, 0), replay=n_step)
    second = collect(0, env=forgetful(4, 0), replay=n_step)
    lost = second.load_state_dict(first.state_dict(with_replay=True))
    assert lost == ["the environments cannot be restored: new episodes begin"]
    for _ in range(2):
        second.collect(0.0)
    batch = second.replay.sample(2000)
    newest = batch.state[:, 2] == 2  # the third step, the last one before the interruption
    assert newest.any()
    assert (batch.next_state[newest, 2] == 3).all() and (
        batch.discount[newest] == 0.5
    ).all()  # one step, no more


@pytest.mark.parametrize("restored", [True, False])
def test_an_environment_may_say_itself_whether_it_is_restored(collect, point_env, restored):
    """Its observation says nothing where all episodes begin with the one that was saved."""

    class Saying(point_env):
        def load_state_dict(self, state):
            self.restored = restored
            return super().load_state_dict(state)

    first = collect(3, env=Saying(4, 0))
    second = collect(0, env=Saying(4, 0))
    lost = second.load_state_dict(first.state_dict(with_replay=True))
    assert torch.equal(second.observation, first.observation) and (lost == []) == restored


def resumed(collect, env, steps: int = 3, **changes) -> Collector:
    """A collector that takes up where another stopped in the middle of the first episodes."""
    first = collect(steps, env=env(4, 0), **changes)
    second = collect(0, env=env(4, 0), **changes)
    second.load_state_dict(first.state_dict(with_replay=True))
    return second


def test_new_episodes_after_a_resume_have_noise_of_their_own(collect, forgetful, point_env):
    """Ornstein-Uhlenbeck noise of theta 0.01 hardly moves within an episode; between episodes it is
    independent.
    """
    slow = ExplorationConfig(start_steps=0, noise=0.1, per_env=True, kind="ou", ou_theta=1e-4)
    for env, goes_on in ((point_env, True), (forgetful, False)):
        noise = resumed(collect, env, exploration=slow).noise
        value = noise.value
        sigmas = resumed(collect, point_env, exploration=slow).noise.sigmas
        noise.sample()
        assert ((noise.value - value).abs() < 0.1).all() == goes_on
        assert torch.equal(noise.sigmas, sigmas) == goes_on


def test_new_episodes_after_a_resume_begin_with_returns_of_zero(collect, forgetful, point_env):
    """Otherwise rewards of an episode that never ended would be part of another one's return."""
    for env, goes_on in ((point_env, True), (forgetful, False)):
        collector = resumed(collect, env, reward=RewardConfig(normalize=True))
        assert (collector.scaler.returns != 0).all() == goes_on
        assert (collector._episodes.returns != 0).all() == goes_on


def test_new_episodes_after_a_resume_are_led_or_not_anew(collect, forgetful):
    leading = ExplorationConfig(
        start_steps=0, expert="half", expert_share=1.0, expert_until=1.0, expert_delay=5
    )
    first = collect(3, expert=half, env=forgetful(4, 0), exploration=leading)
    second = collect(0, expert=half, env=forgetful(4, 0), exploration=leading)
    second.load_state_dict(first.state_dict(with_replay=True))
    assert (first._expert.wait < 4).any() and (second._expert.wait >= 0).all()


def test_an_expert_that_comes_with_a_resume_leads_from_the_next_episodes_on(collect):
    """Those that run were begun without it, and its share may be zero by now."""
    leading = ExplorationConfig(start_steps=0, noise=0.0, expert="half", expert_share=1.0)
    first = collect(3, exploration=ExplorationConfig(start_steps=0, noise=0.0))
    second = collect(0, expert=half, exploration=leading)
    second.load_state_dict(first.state_dict(with_replay=True))
    for _ in range(7):  # an episode has 7 steps at most
        second.collect(0.0)
    state, action = stored(second, 10)
    begun_since = (state[3:, :, 2] == 0).cumsum(0) > 0
    assert begun_since[-1].all() and torch.equal((action[3:] == 0.5).all(2), begun_since)


def test_episodes_of_the_expert_are_not_in_the_training_return(collect):
    """With the expert in all episodes there is no figure of the policy's; without one there is."""
    leading = ExplorationConfig(start_steps=0, expert="half", expert_share=1.0, expert_until=1.0)
    guided = collect(0, expert=half, exploration=leading)
    for _ in range(20):
        guided.collect(0.0)
    assert all(value != value for value in guided.metrics().values())
    assert -7 * 1.5 < collect(20).metrics()["train_return"] < 0


def test_episodes_that_are_cut_short_are_not_in_the_training_return(collect, point_env):
    """Or the first checkpoints would be the best: they have fewer rewards below 0 to add."""

    class Staggered(point_env):
        cut_short = torch.ones(4, dtype=torch.bool)

        def step(self, action):
            step = super().step(action)
            self.cut_short = self.cut_short & ~(step.terminated | step.truncated)
            return step

    plain = collect(7)
    staggered = collect(7, env=Staggered(4, CONFIG.seed))
    assert not staggered._env.cut_short.any()
    assert plain.metrics()["train_return"] < 0 and math.isnan(staggered.metrics()["train_return"])
    for collector in (plain, staggered):
        for _ in range(7):
            collector.collect(0.0)
    assert plain.metrics() == staggered.metrics()


# Its replay


def test_it_takes_a_replay_of_its_users_own(collect, point_env):
    class Counting(ReplayBuffer):
        drawn = 0

        def sample(self, batch_size):
            self.drawn += batch_size
            return super().sample(batch_size)

    def make(shape, config, generator, env):
        return Counting(1000, *shape, env.device, generator)

    agent = TD3(3, 2, **dataclasses.asdict(CONFIG.td3))
    collector = Collector(agent, point_env(4, 0), CONFIG, make_replay=make)
    collector.collect(0.0)
    collector.sample(0.0)
    assert collector.replay.drawn == 64 and len(collector.replay) == 4


def test_actions_of_another_size_than_environments_take_are_refused(point_env):
    agent = TD3(3, 2, 2.0, **dataclasses.asdict(CONFIG.td3))
    with pytest.raises(ConfigError, match=r"take actions in \[-1, 1\]: a_max must be 1, got 2.0"):
        Collector(agent, point_env(4, 0), CONFIG)


def test_a_run_of_random_actions_alone_is_refused(point_env):
    """From Python nothing adapts the default start_steps to a short run, as the command line does."""
    agent = TD3(3, 2, **dataclasses.asdict(CONFIG.td3))
    config = dataclasses.replace(CONFIG, exploration=ExplorationConfig(), steps=25_001)
    Collector(agent, point_env(4, 0), config)
    with pytest.raises(ConfigError, match=r"^steps must be above .*, got 25000 <= 25000$"):
        Collector(agent, point_env(4, 0), dataclasses.replace(config, steps=25_000))


@pytest.mark.parametrize("start_steps", [0, 5000])
def test_without_its_replay_a_policy_collects_five_batches_first(collect, start_steps):
    """Whatever there were of random actions when it began: a batch of a few rows is learnt by
    heart.
    """
    exploration = dataclasses.replace(CONFIG.exploration, start_steps=start_steps)
    collector = collect(10, exploration=exploration)
    collector.load_state_dict(collector.state_dict(with_replay=False))
    steps = 0
    while not collector.ready:
        collector.collect(1.0)
        steps += CONFIG.num_envs
    assert 5 * 64 < steps <= 5 * 64 + CONFIG.num_envs


def test_an_agent_with_another_discount_than_the_n_step_returns_is_refused(point_env):
    n_step = dataclasses.replace(CONFIG, replay=dataclasses.replace(CONFIG.replay, n_step=3))
    agent = TD3(3, 2, hidden=(16,), gamma=0.9)
    with pytest.raises(ConfigError, match="sums rewards with gamma 0.5, but the agent has 0.9"):
        Collector(agent, point_env(4, 0), n_step)

    def mine(shape, config, generator, env):
        return ReplayBuffer(400, *shape, env.device, generator, reader=NStep(3, 0.7))

    agent = TD3(3, 2, hidden=(16,), gamma=0.5)
    with pytest.raises(ConfigError, match="sums rewards with gamma 0.7, but the agent has 0.5"):
        Collector(agent, point_env(4, 0), CONFIG, make_replay=mine)
