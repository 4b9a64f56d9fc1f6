"""evaluate.py as its user meets it: exit codes, messages, the table and the JSON file."""

import dataclasses
import json
import os
import re
from pathlib import Path

import pytest
import torch
from PIL import Image

import envs
from envs.config.env_options import EnvOptions
from td3_robot import TD3
from td3_robot.cli.arguments import save_config
from td3_robot.config.run import Config, TD3Config
from td3_robot.data.dataset_file import load_dataset
from td3_robot.errors import CheckpointError, ConfigError, Td3RobotError
from td3_robot.evaluation.rollout import draw_round_seeds
from tests.support import drop_progress, load_command, run_script

ROOT = Path(__file__).resolve().parent.parent
SUMMARY = {
    "episode_return",
    "episode_length",
    "success_rate",
    "success_rate_with_contact",
    "collision_free_rate",
    "deepest_contact_m",
    "final_position_error_m",
    "time_to_goal_s",
    "path_length_m",
    "rms_jerk_rad_s3",
    "joint_limit_hits",
    "joint_limit_violations",
    "max_abs_qd_over_limit",
    "max_abs_qdd_over_limit",
    "max_abs_qddd_over_limit",
    "final_qd_over_limit",
    "limit_violations",
    "manipulability",
    "minimum_clearance_m",
}


@pytest.fixture(scope="module")
def env():
    return envs.make("panda", "reach")


@pytest.fixture
def work(tmp_path, monkeypatch, env):
    """A working directory with two runs: `transpose` reaches most goals, `still` never moves."""
    monkeypatch.chdir(tmp_path)
    save_policy(env, "transpose", gain=2.0)
    save_policy(env, "still", gain=0.0)
    return tmp_path


def save_policy(env, name: str, gain: float, bias: float = 0.0) -> None:
    """A policy that needs no training: action = tanh(gain J_v^T error + bias), as ReLU(x) -
    ReLU(-x) = x.
    """
    config = Config(threads=1, td3=TD3Config(hidden=(2 * env.a_dim,)))
    agent = TD3(env.o_dim, env.a_dim, **dataclasses.asdict(config.td3))
    columns = env.layout["joint_error"]
    eye = torch.eye(env.a_dim)[:, : columns.stop - columns.start]
    with torch.no_grad():
        for parameter in agent.actor.parameters():
            parameter.zero_()
        agent.actor.layers[0].weight[:, columns] = torch.cat((eye, -eye))
        agent.actor.layers[1].weight.copy_(
            gain * torch.cat((torch.eye(env.a_dim), -torch.eye(env.a_dim)), 1)
        )
        agent.actor.layers[1].bias.fill_(bias)
    agent.save(Path("checkpoints", name))
    save_config(config, Path("checkpoints", name, "config.yaml"))


@pytest.fixture
def evaluate():
    """evaluate.py in this process, which saves its imports."""
    return load_command("evaluate")


def measured(evaluate, *arguments: str) -> dict:
    assert evaluate.main([*arguments, "--json", "out.json"]) == 0
    return json.loads(Path("out.json").read_text())


def cells(text: str) -> dict[str, list[str]]:
    """Label -> cells of the table's rows."""
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in text.splitlines()
        if line.startswith("│")
    ]
    return {row[0]: row[1:] for row in rows}


def test_another_run_is_measured_on_the_same_episodes_as_if_alone(work, evaluate, capsys):
    same = ("--episodes", "30", "--seed", "7")
    alone = measured(evaluate, "--checkpoint", "still", "--baseline=", *same)
    both = measured(evaluate, "--checkpoint", "transpose", "--baseline", "random,still", *same)
    assert list(both["baselines"]) == ["random", "still"]
    still = both["baselines"]["still"]
    assert {key: alone[key] for key in still} == still
    assert both["success_rate"] > still["success_rate"]
    save_config(Config(), "checkpoints/still/config.yaml", EnvOptions("ur5e"))
    for name, message in {
        "still": "was trained on ur5e reach, and is to be measured on panda reach",
        "stil": "unknown baseline 'stil'; .*the name or folder of a run",
    }.items():
        with pytest.raises(ConfigError, match=message):
            evaluate.main(["--checkpoint", "transpose", "--baseline", name, *same])


def test_table_and_json_say_the_same(work):
    arguments = (
        "--checkpoint transpose --episodes 100 --seed 7 --baseline rrmc,random --json out.json"
    )
    result = run_script(Path(), "evaluate", *arguments.split())
    assert result.returncode == 0 and drop_progress(result.stderr) == ""
    assert result.stdout.startswith("checkpoints/transpose: panda reach, 100 episodes, seed 7\n")
    assert re.search(r"policy\s*┃\s*rrmc\s*┃\s*random", result.stdout)

    out = json.loads(Path("out.json").read_text())
    assert out.keys() == {"checkpoint", "robot", "task", "episodes", "seed", "baselines"} | SUMMARY
    assert [out[key] for key in ("checkpoint", "robot", "task", "episodes", "seed")] == [
        "checkpoints/transpose",
        "panda",
        "reach",
        100,
        7,
    ]
    assert list(out["baselines"]) == ["rrmc", "random"]
    assert all(column.keys() == SUMMARY | {"episodes"} for column in out["baselines"].values())

    columns = [out, *out["baselines"].values()]
    rows = cells(result.stdout)
    for label, text in {
        "success rate [%]": lambda c: f"{100 * c['success_rate']:.1f}",
        "success rate, contact or not [%]": lambda c: f"{100 * c['success_rate_with_contact']:.1f}",
        "episodes without contact [%]": lambda c: f"{100 * c['collision_free_rate']:.1f}",
        "deepest contact [mm]": lambda c: f"{1000 * c['deepest_contact_m']:.1f}",
        "return, mean": lambda c: f"{c['episode_return']['mean']:.2f}",
        "return, standard deviation": lambda c: f"{c['episode_return']['std']:.2f}",
        "episode length, mean [steps]": lambda c: f"{c['episode_length']['mean']:.1f}",
        "final error, median [mm]": lambda c: f"{1000 * c['final_position_error_m']['median']:.2f}",
        "final error, 95th percentile [mm]": lambda c: (
            f"{1000 * c['final_position_error_m']['p95']:.2f}"
        ),
        "time to goal, median [s]": lambda c: (
            "-" if (t := c["time_to_goal_s"]["median"]) is None else f"{t:.2f}"
        ),
        "path length, median [m]": lambda c: f"{c['path_length_m']['median']:.3f}",
        "manipulability, median": lambda c: f"{c['manipulability']['median']:.4f}",
        "manipulability, least": lambda c: f"{c['manipulability']['min']:.4f}",
        "least clearance, median [mm]": lambda c: (
            f"{1000 * c['minimum_clearance_m']['median']:.1f}"
        ),
        "least clearance of all [mm]": lambda c: f"{1000 * c['minimum_clearance_m']['min']:.1f}",
        "peak speed over limit": lambda c: f"{c['max_abs_qd_over_limit']:.3f}",
        "peak acceleration over limit": lambda c: f"{c['max_abs_qdd_over_limit']:.3f}",
        "final speed over limit, median": lambda c: f"{c['final_qd_over_limit']['median']:.3f}",
        "RMS jerk, median [rad/s3]": lambda c: f"{c['rms_jerk_rad_s3']['median']:.1f}",
        "steps at a joint limit [%]": lambda c: f"{100 * c['joint_limit_hits']:.2f}",
        "peak jerk over limit": lambda c: f"{c['max_abs_qddd_over_limit']:.3f}",
        "positions outside joint limits": lambda c: f"{c['limit_violations']['position']}",
        "speeds over their limits": lambda c: f"{c['limit_violations']['speed']}",
        "accelerations over their limits": lambda c: f"{c['limit_violations']['acceleration']}",
        "jerks over their limits": lambda c: f"{c['limit_violations']['jerk']}",
    }.items():
        assert rows.pop(label) == [text(column) for column in columns], label
    assert not rows

    policy, rrmc, random = columns
    assert (
        policy["success_rate"] > 0.9
        and rrmc["success_rate"] > 0.99
        and random["success_rate"] < 0.1
    )
    for column in columns:
        assert column["joint_limit_violations"] == 0 and not any(
            column["limit_violations"].values()
        )
        assert column["max_abs_qd_over_limit"] <= 1 + 1e-6
        assert column["max_abs_qdd_over_limit"] <= 1 + 1e-5  # the simulator computes in float32
    assert sorted(os.listdir()) == ["checkpoints", "out.json"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "--checkpoint nothing",
            "there is no checkpoint at 'checkpoints/nothing'; valid choices: checkpoints/other, ",
        ),
        (
            "--checkpoint still --baseline rmc",
            "unknown baseline 'rmc'; did you mean 'rrmc'? valid choices: "
            "empty for none, neo, random, reactive, rrmc, the name or folder of a run",
        ),
        ("--checkpoint still --baseline RRMC+G", "unknown baseline 'RRMC+G'; did you mean 'rrmc+"),
        (
            "--checkpoint other",
            "checkpoint 'checkpoints/other' has o_dim 20 and a_dim 6, "
            "the environment o_dim 31 and a_dim 7",
        ),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(work, in_process, arguments, message):
    TD3(20, 6, hidden=(14,)).save("checkpoints/other")
    save_config(Config(td3=TD3Config(hidden=(14,))), Path("checkpoints/other/config.yaml"))
    code, out, err = in_process(work, "evaluate", *arguments.split(), "--json", "out.json")
    assert code == 2 and out == ""
    assert err.startswith(f"error: {message}") and err.count("\n") == 1
    assert os.listdir() == ["checkpoints"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--no-browser", "no_browser has no effect without swift"),
        ("--port 5000", "port has no effect without swift"),
        ("--guard_stops true", "guard_stops has no effect without guard: add --guard true"),
        ("--port 70000 --swift", "port must be in [0, 65_535], got 70000"),
        (
            "--record out.avi",
            "unknown recording format '.avi'; valid choices: .gif, .mp4, .png, .webm",
        ),
        ("--record no/out.gif", "cannot record to 'no/out.gif': folder 'no' does not exist"),
        ("--plot rollout.svg", "cannot write 'rollout.svg': it must be a file named *.png"),
        ("--dataset data.txt", "cannot write 'data.txt': it must be a file named *.npz"),
        ("--json .", "cannot write '.': it must be a file"),
        (
            "--json no/out.json --episodes 1",
            "cannot write 'no/out.json': folder 'no' does not exist",
        ),
        (
            "--report checkpoints/still/actor",
            "cannot write 'checkpoints/still/actor': it must be a folder",
        ),
        ("--report out --json ./out", "two outputs have one name: out, out"),
        ("--report no/out", "cannot write 'no/out': folder 'no' does not exist"),
        ("--episode 5 --episodes 5", "episode must be from 0 to 4, one of the episodes, got 5"),
        ("--episode -1", "episode must be from 0 to 999, one of the episodes, got -1"),
        (
            "--episode 1 --report out",
            "episode and report exclude each other: report is about all episodes",
        ),
        (
            "--episode 1 --robustness",
            "episode and robustness exclude each other: robustness is about all episodes",
        ),
        (
            "--episode 1 --dataset a.npz",
            "episode and dataset exclude each other: dataset is about all episodes",
        ),
    ],
)
def test_what_cannot_be_shown_or_written(work, evaluate, monkeypatch, arguments, message):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Td3RobotError, match=f"^{re.escape(message)}"):
        evaluate.main(["--checkpoint", "still", *arguments.split()])
    assert os.listdir() == ["checkpoints"]


def test_a_damaged_checkpoint_is_refused_before_anything_is_measured(work, evaluate, capsys):
    Path("checkpoints/still/actor").write_bytes(b"\x80damaged")
    with pytest.raises(CheckpointError, match="^'checkpoints/still/actor' is damaged"):
        evaluate.main(["--checkpoint", "still", "--json", "out.json"])
    assert capsys.readouterr().out == ""
    assert os.listdir() == ["checkpoints"]


def test_same_seed_same_result(work, evaluate):
    arguments = "--checkpoint transpose --episodes 20 --baseline rrmc,random --seed".split()
    first = measured(evaluate, *arguments, "1")
    assert measured(evaluate, *arguments, "1") == first
    assert measured(evaluate, *arguments, "2") != first


def test_every_policy_gets_the_same_starts_and_goals(work, evaluate, monkeypatch):
    """In several rounds, the last one cut: a baseline that acts like the policy gets the policy's
    figures.
    """

    def stay(env):
        return lambda observation: torch.zeros(env.num_envs, env.a_dim)

    for module in ("envs.controllers", "envs.evaluation.evaluation"):
        monkeypatch.setattr(f"{module}.BASELINES", {"first": stay, "second": stay})
    monkeypatch.setattr("envs.tasks.task.Task.controllers", ("first", "second"))
    monkeypatch.setattr("envs.evaluation.evaluation.ROUND", 8)
    out = measured(
        evaluate, "--checkpoint", "still", "--episodes", "20", "--baseline", "first,second"
    )
    policy = {name: out[name] for name in SUMMARY | {"episodes"}}
    assert (
        policy["path_length_m"]["median"] < 1e-6
        and policy["final_position_error_m"]["median"] > 0.1
    )
    assert out["baselines"] == {"first": policy, "second": policy}


def test_guard_replaces_what_the_policy_was_trained_with_and_baselines_choose_their_own(
    work, env, evaluate, monkeypatch
):
    """A policy at full speed is a baseline at full speed, under the guard and without it."""

    def rush(env):
        return lambda observation: -torch.ones(env.num_envs, env.a_dim)

    for module in ("envs.controllers", "envs.evaluation.evaluation"):
        monkeypatch.setattr(f"{module}.BASELINES", {"rush": rush})
    monkeypatch.setattr("envs.tasks.task.Task.controllers", ("rush",))
    save_policy(env, "rush", gain=0.0, bias=-100.0)
    line = "--checkpoint rush --episodes 20 --baseline rush,rush+guard".split()
    guarded, free, own = (
        measured(evaluate, *line, *flag) for flag in (["--guard", "true"], ["--guard", "false"], [])
    )

    def figures(out):
        return {name: out[name] for name in SUMMARY}

    bare, safe = (figures(own["baselines"][name]) for name in ("rush", "rush+guard"))
    assert bare != safe and figures(own) == figures(free) == bare and figures(guarded) == safe
    assert guarded["baselines"] == free["baselines"] == own["baselines"]
    assert guarded["guard"] is True and "guard" not in own
    stops = measured(evaluate, *line, "--guard", "true", "--guard_stops", "true")
    assert stops["guard_stops"] is True and stops["collision_free_rate"] == 1.0
    assert figures(stops) == figures(stops["baselines"]["rush+guard"]) != safe
    assert figures(stops["baselines"]["rush"]) == bare


def test_random_actions_are_beside_the_policy_unless_told_otherwise(work, evaluate):
    line = ("--checkpoint", "transpose", "--episodes", "20")
    assert list(measured(evaluate, *line)["baselines"]) == ["random"]
    assert measured(evaluate, *line, "--baseline", "")["baselines"] == {}


def test_a_picture_of_reward_and_actions(work, evaluate, capsys):
    assert evaluate.main(["--checkpoint", "still", "--episodes", "2", "--plot", "rollout.png"]) == 0
    with Image.open("rollout.png") as picture:
        assert picture.format == "PNG" and min(picture.size) > 400
    assert "one episode are in rollout.png" in capsys.readouterr().out


def test_a_dataset_holds_what_the_policy_did(work, evaluate):
    line = "--checkpoint transpose --episodes 2 --dataset data.npz"
    line += " --transitions 500 --dataset_noise 0.1"
    assert evaluate.main(line.split()) == 0
    data = load_dataset("data.npz")
    assert data.state.shape == (500, 31) and data.action.shape == (500, 7)
    assert not data.terminated.any() and data.truncated.any() and data.action.std() > 0.05


def test_a_dataset_has_the_rewards_that_are_asked_for(work, evaluate):
    """A training with --sparse would else learn from rewards of two kinds."""
    line = "--checkpoint transpose --episodes 2 --transitions 500 --dataset"
    assert evaluate.main([*line.split(), "dense.npz"]) == 0
    assert evaluate.main([*line.split(), "sparse.npz", "--sparse", "true"]) == 0
    dense = load_dataset("dense.npz")
    sparse = load_dataset("sparse.npz")
    assert torch.equal(dense.state, sparse.state) and len(dense.reward.unique()) > 100
    assert set(sparse.reward.unique().tolist()) <= {-1.0, 0.0} and (sparse.reward == -1.0).any()


def test_a_dataset_holds_whole_episodes(work, env, evaluate):
    """However many arms an evaluation has."""
    transitions = 3 * env.task.horizon
    line = "--checkpoint transpose --episodes 100 --dataset data.npz"
    line += f" --transitions {transitions}"
    assert evaluate.main(line.split()) == 0
    ends = load_dataset("data.npz").truncated.nonzero()[:, 0]
    assert (ends + 1).tolist() == [number * env.task.horizon for number in (1, 2, 3)]


def test_episodes_beyond_the_asked_number_are_not_counted(work, env, evaluate, monkeypatch):
    """About half of the episodes succeed, and of seven that is k/7, not k/8."""
    save_policy(env, "slow", gain=0.6)
    monkeypatch.setattr("envs.evaluation.evaluation.ROUND", 4)
    rate = measured(evaluate, "--checkpoint", "slow", "--episodes", "7")["success_rate"]
    assert 0 < rate < 1 and 7 * rate == pytest.approx(round(7 * rate))


def test_json_replaces_an_older_file_whole(work, evaluate):
    Path("out.json").write_text(json.dumps({"checkpoint": "run", "episodes": "x" * 100_000}))
    assert measured(evaluate, "--checkpoint", "still", "--episodes", "2")["episodes"] == 2
    assert sorted(os.listdir()) == ["checkpoints", "out.json"]


def test_one_episode_ends_as_it_did_among_all(work, evaluate, monkeypatch, capsys):
    """Its figures are those it had among the others, over several rounds; the picture is of the
    same one.
    """
    monkeypatch.setattr("envs.evaluation.evaluation.ROUND", 4)
    line = "--checkpoint transpose --seed 3 --episodes 10 --baseline rrmc".split()
    every = [measured(evaluate, *line, "--episode", str(number)) for number in range(10)]
    capsys.readouterr()
    together = measured(evaluate, *line)
    assert capsys.readouterr().out.startswith(
        "checkpoints/transpose: panda reach, 10 episodes, seed 3\n"
    )
    assert [out["episode"] for out in every] == list(range(10)) and "episode" not in together
    # which name it again
    assert all((out["episodes"], out["of_episodes"]) == (1, 10) for out in every)
    for pick in (lambda out: out, lambda out: out["baselines"]["rrmc"]):
        errors = [pick(out)["final_position_error_m"]["median"] for out in every]
        assert len(set(errors)) > 5  # other episodes; those that end within rounding may agree
        assert torch.tensor(errors).double().quantile(0.5) == pytest.approx(
            pick(together)["final_position_error_m"]["median"], abs=1e-4
        )
        assert sum(pick(out)["success_rate"] for out in every) == pytest.approx(
            10 * pick(together)["success_rate"]
        )

    shown = {}

    def spy(controllers, seed, path, number, row, camera):
        for _, env in controllers.values():
            env.reset(seed)
        goals = {name: env.goal[row].clone() for name, (_, env) in controllers.items()}
        shown.update(goals=goals, number=number)

    opened = []
    monkeypatch.setattr(
        "envs.view.evaluation_view.run_interactive", lambda evaluation, **how: opened.append(how)
    )
    assert evaluate.main([*line, "--swift", "--no-browser", "--port", "4321"]) == 0
    assert opened[0].pop("note").startswith("close the page")
    assert opened == [{"open_browser": False, "port": 4321, "camera": "corner"}]
    monkeypatch.setattr("envs.view.evaluation_view.record_episodes", spy)
    assert evaluate.main([*line, "--episode", "6", "--record", "out.gif"]) == 0
    assert "panda reach, episode 6, seed 3" in capsys.readouterr().out
    many = envs.make("panda", "reach", num_envs=4)
    many.reset(draw_round_seeds(many, 10, 3)[1])
    assert shown["number"] == 6 and list(shown["goals"]) == ["policy", "rrmc"]
    for goal in shown["goals"].values():
        assert torch.equal(goal, many.goal[2])


def test_a_report_lists_every_failure_with_the_command_that_replays_it(
    work, env, evaluate, monkeypatch, capsys
):
    save_policy(env, "slow", gain=0.6)
    monkeypatch.setattr("envs.evaluation.evaluation.ROUND", 8)
    monkeypatch.setattr("sys.argv", ["td3-robot evaluate"])  # which commands then begin with
    out = measured(
        evaluate, *"--checkpoint slow --episodes 20 --seed 5 --baseline rrmc --report out".split()
    )
    assert f"the report is {Path('out', 'index.html')}" in capsys.readouterr().out
    assert os.listdir("out") == ["index.html"]
    text = Path("out/index.html").read_text()
    run, *commands = re.findall(r"<code>td3-robot evaluate ([^<]*)</code>", text)
    failed = round(20 * (1 - out["success_rate"]))
    assert len(commands) == failed > 0 and run.startswith("--checkpoint slow --episodes 20 ")
    words = commands[-1].removesuffix(" --swift").split()
    assert measured(evaluate, *words)["success_rate"] == 0.0
    assert f"{100 * out['baselines']['rrmc']['success_rate']:.1f}" in text

    before = text
    monkeypatch.setattr("envs.evaluation.evaluation.render_page", lambda report: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        evaluate.main("--checkpoint slow --episodes 2 --report out".split())
    assert Path("out/index.html").read_text() == before and os.listdir("out") == ["index.html"]


def test_robustness_is_in_the_table_in_the_json_file_and_in_the_report(work, evaluate, capsys):
    out = measured(
        evaluate, *"--checkpoint transpose --episodes 4 --robustness --report out".split()
    )
    told = out["robustness"]
    page = Path("out/index.html").read_text()
    assert told.pop("episodes") == 4
    rows = cells(capsys.readouterr().out)
    assert rows["latency 100 ms"] == [f"{100 * told['latency'][-1]['success_rate']['policy']:.1f}"]
    assert '<th scope="row">latency 100 ms</th>' in page and page.count("<figcaption>") > 3
    described = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    keys = {*told, *(key for points in told.values() for point in points for key in point)}
    assert {key for key in keys | {"robustness"} if f"`{key}`" not in described} == set()

    assert "robustness" not in measured(
        evaluate, *"--checkpoint transpose --episodes 4 --report out".split()
    )
    assert (
        "<h2>Robustness</h2>" in page
        and "<h2>Robustness</h2>" not in Path("out/index.html").read_text()
    )


@pytest.mark.parametrize("flag", ["--report out", "--episode 0", "--robustness"])
def test_gymnasium_environments_have_no_report_and_no_replay(work, evaluate, flag):
    save_config(Config(), Path("checkpoints/still/config.yaml"), EnvOptions(env="Pendulum-v1"))
    with pytest.raises(ConfigError, match=f"^{flag[2:].split()[0]} is for our own robots"):
        evaluate.main(["--checkpoint", "still", *flag.split()])
    assert os.listdir() == ["checkpoints"]
