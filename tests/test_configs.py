"""The configurations that are shipped, as the command line joins them."""

import dataclasses
from pathlib import Path

import pytest
import torch

from envs.command_line import TrainFlags, list_choices
from envs.config.disturbance_options import DISTURBANCES
from envs.config.env_options import EnvOptions
from envs.tasks.registry import describe_engine, find_task_class
from td3_robot.cli.arguments import load_run_config, parse_train
from td3_robot.config.run import TD3Config
from td3_robot.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent
TASKS = sorted(path.stem for path in (ROOT / "configs/tasks").glob("*.yaml"))


@pytest.mark.parametrize(
    "what", [*(f"--task {task}" for task in TASKS), "--env Hopper-v5", "--env FetchReach-v4"]
)
def test_td3_bc_is_td3_bc_on_whatever_preset(what):
    """Fujimoto & Gu, NeurIPS 2021, appendix A; the discount is the task's."""
    line = f"{what} --dataset f.npz --config {ROOT / 'configs/td3_bc.yaml'}"
    config = parse_train(line.split(), EnvOptions, TrainFlags).config
    expected = TD3Config(bc_alpha=2.5, normalize_observations=True)
    assert dataclasses.replace(config.td3, gamma=0.99) == expected
    replay = config.replay
    assert (replay.batch_size, replay.n_step, replay.prioritized, replay.hindsight) == (
        256,
        1,
        False,
        "none",
    )
    assert config.schedule.lr == "constant"


LESS = [
    "ddpg",
    *(f"ablations/{path.stem}" for path in sorted((ROOT / "configs/ablations").glob("*.yaml"))),
]


@pytest.mark.parametrize("less", LESS)
@pytest.mark.parametrize("what", [*(f"--task {task}" for task in TASKS), "--env Hopper-v5"])
def test_every_preset_can_do_without_any_of_the_three_ideas(what, less):
    path = ROOT / f"configs/{less}.yaml"
    plain, changed = (
        parse_train(f"{what}{file}".split(), EnvOptions, TrainFlags)
        for file in ("", f" --config {path}")
    )
    taken = ("twin_critics", "actor_min_q", "policy_delay", "policy_noise")
    same = dataclasses.replace(
        changed.config.td3, **{name: getattr(plain.config.td3, name) for name in taken}
    )
    assert same == plain.config.td3 != changed.config.td3
    assert changed.config.td3.twin_critics or not changed.config.td3.actor_min_q


GPU = sorted((ROOT / "configs/gpu").glob("*.yaml"))


@pytest.mark.parametrize("path", GPU, ids=lambda path: path.stem)
def test_a_preset_for_gpus_is_that_of_its_task_with_more_arms_and_larger_batches(path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    lines = (f"--config {path}", f"--task {path.stem}")
    gpu, cpu = (parse_train(line.split(), EnvOptions, TrainFlags) for line in lines)
    assert gpu.environment == cpu.environment and not gpu.notes
    ours = gpu.config
    plain = cpu.config
    assert (ours.device, ours.cuda_graph) == ("cuda", True)
    assert (
        1_024 <= ours.num_envs <= 16_384 and 4_096 <= ours.replay.batch_size <= ours.replay.capacity
    )

    def updates(config):
        return config.steps // config.num_envs * config.updates_per_step

    assert updates(plain) * 0.99 < updates(ours) < updates(plain) * 1.3
    assert (
        ours.exploration.start_steps // ours.num_envs
        >= plain.exploration.start_steps // plain.num_envs
    )
    differ = ("device", "cuda_graph", "num_envs", "steps", "updates_per_step", "evaluation")
    same = dataclasses.replace(ours, **{name: getattr(plain, name) for name in differ})
    replay = dataclasses.replace(
        ours.replay, capacity=plain.replay.capacity, batch_size=plain.replay.batch_size
    )
    exploration = dataclasses.replace(ours.exploration, start_steps=plain.exploration.start_steps)
    assert dataclasses.replace(same, replay=replay, exploration=exploration) == plain


@pytest.mark.parametrize("path", GPU, ids=lambda path: path.stem)
def test_a_preset_for_gpus_says_what_it_was_run_on_and_can_be_tried_without(path):
    text = path.read_text()
    assert path.stem in TASKS and ("H100" in text or "# It has not been run on a GPU" in text)
    with pytest.raises(
        ConfigError, match="^cuda_graph needs device cuda or cuda:N, got 'cpu': set it false"
    ):
        parse_train(f"--config {path} --device cpu".split(), EnvOptions, TrainFlags)
    parse_train(f"--config {path} --device cpu --cuda_graph false".split(), EnvOptions, TrainFlags)


def test_presets_for_goals_with_objects_and_for_crossq_reach_the_learner():
    def parse(line):
        return parse_train(line.split(), EnvOptions, TrainFlags).config

    push = parse("--env FetchPush-v4")
    reach = parse("--env FetchReach-v4")
    assert (push.td3.r_min, push.td3.r_max, push.exploration.random_share) == (-1.0, 0.0, 0.3)
    assert (reach.td3.r_min, reach.td3.gamma) == (None, 0.95)
    crossq = parse(f"--env Hopper-v5 --config {ROOT / 'configs/gymnasium/crossq.yaml'}")
    assert (crossq.td3.critic, crossq.td3.critic_layers, crossq.td3.hidden) == (
        "crossq",
        (512, 512),
        (256, 256),
    )
    assert (crossq.td3.norm, crossq.td3.actor_min_q) == ("renorm", True)
    assert (crossq.replay.n_step, crossq.td3.policy, crossq.td3.tau) == (2, "actor_target", 1e-3)
    assert (crossq.exploration.noise, crossq.matmul_precision) == (0.2, "medium")


@pytest.mark.parametrize("task", TASKS)
def test_a_task_is_learned_on_the_engine_that_it_is_made_for(task):
    made_for = find_task_class(task).engines[0]
    options = parse_train(["--task", task], EnvOptions, TrainFlags).environment
    if task == "pick_turned":  # its preset trains without forces, which takes minutes, and holds
        assert options.engine == "kinematic"
    else:
        assert options.engine == made_for and describe_engine(task, options.engine) == []
    line = ["--task", task, "--engine", "kinematic"]
    other = parse_train(line, EnvOptions, TrainFlags).environment
    assert other.engine == "kinematic"
    assert describe_engine(task, other.engine) == (
        []
        if made_for == "kinematic"
        else [
            f"task {task} is made for contact physics, --engine mujoco; "
            "engine kinematic has no forces"
        ]
    )


def test_the_pairing_of_a_short_run_and_the_preset_of_crossq_is_taken():
    line = f"--env Pendulum-v1 --steps 5000 --config {ROOT / 'configs/gymnasium/crossq.yaml'}"
    config = parse_train(line.split(), EnvOptions, TrainFlags).config
    assert (config.steps, config.exploration.start_steps, config.td3.critic) == (
        5000,
        500,
        "crossq",
    )


@pytest.mark.parametrize(
    "run, task",
    [("run1", "reach"), *((task, task) for task in TASKS if task not in ("reach", "reach_moving"))],
)
def test_the_shipped_runs_say_what_they_are_of(run, task):
    config, options = load_run_config(ROOT / "checkpoints" / run, EnvOptions)
    # the engine in which it was trained
    engine = "mujoco" if task in ("push", "stack", "insert", "insert_tight") else "kinematic"
    inserts = ("insert", "insert_tight")
    worlds = dict.fromkeys(("pick_place", "pick_turned", "push", "stack", *inserts), "lab")
    world = worlds.get(task, "lab_calibrated")
    assert dataclasses.replace(options, **dict.fromkeys(DISTURBANCES)) == EnvOptions(
        task=task, guard=task not in ("reach", "push", *inserts), engine=engine, randomize=world
    )
    assert options.disturbances == {}
    again = parse_train(
        ["--config", str(ROOT / "checkpoints" / run / "config.yaml")], EnvOptions, TrainFlags
    )
    assert (again.environment, again.config.td3, again.config.run) == (options, config.td3, None)


def test_what_there_is_to_name_is_listed_with_a_word_on_each():
    from envs.controllers import BASELINES
    from envs.robots.gripper import gripper_names
    from envs.robots.make import robot_names

    there = {
        "robots": robot_names,
        "tasks": lambda: TASKS,
        "grippers": gripper_names,
        "baselines": lambda: ["random", *BASELINES],  # with those that tasks bring
    }
    for what, names in there.items():
        lines = [line.split(maxsplit=1) for line in list_choices(what)]
        assert sorted(name for name, _ in lines) == sorted(names()) and all(
            len(text) > 9 for _, text in lines
        )
