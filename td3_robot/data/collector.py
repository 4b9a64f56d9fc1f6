"""Where the learner's batches come from: environments that are explored and a replay of what was
seen.
"""

from typing import Any

import torch
from torch import Tensor

from td3_robot.config.run import Config, ExplorationConfig
from td3_robot.config.schedules import compute_schedule_factor
from td3_robot.data.action_noise import UncertaintyScale, make_noise
from td3_robot.data.episode_stats import EpisodeStatistics
from td3_robot.errors import ConfigError, NotFiniteError
from td3_robot.evaluation.rollout import Policy
from td3_robot.networks.normalization import RewardScaler
from td3_robot.replay import Batch
from td3_robot.replay.factory import MakeReplay, make_replay, require_gamma, shaped
from td3_robot.td3.agent import TD3
from td3_robot.utils.seeding import derive_seed
from td3_robot.vec_env import GoalVecEnv, Step, VecEnv, is_asynchronous, restore_generator

_REFILL_BATCHES = (
    5  # that the policy collects where a resumed run has no replay; fewer would be learnt by heart
)


class Collector:
    """Explores B environments with an agent's actor and keeps their transitions; a `Source`.

    Observations and rewards are stored as they come, but for a fixed scale and clip of the rewards;
    running statistics are applied when a batch is drawn, so that old transitions follow the newest
    statistics.

    Args:
        agent: whose actor acts; its observation statistics are kept up to date.
        env, config: where, and how.
        guide: acts in place of the policy in the share of the episodes that `config.exploration`
            names.
        make_replay: makes the replay, in place of the one that `config` describes.

    Attributes:
        env_steps: control steps of all environments together.
        replay: what was seen.
        scaler: running statistics of the returns, None without `reward.normalize`.

    Raises:
        ConfigError: hindsight where there are no goals, not enough memory, n-step returns of
            another discount than the agent's, or an agent whose actions are not in [-1, 1], as
            those of environments are.
    """

    def __init__(
        self,
        agent: TD3,
        env: VecEnv,
        config: Config,
        guide: Policy | None = None,
        make_replay: MakeReplay = make_replay,
    ):
        if not bool((agent.a_max == 1).all()):
            raise ConfigError(
                f"environments take actions in [-1, 1]: a_max must be 1, got {agent.a_max.tolist()}"
            )
        self._agent, self._env, self._config = agent, env, config
        self.generator = torch.Generator(env.device).manual_seed(
            derive_seed(config.seed, "exploration")
        )
        hindsight = config.replay.hindsight != "none"
        self._goal_env = env if hindsight and isinstance(env, GoalVecEnv) else None
        self.replay = make_replay((env.num_envs, env.o_dim, env.a_dim), config, self.generator, env)
        require_gamma(self.replay, agent.config.gamma)
        exploration = config.exploration
        self.noise = make_noise(
            exploration.kind,
            (env.num_envs, env.a_dim),
            exploration.noise,
            exploration.per_env,
            self.generator,
            theta=exploration.ou_theta,
            horizon=exploration.pink_steps,
        )
        self._uncertainty = UncertaintyScale(env.device) if exploration.uncertainty else None
        normalize = config.reward.normalize
        self.scaler = (
            RewardScaler(env.num_envs, config.td3.gamma, env.device) if normalize else None
        )
        self._episodes = EpisodeStatistics(env.num_envs, env.device)
        self.observation = env.reset(derive_seed(config.seed, "training episodes"))
        self._guide = guide and Guide(guide, env.num_envs, exploration, self.generator)
        self.env_steps = 0
        self._refill_until = exploration.start_steps

    @property
    def ready(self) -> bool:
        """Whether there is enough to learn from."""
        return self.env_steps > self._refill_until

    @torch.no_grad()
    def collect(self, progress: float) -> None:
        """One step of every environment, kept in the replay; `progress` in [0, 1] places it in the
        run.
        """
        self._agent.observe(self.observation)
        before, action = self._to_keep(self.observation), self._explore(progress)
        step = self._env.step(action)
        if not is_asynchronous(self._env.device):
            self._require_finite(step, action)
        reward = shaped(step.reward, self._config.reward)
        done = step.terminated | step.truncated
        after = self._to_keep(step.next_observation, arrived=True)
        self.replay.add(before, action, reward, after, step.terminated, step.truncated, step.valid)
        if self.scaler is not None:
            self.scaler.update(reward, done, step.valid)
        self._episodes.count(step, left_out=None if self._guide is None else self._guide.guided)
        self.noise.end_episodes(done)
        if self._guide is not None:
            self._guide.end_episodes(done, progress)
        self.observation = step.observation
        self.env_steps += self._env.num_envs

    def _require_finite(self, step: Step, action: Tensor) -> None:
        """Hold what is about to be stored to finite numbers.

        Raises:
            NotFiniteError: names the environment, and has its transition as evidence.
        """
        if (step.reward.sum() + step.next_observation.sum()).isfinite():
            return
        for name, values in (
            ("reward", step.reward[:, None]),
            ("observation", step.next_observation),
        ):
            for row in (~values.isfinite()).any(1).nonzero()[:1, 0].tolist():
                parts = {"observation": self.observation, "action": action, "reward": step.reward}
                parts["next_observation"] = step.next_observation
                raise NotFiniteError(
                    f"the {name} of environment {row} became NaN or infinite at env step {self.env_steps} and was not "
                    "stored; the last good checkpoint is intact; check the environment, in the transition that is kept",
                    {part: value[row].clone() for part, value in parts.items()},
                )

    def _to_keep(self, observation: Tensor, arrived: bool = False) -> Tensor:
        """What the replay holds of an observation: itself or, with hindsight, the memory of its
        moment.
        """
        return observation if self._goal_env is None else self._goal_env.memory(arrived)

    def _explore(self, progress: float) -> Tensor:
        """Uniformly random actions at first and in a share of the steps, else the actor's with
        noise; in [-1, 1].
        """
        if self.env_steps < self._config.exploration.start_steps:
            return self._random()
        schedule = self._config.schedule
        factor = compute_schedule_factor(schedule.noise, progress, schedule.noise_floor)
        action = self._agent.explored(self.observation)
        if self._guide is not None:
            action = self._guide.lead(self.observation, action)
        noise = factor * self.noise.sample()
        if self._uncertainty is not None:
            noise = noise * self._uncertainty(self._agent.disagreement(self.observation, action))
        action = (action + noise).clamp(-1.0, 1.0)
        if share := self._config.exploration.random_share:
            where = (
                torch.rand(self._env.num_envs, 1, generator=self.generator, device=self._env.device)
                < share
            )
            action = torch.where(where, self._random(), action)
        return action

    def _random(self) -> Tensor:
        """(B, a_dim) uniform in [-1, 1]."""
        shape = (self._env.num_envs, self._env.a_dim)
        return torch.rand(shape, generator=self.generator, device=self._env.device) * 2.0 - 1.0

    def sample(self, progress: float) -> Batch:
        """A batch to learn from; priorities are corrected for the more, the further the run is."""
        self.replay.anneal(progress)
        batch = self.replay.sample(self._config.replay.batch_size)
        return (
            batch if self.scaler is None else batch._replace(reward=self.scaler.scale(batch.reward))
        )

    def update_priorities(self, error: Tensor) -> None:
        """How wrong the critics were, error (B,), about the batch sampled last."""
        self.replay.update_priorities(error)

    def metrics(self) -> dict[str, float]:
        """Means over the episodes, those of the guide left out, that ended since the last call."""
        return self._episodes.take()

    def _parts(self) -> dict[str, Any]:
        """What has a state of its own."""
        parts = {
            "noise": self.noise,
            "uncertainty": self._uncertainty,
            "scaler": self.scaler,
            "guide": self._guide,
            "episodes": self._episodes,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def metadata(self) -> dict[str, object]:
        """`rewards`: what the critics' rewards were divided by (`RewardScaler.statistics`), None if
        by nothing.
        """
        return {"rewards": None if self.scaler is None else self.scaler.statistics()}

    def take_reward_statistics(self, statistics: dict[str, float] | None) -> None:
        """Go on with those of the run whose networks this one begins with, where both normalise
        rewards.

        Raises:
            CheckpointError: they are no such numbers.
        """
        if self.scaler is not None and statistics is not None:
            self.scaler.take(statistics)

    def state_dict(self, with_replay: bool) -> dict:
        """All that the next step depends on, for an exact resume."""
        return {
            "env_steps": self.env_steps,
            "generator": self.generator.get_state(),
            **{name: part.state_dict() for name, part in self._parts().items()},
            "observation": self.observation,
            "refill_until": self._refill_until,
            "env": self._env.state_dict(),
            "replay": self.replay.state_dict() if with_replay else None,
        }

    def load_state_dict(self, state: dict) -> list[str]:
        """Take back what `state_dict` gave. Without a saved replay the policy first collects a new
        one.

        Returns:
            What could not be restored, a sentence each.

        Raises:
            ConfigError: the run had another number of environments.
        """
        if len(state["observation"]) != self._env.num_envs:
            raise ConfigError(
                f"envs must stay {len(state['observation'])} in a resumed run, got {self._env.num_envs}"
            )
        self.env_steps = state["env_steps"]
        restore_generator(self.generator, state["generator"])
        for name, part in self._parts().items():
            if state.get(name) is not None:  # the run may have been without it
                part.load_state_dict(state[name])
        self._refill_until = state["refill_until"]
        if state["replay"] is None:
            self._refill_until = self.env_steps + _REFILL_BATCHES * self._config.replay.batch_size
        else:
            self.replay.load_state_dict(state["replay"])
        self.observation = self._env.load_state_dict(state["env"])
        if torch.equal(self.observation, state["observation"].to(self._env.device)):
            return []
        self._begin_episodes()
        return ["the environments cannot be restored: new episodes begin"]

    def _begin_episodes(self) -> None:
        """The environments have begun new episodes, so that nothing of the old ones goes on."""
        everywhere = torch.ones(self._env.num_envs, dtype=torch.bool, device=self._env.device)
        self.replay.end_episodes()
        self.noise.end_episodes(everywhere)
        self._episodes.begin()
        if self.scaler is not None:
            self.scaler.begin()
        if self._guide is not None:
            self._guide.end_episodes(everywhere, self.env_steps / self._config.steps)


class Guide:
    """A controller that acts in some of the episodes, so that the replay holds what the policy
    would not find.

    Which ones is drawn at the start of each; the share falls linearly to zero. With a delay the
    policy makes some of the first steps of these episodes, a number drawn uniformly, and the guide
    shows the way out of where that led: the idea of DAgger (Ross, Gordon & Bagnell, AISTATS 2011).

    Attributes:
        guided: (B,) bool, the episode is one of the guide's.
        wait: (B,) steps that the policy still makes in it; less than zero afterwards.
    """

    def __init__(
        self, policy: Policy, num_envs: int, config: ExplorationConfig, generator: torch.Generator
    ):
        self._policy, self._config, self._generator = policy, config, generator
        self.guided = torch.zeros(num_envs, dtype=torch.bool, device=generator.device)
        self.wait = torch.zeros(num_envs, dtype=torch.long, device=generator.device)
        self.end_episodes(~self.guided, 0.0)

    def lead(self, observation: Tensor, action: Tensor) -> Tensor:
        """The actions (B, a_dim), those of guided episodes replaced by the guide's."""
        leads = self.guided & (self.wait <= 0)
        self.wait = self.wait - 1
        return torch.where(leads[:, None], self._policy(observation), action)

    def end_episodes(self, done: Tensor, progress: float) -> None:
        """Draw anew where an episode has ended; `progress` in [0, 1] places it in the run."""
        share = self._config.expert_share * max(0.0, 1.0 - progress / self._config.expert_until)
        drawn = torch.rand(done.shape, generator=self._generator, device=done.device) < share
        self.guided = torch.where(done, drawn, self.guided)
        if self._config.expert_delay:
            most, where = (
                self._config.expert_delay,
                {"generator": self._generator, "device": done.device},
            )
            self.wait = torch.where(done, torch.randint(most + 1, done.shape, **where), self.wait)

    def state_dict(self) -> dict[str, Tensor]:
        """Whose episodes these are."""
        return {"guided": self.guided, "wait": self.wait}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what `state_dict` gave."""
        self.guided, self.wait = (state[name].to(self.guided.device) for name in ("guided", "wait"))
