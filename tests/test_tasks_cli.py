"""Every task as its user meets it: trained with its preset, resumed, evaluated; and the policies
that are shipped.
"""

import json
import math
import shutil
from pathlib import Path

import pytest

from envs.config.env_options import EnvOptions
from envs.tasks.registry import list_tasks
from td3_robot.cli.arguments import load_run_config
from td3_robot.loggers.csv import read_metrics

ROOT = Path(__file__).resolve().parent.parent
UNTRAINED = {"reach_moving"}  # no policy of these is shipped
SHIPPED = {"reach": "run1"} | {
    task: task for task in list_tasks() if task not in {"reach"} | UNTRAINED
}
QUICK = {"reach_pose"}  # trained each time
LONG = {"stack", "push", "insert_tight"}  # to evaluate; the others have the same parts
SMALL = (
    "--steps",
    "1000",
    "--evaluation.every",
    "500",
    "--evaluation.episodes",
    "2",
    "--replay.capacity",
    "20000",
)


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(task, marks=() if task in QUICK else pytest.mark.slow)
        for task in sorted(set(list_tasks()) - {"reach"})
    ],
)
def test_a_task_trains_with_its_preset_and_goes_on_where_it_stopped(task, tmp_path, in_process):
    """An expert acts, where the preset has one, in the resumed part too."""
    code, out, err = in_process(tmp_path, "train", "--task", task, "--run", "mine", *SMALL)
    assert (code, err) == (0, "")
    assert "the policy corrects a controller, whose action is column '" in out
    assert ("has no forces" in out) == (task == "pick_turned")  # whose preset says so
    assert in_process(tmp_path, "train", "--resume", "mine", "--steps", "1250")[::2] == (0, "")
    metrics = read_metrics(tmp_path / "checkpoints" / "mine")
    assert (
        metrics[-1]["env_steps"] >= 1250
        and metrics[-1]["gradient_steps"] > metrics[0]["gradient_steps"]
    )
    summary = json.loads((tmp_path / "checkpoints" / "mine" / "summary.json").read_text())
    assert summary["task"] == task and summary["finished"]


# Success rates that the shipped policies have on 1,000 episodes of their training's conditions.
RATES = {
    "reach": 0.992,
    "reach_pose": 0.984,
    "reach_avoid": 0.988,
    "track": 0.965,
    "pick_place": 0.992,
    "pick_turned": 0.989,
    "push": 0.987,
    "stack": 0.995,
    "insert": 0.995,
    "insert_tight": 0.944,
}


@pytest.mark.parametrize(
    ("task", "episodes"),
    [
        pytest.param(task, episodes, marks=pytest.mark.slow if is_slow else ())
        for task in sorted(SHIPPED)
        for episodes, is_slow in ((60, task in LONG), (200, True))
    ],
)
def test_the_shipped_policy_of_a_task_is_as_good_as_it_is_said_to_be(
    task, episodes, tmp_path, in_process
):
    """But for four standard deviations of so many episodes."""
    folder = ROOT / "checkpoints" / SHIPPED[task]
    result = tmp_path / "result.json"
    options = load_run_config(folder, EnvOptions)[1]
    assert options.task == task
    flags = (
        "--checkpoint",
        str(folder),
        "--episodes",
        str(episodes),
        "--seed",
        "4321",
        "--baseline=" if episodes < 200 else "--baseline=random",
        "--json",
        str(result),
    )
    code, _, err = in_process(tmp_path, "evaluate", *flags)
    assert (code, err) == (0, "")
    measured = json.loads(result.read_text())
    rate = RATES[task]
    least = rate - 4 * math.sqrt(rate * (1 - rate) / episodes)
    assert measured["success_rate"] >= least
    if "random" in measured["baselines"]:
        assert measured["baselines"]["random"]["success_rate"] < least - 0.5
    # the servos of the other follow what keeps the limits, and not exactly
    exact = options.engine == "kinematic"
    assert not exact or not any(count for count in measured["limit_violations"].values() if count)


def test_baselines_are_guarded_where_asked_for_whatever_the_policy_has(tmp_path, in_process):
    """Of 40 episodes among obstacles resolved rates end one or two in the goal, and behind the
    guard every other.
    """
    for task, unguarded in (("reach_avoid", "rrmc"), ("reach", "random")):
        result = tmp_path / f"{task}.json"
        names = f"{unguarded},{unguarded}+guard"
        flags = (
            "--checkpoint",
            str(ROOT / "checkpoints" / SHIPPED[task]),
            "--baseline",
            names,
            "--json",
            str(result),
        )
        assert in_process(tmp_path, "evaluate", *flags, "--episodes", "40")[::2] == (0, "")
        bare, guarded = json.loads(result.read_text())["baselines"].values()
        if task == "reach_avoid":
            assert bare["success_rate"] < 0.1 and guarded["success_rate"] > 0.3
        assert guarded["minimum_clearance_m"]["min"] > bare["minimum_clearance_m"]["min"]
    shipped = str(ROOT / "checkpoints" / "run1")
    code, _, error = in_process(
        tmp_path, "evaluate", "--checkpoint", shipped, "--baseline", "rmc+guard"
    )
    assert code == 2 and error.startswith("error: unknown baseline 'rmc+guard'")


def test_an_evaluation_says_what_its_success_is_of(tmp_path, in_process):
    def evaluate(run: str | Path, *words: str) -> list[str]:
        checkpoint = str(ROOT / "checkpoints" / run)
        flags = ("--checkpoint", checkpoint, "--episodes", "2", "--baseline=", *words)
        code, out, err = in_process(tmp_path, "evaluate", *flags)
        assert (code, err) == (0, "")
        return out.splitlines()[1:3]

    corrects, forces = evaluate("pick_turned")
    assert corrects == (
        "the policy corrects a controller, whose action is column 'scripted' of the observation, by "
        "at most 10% of full speed"
    )
    assert forces.endswith("--engine mujoco; engine kinematic has no forces")
    assert "forces" not in "".join(evaluate("pick_turned", "--engine", "mujoco"))
    assert "corrects" not in "".join(evaluate("run1"))
    for run in ("pick_turned", "run1"):  # as a policy of a run is until the first update
        shutil.copytree(ROOT / "checkpoints" / run, tmp_path / run)
        manifest = tmp_path / run / "checkpoint.json"
        manifest.write_text(
            manifest.read_text().replace('"actor_trained": true', '"actor_trained": false')
        )
    told = f"{corrects}; before it learns, the success is the controller's"
    assert evaluate(tmp_path / "pick_turned")[0] == told
    told = "the policy has not learned yet: its actor is as it was made"
    assert evaluate(tmp_path / "run1")[0] == told


@pytest.mark.parametrize("task", sorted(SHIPPED))
def test_a_shipped_checkpoint_is_small(task):
    folder = ROOT / "checkpoints" / SHIPPED[task]
    tracked = [path for path in folder.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in tracked) < 3e6


def test_an_unknown_expert_or_one_that_cannot_do_the_task_is_one_line(tmp_path, in_process):
    for flags, message in (
        (
            ("--exploration.expert", "solutoin"),
            "unknown exploration.expert 'solutoin'; did you mean 'solution'",
        ),
        (
            ("--exploration.expert", "solution"),
            "exploration.expert solution needs a task whose scenes hold one",
        ),
        (("--exploration.expert", "pick"), "baseline 'pick' cannot do this task"),
    ):
        code, _, error = in_process(tmp_path, "train", *flags)
        assert code == 2 and message in error and error.count("\n") == 1
        assert not (tmp_path / "checkpoints").exists()
