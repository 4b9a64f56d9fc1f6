"""Measure a trained policy: `python evaluate.py --checkpoint checkpoints/run1`.

`python evaluate.py --help` lists the options.
"""

import contextvars
import datetime
import difflib
import os
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from envs.command_line import (
    SWITCHES,
    EvaluateFlags,
    check_shown,
    check_stops,
    import_plugins,
    list_choices,
    override_options,
)
from envs.config.env_options import CONDITIONS, EnvOptions
from envs.view.browser import have_browser
from envs.view.camera import check_camera
from td3_robot.checkpoint.run_folders import RUNS, find
from td3_robot.checkpoint.store import find_files, list_names
from td3_robot.cli.arguments import load_run_config, parse_evaluate
from td3_robot.errors import CheckpointError, ConfigError, not_none, require_packages, unknown
from td3_robot.utils.atomic_files import check_folder, check_writable, write_text
from td3_robot.utils.console import get_command_line, say, warn
from td3_robot.utils.json_file import check_results, write_json
from td3_robot.utils.progress import stage
from td3_robot.utils.seeding import seed_global_generators
from td3_robot.utils.torch_import import import_torch

if TYPE_CHECKING:
    from envs.evaluation import Evaluation
    from envs.evaluation.report import ArmRun
    from td3_robot.td3.agent import TD3
    from td3_robot.training.verify import Finding


def main(argv: list[str]) -> int:
    """Parse, build, measure, show. Return the exit code."""
    refuse_training_options(argv)
    flags = parse_evaluate(argv, EvaluateFlags)
    if flags.plugins:
        seed_global_generators(flags.seed, "plugins")
    import_plugins(flags.plugins)
    if flags.list:
        print("\n".join(list_choices(flags.list)))
        return 0
    checkpoint = not_none(flags.checkpoint)
    if flags.verify:
        return verify_checkpoint(checkpoint, flags.env)
    config, options = load_run_config(
        checkpoint, EnvOptions, {"env": flags.env} if flags.env else {}
    )
    check_flags(flags, options)
    open_browser = flags.swift and not flags.no_browser and have_browser()
    with stage("starting"):
        import_torch()  # after parsing, so that a mistyped flag is answered immediately
        import torch

        from td3_robot.td3.agent import TD3
        from td3_robot.utils.memory import keep_freed_memory

        keep_freed_memory()
        torch.set_num_threads(config.threads)
        seed_global_generators(flags.seed, "environments")
        agent = TD3.from_checkpoint(checkpoint, flags.device)
    options = override_options(options, flags)
    if flags.swift:
        return show_page(flags, argv, agent, options, open_browser)
    measure(flags, argv, agent, options)
    return 0


def refuse_training_options(argv: list[str]) -> None:
    """Refuse the options that a checkpoint has brought from its training.

    Raises:
        ConfigError: one is given.
    """
    for word in argv:
        if word.split("=")[0] in ("--robot", "--task"):
            raise ConfigError(f"robot and task are those of the checkpoint: leave {word} out")


def show_page(
    flags: EvaluateFlags, argv: list[str], agent: "TD3", options: EnvOptions, open_browser: bool
) -> int:
    """Show the browser view first; figures that are asked for are measured meanwhile."""
    from envs.view.evaluation_view import show

    count = flags.count if flags.measures else 1  # each of them takes time to prepare
    with stage("starting"):
        evaluation, warning = build_evaluation(flags, agent, options, count)
    warn(warning)
    note = "close the page or press Ctrl-C to end"
    pool = ThreadPoolExecutor(1)
    measured = None
    if flags.measures:
        context = contextvars.copy_context()  # for the progress display
        measured = pool.submit(context.run, measure, flags, argv, agent, options)
    else:
        command = shlex.join([*get_command_line("evaluate").split(), *leave_out_view(argv)])
        note = f"{note}\nnothing is measured meanwhile; for figures: {command}"
    page = {"open_browser": open_browser, "port": flags.port, "camera": flags.camera}
    try:
        show(evaluation, flags.episode, flags.grid, note=note, **page)
        if measured is not None:
            measured.result()
    finally:
        pool.shutdown(wait=False)
    return 0


def leave_out_view(argv: list[str]) -> list[str]:
    """Return the words of a command line without the switches of the browser view."""
    view = {"--swift", "--no-browser", "--no_browser"}
    pairs = ("--port", "--grid", "--camera")
    words = list(argv)
    kept = []
    while words:
        word = words.pop(0)
        name = word.partition("=")[0]
        if name in pairs or (name in view and words[:1] in (["true"], ["false"])):
            words = words if "=" in word else words[1:]
        elif name not in view:
            kept.append(word)
    return kept


def build_evaluation(
    flags: EvaluateFlags, agent: "TD3", options: EnvOptions, count: int
) -> tuple["Evaluation", str | None]:
    """Build the evaluation with policy and baselines; also return warnings, if there are any.

    Args:
        count: of episodes.
    """
    from envs.arm_env.fingerprint import env_fingerprint
    from envs.evaluation import Evaluation
    from td3_robot.checkpoint.provenance import describe_other_constants

    checkpoint = not_none(flags.checkpoint)
    evaluation = Evaluation(options, count, flags.seed, flags.episode, flags.device)
    env = evaluation.env
    constants = env_fingerprint(env, options.randomize)
    warnings = [describe_other_constants(checkpoint, constants)]
    agent.require(env.o_dim, env.a_dim, f"checkpoint {str(checkpoint)!r}")
    evaluation.add("policy", lambda env: agent.select_action)
    for name in flags.baseline:
        if evaluation.is_baseline(name):
            evaluation.add_baseline(name)
        else:
            folder = add_run(evaluation, flags, options, name)
            other = describe_other_constants(folder, constants)
            warnings.append(other and f"{name}: {other}")
    return evaluation, "; ".join(filter(None, warnings)) or None


def add_run(evaluation: "Evaluation", flags: EvaluateFlags, options: EnvOptions, name: str) -> Path:
    """Add the policy of another run of the same task, under the same conditions.

    Returns:
        Its folder.

    Raises:
        ConfigError: there is neither a baseline nor a run of that name, or the run is of another
            robot, task or environment.
        CheckpointError: its checkpoint is damaged.
    """
    from td3_robot.td3.agent import TD3

    try:
        folder = find(name)
    except CheckpointError as error:
        if os.sep in name or os.path.isdir(name) or os.path.isdir(RUNS / name):
            raise ConfigError(f"baseline {name!r}: {error}") from error
        # of the controllers, those that can do the task
        able = evaluation.env.task.controllers if options.env is None else ()
        able = evaluation.add_suffix(name, ("random", *able))
        known = (*able, *find_near_run(name), "the name or folder of a run", "empty for none")
        raise unknown("baseline", name, known) from error
    _, trained = load_run_config(folder, EnvOptions, {"env": flags.env} if flags.env else {})
    if trained.metadata != options.metadata:
        raise ConfigError(
            f"baseline {name!r} was trained on {trained.name}, and is to be measured on "
            f"{options.name}"
        )
    agent = TD3.from_checkpoint(folder, flags.device)
    env = evaluation.env
    agent.require(env.o_dim, env.a_dim, f"baseline {name!r}")
    heading = str(folder) if name in evaluation.controllers else name
    evaluation.add(heading, lambda env: agent.select_action)
    return folder


def find_near_run(name: str) -> list[str]:
    """Find the run whose name is nearest to a mistyped one; [] if none is near."""
    runs = {run.lower(): run for run in list_names(RUNS) if find_files(RUNS / run)}
    return [runs[near] for near in difflib.get_close_matches(name.lower(), runs, n=1)]


def measure(flags: EvaluateFlags, argv: list[str], agent: "TD3", options: EnvOptions) -> None:
    """Play all episodes, print the table, and write everything that the flags ask for."""
    from envs.tasks.registry import describe_engine
    from td3_robot.checkpoint.store import load
    from td3_robot.networks.residual import describe_residual

    with stage("starting"):
        evaluation, warning = build_evaluation(flags, agent, options, flags.count)
    if not flags.swift:  # the page's evaluation has given it
        warn(warning)
    checkpoint = not_none(flags.checkpoint)
    metadata = {"checkpoint": str(checkpoint)} | ({"warning": warning} if warning else {})
    # one that a run keeps may be from before the first update; others do not say
    trained = load(checkpoint, ()).metadata.get("actor_trained", True)
    notes = describe_residual(agent.config, trained)
    if not (trained or notes):
        notes = ["the policy has not learned yet: its actor is as it was made"]
    notes += [] if options.env else describe_engine(options.task, options.engine)
    write_figures(evaluation, flags, argv, metadata, notes)
    write_rollouts(evaluation, agent, flags, options)


def write_figures(
    evaluation: "Evaluation",
    flags: EvaluateFlags,
    argv: list[str],
    metadata: dict[str, str],
    notes: list[str],
) -> None:
    """Play all episodes, write recording, results and report, and print the table."""
    from envs.evaluation.report import read_log
    from envs.view.evaluation_view import record

    run = read_log(flags.log, evaluation.env.robot.n) if flags.log else None
    if flags.record:  # before measuring, so that its errors come early
        record(evaluation, flags.record, flags.episode, flags.grid, flags.camera)
        say(f"recorded in {flags.record}")
    evaluation.play(keep=flags.report is not None)
    if flags.robustness:
        evaluation.play_robustness(flags.count_disturbed)
    failure = None
    try:  # before the table, whose reader may have closed the pipe
        write_results(evaluation, flags, argv, metadata, run)
    except ConfigError as error:  # what was measured is shown all the same
        failure = error
    for line in (f"{flags.checkpoint}: {evaluation}", *notes):
        say(line)
    evaluation.print_table()
    if failure is not None:
        raise failure
    if flags.report:
        say(f"the report is {flags.report / 'index.html'}")


def write_results(
    evaluation: "Evaluation",
    flags: EvaluateFlags,
    argv: list[str],
    metadata: dict[str, str],
    run: "ArmRun | None",
) -> None:
    """Write the file of results and the report; `run` is that of a robot's log."""
    from td3_robot.checkpoint.provenance import describe_code
    from td3_robot.loggers.csv import read_curve

    if flags.json:
        write_json(flags.json, metadata | evaluation.to_dict())
    if flags.report:
        now = datetime.datetime.now().astimezone().isoformat(" ", "minutes")
        command = shlex.join([*get_command_line("evaluate").split(), *argv])
        facts = metadata | {"command": command, "code": describe_code(), "date": now}
        flags.report.mkdir(exist_ok=True)
        page = evaluation.render_report(
            facts,
            read_curve(not_none(flags.checkpoint)),
            lambda episode: format_replay(flags, episode),
            run,
        )
        write_text(flags.report / "index.html", page)


def write_rollouts(
    evaluation: "Evaluation", agent: "TD3", flags: EvaluateFlags, options: EnvOptions
) -> None:
    """Write the picture of an episode and the dataset that were asked for."""
    if flags.plot:
        from td3_robot.loggers.rollout_plot import plot_rollout

        plot_rollout(evaluation.compare_with_random(), flags.plot, evaluation.action_names)
        say(f"reward and actions of one episode are in {flags.plot}")
    if flags.dataset:
        from envs.gymnasium_ids import make_env_spec
        from td3_robot.data.dataset_file import collect, save_dataset

        env = evaluation.make_dataset_env(flags.transitions)
        data = collect(agent.select_action, env, flags.transitions, flags.seed, flags.dataset_noise)
        save_dataset(flags.dataset, data, make_env_spec(options))
        say(f"{flags.transitions} transitions are in {flags.dataset}")


def verify_checkpoint(checkpoint: Path, env: str | None) -> int:
    """Check everything in the folder; return the exit code."""
    import envs
    from envs.arm_env.fingerprint import env_fingerprint
    from td3_robot.training.verify import WRONG, print_findings, verify

    def describe_env():
        _, options = load_run_config(checkpoint, EnvOptions, {"env": env} if env else {})
        made = envs.make_from_config(options)
        return made.o_dim, made.a_dim, env_fingerprint(made, options.randomize)

    with stage("verifying"):
        findings = [*verify(checkpoint, describe_env), verify_export(checkpoint)]
    print_findings(checkpoint, findings)
    return 2 if any(finding.state == WRONG for finding in findings) else 0


def verify_export(checkpoint: Path) -> "Finding":
    """Check the policy that was exported from a checkpoint to its folder, if any."""
    from td3_robot.commands.exported import get_export_path, load_policy
    from td3_robot.deploy import DeployError
    from td3_robot.training.verify import GOOD, MISSING, OTHER, WRONG, Finding

    path = get_export_path(checkpoint)
    if not path.is_file():
        return Finding("export", MISSING, f"no {path.name}")
    try:
        require_packages(path.name, "onnxruntime")
    except ConfigError as error:
        return Finding("export", MISSING, str(error))
    try:
        load_policy(path)
    except DeployError as error:
        return Finding("export", WRONG, str(error))
    except ConfigError as error:
        return Finding("export", OTHER, str(error))
    return Finding("export", GOOD, f"{path.name} is of these networks; its test vectors are met")


def check_flags(flags: EvaluateFlags, options: EnvOptions) -> None:
    """Refuse flags that cannot succeed before anything is measured."""
    check_results(flags.json, ("checkpoint", "episodes"))
    check_writable(flags.plot, ".png")
    if flags.dataset:
        from td3_robot.data.dataset_file import check_dataset

        check_dataset(flags.dataset)
    check_folder(flags.report)
    check_camera(flags.camera)
    check_shown(flags, options)
    check_stops(flags.guard_stops, override_options(options, flags), flags.baseline)


def format_replay(flags: EvaluateFlags, episode: int) -> str:
    """Return the command that shows an episode."""
    words = [*get_command_line("evaluate").split(), "--checkpoint", str(flags.checkpoint)]
    words += ["--seed", str(flags.seed), "--episodes", str(flags.count)]
    if flags.device != "cpu":
        words += ["--device", flags.device]
    if flags.plugins:
        words += ["--plugins", ",".join(flags.plugins)]
    if flags.xacro:
        words += ["--xacro", *flags.xacro]
    for name in SWITCHES:
        if (switch := getattr(flags, name)) is not None:
            words += [f"--{name}", str(switch).lower()]
    for name in CONDITIONS:
        if (value := getattr(flags, name)) is not None:
            words += [f"--{name}", str(value)]
    return shlex.join([*words, "--episode", str(episode), "--swift"])
