"""The figures of many episodes as plain numbers for JSON."""

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from envs.tasks.measures import Measure


def summarise(episodes: dict[str, Tensor], measures: Sequence[Measure] = ()) -> dict[str, object]:
    """What `measure` gave, over all episodes, as plain numbers for JSON.

    Args:
        episodes: each (B,).
        measures: those of the task.

    Returns:
        `success_rate` and `success_rate_with_contact` in [0, 1]; `final_position_error_m` {median,
        p95}; `time_to_goal_s` {median}, of the successful episodes only; `path_length_m` {median};
        `rms_jerk_rad_s3` {median}; `joint_limit_hits`, the mean of `joint_limit_steps`;
        `joint_limit_violations`, the sum; `max_abs_qd_over_limit`, `max_abs_qdd_over_limit` and
        `max_abs_qddd_over_limit`, the greatest; `limit_violations` {position, speed, acceleration,
        jerk}, the sums; `manipulability` {median, min}, the median of the means and the least of
        all. A figure that does not exist is None: the time to goal where nothing succeeded,
        acceleration and jerk over their limits where the arm has none.

        Of an arm whose capsules are known, `collision_free_rate` in [0, 1], the share of episodes
        without contact; `deepest_contact_m`, how deep the deepest is, 0 where there is none; and
        `minimum_clearance_m` {median, min} over episodes. And the task's measures by their names:
        {median, p95}, {median, min} or, of a rate, a number in [0, 1].
    """
    error = episodes["final_position_error_m"]
    summary = {
        "success_rate": _number(episodes["success"].mean()),
        "success_rate_with_contact": _number(episodes["success_with_contact"].mean()),
        "final_position_error_m": _quantiles(error),
        "time_to_goal_s": {"median": _quantile(episodes["time_to_goal_s"], 0.5)},
        "path_length_m": {"median": _quantile(episodes["path_length_m"], 0.5)},
        "rms_jerk_rad_s3": {"median": _quantile(episodes["rms_jerk"], 0.5)},
        "joint_limit_hits": _number(episodes["joint_limit_steps"].mean()),
        "joint_limit_violations": int(episodes["joint_limit_violations"].sum()),
        "max_abs_qd_over_limit": _number(episodes["max_abs_qd_over_limit"].max()),
        "max_abs_qdd_over_limit": _number(episodes["max_abs_qdd_over_limit"].max()),
        "max_abs_qddd_over_limit": _number(episodes["max_abs_qddd_over_limit"].max()),
        "limit_violations": {
            "position": int(episodes["joint_limit_violations"].sum()),
            "speed": _count(episodes["speed_violations"].sum()),
            "acceleration": _count(episodes["acceleration_violations"].sum()),
            "jerk": _count(episodes["jerk_violations"].sum()),
        },
        "manipulability": {
            "median": _quantile(episodes["manipulability"], 0.5),
            "min": _number(episodes["minimum_manipulability"].min()),
        },
    }
    if (least := episodes.get("minimum_clearance_m")) is not None:
        summary["collision_free_rate"] = _number((least >= 0).double().mean())
        summary["deepest_contact_m"] = _number((-least).amax().clamp_min(0.0))
        summary["minimum_clearance_m"] = _least(least)
    return summary | {
        measure.name: _SUMMARIES[measure.summary](episodes[measure.name]) for measure in measures
    }


def _quantiles(x: Tensor) -> dict[str, float | None]:
    return {"median": _quantile(x, 0.5), "p95": _quantile(x, 0.95)}


def _least(x: Tensor) -> dict[str, float | None]:
    return {"median": _quantile(x, 0.5), "min": _number(x.min())}


def _quantile(x: Tensor, share: float) -> float | None:
    """Of the values that are not NaN, linear between neighbours; None where there are none."""
    values = x[~x.isnan()].numpy()  # torch's own takes no more than 16 million
    return float(np.quantile(values, share)) if len(values) else None


def _count(x: Tensor) -> int | None:
    value = _number(x)
    return None if value is None else int(value)


def _number(x: Tensor) -> float | None:
    value = x.item()
    return (
        value if math.isfinite(value) else None
    )  # infinite: a clearance of an arm that nothing is checked for


_SUMMARIES = {"quantiles": _quantiles, "least": _least, "rate": lambda x: _number(x.mean())}
