"""The examples of docs/how-to/extend-the-library.md that continue one another: all run, in their
order, and do what the page says.
"""

import json
import re
from pathlib import Path

import pytest

from td3_robot import checkpoint
from td3_robot.vec_env import VecEnv

PAGE = (
    (Path(__file__).resolve().parents[2] / "docs/how-to/extend-the-library.md")
    .read_text()
    .split("\n## Networks and optimizers")[0]
)
EXAMPLES = re.findall(r"\n## (.+?)\n.*?```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What each example leaves in its names, by its heading, and the folder where they ran."""
    folder = tmp_path_factory.mktemp("library")
    names = {}
    left = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("os.fsync", lambda handle: None)
        for heading, code in EXAMPLES:
            exec(compile(code, heading, "exec"), names)
            left[heading] = dict(names)
    return left, folder


def test_every_section_has_an_example():
    assert len(EXAMPLES) == PAGE.count("\n## ") == 8


def test_the_environment_is_one(run):
    assert isinstance(run[0]["An environment"]["Line"](3), VecEnv)


def test_the_training_learns_and_its_checkpoint_is_the_best_policy(run):
    left, folder = run
    summary = left["A training"]["summary"]
    assert summary["finished"] and summary["episode_return"] > -6.0  # untrained: -15
    assert left["A training"]["best"].o_dim == 2
    assert set(checkpoint.REQUIRED) <= {
        path.name for path in (folder / "checkpoints/line").iterdir()
    }


def test_the_rule_and_the_tracker_saw_every_evaluation(run):
    left, folder = run
    rule = left["A stopping rule"]["summary"]
    assert rule["finished"] and rule["env_steps"] <= 3200
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["env_steps"] for row in rows] == [800, 1600, 2400, 3200]


def test_without_evaluations_the_training_episodes_are_told(run):
    summary = run[0]["No evaluation environment"]["summary"]
    assert (
        summary["train_return"] < 0
        and 0 <= summary["train_success_rate"] <= 1
        and "episode_return" not in summary
    )


def test_the_thread_stopped_and_can_be_resumed(run):
    left, folder = run
    summary = json.loads((folder / "checkpoints/thread/summary.json").read_text())
    assert not summary["finished"] and not left["A thread"]["thread"].is_alive()
    assert (folder / "checkpoints/thread/last").is_dir()
