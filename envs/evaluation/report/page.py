"""HTML page of the report: text, table, charts, paths and failures."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from envs.arm_env.arm_env import ArmEnv
from envs.evaluation.report import charts
from envs.evaluation.report.arm_run import ArmRun
from envs.evaluation.report.errors import Error, list_errors
from envs.evaluation.report.failures import Failure, find_failures
from envs.evaluation.report.paths import FAILURES, SUCCESSES, encode_paths
from envs.evaluation.report.tiles import render_tiles
from envs.evaluation.report.trajectories import Trajectories
from envs.evaluation.robustness import Robustness
from envs.evaluation.table import make_rows

LISTED = 500  # failures; a policy with more is not studied one episode at a time
_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Report:
    """Contents of the page.

    Attributes:
        title: title of the page.
        facts: conditions of the evaluation, by name.
        env: the environment of the evaluation.
        summaries: the table's columns: controller -> summary.
        played: controller -> its episodes; the first one's paths and failures are shown.
        curve: rows of the run's metrics.csv; empty without a run.
        replay: number of an episode -> the command that shows it.
        robustness: success under latency, noise and servo lag, if it was measured.
        run: a run of an arm, if a log was given.
    """

    title: str
    facts: dict[str, str]
    env: ArmEnv
    summaries: dict[str, dict[str, object]]
    played: dict[str, Trajectories]
    curve: Sequence[dict[str, float]]
    replay: Callable[[int], str]
    robustness: Robustness | None = None
    run: ArmRun | None = None


def render_page(report: Report) -> str:
    """Render the whole page as HTML that refers to no other file or host."""
    env = report.env
    policy = next(iter(report.played.values()))
    known = find_failures(env.task, env.model, policy, LISTED)
    rows = list(make_rows(report.summaries, env.task.measures))
    sections = [
        f"<h1>{escape(report.title)}</h1>",
        render_tiles(env.task, report.summaries),
        "<h2>How it was measured</h2>",
        _render_facts(report.facts),
        "<h2>In numbers</h2>",
        _render_table(rows, list(report.summaries)),
        "<h2>In pictures</h2>",
        f'<div class="charts">{"".join(_render_figures(report))}</div>',
    ]
    if report.robustness is not None:
        sections.append(_render_robustness(report.robustness, list(report.played)))
    if report.run is not None:
        sections.append(_render_run(report.run, env))
    sections += ["<h2>Paths</h2>", _render_paths(report.played, known, env), "<h2>Failures</h2>"]
    sections.append(_render_failures(policy, known, list_errors(env.task), report.replay))
    body = "\n".join(sections)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(report.title)}</title>\n<style>\n{_read('page.css')}</style>\n</head>\n"
        f"<body>\n{body}\n<script>\n{_read('paths.js')}</script>\n</body>\n</html>\n"
    )


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _render_facts(facts: dict[str, str]) -> str:
    rows = (
        f"<dt>{escape(name)}</dt><dd><code>{escape(value)}</code></dd>"
        for name, value in facts.items()
    )
    return f"<dl>{''.join(rows)}</dl>"


def _render_table(rows: list[tuple[str, list[str]]], headings: list[str]) -> str:
    """Render the figures; those that are zero or unknown for all controllers are folded away."""
    zeros = [row for row in rows if all(_is_zero(cell) for cell in row[1])]
    shown = _render_rows([row for row in rows if row not in zeros], headings)
    if not zeros:
        return shown
    return (
        f"{shown}<details><summary>{len(zeros)} more, zero or unknown for all</summary>"
        f"{_render_rows(zeros, headings)}</details>"
    )


def _is_zero(cell: str) -> bool:
    return not cell.strip("-0.")


def _render_rows(rows: list[tuple[str, list[str]]], headings: list[str]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in headings)
    body = "".join(_render_cells(label, cells) for label, cells in rows)
    table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide numbers">{table}</div>'


def _render_cells(label: str, cells: list[str]) -> str:
    columns = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<tr><th scope="row">{escape(label)}</th>{columns}</tr>'


# columns of a run's metrics.csv: without evaluations there are the training's own episodes
_CURVES = (
    ("success_rate", "on held-out episodes"),
    ("train_success_rate", "of the training's episodes, noise included"),
)


def _render_figures(report: Report) -> Iterator[str]:
    env = report.env
    played = report.played
    for name, which in _CURVES:
        if report.curve and all(name in row for row in report.curve):
            yield _render_figure(
                f"Learning curve: success {which}", charts.draw_learning_curve(report.curve, name)
            )
            break
    for error in list_errors(env.task):
        over_time = charts.draw_error_over_time(error, played, env.task.dt)
        name = _capitalize(error.name)
        yield _render_figure(f"{name} over time: median, 10th to 90th percentile", over_time)
        success = "" if error.tolerance is None else "; success is left of the dashed line"
        yield _render_figure(
            f"{_capitalize(error.final_name)}{success}", charts.draw_final_errors(error, played)
        )
    speeds = charts.draw_joint_speeds(env.model, played)
    yield _render_figure(
        "Joint speeds: 95th percentile (bar), median (line), greatest (mark); 1 is the limit",
        speeds,
    )


def _render_robustness(robustness: Robustness, controllers: list[str]) -> str:
    captions = {
        "latency": "Latency from a choice to its effect; dashed: without latency compensation",
        "noise": "Noise of measured joint positions, deviation, at 50 ms of latency",
        "servo_lag": "Lag of the servos: time constant with which joints follow",
    }
    drawn = (
        _render_figure(caption, charts.draw_success(varied, robustness, controllers))
        for varied, caption in captions.items()
        if varied in robustness.success
    )
    return (
        "<h2>Robustness</h2><p>Success rates under latency, noise and servo lag, of "
        f"{robustness.episodes:,} episodes, the same at every point. A compensated "
        "controller observes the state predicted for when its command takes effect.</p>"
        f'<div class="charts three">{"".join(drawn)}</div>'
        f"<details><summary>success rates [%] in numbers</summary>"
        f"{_render_rows(list(robustness.iter_rows()), robustness.controllers)}</details>"
    )


def _render_run(run: ArmRun, env: ArmEnv) -> str:
    share = run.sent / env.model.qdlim.cpu().numpy()
    title = "Positions that were measured"
    places = run.measured
    if places is None:
        title = "Positions that the arm was sent to"
        places = run.q
    drawn = (
        _render_figure(title, charts.draw_joint_series(run.time, places, run.joints, "rad or m")),
        _render_figure(
            "Velocities that were sent, of the joints' limits",
            charts.draw_joint_series(run.time, share, run.joints, "velocity over its limit"),
        ),
    )
    count = sum(bool(reason) for _, reason in run.reasons)
    reasons = "".join(
        f"<dt>{time:.3f} s</dt><dd>{escape(reason or 'as asked')}</dd>"
        for time, reason in run.reasons[:50]
    )
    return (
        f"<h2>A run of an arm</h2><p>{escape(run.summary)}</p>"
        f'<div class="charts">{"".join(drawn)}</div>'
        f"<details><summary>{count} reasons to send less than was asked</summary>"
        f"<dl>{reasons}</dl></details>"
    )


def _capitalize(words: str) -> str:
    return words[:1].upper() + words[1:]


def _render_figure(caption: str, svg: str) -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>{svg}</figure>"


def _render_paths(played: dict[str, Trajectories], known: list[Failure], env: ArmEnv) -> str:
    policy = next(iter(played.values()))
    boxes = [
        _render_box(
            f'id="show-{name}" checked',
            f'class="{name}"',
            f"{min(most, total)} of {total:,} {noun}",
        )
        for name, noun, most, total in (
            ("succeeded", "successes", SUCCESSES, len(policy.succeeded)),
            ("failed", "failures", FAILURES, len(policy.failed)),
        )
    ]
    boxes += [
        _render_box(
            f'class="show-other" data-by="{by}"',
            f'style="color: {charts.get_colours(len(played))[by]}"',
            name,
        )
        for by, name in enumerate(played)
        if by
    ]
    return (
        f'<figure><figcaption>{"".join(boxes)}</figcaption><canvas id="paths"></canvas>'
        '<p class="soft" id="paths-label">The path of the TCP, a ring at the goal, a dot at the '
        "end; the grid is the ground in squares of 25 cm. Drag to turn, click a path to see which "
        "it is; the other controllers' paths in the same episodes can be switched on.</p>"
        "<noscript>Drawing the paths needs JavaScript.</noscript></figure>"
        f'<script type="application/json" id="paths-data">'
        f"{encode_paths(list(played.values()), known, env.world.workspace.cpu())}</script>"
    )


def _render_box(box: str, words: str, name: str) -> str:
    return f'<label><input type="checkbox" {box}> <span {words}>{escape(name)}</span></label> '


def _render_failures(
    played: Trajectories, known: list[Failure], errors: list[Error], replay: Callable[[int], str]
) -> str:
    failed = len(played.failed)
    episodes = played.alive.shape[1]
    if not failed:
        return f"<p>None of {episodes:,} episodes.</p>"
    kinds = (f"{error.final_name} [{error.measure.unit}]" for error in errors)
    titles = ("episode", *kinds, "what is known, and the command to see it again")
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in titles)
    rows = "".join(_render_failure(failure, replay) for failure in known)
    note = f", the first {len(known)} of them here" if len(known) < failed else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return (
        f'<p>{failed:,} of {episodes:,} episodes{note}.</p><div class="wide failures">{table}</div>'
    )


def _render_failure(failure: Failure, replay: Callable[[int], str]) -> str:
    # as in the table; with one digit, an error just above the tolerance looks like a success
    cells = [str(failure.episode), *(f"{error:.2f}" for error in failure.errors)]
    known = f"<td>{escape(failure.why)}<code>{escape(replay(failure.episode))}</code></td>"
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}{known}</tr>"
