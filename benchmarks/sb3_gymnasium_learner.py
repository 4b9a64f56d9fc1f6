"""Stable-Baselines3's TD3 on a Gymnasium id, as benchmarks/sb3_gymnasium.py runs it."""

import contextlib
import csv
import importlib
import time
from pathlib import Path

import gymnasium
import numpy as np
import torch
from sb3_gymnasium import COLUMNS, Job
from stable_baselines3 import TD3, HerReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

BUFFER_ARRAYS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


class Evaluation(BaseCallback):
    """Callback that evaluates every `every` env steps, writes a row and saves the learner.

    The episodes are the same at every evaluation.
    """

    def __init__(self, job: Job, wall_before: float):
        super().__init__()
        self.job = job
        self.started = time.perf_counter() - wall_before
        self.envs = gymnasium.make_vec(job.env, num_envs=job.episodes, vectorization_mode="sync")

    def _on_step(self) -> bool:
        if self.num_timesteps % self.job.every == 0:
            self._write_row()
            save(self.model, Path(self.job.state))
        return True

    def _write_row(self) -> None:
        returns, success = self._play()
        known = not np.isnan(success).any()
        row = (self.num_timesteps, self.model._n_updates, returns.mean(), returns.std(ddof=1))
        row += (success.mean() if known else "", round(time.perf_counter() - self.started, 1))
        with open(self.job.csv, "a", newline="") as file:
            csv.writer(file).writerow(row)

    def _play(self) -> tuple[np.ndarray, np.ndarray]:
        """Return and success (NaN where the environment does not report it) of each episode."""
        observation, _ = self.envs.reset(seed=self.job.seed + 1_000_000)
        running = np.ones(self.job.episodes, bool)
        returns = np.zeros(self.job.episodes)
        success = np.full(self.job.episodes, np.nan)
        while running.any():
            if (normalizer := self.model.get_vec_normalize_env()) is not None:
                observation = normalizer.normalize_obs(observation)
            action, _ = self.model.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, info = self.envs.step(action)
            returns += running * reward
            ended = running & (terminated | truncated)
            if "is_success" in info:
                success[ended] = info["is_success"][ended]
            running &= ~ended  # what comes after belongs to another episode
        return returns, success


def make_env(job: Job) -> VecEnv:
    """Make one copy of the environment; observations are normalised if the settings say so."""
    env = DummyVecEnv([lambda: gymnasium.make(job.env)])
    return VecNormalize(env, norm_reward=False) if job.settings["normalize_observations"] else env


def make_learner(job: Job) -> TD3:
    """Make a new learner, with hindsight if observations carry goals."""
    s = job.settings
    env = make_env(job)
    goals = isinstance(env.observation_space, gymnasium.spaces.Dict)
    hindsight = {"n_sampled_goal": s["hindsight_goals"], "goal_selection_strategy": "future"}
    a_dim = env.action_space.shape[0]
    return TD3(
        "MultiInputPolicy" if goals else "MlpPolicy",
        env,
        learning_rate=s["learning_rate"],
        buffer_size=s["buffer"],
        learning_starts=s["start_steps"],
        batch_size=s["batch_size"],
        tau=s["tau"],
        gamma=s["gamma"],
        train_freq=1,
        gradient_steps=1,
        action_noise=NormalActionNoise(np.zeros(a_dim), np.full(a_dim, s["exploration_noise"])),
        replay_buffer_class=HerReplayBuffer if goals else None,
        replay_buffer_kwargs=hindsight if goals else None,
        policy_delay=s["policy_delay"],
        target_policy_noise=s["policy_noise"],
        target_noise_clip=s["noise_clip"],
        policy_kwargs={"net_arch": list(s["hidden"])},
        seed=job.seed,
        device="cpu",
    )


def save(model: TD3, folder: Path) -> None:
    """Write the learner and its buffer; the older state is replaced when all is written."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder / "new.zip")
    buffer = model.replay_buffer
    if isinstance(buffer, HerReplayBuffer):
        model.save_replay_buffer(folder / "new.pkl")
        (folder / "new.pkl").replace(folder / "buffer.pkl")
    else:
        arrays = {name: getattr(buffer, name)[: buffer.size()] for name in BUFFER_ARRAYS}
        np.savez(folder / "new.npz", pos=buffer.pos, full=buffer.full, **arrays)
        (folder / "new.npz").replace(folder / "buffer.npz")
    if (normalizer := model.get_vec_normalize_env()) is not None:
        normalizer.save(folder / "normalizer.pkl")
    (folder / "new.zip").replace(folder / "model.zip")


def restore(job: Job) -> TD3:
    """Load the learner that `save` wrote, in a new episode and with new random numbers."""
    folder = Path(job.state)
    env = make_env(job)
    if isinstance(env, VecNormalize):
        env = VecNormalize.load(folder / "normalizer.pkl", env.venv)
    model = TD3.load(folder / "model.zip", env=env, device="cpu")
    model.set_random_seed(job.seed + model.num_timesteps)
    if (folder / "buffer.pkl").exists():
        model.load_replay_buffer(folder / "buffer.pkl", truncate_last_traj=True)
        return model
    arrays = np.load(folder / "buffer.npz")
    for name in BUFFER_ARRAYS:
        getattr(model.replay_buffer, name)[: len(arrays[name])] = arrays[name]
    model.replay_buffer.pos = int(arrays["pos"])
    model.replay_buffer.full = bool(arrays["full"])
    return model


def register(env: str) -> None:
    """Import the packages that bring ids which Gymnasium itself does not have."""
    for package in ("gymnasium_robotics", "panda_gym"):
        if env not in gymnasium.registry:
            with contextlib.suppress(ModuleNotFoundError):
                gymnasium.register_envs(importlib.import_module(package))


def train(job: Job) -> None:
    """Train, or train on, to `steps` env steps."""
    register(job.env)
    torch.set_num_threads(job.settings["threads"])
    if (Path(job.state) / "model.zip").exists() and Path(job.csv).exists():
        model = restore(job)
        with open(job.csv, newline="") as file:
            rows = [
                row for row in csv.DictReader(file) if int(row["env_steps"]) <= model.num_timesteps
            ]
    else:
        model = make_learner(job)
        rows = []
    with open(job.csv, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    evaluation = Evaluation(job, float(rows[-1]["wall_s"]) if rows else 0.0)
    model.learn(job.steps - model.num_timesteps, callback=evaluation, reset_num_timesteps=False)
