"""Train Stable-Baselines3's TD3 on `reach`, with the same environments and settings.

    python benchmarks/sb3_reach.py FOLDER SEED [THREADS]

Writes metrics.csv and summary.json into FOLDER as train.py does. Called by benchmarks/reach.py.
What SB3 has no option for is left out: noise that decays and differs from environment to
environment.
"""

import time

STARTED = time.perf_counter()

import argparse  # noqa: E402
import csv  # noqa: E402
from pathlib import Path  # noqa: E402

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from stable_baselines3 import TD3  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.noise import NormalActionNoise, VectorizedActionNoise  # noqa: E402
from stable_baselines3.common.vec_env import VecEnv  # noqa: E402

import envs  # noqa: E402
from envs.command_line import TrainFlags  # noqa: E402
from envs.config.env_options import EnvOptions  # noqa: E402
from td3_robot.cli.arguments import parse_train  # noqa: E402
from td3_robot.evaluation.rollout import evaluate  # noqa: E402
from td3_robot.utils.json_file import write_json  # noqa: E402
from td3_robot.utils.seeding import derive_seed  # noqa: E402


class ArmVecEnv(VecEnv):
    """VecEnv of SB3 around our batched environments."""

    def __init__(self, env):
        self.env = env

        def box(bound, size):
            return gymnasium.spaces.Box(-bound, bound, (size,), np.float32)

        super().__init__(env.num_envs, box(np.inf, env.o_dim), box(1.0, env.a_dim))

    def reset(self):
        """Return the first observations."""
        return self.env.reset().numpy()

    def step_async(self, actions):
        """Keep the actions for `step_wait`."""
        self._actions = torch.as_tensor(actions)

    def step_wait(self):
        """Step; mark time limits the way SB3 expects."""
        step = self.env.step(self._actions)
        done, last = (step.terminated | step.truncated).numpy(), step.next_observation.numpy()
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

    def __init__(self, evaluation_env, config, file):
        super().__init__()
        self.evaluation_env, self.config = evaluation_env, config
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
        self.writer.writerow({**counts, **self.scores, "wall_s": time.perf_counter() - STARTED})


def main(folder: Path, arguments) -> None:
    """Train and write the results."""
    config = arguments.config
    torch.set_num_threads(config.threads)
    env = envs.make_from_config(arguments.environment, config.num_envs, seed=config.seed)
    evaluation_env = envs.make_from_config(arguments.environment, config.evaluation.episodes)
    td3, noise = config.td3, np.full(env.a_dim, config.exploration.noise)
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
        evaluation = Evaluation(evaluation_env, config, file)
        model.learn(config.steps, callback=evaluation)
        evaluation.measure()
    counts = {"env_steps": model.num_timesteps, "gradient_steps": model._n_updates}
    write_json(folder / "summary.json", {**evaluation.scores, **counts})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of the results")
    parser.add_argument("seed")
    parser.add_argument("threads", nargs="?", help="torch threads; by default the preset's")
    words = parser.parse_args()
    flags = ["--robot", "panda", "--seed", words.seed]
    flags += ["--threads", words.threads] if words.threads else []
    main(words.folder, parse_train(flags, EnvOptions, TrainFlags))
