"""No option is silently ignored: one that would do nothing is refused, with the name of what it needs."""

import dataclasses
import re
from pathlib import Path

import pytest

from td3_robot import arguments as module
from td3_robot.arguments import parse_train
from td3_robot.config import NEEDS, Config
from td3_robot.errors import ConfigError


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    """A working directory and presets of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "CONFIGS", tmp_path / "configs")
    (tmp_path / "configs/gymnasium").mkdir(parents=True)
    (tmp_path / "configs/gymnasium/default.yaml").write_text("envs: 1\n")


def refusal(line: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_train(line.split())
    assert str(caught.value).isprintable()
    return str(caught.value)


IDLE = {
    "replay.priority_alpha": "--replay.prioritized",
    "replay.priority_beta": "--replay.prioritized",
    "replay.hindsight_ratio": "--replay.hindsight final",
    "exploration.ou_theta": "--exploration.kind ou",
    "exploration.pink_steps": "--exploration.kind pink",
    "schedule.lr_floor": "--schedule.lr cosine",
    "schedule.noise_floor": "--schedule.noise linear",
    "exploration.guide_share": "--exploration.guide solution",
    "exploration.guide_until": "--exploration.guide solution",
    "exploration.guide_delay": "--exploration.guide solution",
    "td3.bc_filter": "--td3.bc_alpha 2.5",
}


@pytest.mark.parametrize("option", IDLE)
def test_an_option_without_its_switch_is_refused_and_never_ignored(option):
    value = "true" if option == "td3.bc_filter" else "1"
    switch = IDLE[option][2:].split()[0]
    assert re.match(rf"{option} has no effect without {switch}\b", refusal(f"--{option} {value}"))
    Path("mine.yaml").write_text(f"{option.split('.')[0]}:\n  {option.split('.')[1]}: {value}\n")
    assert refusal("--config mine.yaml").startswith(f"{option} has no effect without")
    parse_train(f"--config mine.yaml {IDLE[option]}".split())
    Path("mine.yaml").rename("configs/reach.yaml")  # in a preset it waits for its switch
    parse_train([])


@pytest.mark.parametrize("option", sorted({name for name, needed, _ in NEEDS if "dataset" in needed}))
def test_what_only_matters_while_collecting_is_refused_beside_a_dataset(option):
    values = {"exploration.kind": "ou", "exploration.per_env": "true", "schedule.noise": "linear"}
    values |= {"exploration.guide": "rrmc", "exploration.uncertainty": "true"}
    value = {"replay.hindsight": "final", "replay.capacity": "1000"}.get(option, values.get(option, "1"))
    message = refusal(f"--dataset d.npz --{option} {value}")
    assert message == f"{option} has no effect without collecting, which a dataset replaces"


@pytest.mark.parametrize("option", ["robot x", "task x", "gripper x", "tcp x", "sparse true", "guard true"])
def test_a_gymnasium_environment_brings_its_own_robot_and_task(option):
    assert f"env and {option.split()[0]} exclude each other" in refusal(f"--env Hopper-v5 --{option}")
    assert "swift shows our own robots" in refusal("--env Hopper-v5 --swift")
    assert "exploration.guide has no effect without a robot" in refusal("--env Hopper-v5 --exploration.guide rrmc")


ALWAYS = """robot task gripper tcp sparse guard env dataset start_from run seed device threads steps save_every mlflow
    stop_when_solved
    td3.hidden td3.norm td3.init td3.final_bound td3.actor_lr td3.critic_lr td3.gamma td3.tau td3.policy_noise
    td3.policy_delay td3.twin_critics td3.actor_min_q td3.action_l2 td3.actor_grad_clip td3.critic_grad_clip td3.atoms
    td3.v_min td3.v_max td3.bc_alpha td3.normalize_observations
    replay.batch_size replay.n_step replay.prioritized reward.scale reward.clip reward.normalize
    schedule.lr evaluation.every evaluation.episodes evaluation.keep"""


def test_every_option_has_an_effect_by_itself_or_says_what_it_needs():
    """A new option has to be put on one side or the other. Contradictions are refused in test_config."""
    needy = {name for name, _, _ in NEEDS}
    every = set()
    for item in dataclasses.fields(Config):
        parts = dataclasses.fields(item.type) if dataclasses.is_dataclass(item.type) else None
        every |= {f"{item.name}.{part.name}" for part in parts} if parts else {item.name}
    assert needy.isdisjoint(ALWAYS.split())
    assert every == needy | set(ALWAYS.split())
