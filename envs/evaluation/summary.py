"""Figures of many episodes, summarised as plain numbers for JSON."""

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from envs.tasks.measures import Measure


def summarise_arm(
    episodes: dict[str, Tensor], measures: Sequence[Measure] = ()
) -> dict[str, object]:
    """Summarise the figures of all episodes as plain numbers for JSON.

    Args:
        episodes: each (B,).
        measures: those of the task.

    Returns:
        `success_rate` and `success_rate_with_contact` in [0, 1]; `final_position_error_m` {median,
        p95}; `time_to_goal_s` {median}, of the successful episodes only; `path_length_m` {median};
        `rms_jerk_rad_s3` {median}; `joint_limit_hits`, the mean of `joint_limit_steps`;
        `joint_limit_violations`, the sum; `max_abs_qd_over_limit`, `max_abs_qdd_over_limit` and
        `max_abs_qddd_over_limit`, the greatest; `final_qd_over_limit` {median}; `limit_violations`
        {position, speed, acceleration, jerk}, the sums; `manipulability` {median, min}, the median
        of the means and the least of all. A figure that does not exist is None: the time to goal
        where nothing succeeded, acceleration and jerk over their limits where the arm has none.

        Of an arm whose capsules are known, `collision_free_rate` in [0, 1], the share of episodes
        without contact; `deepest_contact_m`, the greatest depth, 0 without contact; and
        `minimum_clearance_m` {median, min} over episodes. And the task's measures by their names:
        {median, p95}, {median, min}, {median, p95, max} or, of a rate, a number in [0, 1].
    """
    error = episodes["final_position_error_m"]
    summary = {
        "success_rate": _convert_to_number(episodes["success"].mean()),
        "success_rate_with_contact": _convert_to_number(episodes["success_with_contact"].mean()),
        "final_position_error_m": _compute_quantiles(error),
        "time_to_goal_s": {"median": _compute_quantile(episodes["time_to_goal_s"], 0.5)},
        "path_length_m": {"median": _compute_quantile(episodes["path_length_m"], 0.5)},
        "rms_jerk_rad_s3": {"median": _compute_quantile(episodes["rms_jerk"], 0.5)},
        "joint_limit_hits": _convert_to_number(episodes["joint_limit_steps"].mean()),
        "joint_limit_violations": int(episodes["joint_limit_violations"].sum()),
        "max_abs_qd_over_limit": _convert_to_number(episodes["max_abs_qd_over_limit"].max()),
        "max_abs_qdd_over_limit": _convert_to_number(episodes["max_abs_qdd_over_limit"].max()),
        "max_abs_qddd_over_limit": _convert_to_number(episodes["max_abs_qddd_over_limit"].max()),
        "final_qd_over_limit": {"median": _compute_quantile(episodes["final_qd_over_limit"], 0.5)},
        "limit_violations": {
            "position": int(episodes["joint_limit_violations"].sum()),
            "speed": _count(episodes["speed_violations"].sum()),
            "acceleration": _count(episodes["acceleration_violations"].sum()),
            "jerk": _count(episodes["jerk_violations"].sum()),
        },
        "manipulability": {
            "median": _compute_quantile(episodes["manipulability"], 0.5),
            "min": _convert_to_number(episodes["minimum_manipulability"].min()),
        },
    }
    if (least := episodes.get("minimum_clearance_m")) is not None:
        summary["collision_free_rate"] = _convert_to_number((least >= 0).double().mean())
        summary["deepest_contact_m"] = _convert_to_number((-least).amax().clamp_min(0.0))
        summary["minimum_clearance_m"] = _compute_least(least)
    return summary | {
        measure.name: _SUMMARIES[measure.summary](episodes[measure.name]) for measure in measures
    }


def _compute_quantiles(x: Tensor) -> dict[str, float | None]:
    return {"median": _compute_quantile(x, 0.5), "p95": _compute_quantile(x, 0.95)}


def _compute_least(x: Tensor) -> dict[str, float | None]:
    return {"median": _compute_quantile(x, 0.5), "min": _convert_to_number(x.min())}


def _compute_quantile(x: Tensor, share: float) -> float | None:
    """Return a quantile of the values but NaN; None without any, or among infinite ones."""
    values = x[~x.isnan()].numpy()  # torch's own takes no more than 16 million
    if not len(values):
        return None
    with np.errstate(invalid="ignore"):  # it subtracts infinite neighbours
        value = float(np.quantile(values, share))
    return value if math.isfinite(value) else None


def _count(x: Tensor) -> int | None:
    value = _convert_to_number(x)
    return None if value is None else int(value)


def _convert_to_number(x: Tensor) -> float | None:
    value = x.item()
    # infinite: the clearance of an arm that is not checked for contact
    return value if math.isfinite(value) else None


def _compute_most(x: Tensor) -> dict[str, float | None]:
    return {**_compute_quantiles(x), "max": _convert_to_number(x.max())}


_SUMMARIES = {
    "quantiles": _compute_quantiles,
    "least": _compute_least,
    "most": _compute_most,
    "rate": lambda x: _convert_to_number(x.mean()),
}
