"""What the page's 3-D view draws: ways of the TCP with their goals, failures first to be seen."""

import json

import torch
from torch import Tensor

from envs.evaluation.report.failures import Failure
from envs.evaluation.report.trajectories import Trajectories

SUCCESSES, FAILURES = 30, 20  # paths shown


def path_data(played: Trajectories, known: list[Failure], workspace: Tensor) -> str:
    """JSON for paths.js: `workspace` (2, 3) [m] and `paths`, each with `episode`, `failed`, `label`, `tcp` (K, 3) [m],
    `goal` (1 or K, 3) [m], and where the task has them `object` (K, 3) [m] and the obstacles.

    Args:
        known: at least the first FAILURES failures.
        workspace: (2, 3) corners of the box that goals lie in [m].
    """
    why = {failure.episode: failure.why for failure in known[:FAILURES]}
    shown = [*played.succeeded.tolist()[:SUCCESSES], *why]
    data = {"workspace": _round(workspace), "paths": [_path(played, episode, why.get(episode)) for episode in shown]}
    return json.dumps(data, separators=(",", ":"))  # numbers and words of ours: nothing in it can end the script


def _path(played: Trajectories, episode: int, why: str | None) -> dict[str, object]:
    alive = played.alive[:, episode]
    goal = played.series["goal"][alive, episode]
    error = 1000 * played.series["position_error"][alive, episode][-1].item()
    return {
        "episode": episode,
        "failed": why is not None,
        "label": f"episode {episode}, {error:.1f} mm" + (f": {why}" if why else ""),
        "tcp": _round(played.series["tcp"][alive, episode]),
        "goal": _round(goal[:1] if torch.equal(goal, goal[:1].expand_as(goal)) else goal),
        **({"object": _round(played.series["object"][alive, episode])} if "object" in played.series else {}),
        **{name: _round(rows[episode]) for name, rows in played.obstacles.items()},
    }


def _round(metres: Tensor) -> list:
    """To the millimetre."""
    return [[round(value, 3) for value in row] for row in metres.tolist()]
