"""Figures of an arm's motion in each of many episodes, whatever its task.

An episode has K control steps of dt; step k (1 to K) ends at time k dt. Every episode starts at
rest, and the start itself is not among the steps: it is q_0 = q_1 - dt qd_1 / 2, since speed rises
evenly over a step. All is computed on the CPU in float64, so that differences of float32 positions
add no error of their own.
"""

import torch
from torch import Tensor

from envs import kinematics
from envs.kinematics.manipulability import manipulability
from envs.simulation.engine import SimModel

LIMIT_MARGIN = 1e-3  # [rad or m] a joint this near to a position limit stands at it
# A limit counts as exceeded by more than this share of it. The simulator takes speeds from float32
# positions over dt, which leaves some 1e-4 rad/s in them: next to nothing beside a speed limit, but
# 5e-4 of the smallest dqd there is.
LIMIT_ROUNDING = 1e-3


def compute_arm_figures(
    model: SimModel, info: dict[str, Tensor], alive: Tensor
) -> dict[str, Tensor]:
    """Compute the figures of each episode's motion that do not depend on the task.

    Args:
        info: as for `measure`, float64 on the CPU.
        alive: (T, B) bool.

    Returns:
        Tensors (B,): `success`: 1 where the last step is a success, else 0; `success_with_contact`,
        the same with contact allowed. `final_position_error_m`: distance of TCP and goal after the
        last step. `time_to_goal_s`, `path_length_m`, `rms_jerk`: see `compute_time_to_goal` and so
        on. `manipulability`, `minimum_manipulability`: mean and least over the steps.
        `joint_limit_steps`: share of the steps that leave a joint within LIMIT_MARGIN of a position
        limit, or beyond. `joint_limit_violations`: number of joint positions outside qlim, each
        step and joint counted. `max_abs_qd_over_limit`: greatest |qd| / qdlim of any joint and
        step. `max_abs_qdd_over_limit`: the same of |qdd| / qddlim, where qdd_k = (qd_k - qd_{k-1})
        / dt and qd_0 = 0; NaN for an arm without acceleration limits. `max_abs_qddd_over_limit`:
        the same of |qddd| / qdddlim, where qddd_k = (qdd_k - qdd_{k-1}) / dt and qdd_0 = 0; NaN for
        an arm without jerk limits. `final_qd_over_limit`: greatest |qd| / qdlim of any joint after
        the last step. `speed_violations`, `acceleration_violations`, `jerk_violations`: number of
        steps and joints whose ratio above is over 1 by more than LIMIT_ROUNDING; NaN for an arm
        without the limit.
    """
    q = info["q"]
    qd = info["qd"]
    tcp = info["tcp"]
    lower, upper = model.qlim.cpu().double()
    room = torch.minimum(q - lower, upper - q)  # (T, B, n) to the nearer limit
    chain = model.chain.to("cpu", torch.float64)
    start_tcp = kinematics.fkine(chain, q[0] - 0.5 * model.dt * qd[0])[:, :3, 3]
    dexterity = manipulability(kinematics.jacob0(chain, q.flatten(0, 1))).view_as(alive)
    dqd = model.dqd.cpu().double()
    qdddlim = (
        torch.full_like(dqd, torch.nan) if model.qdddlim is None else model.qdddlim.cpu().double()
    )
    ratios = {
        "qd": qd / model.qdlim.cpu().double(),
        "qdd": _compute_change(qd) / torch.where(torch.isinf(dqd), torch.nan, dqd),
        "qddd": _compute_change(_compute_change(qd)) / (qdddlim * model.dt**2),
    }
    return {
        **{name: select_last(info[name], alive) for name in ("success", "success_with_contact")},
        "final_position_error_m": select_last(info["position_error"], alive),
        "time_to_goal_s": compute_time_to_goal(info["success"] > 0, alive, model.dt),
        "path_length_m": compute_path_length(torch.cat((start_tcp[None], tcp)), alive),
        "rms_jerk": compute_rms_jerk(qd, alive, model.dt),
        "manipulability": (dexterity * alive).sum(0) / alive.sum(0),
        "minimum_manipulability": dexterity.masked_fill(~alive, torch.inf).amin(0),
        "joint_limit_steps": ((room <= LIMIT_MARGIN).any(2) & alive).float().sum(0) / alive.sum(0),
        "joint_limit_violations": ((room < 0).sum(2) * alive).sum(0),
        **{
            f"max_abs_{name}_over_limit": _find_peak(ratio, alive) for name, ratio in ratios.items()
        },
        "final_qd_over_limit": select_last(ratios["qd"].abs().amax(2), alive),
        "speed_violations": _count_exceeding(ratios["qd"], alive),
        "acceleration_violations": _count_exceeding(ratios["qdd"], alive),
        "jerk_violations": _count_exceeding(ratios["qddd"], alive),
    }


def select_last(series: Tensor, alive: Tensor) -> Tensor:
    """Select the values (B, ...) after each episode's last step from a series (T, B, ...)."""
    return series[alive.sum(0) - 1, torch.arange(alive.shape[1])]


def compute_time_to_goal(success: Tensor, alive: Tensor, dt: float) -> Tensor:
    """Compute the earliest time from which every step to the end of the episode is a success.

    Args:
        success, alive: (T, B) bool.
        dt: control period [s].

    Returns:
        (B,) [s]; NaN where the last step is none. A visit that does not last does not count.
    """
    failed_steps = torch.arange(1, len(alive) + 1)[:, None] * (alive & ~success)
    last_failed = failed_steps.amax(0)  # 0: none
    return torch.where(last_failed < alive.sum(0), (last_failed + 1).double() * dt, torch.nan)


def compute_path_length(tcp: Tensor, alive: Tensor) -> Tensor:
    """Compute the length of the TCP's path, with straight lines between control steps.

    Args:
        tcp: (T + 1, B, 3) positions [m], the start first.
        alive: (T, B) bool.

    Returns:
        (B,) [m].
    """
    return (torch.linalg.vector_norm(tcp.diff(dim=0), dim=2) * alive).sum(0)


def compute_rms_jerk(qd: Tensor, alive: Tensor, dt: float) -> Tensor:
    """Compute the root mean square of the joints' jerk over all joints and steps.

    Its square is the integral of squared jerk that Flash & Hogan (J. Neuroscience 5(7), 1985)
    minimise, per joint and unit of time, so that episodes and arms of different length compare.
    Jerk is the second difference (qd_k - 2 qd_{k-1} + qd_{k-2}) / dt^2, at rest before the first
    step.

    Args:
        qd: (T, B, n) [rad/s].
        alive: (T, B) bool.
        dt: control period [s].

    Returns:
        (B,) [rad/s3]; a prismatic joint counts in m/s3.
    """
    jerk = _compute_change(_compute_change(qd)) / dt**2
    return ((jerk.square().mean(2) * alive).sum(0) / alive.sum(0)).sqrt()


def _compute_change(x: Tensor) -> Tensor:
    """Return the change (T, ...) from the step before; the value before the first step is zero."""
    return x.diff(dim=0, prepend=torch.zeros_like(x[:1]))


def _find_peak(ratio: Tensor, alive: Tensor) -> Tensor:
    """Return the greatest magnitude (B,) of any joint in an episode; `ratio` is (T, B, n)."""
    return (ratio.abs().amax(2) * alive).amax(0)


def _count_exceeding(ratio: Tensor, alive: Tensor) -> Tensor:
    """Count the joints and steps (B,) of an episode whose magnitude exceeds 1; NaN without a limit.

    `ratio` is (T, B, n).
    """
    count = ((ratio.abs() > 1.0 + LIMIT_ROUNDING).sum(2) * alive).sum(0).double()
    return torch.where(ratio.isnan().any(2).any(0), torch.nan, count)
