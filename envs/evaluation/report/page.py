"""The page itself: text, table, charts, paths and failures, put together."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from envs.arm_env import ArmEnv
from envs.evaluation.report import charts
from envs.evaluation.report.charts import Error
from envs.evaluation.report.failures import Failure, failures
from envs.evaluation.report.paths import FAILURES, SUCCESSES, path_data
from envs.evaluation.report.trajectories import Trajectories
from envs.evaluation.table import table_rows

LISTED = 500  # failures; a policy with more is not studied one episode at a time
_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Report:
    """What the page is about.

    Attributes:
        title: in a few words.
        facts: what was measured and how, by name.
        env: the environment it was measured in.
        summaries: the table's columns: controller -> summary.
        played: controller -> its episodes; the first is the one whose paths and failures are shown.
        curve: rows of the run's metrics.csv; empty where there are none.
        replay: number of an episode -> the command that shows it.
    """

    title: str
    facts: dict[str, str]
    env: ArmEnv
    summaries: dict[str, dict[str, object]]
    played: dict[str, Trajectories]
    curve: Sequence[dict[str, float]]
    replay: Callable[[int], str]


def page(report: Report) -> str:
    """The whole page as HTML that refers to no other file and no other machine."""
    policy = next(iter(report.played.values()))
    known = failures(report.env.model, policy, LISTED)
    body = "\n".join(
        (
            f"<h1>{escape(report.title)}</h1>",
            _facts(report.facts),
            "<h2>In numbers</h2>",
            _table(report.summaries),
            "<h2>In pictures</h2>",
            f'<div class="charts">{"".join(_figures(report))}</div>',
            "<h2>Paths</h2>",
            _paths(policy, known, report.env),
            "<h2>Failures</h2>",
            _failures(policy, known, report.replay),
        )
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(report.title)}</title>\n<style>\n{_read('page.css')}</style>\n</head>\n"
        f"<body>\n{body}\n<script>\n{_read('paths.js')}</script>\n</body>\n</html>\n"
    )


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _facts(facts: dict[str, str]) -> str:
    rows = (f"<dt>{escape(name)}</dt><dd><code>{escape(value)}</code></dd>" for name, value in facts.items())
    return f"<dl>{''.join(rows)}</dl>"


def _table(summaries: dict[str, dict[str, object]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in summaries)
    rows = (
        f'<tr><th scope="row">{escape(label)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for label, cells in table_rows(summaries)
    )
    table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="wide numbers">{table}</div>'


def errors_of(env: ArmEnv, played: Trajectories) -> list[Error]:
    """The kinds of error that the episodes report."""
    tolerance = 1000 * env.task.tolerance
    if "tracking_error_mean" in played.series:
        return [Error("error", "position_error", "tracking_error_mean", 1000, "mm", 0.01, tolerance)]
    errors = [Error("error", "position_error", "position_error", 1000, "mm", 0.01, tolerance)]
    if "rotation_error" in played.series:
        limit = getattr(env.task, "rotation_tolerance", None)
        within = None if limit is None else math.degrees(limit)
        errors.append(Error("rotation error", *2 * ("rotation_error",), math.degrees(1), "deg", 0.01, within))
    return errors


def _figures(report: Report) -> Iterator[str]:
    env, played = report.env, report.played
    if report.curve:
        yield _figure("Learning curve: success on held-out episodes", charts.learning_curve(report.curve))
    for error in errors_of(env, next(iter(played.values()))):
        over_time = charts.error_over_time(error, played, env.task.dt)
        title = error.name.capitalize()
        yield _figure(f"{title} over time: median, and from the 10th to the 90th percentile", over_time)
        yield _figure(f"Final {error.name}; success is left of the dashed line", charts.final_errors(error, played))
    speeds = charts.joint_speeds(env.model, played)
    yield _figure("Joint speeds: 95th percentile (bar), median (line), greatest (mark); 1 is the limit", speeds)


def _figure(caption: str, svg: str) -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>{svg}</figure>"


def _paths(played: Trajectories, known: list[Failure], env: ArmEnv) -> str:
    boxes = "".join(
        f'<label><input type="checkbox" id="show-{name}" checked> <span class="{name}">{shown} of {total:,} {noun}'
        "</span></label>"
        for name, noun, most, total in (
            ("succeeded", "successes", SUCCESSES, len(played.succeeded)),
            ("failed", "failures", FAILURES, len(played.failed)),
        )
        for shown in [min(most, total)]
    )
    return (
        f'<figure><figcaption>{boxes}</figcaption><canvas id="paths"></canvas>'
        '<p class="soft" id="paths-label">The way of the TCP, a ring at the goal, a dot at the end; the grid is the '
        "ground in squares of 25 cm. Drag to turn, click a path to see which it is.</p>"
        "<noscript>Drawing the paths needs JavaScript.</noscript></figure>"
        f'<script type="application/json" id="paths-data">'
        f"{path_data(played, known, env.world.workspace.cpu())}</script>"
    )


def _failures(played: Trajectories, known: list[Failure], replay: Callable[[int], str]) -> str:
    failed, episodes = len(played.failed), played.alive.shape[1]
    if not failed:
        return f"<p>None of {episodes:,} episodes.</p>"
    turned = ("error [deg]",) if known[0].rotation_error is not None else ()
    titles = ("episode", "error [mm]", *turned, "what is known, and the command to see it again")
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    rows = "".join(_row(failure, replay) for failure in known)
    note = f", the first {len(known)} of them here" if len(known) < failed else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<p>{failed:,} of {episodes:,} episodes{note}.</p><div class="wide failures">{table}</div>'


def _row(failure: Failure, replay: Callable[[int], str]) -> str:
    cells = [str(failure.episode), f"{1000 * failure.position_error:.1f}"]
    if failure.rotation_error is not None:
        cells.append(f"{math.degrees(failure.rotation_error):.1f}")
    known = f"<td>{escape(failure.why)}<code>{escape(replay(failure.episode))}</code></td>"
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}{known}</tr>"
