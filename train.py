"""Train a policy: `python train.py --robot panda`. See `python train.py --help`."""

import time

STARTED = time.perf_counter()  # before the imports, which are part of what the user waits for

import contextlib  # noqa: E402
import copy  # noqa: E402
import dataclasses  # noqa: E402
import functools  # noqa: E402
from pathlib import Path  # noqa: E402

from envs.browser import find_browser  # noqa: E402
from td3_robot.checkpoint import RUNS, claim_run, next_run  # noqa: E402
from td3_robot.cli import cli  # noqa: E402
from td3_robot.config import Config, parse_train, save_config  # noqa: E402


def main(argv: list[str]) -> int:
    """Parse, build, train. Returns the exit code."""
    arguments = parse_train(argv)
    config = arguments.config
    if arguments.swift:
        find_browser()  # where there is none, say so at once

    import torch  # after parsing, so that a mistyped flag is answered at once

    import envs
    from td3_robot import TD3
    from td3_robot.memory import keep_freed_memory
    from td3_robot.tracking import CsvLog, Display, TensorBoardLog, plot_learning_curve
    from td3_robot.trainer import Trainer

    keep_freed_memory()
    torch.set_num_threads(config.threads)
    env = envs.make(config.robot, config.task, config.envs, config.device, config.seed)
    evaluation_env = envs.make(config.robot, config.task, config.evaluation.episodes, config.device, config.seed)
    agent = TD3(env.o_dim, env.a_dim, device=config.device, seed=config.seed, **dataclasses.asdict(config.td3))

    with contextlib.ExitStack() as cleanup:
        display = Display(config.steps)
        on_step = [display.advance]
        if arguments.swift:  # before the run folder is made: where there is no browser, nothing else happens
            on_step.append(_live_view(config, agent.actor, cleanup))
        folder = arguments.resume or (claim_run(RUNS, config.run) if config.run is not None else next_run(RUNS))
        cleanup.callback(_remove_if_empty, folder)
        trainer = Trainer(agent, env, evaluation_env, config, folder, STARTED, on_step)
        if arguments.resume:
            trainer.resume()
            if trainer.env_steps >= config.steps:
                print(f"{folder.name} is finished after {trainer.env_steps} env steps; raise --steps to train on")
                return 0
        save_config(config, folder / "config.yaml")
        trainer.trackers += [display, CsvLog(folder, trainer.env_steps), TensorBoardLog(folder, trainer.env_steps)]
        for tracker in trainer.trackers:
            cleanup.callback(tracker.close)
        print(f"{config.robot} learns {config.task} (seed {config.seed}) in {folder}")
        summary = trainer.run()
    plot_learning_curve(folder)
    return _report(summary, folder)


def _remove_if_empty(folder: Path) -> None:
    """Give back the name of a run that failed before it began."""
    with contextlib.suppress(OSError):
        folder.rmdir()


def _live_view(config: Config, actor, cleanup: contextlib.ExitStack):
    """Open the browser view; returns what to call after every step."""
    from envs.live_view import LiveView
    from envs.playback import live_episodes

    shown = copy.deepcopy(actor).cpu()
    episodes = functools.partial(live_episodes, config.robot, config.task, config.seed, shown)
    view = cleanup.enter_context(LiveView(config.robot, episodes, actor))
    return lambda env_steps: view.publish(actor)


def _report(summary: dict, folder: Path) -> int:
    if not summary["finished"]:
        print(f"stopped at {summary['env_steps']} env steps; go on with: python train.py --resume {folder.name}")
        return 130
    print(f"success rate {summary['success_rate']:.1%} after {summary['wall_s']:.1f} s; the curve is in {folder}")
    print(f"see how good it is: python evaluate.py --checkpoint {folder}")
    return 0


if __name__ == "__main__":
    cli(main)
