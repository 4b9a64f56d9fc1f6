"""Measure a trained policy: `python evaluate.py --checkpoint checkpoints/run1`. See `python evaluate.py --help`."""

import dataclasses

from envs.browser import find_browser
from td3_robot.arguments import config_of, parse_evaluate
from td3_robot.cli import cli
from td3_robot.errors import ConfigError

ROUND = 1000  # arms that step together
GYMNASIUM_ROUND = 10  # environments of others, which step one after the other


def main(argv: list[str]) -> int:
    """Parse, build, measure, show. Returns the exit code."""
    arguments = parse_evaluate(argv)
    config = dataclasses.replace(config_of(arguments.checkpoint), device=arguments.device, seed=arguments.seed)
    _check(arguments, config)
    if arguments.swift:
        find_browser()  # where there is none, say so at once

    import torch  # after parsing, so that a mistyped flag is answered at once

    import envs
    from envs.report import print_table
    from td3_robot import TD3
    from td3_robot.memory import keep_freed_memory
    from td3_robot.tracking import write_json

    keep_freed_memory()
    torch.set_num_threads(config.threads)
    env = envs.of_config(config, min(arguments.episodes, ROUND if config.env is None else GYMNASIUM_ROUND))
    controllers = {name: _baseline(name, env, config) for name in arguments.baseline}
    agent = TD3(env.o_dim, env.a_dim, device=config.device, **dataclasses.asdict(config.td3))
    agent.load(arguments.checkpoint)
    if arguments.record:  # before measuring: what is wrong with it is known at once
        from envs.playback import record_episodes

        record_episodes(agent.select_action, envs.of_config(config, 1), config.seed, arguments.record)
        print(f"recorded in {arguments.record}")

    named = ("robot", "task") if config.env is None else ("env",)
    about = {"checkpoint": str(arguments.checkpoint)} | {name: getattr(config, name) for name in named}
    about |= {"episodes": arguments.episodes, "seed": config.seed}
    policy = _measure(agent.select_action, env, arguments)
    baselines = {name: _measure(controller, env, arguments) for name, controller in controllers.items()}
    if arguments.json:  # before the table, whose reader may have left
        write_json(arguments.json, about | policy | {"baselines": baselines})
    what = config.env or f"{config.robot} {config.task}"
    print(f"{arguments.checkpoint}: {what}, {arguments.episodes} episodes, seed {config.seed}")
    print_table({"policy": policy, **baselines})
    _keep(agent, env, config, arguments)
    if arguments.swift:
        from envs.playback import show_episodes

        print("playing in the browser; close its tab or press Ctrl-C to end")
        show_episodes(agent.select_action, envs.of_config(config, 1), config.seed)
    return 0


def _check(arguments, config) -> None:
    """Refuse what cannot end well before anything is measured."""
    for path, suffix in ((arguments.json, ""), (arguments.plot, ".png"), (arguments.dataset, ".npz")):
        if path is None:
            continue
        if path.is_dir() or not path.name.endswith(suffix):
            raise ConfigError(f"cannot write {str(path)!r}: it must be a file{suffix and f' named *{suffix}'}")
        if not path.parent.is_dir():
            raise ConfigError(f"cannot write {str(path)!r}: folder {str(path.parent)!r} does not exist")
    if config.env is not None and (arguments.swift or arguments.record):
        flag = "swift" if arguments.swift else "record"
        raise ConfigError(f"{flag} shows our own robots; it cannot show a Gymnasium environment")


def _baseline(name: str, env, config):
    """A controller by its name: random actions for any environment, classical ones for robots."""
    from envs.baselines import BASELINES, make_baseline
    from td3_robot.errors import unknown
    from td3_robot.evaluation import random_policy

    if name == "random":
        return random_policy(env, config.seed)
    if config.env is not None or name not in BASELINES:
        raise unknown("baseline", name, ("random", *(BASELINES if config.env is None else ())))
    return make_baseline(name, env)


def _measure(policy, env, arguments) -> dict[str, object]:
    """The summary of a policy; every policy gets the same starts and goals."""
    from envs import metrics
    from td3_robot.evaluation import episode_statistics, rollouts, summarise

    played = list(rollouts(policy, env, arguments.episodes, arguments.seed))
    summary = summarise(map(episode_statistics, played), arguments.episodes)
    if model := getattr(env, "model", None):  # one of our arms
        episodes = [metrics.measure(model, part.info, part.alive) for part in played]
        summary |= metrics.summarise(metrics.join(episodes, arguments.episodes))
    return summary


def _keep(agent, env, config, arguments) -> None:
    """Write the picture and the dataset, where asked for."""
    import envs
    from td3_robot.datasets import collect, save_dataset
    from td3_robot.evaluation import random_policy, rollout
    from td3_robot.plots import plot_rollout

    if arguments.plot:
        one = envs.of_config(config, 1)
        policies = {"policy": agent.select_action, "random": random_policy(one, config.seed)}
        played = {name: rollout(policy, one, one.reset(config.seed)) for name, policy in policies.items()}
        joints = [f"joint {number}" for number in range(1, env.a_dim + 1)]
        plot_rollout(played, arguments.plot, joints if config.env is None else None)
        print(f"reward and actions of one episode are in {arguments.plot}")
    if arguments.dataset:
        transitions = collect(agent.select_action, env, arguments.transitions, config.seed, arguments.noise)
        save_dataset(arguments.dataset, transitions)
        print(f"{arguments.transitions} transitions are in {arguments.dataset}")


if __name__ == "__main__":
    cli(main)
