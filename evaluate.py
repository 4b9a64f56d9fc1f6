"""Measure a trained policy: `python evaluate.py --checkpoint checkpoints/run1`. See `python evaluate.py --help`."""

import dataclasses

from envs.browser import find_browser
from td3_robot.cli import cli
from td3_robot.config import config_of, parse_evaluate
from td3_robot.errors import ConfigError

ROUND = 1000  # environments that step together


def main(argv: list[str]) -> int:
    """Parse, build, measure, show. Returns the exit code."""
    arguments = parse_evaluate(argv)
    config = config_of(arguments.checkpoint)
    if arguments.swift:
        find_browser()  # where there is none, say so at once

    import torch  # after parsing, so that a mistyped flag is answered at once

    import envs
    from envs.baselines import check_names, make_baseline
    from envs.report import print_table
    from td3_robot import TD3
    from td3_robot.memory import keep_freed_memory
    from td3_robot.tracking import write_json

    check_names(arguments.baseline)
    if arguments.json and not arguments.json.parent.is_dir():
        raise ConfigError(f"cannot write {str(arguments.json)!r}: folder {str(arguments.json.parent)!r} does not exist")
    keep_freed_memory()
    torch.set_num_threads(config.threads)
    make = lambda count: envs.make(config.robot, config.task, count, arguments.device, arguments.seed)  # noqa: E731
    env = make(min(arguments.episodes, ROUND))
    agent = TD3(env.o_dim, env.a_dim, device=arguments.device, **dataclasses.asdict(config.td3))
    agent.load(arguments.checkpoint)
    if arguments.record:  # before measuring: what is wrong with it is known at once
        from envs.playback import record_episodes

        record_episodes(agent.select_action, make(1), arguments.seed, arguments.record)
        print(f"recorded in {arguments.record}")

    about = {"checkpoint": str(arguments.checkpoint), "robot": config.robot, "task": config.task}
    about |= {"episodes": arguments.episodes, "seed": arguments.seed}
    policy = _measure(agent.select_action, env, arguments)
    baselines = {name: _measure(make_baseline(name, env), env, arguments) for name in arguments.baseline}
    if arguments.json:  # before the table, whose reader may have left
        write_json(arguments.json, about | policy | {"baselines": baselines})
    print("{checkpoint}: {robot} {task}, {episodes} episodes, seed {seed}".format(**about))
    print_table({"policy": policy, **baselines})
    if arguments.swift:
        from envs.playback import show_episodes

        print("playing in the browser; close its tab or press Ctrl-C to end")
        show_episodes(agent.select_action, make(1), arguments.seed)
    return 0


def _measure(policy, env, arguments) -> dict[str, object]:
    """The summary of a policy; every policy gets the same starts and goals."""
    from envs.metrics import join, measure, summarise
    from td3_robot.evaluation import rollouts

    played = rollouts(policy, env, arguments.episodes, arguments.seed)
    return summarise(join([measure(env.model, part.info, part.alive) for part in played], arguments.episodes))


if __name__ == "__main__":
    cli(main)
