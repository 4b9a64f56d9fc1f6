"""Data of the report's 3-D view: TCP paths, goals and obstacles."""

import json
from collections.abc import Sequence

import torch
from torch import Tensor

from envs.evaluation.report.charts import get_colours
from envs.evaluation.report.failures import Failure
from envs.evaluation.report.trajectories import Trajectories

SUCCESSES = 30  # most paths drawn of each kind
FAILURES = 20


def encode_paths(played: Sequence[Trajectories], known: list[Failure], workspace: Tensor) -> str:
    """Encode the paths as JSON for paths.js.

    It holds `workspace` (2, 3) [m], `colours`, and `paths`, each with `by`, the number of its
    controller, `episode`, `failed`, `label`, `tcp` (K, 3) [m], `goal` (1 or K, 3) [m] and, where
    the task has them, `object` (K, 3) [m] and the obstacles.

    Args:
        played: of each controller; the first one's episodes are chosen.
        known: at least the first FAILURES failures of the first controller.
        workspace: (2, 3) corners of the box of goals [m].
    """
    why = {failure.episode: failure.why for failure in known[:FAILURES]}
    shown = [*played[0].succeeded.tolist()[:SUCCESSES], *why]
    paths = [
        _describe_path(one, by, episode, why) for by, one in enumerate(played) for episode in shown
    ]
    data = {
        "workspace": _convert_to_list(workspace),
        "colours": get_colours(len(played)),
        "paths": paths,
    }
    # safe inside a script element: only numbers and our own words
    return json.dumps(data, separators=(",", ":"))


def _describe_path(
    played: Trajectories, by: int, episode: int, reasons: dict[int, str]
) -> dict[str, object]:
    why = None if by else reasons.get(episode)
    alive = played.alive[:, episode]
    goal = played.series["goal"][alive, episode]
    error = 1000 * played.series["position_error"][alive, episode][-1].item()
    is_fixed = torch.equal(goal, goal[:1].expand_as(goal))
    path: dict[str, object] = {
        "by": by,
        "episode": episode,
        "failed": why is not None,
        "label": f"episode {episode}, {error:.1f} mm" + (f": {why}" if why else ""),
        "tcp": _convert_to_list(played.series["tcp"][alive, episode]),
        "goal": _convert_to_list(goal[:1] if is_fixed else goal),
    }
    if "object" in played.series:
        path["object"] = _convert_to_list(played.series["object"][alive, episode])
    return path | {name: _convert_to_list(rows[episode]) for name, rows in played.obstacles.items()}


def _convert_to_list(metres: Tensor) -> list:
    """Convert positions to lists, rounded to 1 mm."""
    return [[round(value, 3) for value in row] for row in metres.tolist()]
