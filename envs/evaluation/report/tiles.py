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
    untouched = ", and no contact before" if "collision_free_rate" in policy else ""
    yield (
        "Success",
        lambda of: _percent(of["success_rate"]),
        f"of the episodes: {task.criterion}{untouched}.",
    )

    def reached(of):
        return _or_dash(of["time_to_goal_s"]["median"], "{:.2f} s")

    yield (
        "Time",
        reached,
        "from the start until the goal is reached for good: the median of the successes.",
    )
    error = errors_of(task)[0].measure
    below = (
        f"; 95% are below {1000 * policy[error.name]['p95']:.2f} mm."
        if policy[error.name]["p95"]
        else "."
    )

    def middle(of):
        return _or_dash(of[error.name]["median"], "{:.2f} mm", 1000)

    yield "Error", middle, f"is the median {error.label}{below}"
    yield _contact(policy)


def _contact(policy: Summary) -> tuple:
    if "collision_free_rate" not in policy:
        return "Contact", lambda of: "-", "is not known: this robot has no collision geometry."
    deepest = (
        f"; the deepest by {1000 * policy['deepest_contact_m']:.1f} mm"
        if policy["deepest_contact_m"]
        else ""
    )
    sentence = (
        f"of the episodes touched something: an obstacle, the ground or the arm itself{deepest}."
    )
    return "Contact", lambda of: _percent(1.0 - of["collision_free_rate"]), sentence


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _or_dash(value: float | None, form: str, factor: float = 1.0) -> str:
    return "-" if value is None else form.format(factor * value)
