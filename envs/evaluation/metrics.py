"""What an evaluation reports: figures of each episode from its trajectory, and their summary over many.

An episode has K control steps of dt; step k (1 to K) ends at time k dt. Every episode starts at rest, and the
start itself is not among the steps: it is q_0 = q_1 - dt qd_1, since qd_1 is held during the first step.
All is computed on the CPU in float64, so that differences of float32 positions add no error of their own.
"""

import math

import numpy as np
import torch
from torch import Tensor

from envs import kinematics
from envs.collision import CollisionModel, clearance, known_collision
from envs.kinematics.manipulability import manipulability
from envs.simulation.engine import SimModel
from envs.world import World

LIMIT_MARGIN = 1e-3  # [rad or m] a joint this near to a position limit stands at it
# A limit counts as exceeded by more than this share of it. The simulator takes speeds from float32 positions over dt,
# which leaves some 1e-4 rad/s in them: next to nothing beside a speed limit, but 5e-4 of the smallest dqd there is.
LIMIT_ROUNDING = 1e-3
SETTLE = 1.0  # [s] the start of an episode, in which a goal that moves is caught up with and not yet followed

_EVERY_TASK = ("success", "position_error", "q", "qd", "tcp")
_SOME_TASKS = ("rotation_error", "tracking_error_mean", "clearance", "contact", "held")


def measure(
    model: SimModel, info: dict[str, Tensor], alive: Tensor, collision: CollisionModel | None = None
) -> dict[str, Tensor]:
    """Figures of each of B episodes; docs/evaluation.md defines them for the reader of the table.

    Args:
        info: `success` (T, B) bool, `position_error` (T, B) [m], `q` and `qd` (T, B, n), `tcp` (T, B, 3) [m] after
            each control step, as `ArmEnv.step` gives them; and what the task reports beside them.
        alive: (T, B) bool, whether the step belongs to the episode; true from the first step to the last.
        collision: the arm's capsules, where it has any.

    Returns:
        What `arm_figures` and `task_figures` give, on the CPU.
    """
    info = {name: info[name].cpu().double() for name in (*_EVERY_TASK, *_SOME_TASKS) if name in info}
    alive = alive.cpu()
    figures = arm_figures(model, info, alive) | task_figures(info, alive, model.dt)
    if "clearance" in info or collision is not None:
        distance = info["clearance"] if "clearance" in info else _own_clearance(collision, info["q"])
        figures["minimum_clearance_m"] = distance.masked_fill(~alive, torch.inf).amin(0)
    return figures


def capsules(world: World) -> CollisionModel | None:
    """The collision geometry that `measure` needs; None where the robot or its gripper has none in a file."""
    return known_collision(world.robot) if world.collision is None else world.collision


def arm_figures(model: SimModel, info: dict[str, Tensor], alive: Tensor) -> dict[str, Tensor]:
    """How the arm moved, whatever its task.

    Args:
        info: as for `measure`, float64 on the CPU.
        alive: (T, B) bool.

    Returns:
        Tensors (B,):
        `success`: 1 where the last step is a success, else 0.
        `final_position_error_m`: distance of TCP and goal after the last step.
        `time_to_goal_s`: see `time_to_goal`.
        `path_length_m`: see `path_length`.
        `rms_jerk`: see `rms_jerk`.
        `manipulability`, `minimum_manipulability`: mean and least of `manipulability` along the way.
        `joint_limit_steps`: share of the steps that leave a joint within LIMIT_MARGIN of a position limit, or beyond.
        `joint_limit_violations`: number of joint positions outside qlim, each step and joint counted.
        `max_abs_qd_over_limit`: greatest |qd| / qdlim of any joint and step.
        `max_abs_qdd_over_limit`: the same of |qdd| / qddlim, where qdd_k = (qd_k - qd_{k-1}) / dt and qd_0 = 0;
            NaN for an arm without acceleration limits.
        `max_abs_qddd_over_limit`: the same of |qddd| / qdddlim, where qddd_k = (qdd_k - qdd_{k-1}) / dt and qdd_0 = 0;
            NaN for an arm without jerk limits.
        `speed_violations`, `acceleration_violations`, `jerk_violations`: number of steps and joints whose ratio above
            is over 1 by more than LIMIT_ROUNDING; NaN for an arm without the limit.
    """
    q, qd, tcp = info["q"], info["qd"], info["tcp"]
    lower, upper = model.qlim.cpu().double()
    room = torch.minimum(q - lower, upper - q)  # (T, B, n) to the nearer limit
    chain = model.chain.to("cpu", torch.float64)
    start_tcp = kinematics.fkine(chain, q[0] - model.dt * qd[0])[:, :3, 3]
    dexterity = manipulability(kinematics.jacob0(chain, q.flatten(0, 1))).view_as(alive)
    dqd = model.dqd.cpu().double()
    qdddlim = torch.full_like(dqd, torch.nan) if model.qdddlim is None else model.qdddlim.cpu().double()
    ratios = {
        "qd": qd / model.qdlim.cpu().double(),
        "qdd": _since_rest(qd) / torch.where(torch.isinf(dqd), torch.nan, dqd),
        "qddd": _since_rest(_since_rest(qd)) / (qdddlim * model.dt**2),
    }
    return {
        "success": _last(info["success"], alive),
        "final_position_error_m": _last(info["position_error"], alive),
        "time_to_goal_s": time_to_goal(info["success"] > 0, alive, model.dt),
        "path_length_m": path_length(torch.cat((start_tcp[None], tcp)), alive),
        "rms_jerk": rms_jerk(qd, alive, model.dt),
        "manipulability": (dexterity * alive).sum(0) / alive.sum(0),
        "minimum_manipulability": dexterity.masked_fill(~alive, torch.inf).amin(0),
        "joint_limit_steps": ((room <= LIMIT_MARGIN).any(2) & alive).sum(0) / alive.sum(0),
        "joint_limit_violations": ((room < 0).sum(2) * alive).sum(0),
        **{f"max_abs_{name}_over_limit": _peak(ratio, alive) for name, ratio in ratios.items()},
        "speed_violations": _exceeded(ratios["qd"], alive),
        "acceleration_violations": _exceeded(ratios["qdd"], alive),
        "jerk_violations": _exceeded(ratios["qddd"], alive),
    }


def task_figures(info: dict[str, Tensor], alive: Tensor, dt: float) -> dict[str, Tensor]:
    """What only some tasks report; a figure is there where the task's info is.

    Args:
        info, alive: as for `arm_figures`, with any of `rotation_error` (T, B) [rad], `tracking_error_mean`, `contact`
            and `held` (T, B).
        dt: control period [s].

    Returns:
        Tensors (B,) but for one:
        `final_rotation_error_deg`: `rotation_error` after the last step.
        `tracking_error_m`: (B, T) `position_error` after every step later than SETTLE, NaN before and past the end;
            of a task that reports `tracking_error_mean`, whose goal moves.
        `collision_free`: 1 where no step had `contact`.
        `grasped`: 1 where the object was `held` after any step.
    """
    figures = {}
    if "rotation_error" in info:
        figures["final_rotation_error_deg"] = torch.rad2deg(_last(info["rotation_error"], alive))
    if "tracking_error_mean" in info:
        time = dt * torch.arange(1, len(alive) + 1, dtype=torch.float64)
        following = alive & (time > SETTLE + dt / 2)[:, None]  # half a period: times are rounded
        figures["tracking_error_m"] = info["position_error"].masked_fill(~following, torch.nan).T
    if "contact" in info:
        figures["collision_free"] = 1.0 - (info["contact"] * alive).amax(0)
    if "held" in info:
        figures["grasped"] = (info["held"] * alive).amax(0)
    return figures


def _last(series: Tensor, alive: Tensor) -> Tensor:
    """(T, B) -> (B,) after the last step of each episode."""
    return series[alive.sum(0) - 1, torch.arange(alive.shape[1])]


def _own_clearance(collision: CollisionModel, q: Tensor) -> Tensor:
    """(T, B) signed distance of the arm to itself and to the ground, the plane that its base stands on [m]."""
    model = collision.to("cpu")
    return clearance(model, q.flatten(0, 1).float(), ground=0.0).double().view(q.shape[:2])


def time_to_goal(success: Tensor, alive: Tensor, dt: float) -> Tensor:
    """Earliest time from which on the episode is a success at every step to its end.

    Args:
        success, alive: (T, B) bool.
        dt: control period [s].

    Returns:
        (B,) [s]; NaN where the last step is none. A visit that does not last does not count.
    """
    failed_steps = torch.arange(1, len(alive) + 1)[:, None] * (alive & ~success)
    last_failed = failed_steps.amax(0)  # 0: none
    return torch.where(last_failed < alive.sum(0), (last_failed + 1).double() * dt, torch.nan)


def path_length(tcp: Tensor, alive: Tensor) -> Tensor:
    """Length of the TCP's way, straight from one control step to the next.

    Args:
        tcp: (T + 1, B, 3) positions [m], the start first.
        alive: (T, B) bool.

    Returns:
        (B,) [m].
    """
    return (torch.linalg.vector_norm(tcp.diff(dim=0), dim=2) * alive).sum(0)


def rms_jerk(qd: Tensor, alive: Tensor, dt: float) -> Tensor:
    """Root mean square of the joints' jerk over all joints and steps.

    Its square is the integral of squared jerk that Flash & Hogan (J. Neuroscience 5(7), 1985) minimise, per
    joint and unit of time, so that episodes and arms of different length compare. Jerk is the second difference
    (qd_k - 2 qd_{k-1} + qd_{k-2}) / dt^2, at rest before the first step.

    Args:
        qd: (T, B, n) [rad/s].
        alive: (T, B) bool.
        dt: control period [s].

    Returns:
        (B,) [rad/s3]; a prismatic joint counts in m/s3.
    """
    jerk = _since_rest(_since_rest(qd)) / dt**2
    return ((jerk.square().mean(2) * alive).sum(0) / alive.sum(0)).sqrt()


def _since_rest(x: Tensor) -> Tensor:
    """(T, ...) change from the step before; zero came before the first."""
    return x.diff(dim=0, prepend=torch.zeros_like(x[:1]))


def _peak(ratio: Tensor, alive: Tensor) -> Tensor:
    """(T, B, n) -> (B,) greatest magnitude of any joint while the episode lasts."""
    return (ratio.abs().amax(2) * alive).amax(0)


def _exceeded(ratio: Tensor, alive: Tensor) -> Tensor:
    """(T, B, n) -> (B,) how often a magnitude is over 1 while the episode lasts; NaN where there is no limit."""
    count = ((ratio.abs() > 1.0 + LIMIT_ROUNDING).sum(2) * alive).sum(0).double()
    return torch.where(ratio.isnan().any(2).any(0), torch.nan, count)


def join(rounds: list[dict[str, Tensor]], episodes: int) -> dict[str, Tensor]:
    """What `measure` gave of several rounds, as of one; cut to the first `episodes`."""
    return {name: torch.cat([part[name] for part in rounds])[:episodes] for name in rounds[0]}


def summarise(episodes: dict[str, Tensor]) -> dict[str, object]:
    """What `measure` gave, over all episodes, as plain numbers for JSON.

    Args:
        episodes: each (B,).

    Returns:
        `success_rate` in [0, 1]; `final_position_error_m` {median, p95}; `time_to_goal_s` {median}, of the
        successful episodes only; `path_length_m` {median}; `rms_jerk_rad_s3` {median}; `joint_limit_hits`, the
        mean of `joint_limit_steps`; `joint_limit_violations`, the sum; `max_abs_qd_over_limit`,
        `max_abs_qdd_over_limit` and `max_abs_qddd_over_limit`, the greatest; `limit_violations` {position, speed,
        acceleration, jerk}, the sums; `manipulability` {median, min}, the median of the means and the least of all.
        A figure that does not exist is None: the time to goal where nothing succeeded, acceleration and jerk over
        their limits where the arm has none.

        Where `measure` gave them: `minimum_clearance_m` {median, min} over episodes; `final_rotation_error_deg`
        {median, p95}; `tracking_error_m` {median, p95}, over the steps of all episodes; `collision_free_rate` and
        `grasp_rate` in [0, 1].
    """
    error = episodes["final_position_error_m"]
    summary = {
        "success_rate": _number(episodes["success"].mean()),
        "final_position_error_m": {"median": _quantile(error, 0.5), "p95": _quantile(error, 0.95)},
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
    return summary | _summarise_some(episodes)


def _summarise_some(episodes: dict[str, Tensor]) -> dict[str, object]:
    """The part of `summarise` that depends on the task and the robot."""
    summary = {}
    if (least := episodes.get("minimum_clearance_m")) is not None:
        summary["minimum_clearance_m"] = {"median": _quantile(least, 0.5), "min": _number(least.min())}
    for name in ("final_rotation_error_deg", "tracking_error_m"):
        if (error := episodes.get(name)) is not None:
            summary[name] = {"median": _quantile(error, 0.5), "p95": _quantile(error, 0.95)}
    for name, share in (("collision_free_rate", "collision_free"), ("grasp_rate", "grasped")):
        if share in episodes:
            summary[name] = _number(episodes[share].mean())
    return summary


def _quantile(x: Tensor, share: float) -> float | None:
    """Of the values that are not NaN, linear between neighbours; None where there are none."""
    values = x[~x.isnan()].numpy()  # torch's own takes no more than 16 million
    return float(np.quantile(values, share)) if len(values) else None


def _count(x: Tensor) -> int | None:
    value = _number(x)
    return None if value is None else int(value)


def _number(x: Tensor) -> float | None:
    value = x.item()
    return value if math.isfinite(value) else None  # infinite: a clearance of an arm that nothing is checked for
