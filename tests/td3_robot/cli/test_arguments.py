"""The command lines: what wins over what, every wrong input in one line, and files that read back
equal.
"""

import dataclasses
import functools
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from envs.command_line import EvaluateFlags, TrainFlags
from envs.config import env_options as module
from envs.config.env_options import EnvOptions
from td3_robot.cli import arguments
from td3_robot.cli.arguments import load_config, resolve_device, save_config
from td3_robot.config.run import Config, ExplorationConfig, ReplayConfig, RewardConfig, TD3Config
from td3_robot.config.schema import make_schema
from td3_robot.errors import CheckpointError
from tests.support import get_refusal

parse_train = functools.partial(arguments.parse_train, environment=EnvOptions, flags=TrainFlags)
load_run_config = functools.partial(arguments.load_run_config, environment=EnvOptions)
parse_evaluate = functools.partial(arguments.parse_evaluate, flags=EvaluateFlags)
ROOT = Path(module.__file__).resolve().parents[1]


pytestmark = pytest.mark.usefixtures("workplace")


def train(line: str = "") -> Config:
    return parse_train(line.split()).config


def test_without_options_it_is_td3_as_its_authors_run_it():
    assert train() == Config()
    learning = {"actor_lr": 3e-4, "critic_lr": 3e-4, "gamma": 0.99, "tau": 0.005, "policy_delay": 2}
    plain = {"critic": "targets", "norm": "none", "init": "default", "twin_critics": True}
    assert Config().td3 == TD3Config(
        hidden=(256, 256), policy_noise=0.2, noise_clip=0.5, **learning, **plain
    )


def test_later_layers_win():
    Path("configs/reach.yaml").write_text(
        "seed: 1\nnum_envs: 11\nsteps: 111\nthreads: 1\ntd3: {gamma: 0.1, tau: 0.1}\n"
    )
    Path("mine.yaml").write_text("seed: 2\nnum_envs: 22\nsteps: 222\ntd3:\n  gamma: 0.2\n")
    config = train("--config mine.yaml --seed 3 --num_envs 33")
    assert (config.seed, config.num_envs, config.steps, config.threads) == (3, 33, 222, 1)
    assert (config.td3.gamma, config.td3.tau) == (0.2, 0.1)
    assert config.td3.policy_delay == TD3Config().policy_delay
    assert train("--td3.tau 0.3 --config mine.yaml").td3.tau == 0.3


def test_the_preset_is_that_of_the_task_wherever_it_is_named():
    Path("configs/pick.yaml").write_text("num_envs: 5\n")
    Path("mine.yaml").write_text("task: pick\n")
    assert train().num_envs == Config().num_envs
    assert train("--task pick").num_envs == 5
    assert (
        train("--config mine.yaml").num_envs == 5
        and parse_train(["--config", "mine.yaml"]).environment.task == "pick"
    )
    assert train("--config mine.yaml --task reach").num_envs == Config().num_envs
    Path("outside.yaml").write_text("num_envs: 6\n")
    assert train("--task ../outside").num_envs == Config().num_envs


def test_a_resumed_run_keeps_its_configuration_but_for_the_flags():
    Path("configs/reach.yaml").write_text("num_envs: 7\n")
    Path("checkpoints/mine").mkdir(parents=True)
    config = dataclasses.replace(Config(), run="mine", steps=500, td3=TD3Config(gamma=0.5))
    save_config(config, "checkpoints/mine/config.yaml")
    for name in ("mine", "checkpoints/mine", "checkpoints/mine/"):
        arguments = parse_train(["--resume", name, "--steps", "1000"])
        assert arguments.resume == Path("checkpoints/mine")
        assert arguments.config == dataclasses.replace(config, steps=1000)
    assert "did you mean 'mine'? valid choices: mine" in get_refusal(train, "--resume mime")
    assert "run and resume" in get_refusal(train, "--resume mine --run other")
    assert parse_train([]).resume is None


def test_nothing_to_resume(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert f"no run in '{tmp_path}/checkpoints'" in get_refusal(train, "--resume run1")


@pytest.mark.parametrize(
    "line, option, value",
    [
        ("--steps 1e6", "steps", 1_000_000),
        ("--steps=2.5e3", "steps", 2500),
        ("--steps 1_000", "steps", 1000),
        ("--seed 010", "seed", 10),
        ("--td3.actor_lr 3e-4", "td3.actor_lr", 3e-4),
        ("--td3.actor_lr 1E-3", "td3.actor_lr", 1e-3),
        ("--td3.actor_lr .5", "td3.actor_lr", 0.5),
        ("--td3.gamma 1", "td3.gamma", 1.0),
        ("--td3.gamma=0.98", "td3.gamma", 0.98),
        ("--td3.hidden [64,1e2]", "td3.hidden", (64, 100)),
        ("--td3.hidden 64,32", "td3.hidden", (64, 32)),
        ("--td3.hidden 64", "td3.hidden", (64,)),
        ("--run 1e5", "run", "1e5"),
        ("--run true", "run", "true"),
        ("--seed 1 --seed 2", "seed", 2),
    ],
)
def test_values_are_read_by_the_type_of_their_option(line, option, value):
    found = train(line)
    for name in option.split("."):
        found = getattr(found, name)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    "text, value", [("1e6", 10**6), ("1_000", 1000), ("2.0", 2), ("010", 10), ("+5", 5)]
)
def test_a_file_reads_whole_numbers_however_they_are_written(text, value):
    Path("mine.yaml").write_text(f"steps: {text}\ntd3:\n  hidden: [64, 1e2]\n  actor_lr: 3e-4\n")
    config = load_config("mine.yaml")
    assert (config.steps, config.td3.hidden, config.td3.actor_lr) == (value, (64, 100), 0.0003)
    assert type(config.steps) is int


def test_switches_need_no_value():
    assert not parse_train([]).flags.swift
    for line in ("--swift", "--swift true", "--swift=true", "--swift --seed 1", "--seed 1 --swift"):
        assert parse_train(line.split()).flags.swift
    assert not parse_train(["--swift", "false"]).flags.swift


@pytest.mark.parametrize(
    "words, value", [("", True), (" --seed 1", True), (" false", False), (" null", None)]
)
def test_a_switch_that_may_be_left_open_needs_no_value_either(words, value):
    found = parse_train(f"--latency_spread 0.1 --estimate_latency{words}".split())
    assert found.environment.estimate_latency is value
    for name in ("guard", "guard_stops", "sparse", "estimate_latency"):
        schema = make_schema("evaluate.py", "", EvaluateFlags)
        assert schema.read_flags(f"--{name}{words}".split())[name] is value


@pytest.mark.parametrize(
    "line, message",
    [
        (
            "--td3.gama 0.9",
            "unknown option 'td3.gama'; did you mean td3.gamma? python train.py --help-all lists all",
        ),
        ("--ro panda", "unknown option 'ro'; "),
        ("--td3 5", "unknown option 'td3'; "),
        ("--seed", "--seed needs a value: a whole number"),
        ("--seed --swift", "--seed needs a value: a whole number"),
        ("panda", "cannot place 'panda': options are written --name value"),
        ("-s 1", "cannot place '-s'"),
        ("--seed one", "seed must be a whole number, got 'one'"),
        ("--seed 1.5", "seed must be a whole number, got 1.5"),
        ("--seed true", "seed must be a whole number, got True"),
        ("--seed 1:30", "seed must be a whole number, got '1:30'"),
        ("--seed -1", "seed must be in [0, 4_294_967_295], got -1"),
        ("--td3.gamma high", "td3.gamma must be a number, got 'high'"),
        ("--td3.gamma null", "td3.gamma must be a number, got null"),
        ("--td3.gamma=", "td3.gamma must be a number, got null"),
        ("--td3.gamma {a: 1}", "td3.gamma must be a number, got "),
        ("--td3.gamma 1.2", "td3.gamma must be in [0, 1], got 1.2"),
        ("--td3.tau 0", "td3.tau must be in (0, 1], got 0.0"),
        ("--td3.gamma .nan", "td3.gamma must be finite, got nan"),
        ("--td3.gamma nan", "td3.gamma must be a number, got 'nan'"),
        ("--td3.actor_lr 1e999", "td3.actor_lr must be finite, got inf"),
        ("--td3.actor_lr -.inf", "td3.actor_lr must be finite, got -inf"),
        ("--td3.actor_lr 1" + 400 * "0", "td3.actor_lr must be a number, got 1"),
        ("--td3.hidden 64,x", "td3.hidden must be a list, each a whole number, got [64, 'x']"),
        ("--td3.hidden [[64]]", "td3.hidden must be a list, each a whole number, got [[64]]"),
        ("--td3.hidden []", "td3.hidden must name 1 to 64 layers, got 0"),
        ("--td3.hidden 64,0", "td3.hidden must be in [1, 65_536], got (64, 0)"),
        ("--swift=5", "swift must be true or false, got 5"),
        ("--swift ture", "swift must be true or false, got 'ture'"),
        ("--swift -s", "cannot place '-s'"),
        ("--config missing.yaml", "'missing.yaml': cannot be read: No such file"),
        ("--config .", "'.': cannot be read: "),
        ("--device gpu", "unknown device 'gpu'; "),
        ("--device cuda:x", "unknown device 'cuda:x'; did you mean 'cuda:N'?"),
    ],
)
def test_a_wrong_command_line_is_one_line(line, message):
    assert get_refusal(parse_train, line.split(" ", 1) if line.count(" ") else [line]).startswith(
        message
    )


@pytest.mark.parametrize(
    "text, message",
    [
        ("td3:\n  gama: 1\n", "'bad.yaml': unknown option 'td3.gama'; did you mean td3.gamma?"),
        ("rbot: panda\n", "'bad.yaml': unknown option 'rbot'; did you mean robot?"),
        ("resume: run1\n", "'bad.yaml': unknown option 'resume'"),
        ("1: 2\n", "'bad.yaml': unknown option '1'"),
        ("seed: 1\nnum_envs: 2\nseed: 3\n", "'bad.yaml': line 3: 'seed' is there twice"),
        ("td3:\n  tau: 1\n  tau: 1\n", "'bad.yaml': line 3: 'tau' is there twice"),
        (
            "td3:\n  tau: 1\ntd3.tau: 1\n",
            "'bad.yaml': td3.tau is there twice, nested and with dots",
        ),
        ("td3: 5\n", "'bad.yaml': td3 must be a mapping of options to values, got 5"),
        ("td3:\n", "'bad.yaml': td3 must be a mapping of options to values, got null"),
        ("- robot\n", "'bad.yaml': must be a mapping of options to values, got ['robot']"),
        ("robot\n", "'bad.yaml': must be a mapping of options to values, got 'robot'"),
        ("seed: [1\nnum_envs: 2\n", "'bad.yaml': line 2: "),
        ("seed: 1\n\tenvs: 2\n", "'bad.yaml': line 2: "),
        ("\0", "'bad.yaml': is no YAML: "),
        ("? [a]\n: 1\n", "'bad.yaml': line 1: "),
        ("seed: " + 1500 * "[", "'bad.yaml': "),
        ("seed: '1'\n", "'bad.yaml': seed must be a whole number, got '1'"),
        ("seed: 2024-01-01\n", "'bad.yaml': seed must be a whole number, got '2024-01-01'"),
        ("seed: null\n", "'bad.yaml': seed must be a whole number, got null"),
        ("robot: null\n", "'bad.yaml': robot must be text, got null"),
        ("robot: 5\n", "'bad.yaml': robot must be text, got 5"),
        (
            "td3: {hidden: 64}\n",
            "'bad.yaml': td3.hidden must be a list, each a whole number, got 64",
        ),
        ("td3: {gamma: .nan}\n", "'bad.yaml': td3.gamma must be finite, got nan"),
        ("td3: {gamma: &x [*x]}\n", "'bad.yaml': td3.gamma must be a number, got ["),
        (
            "a: &a [1,1]\nb: &b [*a,*a]\nc: &c [*b,*b]\nseed: [*c,*c]\n",
            "'bad.yaml': unknown option 'a'",
        ),
        ("seed: " + 5000 * "1" + "\n", "'bad.yaml': "),
    ],
)
def test_a_wrong_file_is_one_line_with_its_name(text, message):
    Path("bad.yaml").write_text(text)
    assert get_refusal(train, "--config bad.yaml").startswith(message)
    if "td3" in text:
        assert get_refusal(load_config, "bad.yaml").startswith(message)


def test_a_file_of_bytes_is_one_line():
    Path("bad.yaml").write_bytes(b"\xff\xfe\x00")
    assert "'bad.yaml': is no YAML: " in get_refusal(load_config, "bad.yaml")


@pytest.mark.parametrize("tag", ["object/apply:os.mkdir [ran]", "name:os.mkdir", "tuple [1]"])
def test_a_file_runs_no_code(tag):
    Path("bad.yaml").write_text(f"seed: !!python/{tag}\n")
    assert "'bad.yaml': line 1: tags, which begin with !, are not taken" in get_refusal(
        load_config, "bad.yaml"
    )
    assert not Path("ran").exists()


def test_an_empty_file_changes_nothing():
    Path("empty.yaml").write_text("# nothing yet\n")
    assert load_config("empty.yaml") == Config()


SECTIONS = {Config: ""} | {
    item.type: f"{item.name}."
    for item in dataclasses.fields(Config)
    if dataclasses.is_dataclass(item.type)
}
POSITIVE = """td3.actor_lr td3.critic_lr td3.tau td3.policy_delay replay.capacity replay.batch_size
    evaluation.every threads num_envs steps updates_per_step"""
NOT_NEGATIVE = (
    "seed td3.gamma td3.policy_noise td3.noise_clip exploration.start_steps exploration.noise"
)


@pytest.mark.parametrize("name", POSITIVE.split())
def test_what_must_be_positive_is_not_zero(name):
    assert get_refusal(train, f"--{name} 0").startswith(f"{name} must be ")


@pytest.mark.parametrize("name", NOT_NEGATIVE.split())
def test_what_may_be_zero_may(name):
    train(f"--{name} 0")


fraction = st.floats(0, 1, exclude_min=True)
whole = st.integers(1, 10**12)
configs = st.builds(
    Config,
    run=st.none()
    | st.text()
    | st.sampled_from(["1e5", "010", "null", "~", "yes", "1:30", "#", ".inf", "-", "<<"]),
    seed=st.integers(0, 2**32 - 1),
    device=st.sampled_from(["cpu", "cuda", "cuda:3", "mps", "auto"]),
    steps=whole,
    td3=st.builds(
        TD3Config,
        hidden=st.lists(st.integers(1, 65_536), min_size=1, max_size=9).map(tuple),
        actor_lr=fraction,
        gamma=fraction,
    ),
    replay=st.builds(
        ReplayConfig, capacity=whole, batch_size=st.just(1), n_step=st.integers(1, 10_000)
    ),
    reward=st.builds(RewardConfig, scale=fraction, clip=st.none() | fraction),
    exploration=st.builds(ExplorationConfig, start_steps=whole, noise=st.floats(0, 1e38)),
    num_envs=st.just(1),
    dataset=st.none()
    | st.builds(Path, st.text(st.characters(exclude_characters="\0"), min_size=1)),
)


@settings(deadline=None)
@given(config=configs)
@example(config=Config(run="a\x85b"))  # YAML takes it for the end of a line
def test_a_saved_configuration_reads_back_equal(config, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "config.yaml"
    save_config(config, path)
    assert load_config(path) == config


def test_a_saved_configuration_is_plain_yaml_with_nothing_left_over():
    save_config(Config(), "config.yaml")
    content = yaml.safe_load(Path("config.yaml").read_text())
    assert content["td3"]["hidden"] == [256, 256] and content["run"] is None
    assert list(content) == [item.name for item in dataclasses.fields(Config)]
    assert sorted(path.name for path in Path().iterdir()) == ["config.yaml", "configs"]
    assert "cannot write 'no/config.yaml': No such file" in get_refusal(
        save_config, Config(), "no/config.yaml"
    )


def test_the_configuration_of_a_checkpoint_is_in_it_or_above():
    Path("checkpoints/run1/last").mkdir(parents=True)
    save_config(Config(seed=7), "checkpoints/run1/config.yaml")
    for name in ("checkpoints/run1", "checkpoints/run1/last", "checkpoints/run1/prefix"):
        assert load_run_config(Path(name))[0].seed == 7
    assert "no config.yaml" in get_refusal(load_run_config, Path("checkpoints"))


def test_evaluation_arguments():
    Path("checkpoints/run1").mkdir(parents=True)
    Path("checkpoints/run1/actor").touch()
    arguments = parse_evaluate("--checkpoint run1".split())
    assert arguments.checkpoint == Path("checkpoints/run1")
    assert (arguments.count, arguments.seed, arguments.device) == (1000, 12345, "cpu")
    assert (arguments.json, arguments.baseline, arguments.swift, arguments.record) == (
        None,
        ("random",),
        False,
        None,
    )
    line = "--checkpoint checkpoints/run1 --baseline rrmc,pd --json a/b.json --record c.gif "
    line += "--swift --episodes 1e2"
    arguments = parse_evaluate(line.split())
    assert arguments.baseline == ("rrmc", "pd")
    assert (arguments.json, arguments.record, arguments.swift) == (
        Path("a/b.json"),
        Path("c.gif"),
        True,
    )
    assert arguments.episodes == 100
    assert "--checkpoint is missing" in get_refusal(parse_evaluate, [])
    assert parse_evaluate(["--checkpoint", "run1", "--baseline", ""]).baseline == ()
    alone = ["--checkpoint", "run1", "--dataset_noise", "0.1"]
    assert "dataset_noise has no effect without dataset" in get_refusal(parse_evaluate, alone)
    assert "episodes must be in [1" in get_refusal(
        parse_evaluate, ["--checkpoint", "run1", "--episodes", "0"]
    )
    with pytest.raises(CheckpointError, match="valid choices: checkpoints/run1"):
        parse_evaluate(["--checkpoint", "run2"])


def test_devices(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert [resolve_device(name) for name in ("cpu", "cuda", "cuda:1", "auto")] == [
        "cpu",
        "cuda",
        "cuda:1",
        "cuda",
    ]
    assert train("--device auto").device == train("--device auto --cuda_graph").device == "cuda"
    assert "'cuda:2' is not available on this machine; valid choices: cuda, cuda:0" in get_refusal(
        resolve_device, "cuda:2"
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == "cpu"
    assert "cuda_graph needs device cuda or cuda:N, got 'cpu'" in get_refusal(
        train, "--device auto --cuda_graph"
    )
    assert (
        get_refusal(resolve_device, "cuda")
        == "device 'cuda' is not available on this machine; valid choices: cpu"
    )
    assert Config(device="cuda").device == "cuda"  # a file made elsewhere can be read here


def test_parsing_waits_for_no_large_package():
    code = (
        "import sys; from envs.command_line import TrainFlags;"
        "from envs.config.env_options import EnvOptions;"
        "from td3_robot.cli.arguments import parse_train; parse_train([], EnvOptions, TrainFlags);"
        "large = {'torch', 'scipy', 'matplotlib', 'spatialmath', 'roboticstoolbox'};"
        "print(large & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert result.stdout.strip() == "set()", result.stderr


def test_the_shipped_presets_are_valid():
    folder = ROOT / "configs"
    for path in (
        *folder.glob("*.yaml"),
        *folder.glob("gymnasium/*.yaml"),
        *folder.glob("ablations/*.yaml"),
    ):
        load_config(path)


def test_the_preset_of_a_gymnasium_id_has_the_longest_name_that_begins_it():
    Path("configs/gymnasium").mkdir()
    for name, envs in (("default", 3), ("Fetch", 4), ("FetchPush", 5), ("goals", 6)):
        Path(f"configs/gymnasium/{name}.yaml").write_text(f"num_envs: {envs}\n")
    ids = {
        "Hopper-v5": 3,
        "FetchReach-v4": 4,
        "FetchPush-v4": 5,
        "some_module:FetchPush-v4": 5,
        "space/Fetch-v0": 3,
    }
    ids |= {
        "PointMaze_UMaze-v3": 6,
        "PandaPush-v3": 6,
        "AntMaze_UMaze-v5": 6,
        "td3_robot/PandaReach-v0": 3,
    }
    for env_id, envs in ids.items():
        config = train(f"--env {env_id}")
        assert config.num_envs == envs
    Path("mine.yaml").write_text("env: FetchSlide-v4\n")
    assert train("--config mine.yaml").num_envs == 4


def test_the_learner_reads_its_half_of_a_file_and_no_more():
    save_config(Config(seed=7), "config.yaml", EnvOptions(robot="ur5e"))
    assert load_config("config.yaml") == Config(seed=7)
    assert list(yaml.safe_load(Path("config.yaml").read_text()))[:2] == ["robot", "task"]


def test_options_with_dots_are_the_same_for_the_learner_s_half_alone():
    """A file that train.py takes; the environment's half is left to who makes it."""
    Path("mine.yaml").write_text("task: track\ntd3.tau: 0.5\ntd3: {gamma: 0.9}\nreplay.n_step: 3\n")
    config = load_config("mine.yaml")
    assert (config.td3.tau, config.td3.gamma, config.replay.n_step) == (0.5, 0.9, 3)
    Path("mine.yaml").write_text("td3.taw: 0.5\n")
    assert "td3.taw" in get_refusal(load_config, "mine.yaml")
