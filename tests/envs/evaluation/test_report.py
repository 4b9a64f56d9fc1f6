"""The report's page: what it says of known episodes, and that it stands alone."""

import dataclasses
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest
import torch

import envs
from envs.evaluation.metrics import measure
from envs.evaluation.report import RecordingPolicy, Report, Trajectories, charts, render_page
from envs.evaluation.report.errors import list_errors
from envs.evaluation.report.failures import find_failures
from envs.evaluation.report.tiles import render_tiles
from envs.evaluation.summary import summarise_arm
from envs.registry import make_task
from envs.simulation.disturbances import Disturbances
from envs.view.recording import find_chromium

HORIZON = 60
CURVE = [
    {"env_steps": 1000.0 * k, "gradient_steps": k, "success_rate": k / 10} for k in range(1, 11)
]


def play(env, policy, seed: int) -> Trajectories:
    """One round of episodes."""
    recorder = RecordingPolicy(policy, env)
    observation = env.reset(seed)
    infos = []
    for _ in range(env.task.horizon):
        step = env.step(recorder(observation))
        observation = step.observation
        infos.append(step.info)
    info = {name: torch.stack([one[name] for one in infos]) for name in infos[0]}
    return Trajectories.from_round(
        torch.ones(len(infos), env.num_envs, dtype=torch.bool), info, recorder
    )


@pytest.fixture(scope="module")
def env():
    return envs.make("panda", "reach", num_envs=6)


def test_what_is_drawn_is_where_it_is_also_from_a_base_that_is_elsewhere(monkeypatch):
    off = Disturbances(base_offset=0.1, base_turn=0.2)
    env = envs.make("panda", "reach_avoid", num_envs=3, seed=1, disturbances=off)
    drawn = play(env, lambda observation: torch.zeros(3, 7), 1)
    env.reset(1)
    for name, rows in drawn.obstacles.items():
        assert torch.equal(rows, env.scene[name]) and not torch.equal(rows, env.moment.scene[name])
    assert torch.equal(drawn.series["goal"][0], env.scene["goal"])
    monkeypatch.setattr(type(env.task), "goal_is_place", False)
    recorder = RecordingPolicy(lambda observation: torch.zeros(3, 7), env)
    recorder(env.reset(1))
    assert recorder.take_goals().shape == (1, 3, 0)


@pytest.fixture(scope="module")
def evaluation(env) -> Report:
    """A policy that goes to the goal in half of its episodes, beside one that never moves."""
    columns = env.layout["joint_error"]
    goes = torch.tensor([1.0, 0, 1, 0, 0, 1])[:, None]

    def transpose(o):
        return torch.tanh(2 * torch.nn.functional.pad(o[:, columns], (0, 1))) * goes

    def still(o):
        return torch.zeros(6, 7)

    played = {"policy": play(env, transpose, 1), "<b>still</b>": play(env, still, 1)}
    figures = {
        name: measure(env.task, env.model, one.series, one.alive) for name, one in played.items()
    }
    return Report(
        title="a & b </script>",
        facts={"checkpoint": "checkpoints/<run>"},
        env=env,
        summaries={name: summarise_arm(one) for name, one in figures.items()},
        played=played,
        curve=CURVE,
        replay=lambda episode: f"replay {episode} <now>",
    )


@pytest.fixture(scope="module")
def html(evaluation) -> str:
    return render_page(evaluation)


def embedded(html: str) -> dict:
    """The data of the 3-D view."""
    return json.loads(re.search(r'id="paths-data">(.*?)</script>', html, re.DOTALL).group(1))


class Outline(HTMLParser):
    """Notes what a page refers to, and that every element is closed by its own end."""

    VOID = {"meta", "input", "link", "img", "br", "hr"}

    def __init__(self, text: str):
        super().__init__()
        self.open = []
        self.referred = []
        self.text = []
        self.ids = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.referred += [
            attributes[name]
            for name in ("src", "href", "xlink:href", "action")
            if name in attributes
        ]
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_is_whole_and_refers_to_nothing_outside(html):
    outline = Outline(html)
    assert html.startswith("<!DOCTYPE html>")
    assert all(link.startswith("#") for link in outline.referred)
    urls = set(re.findall(r"https?://[^\s\"'<)]+", html))
    # names of XML, which nothing fetches
    assert all(url.startswith("http://www.w3.org/") for url in urls)
    assert not re.search(r"@import|url\((?!#)", html)
    assert {"paths", "paths-label", "paths-data", "show-succeeded", "show-failed"} <= set(
        outline.ids
    )


def test_what_it_says_is_text_and_never_markup(html):
    text = " ".join(Outline(html).text)
    for words in ("a & b </script>", "checkpoints/<run>", "<b>still</b>", "<now>"):
        assert words in text


def test_the_table_is_the_terminals(html, evaluation):
    row = re.search(r'<th scope="row">success rate \[%\]</th>((?:<td>[^<]*</td>)*)', html).group(1)
    shares = [f"{100 * summary['success_rate']:.1f}" for summary in evaluation.summaries.values()]
    assert re.findall(r"<td>([^<]*)</td>", row) == shares


def test_the_tiles_show_success_time_error_and_contact(html, evaluation):
    policy = evaluation.summaries["policy"]
    boxes = re.search(r'<div class="tiles">(.*?)</div>', html, re.DOTALL).group(1)
    assert re.findall(r"<h2>(\w+)</h2>", boxes) == ["Success", "Time", "Error", "Contact"]
    shown = re.findall(r"<strong>([^<]*)</strong>", boxes)
    assert (
        shown[0] == f"{100 * policy['success_rate']:.1f}%"
        and evaluation.env.task.criterion in boxes
    )
    assert shown[1] == f"{policy['time_to_goal_s']['median']:.2f} s"
    assert shown[2] == f"{1000 * policy['final_position_error_m']['median']:.2f} mm"
    assert (
        shown[3] == f"{100 - 100 * policy['collision_free_rate']:.1f}%"
        and "and no contact before" in boxes
    )
    assert boxes.count("&lt;b&gt;still&lt;/b&gt;") == 4  # the other controller's figures below each


def test_the_contact_tile_shows_the_deepest_contact_or_that_none_is_known(evaluation):
    policy = evaluation.summaries["policy"] | {
        "collision_free_rate": 0.9,
        "deepest_contact_m": 0.0123,
    }
    tiles = render_tiles(
        evaluation.env.task, {"policy": policy, "other": policy | {"collision_free_rate": 1.0}}
    )
    assert (
        "<strong>10.0%</strong>" in tiles
        and "the deepest by 12.3 mm" in tiles
        and "other 0.0%" in tiles
    )
    bare = {
        name: value
        for name, value in policy.items()
        if name not in ("collision_free_rate", "deepest_contact_m")
    }
    tiles = render_tiles(evaluation.env.task, {"policy": bare})
    assert "this robot has no collision geometry" in tiles and "no contact before" not in tiles


def test_rows_of_zeros_are_folded(html):
    folded = re.search(
        r"<details><summary>(\d+) more, zero or unknown for all</summary>(.*?)</details>",
        html,
        re.DOTALL,
    )
    rows = re.findall(r"<tr><th scope=\"row\">[^<]*</th>(.*?)</tr>", folded.group(2))
    assert len(rows) == int(folded.group(1)) > 0
    assert all(
        float(cell.replace("-", "0")) == 0
        for row in rows
        for cell in re.findall(r"<td>([^<]*)</td>", row)
    )
    shown = re.findall(
        r"<tr><th scope=\"row\">[^<]*</th>(.*?)</tr>", html.replace(folded.group(0), "")
    )
    assert not any(re.fullmatch(r"(<td>[-0.]*</td>)+", row) for row in shown)


def test_failures_of_the_policy_are_listed_each_with_its_command(html, evaluation):
    failed = evaluation.played["policy"].failed.tolist()
    assert {1, 3, 4} <= set(failed) < set(range(6))
    assert [int(number) for number in re.findall(r"replay (\d+) &lt;now&gt;", html)] == failed
    assert f"{len(failed)} of 6 episodes" in html
    errors = 1000 * evaluation.played["policy"].select_last("position_error")
    cells = "".join(rf"<td>{number}</td><td>{errors[number]:.2f}</td>.*" for number in failed)
    assert re.search(cells, html, re.DOTALL)


def test_paths_are_those_that_were_played(html, evaluation):
    data = embedded(html)
    each = list(evaluation.played.values())
    # the others' in the same episodes
    shown = [(by, episode) for by in range(len(each)) for episode in range(6)]
    assert sorted((path["by"], path["episode"]) for path in data["paths"]) == shown
    for path in data["paths"]:
        episode = path["episode"]
        policy = each[path["by"]]
        assert path["failed"] == (path["by"] == 0 and episode in policy.failed.tolist())
        torch.testing.assert_close(
            torch.tensor(path["tcp"]), policy.series["tcp"][:, episode], atol=6e-4, rtol=0
        )
        assert len(path["goal"]) == 1  # it never moves
        distance = torch.dist(torch.tensor(path["tcp"][-1]), torch.tensor(path["goal"][0]))
        assert distance.item() == pytest.approx(
            policy.select_last("position_error")[episode].item(), abs=2e-3
        )


def test_no_failure_says_so(evaluation):
    policy = evaluation.played["policy"]
    every = dataclasses.replace(
        policy, series=policy.series | {"success": torch.ones(HORIZON, 6, dtype=torch.bool)}
    )
    assert "None of 6 episodes." in render_page(
        dataclasses.replace(evaluation, played={"policy": every}, curve=[])
    )


def test_rounds_join_in_order_and_the_surplus_is_dropped(evaluation):
    one, two = evaluation.played.values()
    both = Trajectories.join([one, two], 8)
    assert both.alive.shape == (HORIZON, 8)
    assert torch.equal(both.series["q"], torch.cat((one.series["q"], two.series["q"][:, :2]), 1))


# Why an episode failed


def episode(env, steps: int = 4, **changed) -> Trajectories:
    """A failed episode at home, 100 mm from its goal; dt is 0.05 s."""
    series = {
        "success": torch.zeros(steps, 1, dtype=torch.bool),
        "position_error": torch.full((steps, 1), 0.1),
        "q": env.world.home.expand(steps, 1, 7),
    }
    given = {
        name: torch.as_tensor(value).reshape(steps, 1, -1).squeeze(-1)
        for name, value in changed.items()
    }
    series |= {"touched": series["success"]} | given
    known = {"success_with_contact": series["success"]} | series
    return Trajectories(torch.ones(steps, 1, dtype=torch.bool), known, {})


def test_rounds_of_different_lengths_stand_side_by_side(env):
    """As where all episodes of a round end early."""
    long = episode(env, position_error=[0.4, 0.3, 0.2, 0.1])
    short = episode(env, 2, position_error=[0.6, 0.5])
    both = Trajectories.join([short, long], 2)
    assert both.alive.T.tolist() == [[True, True, False, False], [True] * 4]
    torch.testing.assert_close(both.select_last("position_error"), torch.tensor([0.5, 0.1]))
    for number, part in enumerate((short, long)):
        torch.testing.assert_close(both.select(number).series["q"], part.series["q"])
    first = Trajectories.join(
        [short, long], 1
    )  # without the steps that only a surplus episode made
    assert first.alive.tolist() == [[True], [True]]
    assert {len(values) for values in first.series.values()} == {2}


def test_reasons_of_failures(env):
    def why(task="reach", **changed):
        (failure,) = find_failures(make_task(task), env.model, episode(env, **changed), 10)
        return failure.why

    no = [False] * 4
    some = [False, True, False, False]
    assert why(position_error=[0.3, 0.02, 0.1, 0.2]) == "never reached, nearest 20.0 mm"
    assert why(success=[False, True, True, False]) == "was at the goal, left it after 0.15 s"
    touched = {"touched": [False, True, True, True]}
    assert why("reach_avoid", **touched) == why(**touched) == "contact after 0.10 s"
    at_the_end, before_it = (
        {"success_with_contact": seen} for seen in ([False, False, True, True], [*some[:3], True])
    )
    assert why(**touched, **at_the_end) == why(**touched, **before_it) == "contact after 0.10 s"
    left = why(**touched, success_with_contact=[False, False, True, False])
    assert left == "contact after 0.10 s; was at the goal, left it after 0.15 s"
    assert why("track", **touched).startswith("contact after 0.10 s; mean tracking error")
    assert why("reach_avoid", touched=no) == why("reach_avoid") == "never reached, nearest 100.0 mm"
    assert (
        why("pick_place", held=no, table_clearance=[0.1] * 4)
        == "never held; never reached, nearest 100.0 mm"
    )
    grasped = why("pick_place", held=some, table_clearance=[0.1] * 4)
    assert grasped == "held after 0.10 s, not at the end; never reached, nearest 100.0 mm"
    turned = {
        "rotation_error": [1.0, math.radians(4), 0.2, 0.3],
        "position_error": [0.3, 0.1, 0.02, 0.1],
    }
    assert why("reach_pose", **turned) == "never reached, nearest 20.0 mm, 4.0 deg"
    depth = {"insert_depth": [0.0, 0.008, 0.012, 0.011], "insert_force": [1.0] * 4}
    assert why("insert", **depth) == "never reached, nearest 100.0 mm"
    at_limit = env.world.home.repeat(4, 1)
    at_limit[3, 3] = env.model.qlim[0, 3]
    at_limit[3, 5] = env.model.qlim[1, 5]
    assert why(q=at_limit) == "never reached, nearest 100.0 mm; ended at a limit of joint 4, 6"


def test_a_goal_that_moves_is_judged_by_the_mean_of_the_steps_that_count(env):
    track = make_task("track")
    error = torch.full((track.settle_steps + 2,), 9.0)
    error[-2:] = torch.tensor([0.02, 0.04])  # what came before is not counted
    (failure,) = find_failures(track, env.model, episode(env, len(error), position_error=error), 10)
    assert failure.why == "mean tracking error 30.0 mm" and failure.errors == (pytest.approx(30.0),)


def test_only_what_belongs_to_the_episode_counts(env):
    played = episode(env, success=[False, False, True, True], position_error=[0.3, 0.2, 0.0, 0.0])
    cut = dataclasses.replace(played, alive=torch.tensor([[True], [True], [False], [False]]))
    (failure,) = find_failures(env.task, env.model, cut, 10)
    assert (
        failure.errors == (pytest.approx(200.0),)
        and failure.why == "never reached, nearest 200.0 mm"
    )
    assert find_failures(env.task, env.model, played, 10) == []


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("reach", [("error", "final error", "mm", 10.0)]),
        ("track", [("tracking error", "mean tracking error", "mm", 10.0)]),
        (
            "reach_pose",
            [
                ("error", "final error", "mm", 10.0),
                ("rotation error", "final rotation error", "deg", 5.0),
            ],
        ),
    ],
)
def test_errors_are_those_that_the_task_measures(task, expected):
    errors = list_errors(make_task(task))
    names = [
        (error.name, error.final_name, error.measure.unit, pytest.approx(error.tolerance))
        for error in errors
    ]
    assert names == expected


def test_charts_take_the_colour_of_the_page_and_name_the_controllers(env, evaluation):
    (error,) = list_errors(env.task)
    played = evaluation.played
    drawn = [
        charts.draw_error_over_time(error, played, 0.05),
        charts.draw_final_errors(error, played),
    ]
    drawn += [charts.draw_joint_speeds(env.model, played)]
    for svg in drawn:
        text = " ".join(ElementTree.fromstring(svg).itertext())
        assert "policy" in text and "<b>still</b>" in text
        assert "currentColor" in svg and charts._INK not in svg
    # the same figures, the same file
    assert charts.draw_learning_curve(CURVE) == charts.draw_learning_curve(CURVE)


def test_a_run_without_evaluations_shows_the_success_of_its_own_episodes(evaluation):
    own = [
        {"env_steps": row["env_steps"], "train_success_rate": row["success_rate"]} for row in CURVE
    ]
    assert "success of the training&#x27;s episodes" in render_page(
        dataclasses.replace(evaluation, curve=own)
    )
    none = [{"env_steps": row["env_steps"], "train_return": 1.0} for row in CURVE]
    assert "Learning curve" not in render_page(dataclasses.replace(evaluation, curve=none))


def test_errors_of_zero_do_not_break_a_logarithmic_axis(env):
    played = {"perfect": episode(env, position_error=[0.0] * 4)}
    (error,) = list_errors(env.task)
    for svg in (
        charts.draw_error_over_time(error, played, 0.05),
        charts.draw_final_errors(error, played),
    ):
        assert "nan" not in svg.lower().replace("dominant", "")


# In a browser


def test_a_browser_draws_it_without_asking_for_anything_else(html, tmp_path):
    from playwright.sync_api import sync_playwright

    (tmp_path / "index.html").write_text(html)
    address = f"file://{tmp_path}/index.html"
    asked = []
    complaints = []
    ink = """() => { const c = document.getElementById("paths");
        const image = c.getContext("2d").getImageData(0, 0, c.width, c.height);
        return image.data.filter((x) => x).length; }"""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 390, "height": 800})
        tab.set_default_timeout(300_000)  # [ms] where many other things run
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on(
            "console", lambda message: complaints.extend([message.text] * (message.type == "error"))
        )
        tab.goto(address)
        tab.wait_for_function(f"({ink})() > 0")
        everything = tab.evaluate(ink)
        tab.check(".show-other")  # what the other one did in the same episodes
        assert tab.evaluate(ink) > everything
        tab.uncheck(".show-other")
        tab.uncheck("#show-failed")
        tab.uncheck("#show-succeeded")
        assert 0 < tab.evaluate(ink) < everything  # the ground stays
        # nothing sticks out of a telephone
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        browser.close()
    assert asked == [address] and complaints == []
