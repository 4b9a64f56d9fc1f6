"""Measure a trained policy: `python evaluate.py --checkpoint checkpoints/run1`. See `python
evaluate.py --help`.
"""

import datetime
import shlex
from pathlib import Path

from envs.command_line import EvaluateFlags, check_shown, import_plugins, listing, with_asked
from envs.config.env_options import CONDITIONS, EnvOptions
from envs.view.browser import have_browser
from envs.view.camera import check_camera
from td3_robot.cli.arguments import load_run_config, parse_evaluate
from td3_robot.errors import not_none
from td3_robot.utils.atomic_files import check_folder, check_writable, write_text
from td3_robot.utils.console import cli, warn


def main(argv: list[str]) -> int:
    """Parse, build, measure, show. Returns the exit code."""
    asked = parse_evaluate(argv, EvaluateFlags)
    import_plugins(asked.plugins)
    if asked.list:
        print("\n".join(listing(asked.list)))
        return 0
    checkpoint = not_none(asked.checkpoint)
    if asked.verify:
        return _verify(checkpoint, asked.env)
    config, options = load_run_config(
        checkpoint, EnvOptions, {"env": asked.env} if asked.env else {}
    )
    _check(asked, options)
    opened = {"open_browser": asked.swift and not asked.no_browser and have_browser()}
    opened |= {"port": asked.port, "camera": asked.camera}
    options = with_asked(options, asked)

    import torch  # after parsing, so that a mistyped flag is answered at once

    from envs.arm_env.fingerprint import env_fingerprint
    from envs.evaluation import Evaluation
    from envs.evaluation.report import read_log
    from envs.view.of_evaluation import record, show
    from td3_robot import TD3
    from td3_robot.checkpoint.provenance import code, other_constants
    from td3_robot.data.dataset_file import collect, save_dataset
    from td3_robot.loggers.csv import read_curve
    from td3_robot.loggers.rollout_plot import plot_rollout
    from td3_robot.utils.json_file import write_json
    from td3_robot.utils.memory import keep_freed_memory

    keep_freed_memory()
    torch.set_num_threads(config.threads)
    evaluation = Evaluation(options, asked.count, asked.seed, asked.episode, asked.device)
    others = other_constants(checkpoint, env_fingerprint(evaluation.env, options.randomize))
    warn(others)
    agent = TD3.from_checkpoint(checkpoint, asked.device)
    agent.require(evaluation.env.o_dim, evaluation.env.a_dim, f"checkpoint {str(checkpoint)!r}")
    evaluation.add("policy", lambda env: agent.select_action)
    for name in asked.baseline:
        evaluation.add_baseline(name)
    run = read_log(asked.log, evaluation.env.robot.n) if asked.log else None
    if asked.record:  # before measuring: what is wrong with it is known at once
        record(evaluation, asked.record, asked.episode, asked.grid, asked.camera)
        print(f"recorded in {asked.record}")
    evaluation.play(keep=asked.report is not None)
    if asked.robustness:
        evaluation.play_robustness(asked.count_disturbed)
    metadata = {"checkpoint": str(asked.checkpoint)} | ({"warning": others} if others else {})
    if asked.json:  # before the table, whose reader may have left
        write_json(asked.json, metadata | evaluation.to_dict())
    if asked.report:
        metadata |= {"command": shlex.join(["python", "evaluate.py", *argv]), "code": code()}
        metadata["date"] = datetime.datetime.now().astimezone().isoformat(" ", "minutes")
        asked.report.mkdir(exist_ok=True)
        page = evaluation.render_report(
            metadata, read_curve(checkpoint), lambda episode: _replay(asked, episode), run
        )
        write_text(asked.report / "index.html", page)
    print(f"{checkpoint}: {evaluation}")
    evaluation.print_table()
    if asked.report:
        print(f"the report is {asked.report / 'index.html'}")
    if asked.plot:
        plot_rollout(evaluation.compare_with_random(), asked.plot, evaluation.action_names)
        print(f"reward and actions of one episode are in {asked.plot}")
    if asked.dataset:
        env = evaluation.make_dataset_env(asked.transitions)
        data = collect(agent.select_action, env, asked.transitions, asked.seed, asked.dataset_noise)
        save_dataset(asked.dataset, data)
        print(f"{asked.transitions} transitions are in {asked.dataset}")
    if asked.swift:
        print("close the page or press Ctrl-C to end", flush=True)
        show(evaluation, asked.episode, asked.grid, **opened)
    return 0


def _verify(checkpoint: Path, env: str | None) -> int:
    """Look at everything in the folder."""
    import envs
    from envs.arm_env.fingerprint import env_fingerprint
    from td3_robot.training.verify import WRONG, print_findings, verify

    def environment():
        _, options = load_run_config(checkpoint, EnvOptions, {"env": env} if env else {})
        made = envs.of_config(options)
        return made.o_dim, made.a_dim, env_fingerprint(made, options.randomize)

    findings = verify(checkpoint, environment)
    print_findings(checkpoint, findings)
    return 2 if any(finding.state == WRONG for finding in findings) else 0


def _check(asked: EvaluateFlags, options: EnvOptions) -> None:
    """Refuse what cannot end well before anything is measured."""
    for path, suffix in ((asked.json, ""), (asked.plot, ".png"), (asked.dataset, ".npz")):
        check_writable(path, suffix)
    check_folder(asked.report)
    check_camera(asked.camera)
    check_shown(asked, options)


def _replay(asked: EvaluateFlags, episode: int) -> str:
    """The command that shows an episode."""
    words = [
        "python",
        "evaluate.py",
        "--checkpoint",
        str(asked.checkpoint),
        "--seed",
        str(asked.seed),
    ]
    words += ["--episodes", str(asked.count)] + ["--device", asked.device] * (asked.device != "cpu")
    words += ["--plugins", ",".join(asked.plugins)] if asked.plugins else []
    for name in ("guard", "sparse"):
        words += (
            [] if (switch := getattr(asked, name)) is None else [f"--{name}", str(switch).lower()]
        )
    given = {name: value for name in CONDITIONS if (value := getattr(asked, name)) is not None}
    words += [word for name, value in given.items() for word in (f"--{name}", str(value))]
    return shlex.join([*words, "--episode", str(episode), "--swift"])


if __name__ == "__main__":
    cli(main)
