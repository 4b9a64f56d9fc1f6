"""Stable-Baselines3's TD3 on `reach`, as benchmarks/sb3_reach.py runs it."""

import csv
import time
from pathlib import Path

import gymnasium
import numpy as np
import torch
from stable_baselines3 import TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import NormalActionNoise, VectorizedActionNoise
from stable_baselines3.common.vec_env import VecEnv

import envs
from td3_robot.evaluation.rollout import evaluate
from td3_robot.utils.json_file import write_json
from td3_robot.utils.seeding import derive_seed


class ArmVecEnv(VecEnv):
    """VecEnv of SB3 around our batched environments."""

    def __init__(self, env):
        self.env = env

        def make_box(bound, size):
            return gymnasium.spaces.Box(-bound, bound, (size,), np.float32)

        super().__init__(env.num_envs, make_box(np.inf, env.o_dim), make_box(1.0, env.a_dim))

    def reset(self):
        """Return the first observations."""
        return self.env.reset().numpy()

    def step_async(self, actions):
        """Keep the actions for `step_wait`."""
        self._actions = torch.as_tensor(actions)

    def step_wait(self):
        """Step; mark time limits the way SB3 expects."""
        step = self.env.step(self._actions)
        done = (step.terminated | step.truncated).numpy()
        last = step.next_observation.numpy()
        infos = [
            {"terminal_observation": last[i], "TimeLimit.truncated": True} if done[i] else {}
            for i in range(len(done))
        ]
        return step.observation.numpy(), step.reward.numpy(), done, infos

    def close(self):
        """Do nothing."""

    def get_attr(self, name, indices=None):
        """Return `render_mode`, the one that SB3 asks for."""
        return [None] * self.num_envs

    def set_attr(self, name, value, indices=None):
        """Raise: TD3 does not use it."""
        raise NotImplementedError

    def env_method(self, name, *args, indices=None, **kwargs):
        """Raise: TD3 does not use it."""
        raise NotImplementedError

    def env_is_wrapped(self, wrapper, indices=None):
        """Return False for every environment."""
        return [False] * self.num_envs


class Evaluation(BaseCallback):
    """Periodic evaluation as of train.py, on the same goals."""

    def __init__(self, evaluation_env, config, file, started):
        super().__init__()
        self.evaluation_env = evaluation_env
        self.config = config
        self.started = started
        self.writer = csv.DictWriter(
            file, ("env_steps", "gradient_steps", "success_rate", "episode_return", "wall_s")
        )
        self.writer.writeheader()
        self.scores = {}

    def _on_step(self) -> bool:
        if self.num_timesteps % self.config.evaluation.every < self.config.num_envs:
            self.measure()
        return True

    def measure(self):
        """Evaluate and write a row."""
        self.scores = evaluate(
            self.model.policy.actor,
            self.evaluation_env,
            derive_seed(self.config.seed, "evaluation"),
        )
        counts = {"env_steps": self.num_timesteps, "gradient_steps": self.model._n_updates}
        self.writer.writerow(
            {**counts, **self.scores, "wall_s": time.perf_counter() - self.started}
        )


def train(folder: Path, arguments, started: float) -> None:
    """Train and write the results; `started` is the time of the process's start."""
    config = arguments.config
    torch.set_num_threads(config.threads)
    env = envs.make_from_config(arguments.environment, config.num_envs, seed=config.seed)
    evaluation_env = envs.make_from_config(arguments.environment, config.evaluation.episodes)
    td3 = config.td3
    noise = np.full(env.a_dim, config.exploration.noise)
    model = TD3(
        "MlpPolicy",
        ArmVecEnv(env),
        learning_rate=lambda left: td3.actor_lr * max(left, config.schedule.lr_floor),
        buffer_size=config.replay.capacity,
        learning_starts=config.exploration.start_steps,
        batch_size=config.replay.batch_size,
        tau=td3.tau,
        gamma=td3.gamma,
        train_freq=1,
        gradient_steps=config.updates_per_step,
        action_noise=VectorizedActionNoise(
            NormalActionNoise(np.zeros(env.a_dim), noise), env.num_envs
        ),
        policy_delay=td3.policy_delay,
        target_policy_noise=td3.policy_noise,
        target_noise_clip=td3.noise_clip,
        policy_kwargs={"net_arch": list(td3.hidden)},
        seed=config.seed,
        device="cpu",
    )
    with (folder / "metrics.csv").open("w", newline="", buffering=1) as file:
        evaluation = Evaluation(evaluation_env, config, file, started)
        model.learn(config.steps, callback=evaluation)
        evaluation.measure()
    counts = {"env_steps": model.num_timesteps, "gradient_steps": model._n_updates}
    write_json(folder / "summary.json", {**evaluation.scores, **counts})
