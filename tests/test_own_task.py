"""A task of one's own, as docs/tutorials/your-task.md builds it: one file and its constants,
outside the package.
"""

import dataclasses
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

import envs
import envs.gymnasium_ids
from envs.arm_env import ArmEnv
from envs.config.env_options import EnvOptions
from envs.controllers import make_baseline
from envs.evaluation import Evaluation
from envs.simulation.disturbances import Disturbances
from envs.simulation.engine import batched_o
from envs.tasks.layout import Column, arm_columns
from envs.tasks.measures import Measure
from envs.tasks.registry import list_tasks, make_task
from envs.tasks.task import Outcome, Task
from envs.view.handles import list_handles
from envs.view.interactive_control import InteractiveControl
from envs.view.playback import play_episodes
from td3_robot.commands import evaluate, export, train
from td3_robot.commands.run import Arguments, build_scene
from td3_robot.deploy import Policy
from td3_robot.errors import ConfigError
from td3_robot.replay import Hindsight
from tests.docs_pages import read_files, read_page
from tests.support import ROOT

FILES = read_files(read_page(ROOT / "docs/tutorials/your-task.md"))
SMALL = ("--steps 3000 --num_envs 20 --td3.hidden 16 --exploration.start_steps 500 --evaluation.every 1500 "
         "--evaluation.episodes 20 --replay.batch_size 32")  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def hover(tmp_path_factory):
    """The page's two files, and the first of them imported."""
    folder = tmp_path_factory.mktemp("mine")
    for name in ("hover.py", "hover.yaml"):
        (folder / name).write_text(FILES[name])
    spec = importlib.util.spec_from_file_location("hover", folder / "hover.py")
    module = sys.modules["hover"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["hover"]


def test_it_is_known_by_its_name_beside_the_others():
    assert {"hover", "reach", "pick_place"} <= set(list_tasks())
    env = envs.make("panda", "hover", num_envs=8)
    assert (env.goal[:, 2] == 0.15).all() and env.reset(0).shape == (8, env.o_dim)


def test_classical_control_solves_it_and_it_is_drawn():
    env = envs.make("panda", "hover", num_envs=1)
    from envs.controllers import make_baseline

    frames = next(play_episodes(make_baseline("rrmc", env), env, seed=0))
    assert len(frames) == env.task.horizon + 1
    goal, mark = frames[-1].shapes
    np.testing.assert_allclose(mark.T_bs[:2, 3], goal.T_bs[:2, 3])
    assert (goal.kind, mark.kind, mark.T_bs[2, 3]) == ("sphere", "box", 0.0)
    assert float(re.search(r"error ([\d.]+) mm", frames[-1].text)[1]) < 10


def test_hindsight_gives_it_goals_that_were_reached():
    env = envs.make("panda", "hover", num_envs=8, sparse=True)
    before = env.memory()
    action = torch.full((8, env.a_dim), 0.3)
    env.step(action)
    after = env.memory(arrived=True)
    *_, reward, _ = env.relabel(before, action, after, env.achieved_goal(after))
    assert (reward == 0).all()
    Hindsight(env.relabel, env.achieved_goal, env.observe)


def test_its_annotations_may_be_text(hover, monkeypatch):
    """As `from __future__ import annotations` makes them."""
    text = {name: kind.__name__ for name, kind in hover.Hover.__annotations__.items()}
    monkeypatch.setattr(hover.Hover, "__annotations__", text)
    for field in dataclasses.fields(hover.Hover):
        monkeypatch.setattr(field, "type", text.get(field.name, field.type))
    assert envs.make("panda", "hover", num_envs=2).task.horizon > 0


def test_hooks_may_have_their_older_names(hover, capsys):
    """A task written for an older version works, with one line for each hook that is renamed."""

    class Older(hover.Hover):
        kept = ("goal", "mark")

        def candidates(self, world, count, generator):
            scene = super().candidates(world, count, generator)
            return {**scene, "mark": scene["goal"]}

        def shapes(self, world, moment):
            return super().shapes(world, moment)[:1]

    notes = capsys.readouterr().err.splitlines()
    assert notes[0] == "note: task Older: candidates is now sample_scenes" and len(notes) == 3
    older = Older(**dataclasses.asdict(make_task("hover")))
    env = ArmEnv(envs.make_robot("panda"), older, 2, "cpu", 0)
    assert "mark" in env.scene and env.memory().shape[1] > envs.make("panda", "hover").memory_dim
    assert len(older.make_shapes(env.world, env.moment)) == 1


def make_changed(hover, parts, **options) -> ArmEnv:
    """Four arms with the task and other parts."""
    changed = type("Changed", (hover.Hover,), parts)(**dataclasses.asdict(make_task("hover")))
    return ArmEnv(envs.make_robot("panda"), changed, 4, "cpu", 0, **options)


def make_angles(hover, width: int, **options) -> ArmEnv:
    """Four arms whose goals are angles of their first joints."""

    def sample_scenes(task, world, count, generator):
        return {"goal": world.random_q(count, generator)[:, :width].contiguous()}

    def list_columns(task, world):
        return [*arm_columns(world), Column("goal", width, tells_goal=True)]

    def observe(task, world, moment):
        arms = batched_o(world.model, moment.state), moment.state.qd
        return torch.cat((*arms, moment.scene["goal"]), 1)

    def compute_outcome(task, world, moment, action):
        left = (moment.scene["goal"] - moment.state.q[:, :width]).abs().amax(1)
        return Outcome(left < 0.1, left, {"left": -left})

    parts = {"sample_scenes": sample_scenes, "list_columns": list_columns, "observe": observe}
    parts |= {"compute_outcome": compute_outcome, "goal_is_place": False}
    parts |= {"make_shapes": Task.make_shapes, "measures": ()}
    return make_changed(hover, parts, **options)


@pytest.mark.parametrize("width", [2, 3, 5, 7])
def test_goals_that_are_no_places_are_known_exactly_and_not_drawn(hover, width):
    """A base that is taken to be elsewhere changes no joint angle."""
    off = Disturbances(base_offset=0.1, base_turn=0.2, latency=0.05)
    env = make_angles(hover, width, disturbances=off)
    for _ in range(2):
        assert torch.equal(env.moment.scene["goal"], env.now.scene["goal"])
        assert env.task.make_shapes(env.world, env.now) == []
        assert list_handles(env.task, env.now) == ()
        env.step(torch.zeros(4, env.a_dim))


def test_goals_of_the_size_of_no_place_are_not_drawn(hover):
    env = make_changed(hover, {"make_shapes": Task.make_shapes})
    for width, shown in ((2, 0), (3, 1), (5, 0), (7, 1)):
        scene = {**env.now.scene, "goal": torch.full((4, width), 0.5)}
        moment = dataclasses.replace(env.now, scene=scene)
        assert bool(env.task.make_shapes(env.world, moment)) == bool(shown)
        assert len(list_handles(env.task, moment)) == shown


def test_a_goal_that_is_no_place_has_no_sliders_and_is_drawn_with_its_episode(hover, monkeypatch):
    monkeypatch.setattr(hover.Hover, "goal_is_place", False)
    evaluation = Evaluation(EnvOptions(task="hover"), episodes=1)
    evaluation.add("policy", lambda env: make_baseline("rrmc", env))
    led = InteractiveControl(evaluation)
    before = led.goal, led.frame.q
    led.draw_goal()
    assert led.goal_moves and not led.frame.handles
    assert np.abs(led.goal - before[0]).max() > 1e-3 < np.abs(led.frame.q - before[1]).max()


@pytest.mark.parametrize("sign, columns", [(1, 29), (-1, 27)])
def test_columns_that_are_not_observed_are_refused_before_training(hover, sign, columns):
    def list_columns(task, world):
        return [*hover.Hover.list_columns(task, world), Column("more", sign)]

    said = f"task 'Changed': observe returned 28 columns, list_columns declares {columns}"
    with pytest.raises(ConfigError, match=f"^{said}$"):
        make_changed(hover, {"list_columns": list_columns})


def test_what_critics_alone_observe_has_as_many_columns_as_it_declares(hover):
    parts = {
        "list_privileged": lambda task, world: [Column("draught", 3)],
        "observe_privileged": lambda task, world, true: true.tcp[:, :2],
    }
    said = "task 'Changed': observe_privileged returned 2 columns, list_privileged declares 3"
    with pytest.raises(ConfigError, match=f"^{said}$"):
        make_changed(hover, parts)


@pytest.mark.parametrize("value, shape", [(torch.ones(4, 1), (4, 1)), (torch.ones(4, 3), (4, 3)), (1.0, ())])  # fmt: skip
def test_a_reward_term_that_is_not_one_number_an_arm_is_named_before_training(hover, value, shape):
    """Broadcast, four rewards would be sixteen."""

    def compute_outcome(task, world, moment, action):
        outcome = hover.Hover.compute_outcome(task, world, moment, action)
        return dataclasses.replace(outcome, terms={**outcome.terms, "wide": value})

    said = f"task 'Changed': reward term 'wide' must have shape (4,), got {shape}"
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}$"):
        make_changed(hover, {"compute_outcome": compute_outcome})


def test_a_measure_of_what_no_step_gives_is_named_before_training(hover):
    wrong = Measure("peak_height_m", "tcp_hight", "most", "most", "highest TCP", "mm")
    said = (
        "unknown series of task 'Changed', measure 'peak_height_m': 'tcp_hight'; "
        "did you mean 'tcp_height'? valid choices: "
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}(.+)$") as caught:
        make_changed(hover, {"measures": (wrong,)})
    env = make_changed(hover, {})
    info = env.step(torch.zeros(4, env.a_dim)).info
    series = {name for name in info if not name.startswith("reward/")}
    assert set(str(caught.value).removeprefix(said).split(", ")) == series


def test_it_has_gymnasium_ids():
    envs.gymnasium_ids.register()
    one = gymnasium.make("td3_robot/PandaHoverGoal-v0")
    observation, _ = one.reset(seed=0)
    assert observation["desired_goal"].shape == (3,) and observation["observation"].shape == (16,)
    one.close()


def test_it_is_trained_evaluated_and_reported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert train.main(f"--robot panda --task hover {SMALL} --run mine".split()) == 0
    words = "--checkpoint mine --episodes 10 --baseline rrmc,reactive --report report --json result.json"
    assert evaluate.main(words.split()) == 0
    result = json.loads(Path("result.json").read_text())
    assert result["task"] == "hover" and result["baselines"]["rrmc"]["success_rate"] == 1.0
    page = Path("report/index.html").read_text()
    assert "panda: hover" in page


def test_the_scripts_know_it_from_the_module_that_is_named(tmp_path, hover, in_process):
    """In processes of their own, since this one knows it; without the name it is unknown, with a wrong one that is said."""
    place = {"cwd": tmp_path, "env": os.environ | {"PYTHONPATH": str(Path(hover.__file__).parent)}}

    def run(*words):
        return subprocess.run([sys.executable, *words], capture_output=True, text=True, **place)

    train_py = ROOT / "train.py"
    evaluate_py = ROOT / "evaluate.py"
    assert "hover" in run(train_py, "--list", "tasks", "--plugins", "hover").stdout
    words = f"--robot panda --task hover {SMALL} --run mine".split()
    unknown = run(train_py, *words)
    assert unknown.returncode == 2 and "error: unknown task 'hover'" in unknown.stderr
    assert "needs --plugins MODULE" in unknown.stderr
    trained = run(train_py, *words, "--plugins", "hover")
    assert trained.returncode == 0
    assert trained.stdout.endswith("--checkpoint checkpoints/mine --plugins hover\n")
    asked = ("--checkpoint", "mine", "--episodes", "3", "--baseline", "")
    assert "error: unknown task 'hover'" in run(evaluate_py, *asked).stderr
    assert run(evaluate_py, *asked, "--plugins", "hover", "--report", "report").returncode == 0
    replays = re.findall(r"evaluate.py [^<]*--swift", (tmp_path / "report/index.html").read_text())
    assert replays and all("--plugins hover" in command for command in replays)
    code, _, err = in_process(tmp_path, "evaluate", *asked, "--plugins", "hoover")
    assert code == 2
    assert err == (
        "error: plugins: cannot import 'hoover': No module named 'hoover'; "
        "is its folder on PYTHONPATH? For this one, PYTHONPATH=.\n"
    )


class Zero(torch.nn.Module):
    """A network of an arm that stays where it is."""

    def forward(self, observation):
        return 0.0 * observation[:, :7]


@pytest.mark.parametrize("width", [3, 7])
def test_goals_that_are_angles_are_exported_as_they_are(hover, width, tmp_path):
    """Seven of them are no pose, whose quaternion would have to be a unit one."""
    env = make_angles(hover, width)
    path = tmp_path / "policy.onnx"
    export.write_policy(path, env, "angles", Zero())
    policy = Policy.load(path)
    goal = np.linspace(-1.5, 1.0, width)
    seen = policy.observe(policy.robot.home, np.zeros(7), 0.04, goal=goal)
    assert seen[env.layout["goal"]] == pytest.approx(goal, abs=1e-6)
    with pytest.raises(ConfigError, match="goal of angles is neither a position nor a pose, and"):
        build_scene(policy, Arguments(policy=path, goal=tuple(goal)))
