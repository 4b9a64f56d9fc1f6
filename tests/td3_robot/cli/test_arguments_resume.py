"""What the configuration of a run folder may say, and what the command line may change of it."""

import functools
from pathlib import Path

import pytest

from envs.command_line import TrainFlags
from envs.config.env_options import EnvOptions
from td3_robot.cli import arguments
from td3_robot.cli.arguments import save_config
from td3_robot.config.run import Config
from tests.support import get_refusal

parse_train = functools.partial(arguments.parse_train, environment=EnvOptions, flags=TrainFlags)
load_run_config = functools.partial(arguments.load_run_config, environment=EnvOptions)


@pytest.fixture(autouse=True)
def presets(workplace):
    (workplace / "configs" / "gymnasium").mkdir()
    (workplace / "configs" / "gymnasium" / "default.yaml").touch()


def world(line: str = "") -> EnvOptions:
    return parse_train(line.split()).environment


@pytest.mark.parametrize(
    ("name", "value", "before"),
    [
        ("robot", "ur5e", "panda"),
        ("task", "x", "reach"),
        ("guard", "true", False),
        ("seed", 7, 0),
        ("start_from", "mine", None),
        ("reward.scale", 2, 1.0),
        ("td3.init", "orthogonal", "default"),
        ("td3.twin_critics", "false", True),
        ("replay.hindsight", "future", "none"),
    ],
)
def test_what_a_run_is_about_stays_so_when_it_is_resumed(name, value, before):
    Path("checkpoints/mine").mkdir(parents=True)
    save_config(Config(steps=100), Path("checkpoints/mine/config.yaml"))
    assert parse_train(["--resume", "mine", "--steps", "200"]).config == Config(steps=200)
    message = f"{name} of run 'mine' is {before!r} and stays so when it is resumed"
    assert get_refusal(parse_train, ["--resume", "mine", f"--{name}", str(value)]) == message


def test_what_a_run_starts_from_is_named_as_its_user_writes_it():
    Path("checkpoints/mine").mkdir(parents=True)
    Path("checkpoints/mine/config.yaml").write_text("start_from: data/old\n")
    message = "start_from of run 'mine' is 'data/old' and stays so when it is resumed"
    assert get_refusal(parse_train, ["--resume", "mine", "--start_from", "new"]) == message


@pytest.mark.parametrize("name", ["dataset", "replay.dataset"])
def test_the_file_that_a_run_learns_from_may_have_moved_but_is_still_one(name):
    Path("checkpoints/mine").mkdir(parents=True)
    Path("checkpoints/mine/config.yaml").write_text(f"{name}: data/old.npz\n")
    config = parse_train(["--resume", "mine", f"--{name}", "new.npz"]).config
    part = config.replay if name == "replay.dataset" else config
    assert part.dataset == Path("new.npz")
    message = f"{name} of run 'mine' is 'data/old.npz' and stays so when it is resumed"
    assert get_refusal(parse_train, ["--resume", "mine", f"--{name}", "null"]) == message
    Path("checkpoints/mine/config.yaml").write_text("seed: 0\n")
    message = f"{name} of run 'mine' is None and stays so when it is resumed"
    assert get_refusal(parse_train, ["--resume", "mine", f"--{name}", "new.npz"]) == message


def test_a_run_is_found_by_its_name_beside_a_folder_with_a_file_for_it():
    for folder, steps in (("mine", 200), ("checkpoints/mine", 100)):
        Path(folder).mkdir(parents=True)
        save_config(Config(steps=steps), Path(folder, "config.yaml"))
    found = parse_train(["--resume", "mine"])
    assert (found.resume, found.config.steps) == (Path("checkpoints/mine"), 100)
    assert parse_train(["--resume", str(Path("mine").absolute())]).config.steps == 200


def test_a_file_cannot_rename_a_run_that_is_resumed():
    Path("checkpoints/mine").mkdir(parents=True)
    save_config(Config(), Path("checkpoints/mine/config.yaml"))
    Path("other.yaml").write_text("run: other\n")
    assert "run and resume exclude each other" in get_refusal(
        parse_train, ["--resume", "mine", "--config", "other.yaml"]
    )


@pytest.mark.parametrize(
    "env", ["module:Id-v0", "a:b:Id-v0", ":Id-v0", "Id-v0\n", "a/b/Id-v0", "", "../Id-v0:", "é-v0"]
)
def test_only_the_command_line_names_a_module(env):
    Path("checkpoints/mine").mkdir(parents=True)
    save_config(Config(), Path("checkpoints/mine/config.yaml"), EnvOptions(env=env))
    Path("mine.yaml").write_bytes(Path("checkpoints/mine/config.yaml").read_bytes())
    for call, *args in (
        (parse_train, ["--resume", "mine", "--steps", "2000000"]),
        (parse_train, ["--config", "mine.yaml"]),
        (load_run_config, Path("checkpoints/mine")),
    ):
        assert "comes from a file and is no plain id" in get_refusal(call, *args)
    assert world("--env module:Id-v0").env == "module:Id-v0"


@pytest.mark.parametrize("saved", ["module:Id-v0", "Id-v0", "other:Id-v0"])
def test_the_module_of_a_run_may_be_named_anew_but_not_its_id(saved):
    Path("checkpoints/mine").mkdir(parents=True)
    save_config(Config(), Path("checkpoints/mine/config.yaml"), EnvOptions(env=saved))
    assert world("--resume mine --env module:Id-v0").env == "module:Id-v0"
    assert (
        load_run_config(Path("checkpoints/mine"), given={"env": "module:Id-v0"})[1].env
        == "module:Id-v0"
    )
    assert f"env of run 'mine' is {saved!r}" in get_refusal(
        world, "--resume mine --env module:Id-v1"
    )
    assert f"is {saved!r}, not 'Id-v1'" in get_refusal(
        load_run_config, Path("checkpoints/mine"), given={"env": "Id-v1"}
    )


@pytest.mark.parametrize("option", ["--td3.init orthogonal", "--td3.final_bound 0.003"])
def test_new_weights_are_not_asked_for_where_there_are_some(option):
    Path("mine").mkdir()
    Path("mine/actor").touch()
    name = option.split()[0].removeprefix("--")
    assert get_refusal(world, f"--start_from mine {option}").startswith(
        f"{name} has no effect without new networks"
    )
    save_config(Config(), Path("mine/config.yaml"))
    assert f"{name} of run 'mine'" in get_refusal(world, f"--resume mine {option}")
