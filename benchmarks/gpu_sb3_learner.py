"""Time Stable-Baselines3's TD3 on a Gymnasium id, as benchmarks/gpu.py runs it."""

import time

import gymnasium
import gymnasium_envs
import numpy as np
from stable_baselines3 import TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import NormalActionNoise

WARM_UP = 1000  # gradient steps before the clock starts


class Clock(BaseCallback):
    """Callback that times gradient steps and ends the training after some seconds."""

    def __init__(self, seconds: float):
        super().__init__()
        self.started = time.perf_counter()
        self.ends = self.started + seconds
        self.measured: tuple[float, int, int] | None = None

    def _on_step(self) -> bool:
        now = time.perf_counter()
        if self.measured is None and self.model._n_updates >= WARM_UP:
            self.measured = (now, self.num_timesteps, self.model._n_updates)
        return now < self.ends


def train(env: str, device: str, steps: int, seconds: float, random_steps: int, seed: int) -> dict:
    """Train for so many steps or seconds; return the figures of a row of gpu.csv."""
    s = gymnasium_envs.get_settings(env)
    made = gymnasium.make(env)
    width = made.action_space.shape[0]
    model = TD3(
        "MlpPolicy",
        made,
        learning_rate=s["learning_rate"],
        buffer_size=s["buffer"],
        learning_starts=random_steps,
        batch_size=s["batch_size"],
        tau=s["tau"],
        gamma=s["gamma"],
        train_freq=1,
        gradient_steps=1,
        action_noise=NormalActionNoise(np.zeros(width), np.full(width, s["exploration_noise"])),
        policy_delay=s["policy_delay"],
        target_policy_noise=s["policy_noise"],
        target_noise_clip=s["noise_clip"],
        policy_kwargs={"net_arch": list(s["hidden"])},
        seed=seed,
        device=device,
    )
    clock = Clock(seconds)
    model.learn(steps, callback=clock)
    now = time.perf_counter()
    row = {"env_steps": model.num_timesteps, "gradient_steps": model._n_updates}
    row["seconds"] = round(now - clock.started, 1)
    if clock.measured is not None:
        at, env_steps, gradient_steps = clock.measured
        row["env_steps_per_s"] = round((model.num_timesteps - env_steps) / (now - at), 1)
        row["updates_per_s"] = round((model._n_updates - gradient_steps) / (now - at), 1)
    return row
