"""Tiles at the top of the report: success, time, error and contact."""

from collections.abc import Callable
from html import escape
from typing import Any, NamedTuple

from envs.evaluation.report.errors import list_errors
from envs.evaluation.table import format_percent
from envs.tasks.task import Task

Summary = dict[str, Any]


class Tile(NamedTuple):
    """Title, figure of a summary, and explanation of one tile."""

    title: str
    format_value: Callable[[Summary], str]
    sentence: str


def render_tiles(task: Task, summaries: dict[str, Summary]) -> str:
    """Render four boxes with the first controller's figures and the others' below them."""
    policy = next(iter(summaries.values()))
    tiles = (
        _describe_success(task, policy),
        _describe_time(),
        _describe_error(task, policy),
        _describe_contact(policy),
    )
    return f'<div class="tiles">{"".join(_render_tile(tile, summaries) for tile in tiles)}</div>'


def _render_tile(tile: Tile, summaries: dict[str, Summary]) -> str:
    (_, value), *others = ((name, tile.format_value(one)) for name, one in summaries.items())
    listed = ", ".join(f"{escape(name)} {escape(other)}" for name, other in others)
    return (
        f"<section><h2>{escape(tile.title)}</h2><p><strong>{escape(value)}</strong></p>"
        f"<p>{escape(tile.sentence)}</p>"
        f'{listed and f"""<p class="soft">{listed}</p>"""}</section>'
    )


def _describe_success(task: Task, policy: Summary) -> Tile:
    untouched = ", and no contact before" if "collision_free_rate" in policy else ""
    sentence = f"of the episodes: {task.criterion}{untouched}."
    return Tile("Success", lambda summary: f"{format_percent(summary['success_rate'])}%", sentence)


def _describe_time() -> Tile:
    return Tile(
        "Time",
        lambda summary: _format_or_dash(summary["time_to_goal_s"]["median"], "{:.2f} s"),
        "from the start until the goal is reached for good: the median of the successes.",
    )


def _describe_error(task: Task, policy: Summary) -> Tile:
    error = list_errors(task)[0].measure
    p95 = policy[error.name]["p95"]
    below = f"; 95% are below {1000 * p95:.2f} mm." if p95 else "."
    return Tile(
        "Error",
        lambda summary: _format_or_dash(summary[error.name]["median"], "{:.2f} mm", 1000),
        f"is the median {error.label}{below}",
    )


def _describe_contact(policy: Summary) -> Tile:
    if "collision_free_rate" not in policy:
        sentence = "is not known: this robot has no collision geometry."
        return Tile("Contact", lambda summary: "-", sentence)
    depth = policy["deepest_contact_m"]
    deepest = f"; the deepest by {1000 * depth:.1f} mm" if depth else ""
    return Tile(
        "Contact",
        lambda summary: f"{format_percent(1.0 - summary['collision_free_rate'])}%",
        f"of the episodes touched something: an obstacle, the ground or the arm itself{deepest}.",
    )


def _format_or_dash(value: float | None, form: str, factor: float = 1.0) -> str:
    return "-" if value is None else form.format(factor * value)
