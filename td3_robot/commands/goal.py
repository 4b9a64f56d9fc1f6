"""Check a goal before an arm moves, and describe afterwards whether the arm reached it."""

import numpy as np

from td3_robot.deploy import Obstacles, Policy, Robot
from td3_robot.deploy.planning.reachability import find_nearest_pose
from td3_robot.deploy.policy import POSE
from td3_robot.deploy.runtime.arrival import Arrival
from td3_robot.deploy.safety.safety_filter import CLEARANCE
from td3_robot.errors import ConfigError
from td3_robot.utils.console import warn


def get_tolerances(policy: Policy) -> tuple[float, float]:
    """Return the distance [m] and the angle [rad] from its goal that a task counts as reached."""
    constants = policy.metadata["task"]["constants"]
    return constants["tolerance"], constants.get("rotation_tolerance", np.inf)


def check_goal(
    policy: Policy,
    robot: Robot,
    goal: np.ndarray,
    obstacles: Obstacles,
    speed: float,
    seconds: float,
) -> float:
    """Refuse a goal that an arm cannot reach; warn if the time is too short for the way there.

    Args:
        policy: whose task says what counts as reached.
        robot: the arm, with the limits that it is kept in.
        goal: (3,) a position [m], or (7,) a position and a unit quaternion wxyz, base frame.
        obstacles: what the arm keeps clear of.
        speed: share of the arm's velocity limits.
        seconds: how long it will move.

    Returns:
        The shortest time of the motion [s].

    Raises:
        ConfigError: the goal is out of reach, or no posture at the goal has the clearance that the
            safety filter keeps.
    """
    where = ",".join(f"{value:g}" for value in goal)
    nearest = find_nearest_pose(robot, robot.home, goal, obstacles)
    tolerance, rotation_tolerance = get_tolerances(policy)
    if nearest.distance > tolerance or nearest.turn > rotation_tolerance:
        turned = f" and {np.degrees(nearest.turn):.0f} degrees" if goal.size == POSE else ""
        raise ConfigError(
            f"goal {where} is out of reach of {robot.name}: the nearest position is "
            f"{_format_position(nearest.position)}, {format_distance(nearest.distance)}{turned} "
            "from it; choose another --goal"
        )
    if nearest.clearance < 0.0:
        raise ConfigError(
            f"goal {where} cannot be reached without contact: at every posture found the arm "
            f"touches itself or an obstacle, by {format_distance(-nearest.clearance)}; choose "
            "another --goal"
        )
    if nearest.clearance < CLEARANCE:
        raise ConfigError(
            f"goal {where} cannot be reached: at every posture found the arm is "
            f"{format_distance(nearest.clearance)} from itself or an obstacle, and the safety "
            f"filter keeps {format_distance(CLEARANCE)}; choose another --goal"
        )
    needed = nearest.travel / speed
    if needed > seconds:
        warn(
            f"at --speed {speed:g} the motion to the goal takes at least {needed:.3g} s, longer "
            f"than --seconds {seconds:g}"
        )
    return needed


def describe_arrival(arrival: Arrival, policy: Policy) -> str:
    """Describe where an arm came to rest, in one line."""
    tolerance, rotation_tolerance = get_tolerances(policy)
    turn = ""
    most = format_distance(tolerance)
    if np.isfinite(rotation_tolerance):
        turn = f" and {np.degrees(arrival.turn):.1f} degrees"
        most += f" and {np.degrees(rotation_tolerance):.1f} degrees"
    line = (
        f"the TCP is at {_format_position(arrival.position)}, "
        f"{format_distance(arrival.distance)}{turn} from the goal: "
    )
    if arrival.reached:
        return f"{line}reached after {arrival.seconds:.1f} s (within {most})"
    return f"{line}not reached (within {most})"


def suggest_time(arrival: Arrival, seconds: float, speed: float, needed: float) -> str:
    """Return the flags that may help an arm that is not at its goal when the time is up.

    Args:
        arrival: where it is.
        seconds: how long it has moved.
        speed: share of its speed limits.
        needed: the shortest time of the motion, from `check_goal` [s].
    """
    if arrival.stayed is not None:  # a policy may go on moving joints that its goal leaves free
        came, left = arrival.stayed
        return (
            f"it was within that from {came:.1f} to {left:.1f} s: --seconds {(came + left) / 2:.1f}"
        )
    faster = f", or --speed {min(1.0, 2.0 * speed):g}" if speed < 1.0 else ""
    longer = max(2.0 * seconds, np.ceil(1.5 * needed)) or 10.0
    return f"it may need more time: --seconds {longer:g}{faster}"


def format_distance(distance: float) -> str:
    """Format a distance in mm or, if it is long, in m."""
    return f"{1000 * distance:.1f} mm" if distance < 0.1 else f"{distance:.2f} m"


def _format_position(position: np.ndarray) -> str:
    return ",".join(f"{value:.3f}" for value in position)
