"""What the page's 3-D view draws: ways of the TCP with their goals, failures first to be seen, and
what others did.
"""

import json
from collections.abc import Sequence

import torch
from torch import Tensor

from envs.evaluation.report.charts import colours
from envs.evaluation.report.failures import Failure
from envs.evaluation.report.trajectories import Trajectories

SUCCESSES, FAILURES = 30, 20  # paths shown


def path_data(played: Sequence[Trajectories], known: list[Failure], workspace: Tensor) -> str:
    """JSON for paths.js: `workspace` (2, 3) [m], `colours`, and `paths`, each with `by`, the number
    of its controller, `episode`, `failed`, `label`, `tcp` (K, 3) [m], `goal` (1 or K, 3) [m], and
    where the task has them `object` (K, 3) [m] and the obstacles.

    Args:
        played: of each controller; the first is the one whose episodes are chosen.
        known: at least the first FAILURES failures of it.
        workspace: (2, 3) corners of the box that goals lie in [m].
    """
    why = {failure.episode: failure.why for failure in known[:FAILURES]}
    shown = [*played[0].succeeded.tolist()[:SUCCESSES], *why]
    paths = [_path(one, by, episode, why) for by, one in enumerate(played) for episode in shown]
    data = {"workspace": _round(workspace), "colours": colours(len(played)), "paths": paths}
    return json.dumps(
        data, separators=(",", ":")
    )  # numbers and words of ours: nothing in it can end the script


def _path(
    played: Trajectories, by: int, episode: int, reasons: dict[int, str]
) -> dict[str, object]:
    why = None if by else reasons.get(episode)
    alive = played.alive[:, episode]
    goal = played.series["goal"][alive, episode]
    error = 1000 * played.series["position_error"][alive, episode][-1].item()
    return {
        "by": by,
        "episode": episode,
        "failed": why is not None,
        "label": f"episode {episode}, {error:.1f} mm" + (f": {why}" if why else ""),
        "tcp": _round(played.series["tcp"][alive, episode]),
        "goal": _round(goal[:1] if torch.equal(goal, goal[:1].expand_as(goal)) else goal),
        **(
            {"object": _round(played.series["object"][alive, episode])}
            if "object" in played.series
            else {}
        ),
        **{name: _round(rows[episode]) for name, rows in played.obstacles.items()},
    }


def _round(metres: Tensor) -> list:
    """To the millimetre."""
    return [[round(value, 3) for value in row] for row in metres.tolist()]
