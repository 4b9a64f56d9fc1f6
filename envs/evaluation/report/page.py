"""The page itself: text, table, charts, paths and failures, put together."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from envs.arm_env.arm_env import ArmEnv
from envs.evaluation.report import charts
from envs.evaluation.report.arm_run import ArmRun
from envs.evaluation.report.errors import Error, errors_of
from envs.evaluation.report.failures import Failure, failures
from envs.evaluation.report.paths import FAILURES, SUCCESSES, path_data
from envs.evaluation.report.tiles import tiles
from envs.evaluation.report.trajectories import Trajectories
from envs.evaluation.robustness import Robustness
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
        robustness: success behind delay, noise and lag, where that was measured.
        run: of an arm, where a log of one was given.
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


def page(report: Report) -> str:
    """The whole page as HTML that refers to no other file and no other machine."""
    policy = next(iter(report.played.values()))
    known = failures(report.env.task, report.env.model, policy, LISTED)
    body = "\n".join(
        (
            f"<h1>{escape(report.title)}</h1>",
            tiles(report.env.task, report.summaries),
            "<h2>How it was measured</h2>",
            _facts(report.facts),
            "<h2>In numbers</h2>",
            _table(
                list(table_rows(report.summaries, report.env.task.measures)), list(report.summaries)
            ),
            "<h2>In pictures</h2>",
            f'<div class="charts">{"".join(_figures(report))}</div>',
            ""
            if report.robustness is None
            else _robustness(report.robustness, list(report.played)),
            "" if report.run is None else _run(report.run, report.env),
            "<h2>Paths</h2>",
            _paths(report.played, known, report.env),
            "<h2>Failures</h2>",
            _failures(policy, known, errors_of(report.env.task), report.replay),
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
    rows = (
        f"<dt>{escape(name)}</dt><dd><code>{escape(value)}</code></dd>"
        for name, value in facts.items()
    )
    return f"<dl>{''.join(rows)}</dl>"


def _table(rows: list[tuple[str, list[str]]], headings: list[str]) -> str:
    """The figures, those that are zero for all controllers folded away."""
    zeros = [row for row in rows if all(_is_zero(cell) for cell in row[1])]
    shown = _rows([row for row in rows if row not in zeros], headings)
    if not zeros:
        return shown
    return f"{shown}<details><summary>{len(zeros)} more, zero for all</summary>{_rows(zeros, headings)}</details>"


def _is_zero(cell: str) -> bool:
    return not cell.strip("-0.")


def _rows(rows: list[tuple[str, list[str]]], headings: list[str]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in headings)
    body = "".join(
        f'<tr><th scope="row">{escape(label)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for label, cells in rows
    )
    table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide numbers">{table}</div>'


# columns of a run's metrics.csv: without evaluations there are the training's own episodes
_CURVES = (
    ("success_rate", "on held-out episodes"),
    ("train_success_rate", "of the training's episodes, noise included"),
)


def _figures(report: Report) -> Iterator[str]:
    env, played = report.env, report.played
    for name, which in _CURVES:
        if report.curve and all(name in row for row in report.curve):
            yield _figure(
                f"Learning curve: success {which}", charts.learning_curve(report.curve, name)
            )
            break
    for error in errors_of(env.task):
        over_time = charts.error_over_time(error, played, env.task.dt)
        yield _figure(
            f"{_sentence(error.name)} over time: median, and from the 10th to the 90th percentile",
            over_time,
        )
        success = "" if error.tolerance is None else "; success is left of the dashed line"
        yield _figure(f"{_sentence(error.final_name)}{success}", charts.final_errors(error, played))
    speeds = charts.joint_speeds(env.model, played)
    yield _figure(
        "Joint speeds: 95th percentile (bar), median (line), greatest (mark); 1 is the limit",
        speeds,
    )


def _robustness(robustness: Robustness, controllers: list[str]) -> str:
    captions = {
        "latency": "Latency from a choice to its effect; dashed: without foresight",
        "noise": "Noise of measured joint positions, deviation, at 50 ms of latency",
        "servo_lag": "Lag of the servos: time constant with which joints follow",
    }
    drawn = (
        _figure(caption, charts.success_against(varied, robustness, controllers))
        for varied, caption in captions.items()
        if varied in robustness.success
    )
    return (
        f"<h2>Robustness</h2><p>Success rates behind delay, noise and lag, of {robustness.episodes:,} "
        "episodes, the same at every point. A controller with foresight is shown the arm as it will be when its "
        "command begins to act.</p>"
        f'<div class="charts three">{"".join(drawn)}</div>'
        f"<details><summary>success rates [%] in numbers</summary>"
        f"{_rows(list(robustness.rows()), robustness.controllers)}</details>"
    )


def _run(run: ArmRun, env: ArmEnv) -> str:
    share = run.sent / env.model.qdlim.cpu().numpy()
    drawn = (
        _figure(
            "Positions that were measured",
            charts.joints_over_time(run.time, run.q, run.joints, "rad or m"),
        ),
        _figure(
            "Velocities that were sent, of the joints' limits",
            charts.joints_over_time(run.time, share, run.joints, "velocity over its limit"),
        ),
    )
    told = "".join(
        f"<dt>{time:.3f} s</dt><dd>{escape(reason or 'as asked')}</dd>"
        for time, reason in run.reasons[:50]
    )
    why = f"<details><summary>{len(run.reasons)} reasons to send less than was asked</summary><dl>{told}</dl></details>"
    return f'<h2>A run of an arm</h2><p>{escape(run.sentence)}</p><div class="charts">{"".join(drawn)}</div>{why}'


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _figure(caption: str, svg: str) -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>{svg}</figure>"


def _paths(played: dict[str, Trajectories], known: list[Failure], env: ArmEnv) -> str:
    policy = next(iter(played.values()))
    boxes = [
        _box(
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
        _box(
            f'class="show-other" data-by="{by}"',
            f'style="color: {charts.colours(len(played))[by]}"',
            name,
        )
        for by, name in enumerate(played)
        if by
    ]
    return (
        f'<figure><figcaption>{"".join(boxes)}</figcaption><canvas id="paths"></canvas>'
        '<p class="soft" id="paths-label">The way of the TCP, a ring at the goal, a dot at the end; the grid is the '
        "ground in squares of 25 cm. Drag to turn, click a path to see which it is; the other controllers' ways in the "
        "same episodes can be switched on.</p>"
        "<noscript>Drawing the paths needs JavaScript.</noscript></figure>"
        f'<script type="application/json" id="paths-data">'
        f"{path_data(list(played.values()), known, env.world.workspace.cpu())}</script>"
    )


def _box(box: str, words: str, name: str) -> str:
    return f'<label><input type="checkbox" {box}> <span {words}>{escape(name)}</span></label> '


def _failures(
    played: Trajectories, known: list[Failure], errors: list[Error], replay: Callable[[int], str]
) -> str:
    failed, episodes = len(played.failed), played.alive.shape[1]
    if not failed:
        return f"<p>None of {episodes:,} episodes.</p>"
    kinds = (f"{error.final_name} [{error.measure.unit}]" for error in errors)
    titles = ("episode", *kinds, "what is known, and the command to see it again")
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in titles)
    rows = "".join(_row(failure, replay) for failure in known)
    note = f", the first {len(known)} of them here" if len(known) < failed else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return (
        f'<p>{failed:,} of {episodes:,} episodes{note}.</p><div class="wide failures">{table}</div>'
    )


def _row(failure: Failure, replay: Callable[[int], str]) -> str:
    cells = [str(failure.episode), *(f"{error:.1f}" for error in failure.errors)]
    known = f"<td>{escape(failure.why)}<code>{escape(replay(failure.episode))}</code></td>"
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}{known}</tr>"
