"""Online learning: environments are explored and a replay keeps their transitions."""

from typing import Any

import torch
from torch import Tensor

from td3_robot.config.run import Config
from td3_robot.config.schedules import compute_schedule_factor
from td3_robot.data.action_noise import UncertaintyScale, make_noise
from td3_robot.data.episode_stats import EpisodeStatistics
from td3_robot.data.expert import ExpertActions
from td3_robot.errors import ConfigError, NotFiniteError
from td3_robot.networks.normalization import RewardScaler, share_moments
from td3_robot.replay import Batch
from td3_robot.replay.factory import MakeReplay, make_replay, require_gamma, scale_and_clip
from td3_robot.td3.agent import TD3
from td3_robot.utils.legacy import keep_old_names
from td3_robot.utils.seeding import derive_seed
from td3_robot.vec_env import (
    GoalVecEnv,
    Policy,
    PrivilegedVecEnv,
    RestartingVecEnv,
    StaggeredVecEnv,
    Step,
    VecEnv,
    draw_uniform,
    is_asynchronous,
    restore_generator,
)

# batches that a resumed run without a replay collects first: with fewer, the critics overfit
_REFILL_BATCHES = 5


@keep_old_names(about="metadata")
class Collector:
    """Explorer of B environments, with a replay of their transitions; a `BatchSource`.

    Observations and rewards are stored unnormalised, but for a fixed scale and clip of the rewards;
    running statistics are applied when a batch is drawn, so that old transitions use the newest
    statistics.

    Args:
        agent: the agent whose actor acts; its observation statistics are updated.
        env, config: the environments, and how to explore them.
        expert: acts instead of the policy in a share of the episodes, as `config.exploration` says.
        make_replay: makes the replay, instead of the one that `config` describes.

    Attributes:
        env_steps: control steps of all environments together.
        replay: the transitions.
        scaler: running statistics of the returns, None without `reward.normalize`.

    Raises:
        ConfigError: hindsight without goals or with `privileged`, not enough memory, n-step
            returns of another discount than the agent's, an agent whose actions are not in
            [-1, 1], or no step after `start_steps`.
    """

    def __init__(
        self,
        agent: TD3,
        env: VecEnv,
        config: Config,
        expert: Policy | None = None,
        make_replay: MakeReplay = make_replay,
    ):
        if not bool((agent.a_max == 1).all()):
            raise ConfigError(
                f"environments take actions in [-1, 1]: a_max must be 1, got {agent.a_max.tolist()}"
            )
        config.require_steps_to_learn()
        self._agent = agent
        self._env = env
        self._config = config
        seed = derive_seed(config.seed, "exploration")
        self.generator = torch.Generator(env.device).manual_seed(seed)
        hindsight = config.replay.hindsight != "none"
        if hindsight and agent.privileged:
            raise ConfigError("hindsight computes observations alone: set td3.privileged to 0")
        self._goal_env = env if hindsight and isinstance(env, GoalVecEnv) else None
        self._privileged_env = (
            env if agent.privileged and isinstance(env, PrivilegedVecEnv) else None
        )
        self._staggered_env = env if isinstance(env, StaggeredVecEnv) else None
        shape = (env.num_envs, env.o_dim + agent.privileged, env.a_dim)
        self.replay = make_replay(shape, config, self.generator, env)
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
        if self.scaler is not None:
            share_moments(self.scaler, agent.communicator)
        self._episodes = EpisodeStatistics(env.num_envs, env.device)
        self.observation = env.reset(derive_seed(config.seed, "training episodes"))
        self._expert = expert and ExpertActions(expert, env.num_envs, exploration, self.generator)
        self.env_steps = 0
        self._refill_until = 0  # [env steps] set by a resume without a replay

    @property
    def ready(self) -> bool:
        """True if there is enough to learn from."""
        return self.env_steps > (self._refill_until or self._config.exploration.start_steps)

    @torch.no_grad()
    def collect(self, progress: float) -> None:
        """Make one step in every environment and store it; `progress` in [0, 1] is the run's."""
        self._agent.observe(self.observation)
        before = self._get_stored(self.observation)
        action = self._explore(progress)
        left_out = self._find_left_out()
        step = self._env.step(action)
        if not is_asynchronous(self._env.device):
            self._require_finite(step, action)
        reward = scale_and_clip(step.reward, self._config.reward)
        done = step.terminated | step.truncated
        after = self._get_stored(step.next_observation, arrived=True)
        self.replay.add(before, action, reward, after, step.terminated, step.truncated, step.valid)
        if self.scaler is not None:
            self.scaler.update(reward, done, step.valid)
        self._episodes.count(step, left_out)
        self.noise.end_episodes(done)
        if self._expert is not None:
            self._expert.end_episodes(done, progress)
        self.observation = step.observation
        self.env_steps += self._env.num_envs

    def _find_left_out(self) -> Tensor | None:
        """Find where (B,) the present episode does not measure the policy; None is nowhere.

        There the expert acts, or the environment has cut the episode short.
        """
        led = None if self._expert is None else self._expert.active
        if self._staggered_env is None:
            return led
        cut = self._staggered_env.cut_short
        return cut if led is None else cut | led

    def _require_finite(self, step: Step, action: Tensor) -> None:
        """Check that a transition is finite before it is stored.

        Raises:
            NotFiniteError: names the environment and carries its transition.
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
                kept = {part: x[row].clone() for part, x in (step.info | parts).items()}
                strange = [part for part in step.info if not kept[part].isfinite().all()]
                also = f"; so did {', '.join(strange)} of its info" if strange else ""
                raise NotFiniteError(
                    f"the {name} of environment {row} became NaN or infinite at env step "
                    f"{self.env_steps} and was not stored{also}; the last good checkpoint is "
                    "intact; check the environment, in the transition that is kept",
                    kept,
                )

    def _get_stored(self, observation: Tensor, arrived: bool = False) -> Tensor:
        """Return what critics see or, with hindsight, the environments' memory of this step."""
        if self._goal_env is not None:
            return self._goal_env.memory(arrived)
        if self._privileged_env is None:
            return observation
        return torch.cat((observation, self._privileged_env.privileged(arrived)), 1)

    def _explore(self, progress: float) -> Tensor:
        """Return actions (B, a_dim) in [-1, 1]: the actor's or the expert's, with noise.

        At first, and in a share of the steps, they are uniformly random.
        """
        if self.env_steps < self._config.exploration.start_steps:
            return self._draw_actions()
        schedule = self._config.schedule
        factor = compute_schedule_factor(schedule.noise, progress, schedule.noise_floor)
        action = self._agent.select_exploratory_action(self.observation)
        if self._expert is not None:
            action = self._expert.override(self.observation, action)
        noise = factor * self.noise.sample()
        if self._uncertainty is not None:
            seen = self.observation  # by the critics; what is stored may be a memory instead
            if self._privileged_env is not None:
                seen = self._get_stored(seen)
            noise = noise * self._uncertainty(self._agent.compute_disagreement(seen, action))
        action = (action + noise).clamp(-1.0, 1.0)
        if share := self._config.exploration.random_share:
            shape = (self._env.num_envs, 1)
            where = draw_uniform(self.generator, *shape) < share
            action = torch.where(where, self._draw_actions(), action)
        return action

    def _draw_actions(self) -> Tensor:
        """Return actions (B, a_dim), uniform in [-1, 1]."""
        shape = (self._env.num_envs, self._env.a_dim)
        return draw_uniform(self.generator, *shape) * 2.0 - 1.0

    def sample(self, progress: float) -> Batch:
        """Return a batch to learn from; `progress` in [0, 1] anneals the priorities' correction."""
        self.replay.anneal(progress)
        batch = self.replay.sample(self._config.replay.batch_size)
        if self.scaler is None:
            return batch
        return batch._replace(reward=self.scaler.scale(batch.reward))

    def update_priorities(self, error: Tensor) -> None:
        """Set the priorities of the last batch by the critics' errors (B,)."""
        self.replay.update_priorities(error)

    def metrics(self) -> dict[str, float]:
        """Return means over the policy's whole episodes that ended since the last call."""
        return self._episodes.pop_means(self._agent.communicator)

    def _get_parts(self) -> dict[str, Any]:
        """Return the parts that have a state of their own, by name."""
        parts = {
            "noise": self.noise,
            "uncertainty": self._uncertainty,
            "scaler": self.scaler,
            "expert": self._expert,
            "episodes": self._episodes,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def metadata(self) -> dict[str, object]:
        """Return `rewards`, the statistics that divide the critics' rewards, or None."""
        return {"rewards": None if self.scaler is None else self.scaler.get_statistics()}

    def take_reward_statistics(self, statistics: dict[str, float] | None) -> None:
        """Continue the reward statistics of another run, if both normalise rewards.

        Raises:
            CheckpointError: these are no such statistics.
        """
        if self.scaler is not None and statistics is not None:
            self.scaler.load_statistics(statistics)

    def state_dict(self, with_replay: bool) -> dict:
        """Return all that the next step depends on, for an exact resume."""
        return {
            "env_steps": self.env_steps,
            "generator": self.generator.get_state(),
            **{name: part.state_dict() for name, part in self._get_parts().items()},
            "observation": self.observation,
            "refill_until": self._refill_until,
            "env": self._env.state_dict(),
            "replay": self.replay.state_dict() if with_replay else None,
        }

    def load_state_dict(self, state: dict) -> list[str]:
        """Restore a `state_dict`; without a saved replay the policy first collects a new one.

        Returns:
            A sentence for each thing that could not be restored.

        Raises:
            ConfigError: the run had another number of environments.
        """
        if len(state["observation"]) != self._env.num_envs:
            raise ConfigError(
                f"num_envs must stay {len(state['observation'])} in a resumed run, "
                f"got {self._env.num_envs}"
            )
        self.env_steps = state["env_steps"]
        restore_generator(self.generator, state["generator"])
        state = {"expert": state.get("guide"), **state}  # its key in older resume points
        for name, part in self._get_parts().items():
            if state.get(name) is not None:  # the run may have been without it
                part.load_state_dict(state[name])
        if self._expert is not None and state.get("expert") is None:
            self._expert.leave_running_episodes()
        self._refill_until = state["refill_until"]
        lost = []
        if state["replay"] is None:
            self._refill_until = self.env_steps + _REFILL_BATCHES * self._config.replay.batch_size
            lost = [self._describe_refill()]
        else:
            self.replay.load_state_dict(state["replay"])
        self.observation = self._env.load_state_dict(state["env"])
        if self._is_restored(state["observation"].to(self._env.device)):
            return lost
        self._begin_episodes()
        return [*lost, "the environments cannot be restored: new episodes begin"]

    def _describe_refill(self) -> str:
        """Describe until when a new replay is only collected, for all processes."""
        size = self._agent.communicator.size
        until = size * self._refill_until
        steps = size * self._config.steps
        described = f"until step {until} of {steps} a new one is only collected"
        if until >= steps:
            described = (
                f"until step {until} a new one is only collected, so nothing is learned by step "
                f"{steps}; raise --steps"
            )
        return f"a finished run keeps no replay: {described}"

    def _is_restored(self, saved: Tensor) -> bool:
        """Tell whether the environments continue from the saved observations."""
        if isinstance(self._env, RestartingVecEnv):
            return self._env.restored
        return torch.equal(self.observation, saved)

    def _begin_episodes(self) -> None:
        """Start new episodes in everything that follows the environments' episodes."""
        everywhere = torch.ones(self._env.num_envs, dtype=torch.bool, device=self._env.device)
        self.replay.end_episodes()
        self.noise.end_episodes(everywhere)
        self._episodes.begin()
        if self.scaler is not None:
            self.scaler.begin()
        if self._expert is not None:
            self._expert.end_episodes(everywhere, self.env_steps / self._config.steps)
