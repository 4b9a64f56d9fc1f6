"""One truth for an agent: its checkpoint says what it is of, and nobody else need know."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from envs.config.env_options import EnvOptions
from td3_robot import TD3, checkpoint
from td3_robot.checkpoint import MANIFEST
from td3_robot.cli.arguments import save_config
from td3_robot.config.run import Config, TD3Config
from td3_robot.errors import CheckpointError

SHIPPED = sorted((Path(__file__).resolve().parents[3] / "checkpoints").glob("*/actor"))
OPTIONS = [
    {"hidden": (8, 4)},
    {"norm": "layer", "gamma": 0.1 + 0.2},
    {"norm": "batch", "normalize_observations": True},
    {"norm": "renorm"},
    {"atoms": 11, "v_min": -1.5, "v_max": 2.0},
]


@pytest.mark.parametrize("a_max", [1.0, 0.7, (0.5, 2.0)])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: next(iter(options)))
def test_an_agent_comes_back_from_its_folder_alone(tmp_path, options, a_max):
    agent = TD3(3, 2, a_max, seed=4, **{"hidden": (16,), **options})
    o = torch.randn(20, 3)
    agent.observe(torch.randn(100, 3) * 5)
    agent.save(tmp_path / "run", {"score": {"success_rate": 0.5}})
    back = TD3.from_checkpoint(tmp_path / "run")
    assert back.config == agent.config and torch.equal(back.a_max, agent.a_max)
    assert torch.equal(back.select_action(o), agent.select_action(o))
    assert checkpoint.load(tmp_path / "run", names=()).metadata["score"] == {"success_rate": 0.5}


@pytest.mark.parametrize("form", ["{}/", "{}/policy_"])
@pytest.mark.parametrize("said", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: next(iter(options)))
def test_an_older_one_is_known_by_its_networks_and_its_configuration(tmp_path, options, said, form):
    agent = TD3(3, 2, seed=4, **{"hidden": (16,), **options})
    o = torch.randn(20, 3)
    for name, state in agent.state_dicts().items():
        torch.save(state, form.format(tmp_path) + name)
    if said:
        save_config(
            Config(td3=agent.config), tmp_path / "config.yaml", EnvOptions(env="module:Id-v0")
        )
    path = Path(form.format(tmp_path))
    if not said and "atoms" in options:  # the values of the atoms are nowhere
        with pytest.raises(CheckpointError, match="the layers of Q1 should be 5-16-1$"):
            TD3.from_checkpoint(path)
        return
    back = TD3.from_checkpoint(path)
    assert torch.equal(back.select_action(o), agent.select_action(o))
    assert not said or back.config == agent.config


@pytest.mark.parametrize(
    "folder", [path.parent for path in SHIPPED], ids=lambda folder: folder.name
)
def test_the_shipped_ones_say_what_they_are(folder):
    agent = TD3.from_checkpoint(folder)
    metadata = checkpoint.load(folder, names=()).metadata
    assert (
        metadata["trained_on"].keys() == {"robot", "task"}
        and 0.75 < metadata["score"]["success_rate"] <= 1
    )
    said = metadata["agent"]
    told = json.loads(json.dumps(agent.metadata()))
    assert (
        told | {"options": told["options"] | said["options"]} == told and told.keys() == said.keys()
    )
    # options that were not there yet have their defaults
    since = told["options"].keys() - said["options"].keys()
    defaults = json.loads(json.dumps(dataclasses.asdict(TD3Config())))
    assert all(told["options"][name] == defaults[name] for name in since)


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"o_dim": 4}, "the layers of actor should be 4-16-2"),
        ({"a_dim": True}, "a_dim must be a positive whole number"),
        ({"o_dim": -1}, "o_dim must be a positive whole number"),
        ({"a_max": 0}, "a_max must be a positive number"),
        ({"a_max": "1"}, "a_max must be a positive number"),
        ({"a_max": [1.0]}, "a_max must be"),
        ({"options": []}, "agent must be a mapping of o_dim, a_dim, a_max, options"),
        ({"options": {"hidden": [60000, 60000]}}, "the layers of actor should be 3-60000-60000-2"),
        (
            {"options": {"hidden": [16], "atoms": 51, "v_min": 0, "v_max": 1}},
            "the layers of Q1 should be 5-16-51",
        ),
        ({"options": {"hiden": [16]}}, "unknown option 'hiden'"),
        ({"options": {"gamma": "high"}}, "gamma must be a number"),
        ({"options": {"hidden": [16], "gamma": 7}}, "gamma must be"),
        ({"more": 1}, "agent must be a mapping"),
    ],
)
def test_a_description_that_is_none_or_of_another_agent_is_one_line(tmp_path, change, reason):
    TD3(3, 2, hidden=(16,)).save(tmp_path)
    metadata = json.loads((tmp_path / MANIFEST).read_text())
    metadata["agent"] |= change
    (tmp_path / MANIFEST).write_text(json.dumps(metadata))
    with pytest.raises(CheckpointError, match=f"^checkpoint [^\n]*{reason}[^\n]*$"):
        TD3.from_checkpoint(tmp_path)


def test_an_agent_does_not_take_a_policy_with_other_bounds(tmp_path):
    TD3(3, 2, (0.5, 2.0), hidden=(16,)).save(tmp_path)
    with pytest.raises(CheckpointError, match=r"its a_max is \[0.5, 2.0\], not 1.0"):
        TD3(3, 2, hidden=(16,)).load(tmp_path)


def test_options_of_the_files_are_those_of_the_agent():
    assert set(TD3(3, 2).metadata()["options"]) == set(TD3Config.__dataclass_fields__)
