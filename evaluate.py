"""Measure a trained policy: `python evaluate.py --checkpoint checkpoints/run1`. See `python evaluate.py --help`."""

import dataclasses
import shlex

from envs.view.browser import find_browser
from td3_robot.arguments import config_of, parse_evaluate
from td3_robot.cli import cli
from td3_robot.errors import ConfigError

ROUND = 1000  # arms that step together
GYMNASIUM_ROUND = 10  # environments of others, which step one after the other


def main(argv: list[str]) -> int:
    """Parse, build, measure, show. Returns the exit code."""
    arguments = parse_evaluate(argv)
    config = config_of(arguments.checkpoint, arguments.env)
    config = dataclasses.replace(config, device=arguments.device, seed=arguments.seed)
    _check(arguments, config)
    if arguments.swift:
        find_browser()  # where there is none, say so at once

    import torch  # after parsing, so that a mistyped flag is answered at once

    from envs.evaluation.table import print_table
    from td3_robot import TD3
    from td3_robot.memory import keep_freed_memory
    from td3_robot.tracking import write_json

    keep_freed_memory()
    torch.set_num_threads(config.threads)
    env = _env(config, arguments)
    baselines = {name: _baseline(name, env, config, arguments) for name in arguments.baseline}
    agent = TD3.from_checkpoint(arguments.checkpoint, config.device)
    agent.require(env.o_dim, env.a_dim, f"checkpoint {str(arguments.checkpoint)!r}")
    if arguments.record:  # before measuring: what is wrong with it is known at once
        from envs.view.playback import record_episodes

        one = _one(env, config, arguments)
        record_episodes(agent.select_action, one, config.seed, arguments.record, arguments.episode)
        print(f"recorded in {arguments.record}")

    named = ("robot", "task") if config.env is None else ("env",)
    about = {"checkpoint": str(arguments.checkpoint)} | {name: getattr(config, name) for name in named}
    about |= {"episodes": arguments.episodes, "seed": config.seed}
    about |= {} if arguments.episode is None else {"episode": arguments.episode}
    played, summaries = _measure({"policy": (agent.select_action, env), **baselines}, arguments)
    if arguments.json:  # before the table, whose reader may have left
        beside = {name: summaries[name] for name in baselines}
        write_json(arguments.json, about | summaries["policy"] | {"baselines": beside})
    if arguments.report:
        facts = about | {"command": shlex.join(["python", "evaluate.py", *argv])}
        _write_report(facts, summaries, played, env, config, arguments)
    what = config.env or f"{config.robot} {config.task}"
    which = f"{arguments.episodes} episodes" if arguments.episode is None else f"episode {arguments.episode}"
    print(f"{arguments.checkpoint}: {what}, {which}, seed {config.seed}")
    print_table(summaries)
    if arguments.report:
        print(f"the report is {arguments.report / 'index.html'}")
    _keep(agent, env, config, arguments)
    if arguments.swift:
        from envs.view.playback import show_episodes

        print("playing in the browser; close its tab or press Ctrl-C to end")
        show_episodes(agent.select_action, _one(env, config, arguments), config.seed, arguments.episode)
    return 0


def _check(arguments, config) -> None:
    """Refuse what cannot end well before anything is measured."""
    for path, suffix in ((arguments.json, ""), (arguments.plot, ".png"), (arguments.dataset, ".npz")):
        if path is None:
            continue
        if path.is_dir() or not path.name.endswith(suffix):
            raise ConfigError(f"cannot write {str(path)!r}: it must be a file{suffix and f' named *{suffix}'}")
        _check_parent(path)
    if arguments.report is not None:
        if arguments.report.exists() and not arguments.report.is_dir():
            raise ConfigError(f"cannot write {str(arguments.report)!r}: it must be a folder")
        _check_parent(arguments.report)
    if config.env is not None:
        for flag in ("swift", "record", "report", "episode"):
            if getattr(arguments, flag) is not None and getattr(arguments, flag) is not False:  # episode 0 is one
                raise ConfigError(f"{flag} shows our own robots; it cannot show a Gymnasium environment")


def _check_parent(path) -> None:
    if not path.parent.is_dir():
        raise ConfigError(f"cannot write {str(path)!r}: folder {str(path.parent)!r} does not exist")


def _baseline(name: str, env, config, arguments):
    """A controller by its name and where it acts: random actions for any environment, classical ones for robots.

    Without a guard, whatever the policy has, unless the name ends in "+guard".
    """
    from envs.controllers import BASELINES, make_baseline
    from td3_robot.errors import unknown
    from td3_robot.evaluation import random_policy

    known = ("random", *BASELINES) if config.env is None else ("random",)
    plain = name.removesuffix("+guard") if config.env is None else name
    if plain not in known:
        raise unknown("baseline", name, known)
    if (guard := plain != name) != config.guard:
        env = _env(dataclasses.replace(config, guard=guard), arguments)
    return random_policy(env, config.seed) if plain == "random" else make_baseline(plain, env), env


def _env(config, arguments):
    """What is measured in: many episodes side by side, or the chosen one."""
    import envs

    env = envs.of_config(config, min(arguments.episodes, ROUND if config.env is None else GYMNASIUM_ROUND))
    return env if arguments.episode is None else _replay(env, arguments)


def _replay(env, arguments):
    """An environment of one arm whose every episode is the chosen one."""
    from envs.evaluation.replay import Replay
    from td3_robot.evaluation import round_seeds

    number, row = divmod(arguments.episode, env.num_envs)
    env.reset(round_seeds(env, arguments.episodes, arguments.seed)[number])
    return Replay(env, row)


def _one(env, config, arguments):
    """An environment to show: of the chosen episode, or of new ones."""
    import envs

    return envs.of_config(config, 1) if arguments.episode is None else env


def _measure(controllers, arguments):
    """For each controller, a policy and where it acts, its trajectories, where a report wants them, and its summary.

    All get the same starts and goals.
    """
    from envs.evaluation import metrics, report
    from td3_robot.evaluation import episode_statistics, rollouts, summarise

    episodes = arguments.episodes if arguments.episode is None else 1
    played, summaries = {}, {}
    for name, (policy, env) in controllers.items():
        model = getattr(env, "model", None)  # of one of our arms
        collision = metrics.capsules(env.world) if model else None
        statistics, figures, kept = [], [], []
        policy = report.Watched(policy, env) if arguments.report else policy
        for part in rollouts(policy, env, episodes, arguments.seed):
            statistics.append(episode_statistics(part))
            figures += [metrics.measure(model, part.info, part.alive, collision)] if model else []
            kept += [report.Trajectories.of_round(part.alive, part.info, policy)] if arguments.report else []
        played[name] = report.join(kept, episodes) if kept else None
        arm = metrics.summarise(metrics.join(figures, episodes)) if figures else {}
        summaries[name] = summarise(statistics, episodes) | arm
    return played, summaries


def _write_report(facts, summaries, played, env, config, arguments) -> None:
    """Write the page, complete or not at all."""
    from envs.evaluation.report import Evaluation, page
    from td3_robot.files import replacing

    again = ["python", "evaluate.py", "--checkpoint", str(arguments.checkpoint), "--seed", str(arguments.seed)]
    again += ["--episodes", str(arguments.episodes)] + ["--device", arguments.device] * (arguments.device != "cpu")
    evaluation = Evaluation(
        title=f"{config.robot}: {config.task}",
        facts={name: str(value) for name, value in facts.items()},
        env=env,
        summaries=summaries,
        played=played,
        curve=_curve(arguments.checkpoint),
        replay=lambda episode: shlex.join([*again, "--episode", str(episode), "--swift"]),
    )
    arguments.report.mkdir(exist_ok=True)
    with replacing(arguments.report / "index.html") as new:
        new.write_text(page(evaluation), encoding="utf-8")


def _curve(checkpoint) -> list[dict[str, float]]:
    """The rows of the run's metrics.csv, in the folder of the checkpoint or the one above; none where it has none."""
    from td3_robot.tracking import CSV_NAME, read_metrics

    folders = [folder for folder in (checkpoint, checkpoint.parent) if (folder / CSV_NAME).is_file()]
    return read_metrics(folders[0]) if folders else []


def _action_names(env) -> list[str]:
    joints = [f"joint {number}" for number in range(1, env.robot.n + 1)]
    return joints + ["gripper"] * (env.a_dim - env.robot.n)


def _keep(agent, env, config, arguments) -> None:
    """Write the picture and the dataset, where asked for."""
    from td3_robot.datasets import collect, save_dataset
    from td3_robot.evaluation import random_policy, rollout
    from td3_robot.plots import plot_rollout

    if arguments.plot:
        one = _one(env, config, arguments)
        policies = {"policy": agent.select_action, "random": random_policy(one, config.seed)}
        played = {name: rollout(policy, one, one.reset(config.seed)) for name, policy in policies.items()}
        plot_rollout(played, arguments.plot, _action_names(env) if config.env is None else None)
        print(f"reward and actions of one episode are in {arguments.plot}")
    if arguments.dataset:
        transitions = collect(agent.select_action, env, arguments.transitions, config.seed, arguments.noise)
        save_dataset(arguments.dataset, transitions)
        print(f"{arguments.transitions} transitions are in {arguments.dataset}")


if __name__ == "__main__":
    cli(main)
