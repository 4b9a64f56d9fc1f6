"""The whole filter: what is refused, and what holds where the arm's shape counts too."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from td3_robot.deploy import DeployError, Obstacles, Robot, SafetyFilter
from td3_robot.deploy.robot.capsules import Capsules
from td3_robot.deploy.robot.kinematics import Chain
from td3_robot.deploy.robot.limits import Limits

PANDA = Robot.load("panda")
TABLE = Obstacles(
    ground=0.0, boxes=np.array([[0.5, 0.0, 0.15, 0.1, 0.1, 0.15, 1.0, 0.0, 0.0, 0.0]])
)


def started(q=PANDA.home, **options) -> SafetyFilter:
    safe = SafetyFilter(PANDA, **options)
    safe.reset(q)
    return safe


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_command_that_is_no_number_is_a_stop(bad):
    safe = started()
    for _ in range(100):
        safe(np.full(7, 0.2))
    assert safe.refused == "" and np.allclose(safe.state.v, 0.2)
    command = np.full(7, 0.2)
    command[3] = bad
    for _ in range(200):
        qd = safe(command)
        assert np.isfinite(qd).all()
    assert "not finite" in safe.refused and not qd.any()


@pytest.mark.parametrize("bad", [np.zeros(6), np.zeros((1, 7)), 0.0, "fast", None, [[1], [2, 3]]])
def test_another_shape_is_refused_and_nothing_moves_on(bad):
    safe = started()
    safe(np.full(7, 0.2))
    before = safe.state
    with pytest.raises(DeployError, match="command must"):
        safe(bad)
    assert safe.state is before and safe.brake().shape == (7,)


def test_a_command_is_spread_over_its_period():
    safe = started(command_rate=20.0)
    sent = np.array([safe(np.full(7, 0.1)) for _ in range(60)])
    assert np.allclose(sent[24], 0.05, atol=0.01)  # half way, half of it
    assert np.allclose(sent[-1], 0.1) and (np.diff(sent, axis=0) > -1e-9).all()


def test_it_cannot_start_where_it_could_not_stop():
    with pytest.raises(DeployError, match="joint 4"):
        started(np.zeros(7))
    with pytest.raises(DeployError, match="cannot start here: it would come within"):
        started(np.array([0.0, 1.7, 0.0, -0.1, 0.0, 1.0, 0.0]), obstacles=Obstacles(ground=0.0))
    with pytest.raises(DeployError, match="reset"):
        SafetyFilter(PANDA)(np.zeros(7))


@pytest.mark.parametrize("name", ["panda", "ur5e", "fr3"])
def test_adversarial_commands_through_the_whole_filter(name):
    """NaN, infinities, +-1e30 and bounds in turn, with obstacles and a TCP speed: every limit holds
    in every tick.
    """
    robot = Robot.load(name)
    rng = np.random.default_rng(0)
    safe = SafetyFilter(robot, obstacles=TABLE, tcp_speed=0.8)
    home = robot.home if name != "ur5e" else np.array([1.5, -1.5, 1.4, -1.47, -1.57, 0.0])
    safe.reset(home)
    limits = robot.limits
    h = safe.h
    q, v, a = safe.state
    reasons = set()
    for tick in range(1000):
        if tick % 40 == 0:
            bad = rng.choice([np.nan, np.inf, -np.inf, 1e30, -1e30], limits.n)
            bounds = np.sign(rng.uniform(-1, 1, limits.n)) * limits.velocity
            command = bad if rng.uniform() < 0.2 else bounds
        sent = safe(command)
        reasons.add(safe.refused)
        acceleration = (sent - v) / h
        slowest, fastest = limits.find_velocity_range(q)
        assert (sent >= slowest).all() and (sent <= fastest).all()
        assert (np.abs(acceleration) <= limits.acceleration).all()
        assert (np.abs(acceleration - a) <= h * limits.jerk).all()
        q = q + h * sent
        v = sent
        a = acceleration
        assert (q >= limits.lower).all() and (q <= limits.upper).all()
        if tick % 5 == 0:
            frames = robot.chain.frames(q[None])
            assert robot.capsules.find_clearance(frames, TABLE)[0] >= 0.0
            assert np.linalg.norm(robot.chain.jacobian(frames)[0, :3] @ v) <= 0.8
    assert {"", "the command is not finite"} <= reasons


@pytest.mark.parametrize(
    ("name", "rate", "limit"), [("lbr", 50.0, 0.1), ("ur5e", 100.0, 0.05), ("lbr", 250.0, 0.02)]
)
def test_no_tick_of_a_short_stop_is_faster_than_the_tcp_may_be(name, rate, limit):
    """Plans of a slow TCP last for some ticks; in each of them its speed is J(q) qd."""
    rng = np.random.default_rng(1)
    robot = replace(Robot.load(name), capsules=None)
    safe = SafetyFilter(robot, rate, 20.0, tcp_speed=limit)
    safe.reset(robot.home)
    fastest = 0.0
    for tick in range(400):
        if tick % 4 == 0:
            command = rng.uniform(-1.0, 1.0, robot.limits.n) * robot.limits.velocity
        sent = safe.brake() if rng.uniform() < 0.2 else safe(command)
        J = robot.chain.jacobian(robot.chain.frames(safe.state.q[None]))[0, :3]
        fastest = max(fastest, np.linalg.norm(J @ sent))
    assert 0.8 * limit < fastest <= limit


def test_it_goes_up_to_an_obstacle_and_away_again():
    safe = started(obstacles=TABLE)
    robot = safe.robot
    toward = np.array([0.0, 0.4, 0.0, -0.4, 0.0, 0.4, 0.0])  # down

    def clearance():
        return robot.capsules.find_clearance(robot.chain.frames(safe.state.q[None]), TABLE)[0]

    start = clearance()
    for _ in range(2000):
        safe(toward)
    near = clearance()
    assert 0.005 <= near < min(0.02, start)
    for _ in range(300):
        safe(-toward)
    assert clearance() > near + 0.02


def test_values_that_cannot_be_are_refused():
    for options in (
        dict(speed=0.0),
        dict(speed=1.5),
        dict(tcp_speed=-1.0),
        dict(rate=10.0),
        dict(margin=9.0),
    ):
        with pytest.raises(DeployError):
            SafetyFilter(PANDA, **options)
    with pytest.raises(DeployError, match="no robot 'pandaa'"):
        SafetyFilter.for_robot("pandaa")


@pytest.mark.parametrize("name", ["margin", "clearance"])
@pytest.mark.parametrize("value", [-0.5, np.nan, np.inf])
def test_no_room_is_less_than_none(name, value):
    with pytest.raises(DeployError, match=f"{name} must be 0 or more"):
        SafetyFilter(PANDA, **{name: value})


NO_NUMBERS = ["0.5", [0.5], None, np.array([0.5, 0.5]), True]


@pytest.mark.parametrize("value", NO_NUMBERS)
@pytest.mark.parametrize("name", ["rate", "command_rate", "speed", "margin", "clearance"])
def test_an_option_that_is_no_number_is_refused_by_its_name(name, value):
    with pytest.raises(DeployError, match=f"^{name} must be a number, got "):
        SafetyFilter(PANDA, **{name: value})


def test_numbers_of_other_kinds_are_numbers():
    safe = SafetyFilter(PANDA, np.array(500.0), np.array([20]), tcp_speed=torch.tensor(0.5))
    assert (safe.h, safe.command_rate, safe.tcp_speed) == (0.002, 20.0, 0.5)


def test_what_is_no_arm_no_obstacles_or_no_place_is_refused_in_words():
    with pytest.raises(DeployError, match="^robot must be a Robot, got 'panda': .*for_robot takes"):
        SafetyFilter("panda")
    for other in (BALL, {"spheres": BALL}, np.zeros((1, 4)), []):
        with pytest.raises(DeployError, match="^obstacles must be Obstacles"):
            SafetyFilter(PANDA, obstacles=other)
    safe = SafetyFilter.for_robot("puma560")  # which may start at zero, but is not said to be there
    for place in (None, "home", ["a"] * 6, np.zeros(7)):
        with pytest.raises(DeployError, match="^q must be 6 finite numbers"):
            safe.reset(place)


def test_a_ground_that_is_no_height_is_refused():
    """Every distance to it would be no number, and none below what is kept."""
    for ground in (float("nan"), float("inf"), "x", "0.1", [0.0]):
        with pytest.raises(DeployError, match="ground must be a finite height, got "):
            Obstacles(ground=ground)
    assert Obstacles(ground=np.float32(0.5)).ground == 0.5


def test_obstacles_that_cannot_be_kept_clear_of_are_refused_later_too():
    safe = SafetyFilter(replace(PANDA, capsules=None))
    with pytest.raises(DeployError, match="has no capsules, so obstacles cannot be avoided"):
        safe.obstacles = TABLE


BALL = [[0.5, 0.2, 0.9, 0.08]]


def test_obstacles_that_move_are_refused():
    """The filter measures distances to where they are said to be, and they would not stay there."""
    moving = Obstacles(spheres=BALL, sphere_velocities=[[-0.3, 0.0, 0.0]])
    with pytest.raises(DeployError, match="keeps clear of obstacles that stand"):
        SafetyFilter(PANDA, obstacles=moving)
    safe = started(obstacles=Obstacles(spheres=BALL, sphere_velocities=np.zeros((1, 3))))
    with pytest.raises(DeployError, match="keeps clear of obstacles that stand"):
        safe.obstacles = replace(TABLE, box_velocities=[[0.0, 0.0, 0.1]])
    assert np.array_equal(safe.obstacles.spheres, BALL)


@pytest.mark.parametrize("value", [0.1, "fast", [0.1, 0, 0, 0], [[0.1, 0]], [[0.1], [0, 0]], []])
def test_velocities_that_are_not_three_for_each_sphere_are_refused_in_one_line(value):
    with pytest.raises(DeployError, match=r"^sphere_velocities must be finite with shape \(1, 3\)"):
        Obstacles(spheres=BALL, sphere_velocities=value)
    with pytest.raises(DeployError, match=r"^spheres must be finite with shape \(count, 4\)"):
        Obstacles(spheres=[[0.5, 0.2], [0.9]])


def slider() -> Robot:
    """An arm of two joints: one turns about z, the other carries a ball out along x, 1 to 1.2 m
    from there.
    """
    along_x = np.array(
        [[0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    )
    chain = Chain(np.stack((np.eye(4), along_x, np.eye(4))), np.array([False, True]))
    limits = Limits(
        np.array([-3.0, 1.0]), np.array([3.0, 1.2]), *(np.full(2, most) for most in (2.5, 2.0, 1e3))
    )
    none = np.zeros(0, int)
    ball = np.array([0.02])
    shape = Capsules(np.array([2]), np.zeros((1, 2, 3)), ball, none, none, none)
    return Robot(
        "slider",
        ("turns", "slides"),
        np.array([0.0, 1.1]),
        limits,
        chain,
        np.zeros(0),
        (0.0, 1.0),
        0.0,
        shape,
    )


def test_what_is_far_out_on_a_slide_moves_as_far_as_that():
    """It starts at speed, and either is refused or stops clear of a ball that stands somewhere on
    its arc.
    """
    robot = slider()
    refused = 0
    for angle in np.linspace(0.1, 1.5, 40):
        around = Obstacles(
            spheres=np.array([[1.1 * np.cos(angle), 1.1 * np.sin(angle), 0.0, 0.02]])
        )
        safe = SafetyFilter(robot, obstacles=around)
        try:
            safe.reset(robot.home, np.array([2.0, 0.0]))
        except DeployError:
            refused += 1
            continue
        while safe.state.v.any():
            safe.brake()
            assert (
                robot.capsules.find_clearance(robot.chain.frames(safe.state.q[None]), around)[0]
                > 0.0
            )
    assert 0 < refused < 40
