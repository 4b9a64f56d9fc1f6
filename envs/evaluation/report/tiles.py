"""The page's first screen: success, time, error and contact, with a sentence each."""

from collections.abc import Iterator
from html import escape
from typing import Any

from envs.evaluation.report.errors import errors_of
from envs.tasks.task import Task

Summary = dict[str, Any]


def tiles(task: Task, summaries: dict[str, Summary]) -> str:
    """Four boxes of the first controller, the others' figures below its own."""
    others = list(summaries.items())[1:]
    boxes = (
        _tile(title, sentence, value(policy), [(name, value(summary)) for name, summary in others])
        for policy in [next(iter(summaries.values()))]
        for title, value, sentence in _told(task, policy)
    )
    return f'<div class="tiles">{"".join(boxes)}</div>'


def _tile(title: str, sentence: str, value: str, others: list[tuple[str, str]]) -> str:
    beside = ", ".join(f"{escape(name)} {escape(other)}" for name, other in others)
    return (
        f"<section><h2>{escape(title)}</h2><p><strong>{escape(value)}</strong></p><p>{escape(sentence)}</p>"
        f'{beside and f"""<p class="soft">{beside}</p>"""}</section>'
    )


def _told(task: Task, policy: Summary) -> Iterator[tuple]:
    """Title, figure of a summary, and sentence of each box."""
    yield "Success", lambda of: _percent(of["success_rate"]), f"of the episodes: {task.criterion}."
    reached = lambda of: _or_dash(of["time_to_goal_s"]["median"], "{:.2f} s")  # noqa: E731
    yield "Time", reached, "from the start until the goal is reached for good: the median of the successes."
    error = errors_of(task)[0].measure
    below = f"; 95% are below {1000 * policy[error.name]['p95']:.1f} mm." if policy[error.name]["p95"] else "."
    middle = lambda of: _or_dash(of[error.name]["median"], "{:.1f} mm", 1000)  # noqa: E731
    yield "Error", middle, f"is the median {error.label}{below}"
    yield _contact(task, policy)


def _contact(task: Task, policy: Summary) -> tuple:
    touching = [measure.name for measure in task.measures if measure.of == "contact"]
    if touching:
        sentence = "of the episodes touched something: an obstacle, the ground or the arm itself."
        return "Contact", lambda of: _percent(1.0 - of[touching[0]]), sentence
    if policy.get("minimum_clearance_m") is None:
        return "Contact", lambda of: "-", "is not known: this robot has no collision geometry."
    nearest = lambda of: _or_dash(of["minimum_clearance_m"]["min"], "{:.0f} mm", 1000)  # noqa: E731
    return "Contact", nearest, "is the least distance to the ground or itself in any episode; below zero they overlap."


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _or_dash(value: float | None, form: str, factor: float = 1.0) -> str:
    return "-" if value is None else form.format(factor * value)
