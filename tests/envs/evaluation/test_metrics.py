"""Metrics of trajectories small enough to work out by hand."""

import dataclasses
import math

import pytest
import roboticstoolbox as rtb
import torch

from envs.evaluation.metrics import join_figures
from envs.evaluation.metrics import measure as measure_of
from envs.evaluation.motion import (
    LIMIT_ROUNDING,
    compute_path_length,
    compute_rms_jerk,
    compute_time_to_goal,
)
from envs.evaluation.summary import summarise_arm
from envs.evaluation.table import format_percent, make_rows
from envs.kinematics import compile_ets, jacob0
from envs.kinematics.manipulability import manipulability
from envs.robots import make_robot
from envs.simulation.engine import SimModel, compile_robot, make_rest_state
from envs.simulation.kinematic import step
from envs.tasks.measures import Measure
from envs.tasks.reach import Reach
from envs.tasks.registry import make_task

DT = 0.1
REACH = make_task("reach")


def measure(model, info, alive, task=REACH):
    return measure_of(task, model, info, alive)


@pytest.fixture
def gantry() -> SimModel:
    """Two sliding joints, along x and along y: the TCP is where the joints are."""
    return SimModel(
        chain=compile_ets(rtb.ET.tx() * rtb.ET.ty()),
        qlim=torch.tensor([[-1.0, -0.25], [1.0, 0.25]]),
        qdlim=torch.tensor([2.0, 10.0]),
        dqd=torch.tensor([20.0, 100.0]) * DT,
        dt=DT,
        gripper_stroke=(0.0, 0.0),
        gripper_step=0.0,
        driver_mimic=torch.empty(0),
        position_joints=2,
        qdddlim=torch.tensor([400.0, 500.0]),
    )


@pytest.fixture
def trajectory() -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Two episodes. A: from (0.15, 0) straight to (0.35, 0), at rest there. B: y from 0.125 to 0.25
    to 0.15, in two steps. In each the joints move by the mean of the speeds that it begins and ends
    with, times 0.1 s.

    B's third row is not part of its episode, and as bad as can be.
    """
    q = torch.tensor(
        [[[0.2, 0.0], [0.5, 0.25]], [[0.3, 0.0], [0.5, 0.15]], [[0.35, 0.0], [9.0, 9.0]]]
    )
    qd = torch.tensor(
        [[[1.0, 0.0], [0.0, 2.5]], [[1.0, 0.0], [0.0, -4.5]], [[0.0, 0.0], [90.0, 90.0]]]
    )
    info = {
        "q": q,
        "qd": qd,
        "tcp": torch.cat((q, torch.zeros(3, 2, 1)), 2),
        "position_error": torch.tensor([[0.1, 0.3], [0.0, 0.4], [0.0, 0.7]]),
        "success": torch.tensor([[False, True], [True, False], [True, True]]),
    }
    return info, torch.tensor([[True, True], [True, True], [True, False]])


def test_hand_worked_trajectories(gantry, trajectory):
    got = measure(gantry, *trajectory)
    expected = {
        "success": [1.0, 0.0],
        "success_with_contact": [1.0, 0.0],
        "final_position_error_m": [0.0, 0.4],
        "time_to_goal_s": [0.2, math.nan],
        "path_length_m": [0.05 + 0.1 + 0.05, 0.125 + 0.1],
        # A: qd_x 1, 1, 0 changes by 1, 0, -1, and that by 1, -1, -1. B: qd_y changes by 2.5, -7,
        # that by 2.5, -9.5.
        "rms_jerk": [100 * math.sqrt((1 + 1 + 1) / 6), 100 * math.sqrt((2.5**2 + 9.5**2) / 4)],
        # J of two sliding joints at right angles has two singular values of 1
        "manipulability": [1.0, 1.0],
        "minimum_manipulability": [1.0, 1.0],
        "joint_limit_steps": [0.0, 0.5],
        "joint_limit_violations": [0, 0],
        "max_abs_qd_over_limit": [1 / 2, 4.5 / 10],
        "max_abs_qdd_over_limit": [10 / 20, 70 / 100],
        "max_abs_qddd_over_limit": [100 / 400, 950 / 500],
        "final_qd_over_limit": [0.0, 4.5 / 10],  # A comes to rest
        "speed_violations": [0, 0],
        "acceleration_violations": [0, 0],
        "jerk_violations": [0, 1],  # B's second step
    }
    assert got.keys() == expected.keys()
    for name, values in expected.items():
        assert got[name].tolist() == pytest.approx(values, rel=1e-6, nan_ok=True), name


def test_a_success_with_contact_is_none_and_counts_beside(gantry, trajectory):
    """A touches in its second step, and ends at the goal all the same; B's row that does is not
    part of it.
    """
    info, alive = trajectory
    seen = info | {
        "success": torch.zeros(3, 2, dtype=torch.bool),
        "success_with_contact": info["success"],
        "clearance": torch.tensor([[0.02, 0.3], [-0.004, 0.1], [0.5, -0.7]]),
    }
    figures = measure(gantry, seen, alive)
    assert figures["success"].tolist() == [0.0, 0.0] and figures[
        "success_with_contact"
    ].tolist() == [1.0, 0.0]
    assert figures["minimum_clearance_m"].tolist() == pytest.approx([-0.004, 0.1])
    summary = summarise_arm(figures)
    told = ("success_rate", "success_rate_with_contact", "collision_free_rate", "deepest_contact_m")
    assert [summary[name] for name in told] == pytest.approx([0.0, 0.5, 0.5, 0.004])
    rows = dict(make_rows({"it": summary}))
    bare = summarise_arm(measure(gantry, info, alive))
    labels = (
        "success rate [%]",
        "success rate, contact or not [%]",
        "episodes without contact [%]",
    )
    felt = {
        labels[-1],
        "deepest contact [mm]",
        "least clearance, median [mm]",
        "least clearance of all [mm]",
    }
    assert [rows[label] for label in labels] == [["0.0"], ["50.0"], ["50.0"]]
    assert (
        rows["deepest contact [mm]"] == ["4.0"]
        and rows.keys() - dict(make_rows({"it": bare})).keys() == felt
    )


def test_every_position_outside_the_limits_is_counted(gantry, trajectory):
    info, _ = trajectory
    everything = torch.ones(3, 2, dtype=torch.bool)
    assert measure(gantry, info, everything)["joint_limit_violations"].tolist() == [0, 2]
    just_beyond = info | {
        "q": torch.nextafter(gantry.qlim[1], torch.tensor(torch.inf)).expand(3, 2, 2)
    }
    assert measure(gantry, just_beyond, everything)["joint_limit_violations"].tolist() == [6, 6]
    on_the_limit = info | {"q": gantry.qlim[0].expand(3, 2, 2)}
    assert measure(gantry, on_the_limit, everything)["joint_limit_violations"].tolist() == [0, 0]


def test_every_broken_limit_is_counted_by_step_and_joint(gantry, trajectory):
    info, alive = trajectory
    everything = torch.ones(3, 2, dtype=torch.bool)
    # B's third row: 90 m/s each from rest and from -4.5, so both joints break speed, acceleration
    # and jerk.
    figures = measure(gantry, info, everything)
    assert figures["speed_violations"].tolist() == [0, 2]
    assert figures["acceleration_violations"].tolist() == [0, 2]
    assert figures["jerk_violations"].tolist() == [0, 3]
    assert summarise_arm(figures)["limit_violations"] == {
        "position": 2,
        "speed": 2,
        "acceleration": 2,
        "jerk": 3,
    }
    slack = 1 + 0.9 * LIMIT_ROUNDING
    for share, count in ((1.0, 0), (slack, 0), (1 + 1.1 * LIMIT_ROUNDING, 2)):
        at_the_limit = info | {"qd": (share * gantry.qdlim.double()).expand(3, 2, 2)}
        assert (
            measure(gantry, at_the_limit, alive & torch.tensor([[1], [0], [0]]).bool())[
                "speed_violations"
            ][0]
            == count
        )


def test_a_simulated_arm_breaks_no_limit():
    """The worst commands there are: full speed one way, then the other, at random."""
    model = compile_robot(make_robot("panda"), 0.05)
    generator = torch.Generator().manual_seed(0)
    lower, upper = model.qlim
    state = make_rest_state(model, lower + torch.rand(50, 7, generator=generator) * (upper - lower))
    info = {"q": [], "qd": []}
    for _ in range(60):
        state = step(model, state, torch.randint(2, (50, 7), generator=generator) * 2.0 - 1)
        info["q"].append(state.q)
        info["qd"].append(state.qd)
    info = {name: torch.stack(rows) for name, rows in info.items()}
    zeros = torch.zeros(60, 50)
    info |= {"tcp": torch.zeros(60, 50, 3), "position_error": zeros, "success": zeros.bool()}
    summary = summarise_arm(measure(model, info, torch.ones(60, 50, dtype=torch.bool)))
    assert summary["limit_violations"] == {"position": 0, "speed": 0, "acceleration": 0, "jerk": 0}
    assert summary["max_abs_qd_over_limit"] == pytest.approx(1.0, abs=LIMIT_ROUNDING)
    assert summary["max_abs_qdd_over_limit"] == pytest.approx(1.0, abs=LIMIT_ROUNDING)
    assert 0.01 < summary["max_abs_qddd_over_limit"] < 0.09  # 2 qddlim / dt over qdddlim is 0.08


def test_no_jerk_figure_without_jerk_limits(gantry, trajectory):
    figures = measure(dataclasses.replace(gantry, qdddlim=None), *trajectory)
    assert figures["max_abs_qddd_over_limit"].isnan().all()
    summary = summarise_arm(figures)
    assert (
        summary["max_abs_qddd_over_limit"] is None and summary["limit_violations"]["jerk"] is None
    )


def test_no_acceleration_figure_without_acceleration_limits(gantry, trajectory):
    unlimited = dataclasses.replace(gantry, dqd=torch.full((2,), torch.inf))
    figures = measure(unlimited, *trajectory)
    assert figures["max_abs_qdd_over_limit"].isnan().all()
    summary = summarise_arm(figures)
    assert (
        summary["max_abs_qdd_over_limit"] is None
        and summary["limit_violations"]["acceleration"] is None
    )


def test_episodes_do_not_touch_each_other(gantry, trajectory):
    info, alive = trajectory
    together = measure(gantry, info, alive)
    for i in range(2):
        alone = measure(
            gantry, {name: value[:, i : i + 1] for name, value in info.items()}, alive[:, i : i + 1]
        )
        for name in together:
            torch.testing.assert_close(alone[name], together[name][i : i + 1], equal_nan=True)


@pytest.mark.parametrize(
    ("success", "length", "steps"),
    [
        ("0011", 4, 3),
        ("1101", 4, 4),  # a visit that does not last does not count
        ("1111", 4, 1),
        ("1110", 4, None),
        ("0000", 4, None),
        ("0110", 3, 2),  # the last row is not part of the episode
        ("0101", 3, None),
    ],
)
def test_time_to_goal(success, length, steps):
    rows = torch.tensor([[c == "1"] for c in success])
    alive = torch.arange(len(success))[:, None] < length
    expected = math.nan if steps is None else steps * DT
    assert compute_time_to_goal(rows, alive, DT).item() == pytest.approx(expected, nan_ok=True)


def test_path_of_a_circle_and_of_standing_still():
    angle = torch.linspace(0, 2 * math.pi, 1001, dtype=torch.float64)
    circle = torch.stack((angle.cos(), angle.sin(), torch.zeros_like(angle)), 1)
    tcp = torch.stack((0.5 * circle, torch.full_like(circle, 3.0)), 1)
    assert compute_path_length(
        tcp, torch.ones(1000, 2, dtype=torch.bool)
    ).tolist() == pytest.approx([math.pi, 0.0], rel=1e-5)


def test_jerk_of_a_joint_whose_acceleration_grows_steadily():
    time = DT * torch.arange(1, 201, dtype=torch.float64)
    qd = 0.5 * 3.0 * time**2  # jerk 3 rad/s3; half of it in the first step, when it begins
    alive = torch.ones(200, 1, dtype=torch.bool)
    assert compute_rms_jerk(qd[:, None, None], alive, DT).item() == pytest.approx(3.0, rel=2e-3)
    assert compute_rms_jerk(qd[:3, None, None], alive[:3], DT).item() == pytest.approx(
        3.0 * math.sqrt((0.25 + 1 + 1) / 3)
    )


def test_summary_of_known_episodes(recwarn):
    def column(*values):
        return torch.tensor(values, dtype=torch.float64)

    nan = math.nan
    figures = {
        "success": column(1, 1, 1, 0, 0),
        "success_with_contact": column(1, 1, 1, 1, 0),
        "final_position_error_m": column(0.5, 0.1, 0.2, 0.4, 0.3),
        "time_to_goal_s": column(2.0, 1.0, 1.5, nan, nan),
        "path_length_m": column(1, 2, 3, 4, 100),
        "rms_jerk": column(1, 1, 7, 8, 9),
        "joint_limit_steps": column(0, 0, 0, 0.5, 1),
        "joint_limit_violations": torch.tensor([0, 0, 2, 0, 1]),
        "max_abs_qd_over_limit": column(0.1, 0.9, 0.2, 0.3, 0.4),
        "max_abs_qdd_over_limit": column(0.8, 0.1, 0.2, 0.3, 0.4),
        "max_abs_qddd_over_limit": column(0.1, 0.1, 0.2, 0.7, 0.4),
        "final_qd_over_limit": column(0.1, 0.4, 0, 0, 0.02),
        "speed_violations": column(1, 0, 0, 0, 0),
        "acceleration_violations": column(0, 4, 0, 1, 0),
        "jerk_violations": column(0, 0, 0, 0, 0),
        "manipulability": column(0.1, 0.5, 0.2, 0.3, 0.4),
        "minimum_manipulability": column(0.1, 0.05, 0.1, 0.1, 0.1),
    }
    summary = summarise_arm(figures)
    assert summary == {
        "success_rate": pytest.approx(0.6),
        "success_rate_with_contact": pytest.approx(0.8),
        "final_position_error_m": {
            "median": pytest.approx(0.3),
            "p95": pytest.approx(0.4 + 0.8 * 0.1),
        },
        "time_to_goal_s": {"median": pytest.approx(1.5)},
        "path_length_m": {"median": 3.0},
        "rms_jerk_rad_s3": {"median": 7.0},
        "joint_limit_hits": pytest.approx(0.3),
        "joint_limit_violations": 3,
        "max_abs_qd_over_limit": 0.9,
        "max_abs_qdd_over_limit": 0.8,
        "max_abs_qddd_over_limit": 0.7,
        "final_qd_over_limit": {"median": pytest.approx(0.02)},
        "limit_violations": {"position": 3, "speed": 1, "acceleration": 5, "jerk": 0},
        "manipulability": {"median": pytest.approx(0.3), "min": pytest.approx(0.05)},
    }
    assert summarise_arm(figures | {"time_to_goal_s": column(nan, nan)})["time_to_goal_s"] == {
        "median": None
    }
    for least, free, deepest in (
        ((0.2, 0.0, -0.01, 0.1, -0.03), 0.6, 0.03),
        ((0.2, 0.1, 0.3, 0.1, 0.4), 1.0, 0.0),
    ):
        felt = summarise_arm(figures | {"minimum_clearance_m": column(*least)})
        assert felt.keys() - summary.keys() == {
            "collision_free_rate",
            "deepest_contact_m",
            "minimum_clearance_m",
        }
        assert (felt["collision_free_rate"], felt["deepest_contact_m"]) == (
            pytest.approx(free),
            pytest.approx(deepest),
        )
    # of an arm without capsules, whose physics felt nothing
    unknown = summarise_arm(figures | {"minimum_clearance_m": column(*[math.inf] * 5)})
    assert unknown["minimum_clearance_m"] == {"median": None, "min": None}
    assert not recwarn


def test_rounds_join_in_order_and_the_surplus_is_dropped():
    rounds = [{"success": torch.tensor([0.0, 1.0])}, {"success": torch.tensor([2.0, 3.0])}]
    assert join_figures(rounds, 3)["success"].tolist() == [0.0, 1.0, 2.0]


def test_manipulability_is_the_product_of_singular_values():
    """Of six joints and more, by roboticstoolbox; of fewer, by the singular values themselves."""
    panda = make_robot("panda")
    generator = torch.Generator().manual_seed(0)
    q = torch.rand(20, 7, generator=generator, dtype=torch.float64) * 2 - 1
    got = manipulability(jacob0(panda.chain.to(dtype=torch.float64), q))
    expected = [
        rtb.models.Panda().manipulability(row, method="yoshikawa", axes="all") for row in q.numpy()
    ]
    # the chain's constants are rounded to float32
    assert got.tolist() == pytest.approx(expected, rel=1e-5)

    short = compile_ets(
        rtb.ET.Rz() * rtb.ET.tx(0.5) * rtb.ET.Rz() * rtb.ET.tx(0.3) * rtb.ET.tz(), torch.float64
    )
    q = torch.rand(20, 3, generator=generator, dtype=torch.float64)
    singular = torch.linalg.svdvals(jacob0(short, q))
    torch.testing.assert_close(manipulability(jacob0(short, q)), singular.prod(1))


def test_manipulability_of_a_singular_arm_is_zero():
    # two joints along the same line
    straight = compile_ets(rtb.ET.tx() * rtb.ET.tx(), torch.float64)
    assert manipulability(jacob0(straight, torch.zeros(1, 2, dtype=torch.float64))).tolist() == [
        0.0
    ]


class Measuring(Reach):
    """A task with a measure of each kind."""

    settle_steps = 1
    measures = (
        Measure("turned_deg", "turned", "last", "quantiles", "turned", "deg"),
        Measure("off_m", "position_error", "steps", "quantiles", "off", "mm"),
        Measure("untouched_rate", "touched", "none", "rate", "untouched", "%"),
        Measure("held_rate", "held", "any", "rate", "held", "%"),
        Measure("height_m", "height", "least", "least", "height", "mm"),
    )


def test_a_tasks_own_measures_of_hand_worked_episodes(gantry, trajectory):
    """Three steps of A, two of B: whatever B's third row says is not part of its episode."""
    info, alive = trajectory
    own = {
        "turned": torch.tensor([[1.0, 0.2], [0.5, 0.1], [math.pi / 6, 9.0]]),
        "height": torch.tensor([[0.3, 0.2], [0.1, 0.25], [0.2, -5.0]]),
        "touched": torch.tensor([[False, False], [True, False], [False, True]]),
        "held": torch.tensor([[True, False], [True, False], [False, True]]),
        "clearance": torch.tensor([[0.4, 0.2], [0.1, 0.25], [0.2, -5.0]]),
    }
    task = Measuring(**vars(REACH))
    bare = measure(gantry, info, alive)
    got = measure(gantry, info | own, alive, task=task)
    assert got.keys() - bare.keys() == {one.name for one in task.measures} | {"minimum_clearance_m"}
    assert got["turned_deg"].tolist() == pytest.approx([30.0, math.degrees(0.1)], rel=1e-6)
    assert got["untouched_rate"].tolist() == [0.0, 1.0] and got["held_rate"].tolist() == [1.0, 0.0]
    assert (
        got["height_m"].tolist() == got["minimum_clearance_m"].tolist() == pytest.approx([0.1, 0.2])
    )
    steps = [row[~row.isnan()].tolist() for row in got["off_m"]]
    # the first step has not settled
    assert steps == [pytest.approx([0.0, 0.0]), pytest.approx([0.4])]

    summary = summarise_arm(got, task.measures)
    assert summary["untouched_rate"] == summary["held_rate"] == 0.5
    assert (
        summary["height_m"]
        == summary["minimum_clearance_m"]
        == {"median": pytest.approx(0.15), "min": pytest.approx(0.1)}
    )
    assert summary["turned_deg"]["median"] == pytest.approx((30 + math.degrees(0.1)) / 2)
    assert summary["off_m"]["median"] == pytest.approx(0.0, abs=1e-7)
    rows = dict(make_rows({"it": summary}, task.measures))
    expected = {
        "turned, median [deg]": "17.86",
        "off, 95th percentile [mm]": "360.00",
        "untouched [%]": "50.0",
        "held [%]": "50.0",
        "height, median [mm]": "150.00",
        "height, least [mm]": "100.00",
    }
    assert {label: rows[label] for label in expected} == {
        label: [cell] for label, cell in expected.items()
    }
    assert not {one.name for one in task.measures} & summarise_arm(bare).keys()


@pytest.mark.parametrize("settle", [0.5, 1.0])
def test_tracking_errors_are_those_after_the_tasks_own_time(gantry, settle):
    """Twelve steps of 0.1 s; B ends with the eleventh."""
    task = dataclasses.replace(make_task("track"), dt=DT, settle=settle)
    steps = 12
    first = round(settle / DT)
    error = torch.arange(1.0, 1 + steps)[:, None].expand(steps, 2)
    zeros = torch.zeros(steps, 2)
    info = {
        "q": torch.zeros(steps, 2, 2),
        "qd": torch.zeros(steps, 2, 2),
        "tcp": torch.zeros(steps, 2, 3),
    }
    info |= {"position_error": error, "success": zeros.bool()}
    alive = torch.ones(steps, 2, dtype=torch.bool)
    alive[11, 1] = False
    got = measure(gantry, info, alive, task=task)
    counted = [row[~row.isnan()].tolist() for row in got["tracking_error_m"]]
    assert counted == [list(range(first + 1, 13)), list(range(first + 1, 12))]
    median = torch.tensor(counted[0] + counted[1]).median()
    assert summarise_arm(got, task.measures)["tracking_error_m"]["median"] == pytest.approx(
        median.item(), abs=0.5
    )


def test_a_share_that_is_not_all_is_not_100_percent():
    """And one that is not none is not 0: the table has a contact where it has a depth."""
    shown = {0.0: "0.0", 1.0: "100.0", 0.9999: "99.99", 1e-4: "0.01", 0.99996: "99.996",
             0.9994: "99.9", 0.5: "50.0"}  # fmt: skip
    for share, text in shown.items():
        assert format_percent(share) == text
        rows = make_rows({"it": {"success_rate": share, "collision_free_rate": share}})
        assert dict(rows) == {"success rate [%]": [text], "episodes without contact [%]": [text]}
