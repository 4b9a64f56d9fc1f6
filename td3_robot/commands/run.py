"""Drive an arm with a policy: `python run_policy.py --policy policy.onnx --goal 0.4,0.1,0.4`. See
docs/how-to/deploy-real-arm.md first.

`--arm simulated`, the default, is the native engine in a process of its own, over loopback.
"""

import contextlib
import dataclasses
import multiprocessing
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from td3_robot.commands.exported import describe_simulated, find_policy, load_policy
from td3_robot.commands.goal import check_goal, describe_arrival, get_tolerances, suggest_time
from td3_robot.config.field import NOT_NEGATIVE, SHARE, Range, check, option
from td3_robot.config.schema import build, make_schema
from td3_robot.deploy import DeployError, Obstacles, Policy, Robot, SafetyFilter, Watchdog
from td3_robot.deploy.adapters import ARMS, FOLLOWING, ArmProcess
from td3_robot.deploy.adapters.udp import UdpArm
from td3_robot.deploy.adapters.udp_server import PERIOD, Faults, serve
from td3_robot.deploy.arm import FELT, Reading
from td3_robot.deploy.planning.inverse_kinematics import GoalSolver
from td3_robot.deploy.planning.motion_planner import PathFollower
from td3_robot.deploy.policy import CLOCK, POSE, POSITION, normalize_pose
from td3_robot.deploy.robot.obstacles import KINDS
from td3_robot.deploy.runtime.arrival import Arrival, RecordedArm
from td3_robot.deploy.runtime.calm_start import wait_for_calm_start
from td3_robot.deploy.runtime.control_loop import OPERATOR, TIME_UP, run_control_loop
from td3_robot.deploy.runtime.emergency_stop import interrupt_on_signals, make_stop_poll
from td3_robot.deploy.runtime.latency_compensation import LONGEST
from td3_robot.deploy.runtime.motion_log import Log
from td3_robot.deploy.runtime.policy_worker import TERMINAL, PolicyProcess
from td3_robot.errors import ConfigError, not_none, unknown
from td3_robot.utils.console import STOPPED, get_program, say
from td3_robot.utils.progress import stage

SIMULATED = "simulated"
NOT_REACHED = 4  # exit code: the time is up, and the arm is not at its goal
PLANNED = (*GoalSolver.names, *PathFollower.names)  # of a scene, by the policy itself
_SAFETY = "Limits and obstacles"  # headings of --help-all
_FAULTS = "Simulated arm"
NEAR = 0.1  # [rad] beyond its start region from where a policy is still started
MARGIN = 0.01  # [rad or m] kept before position limits, for an arm that lags behind
FOLLOWS = 0.1  # [rad] by which an arm may be elsewhere than it was sent to
MEANWHILE = 0.1  # [s] for which it is looked at once more, after the policy has thought
ANYWHERE = 100.0 * np.pi  # [rad] no limit: an arm that is sent nothing may be where it is
BOOT = 180.0  # [s] that the simulated arm may take to start, on a busy machine


@dataclass(frozen=True)
class Arguments:
    """Motion.

    Which policy moves which arm to which goal, and for how long.

    Attributes:
        policy: Required: run name or checkpoint folder with a policy.onnx that export.py wrote, or
            such a file.
        goal: Required: goal in the base frame, separated by commas: x,y,z in metres, or x,y,z and a
            unit quaternion w,x,y,z.
        arm: Adapter of the arm: simulated, ur_rtde, franky, ros2_control or so101; see
            docs/how-to/deploy-real-arm.md.
        host: Address of the arm, name of its ros2_control controller, or serial port of an SO-101.
        realtime: For franky: refuse a kernel without real time. With false, answers to the robot
            may come late, and it then stops in the middle of a motion.
        speed: Share of the policy's velocities and of the arm's limits.
        seconds: Seconds after which the arm is stopped.
        latency: Seconds from sending a velocity to a state that shows its effect, which the policy
            then compensates; by default estimated from the arm's motion and printed at the end.
        limits: Robot whose joint limits and joint names replace those of the policy's: fr3, another
            name or the path of a description (.json).
        tcp_speed: Largest speed of the TCP in m/s.
        ground: Height of the ground in the base frame in m; by default no ground is known.
        obstacles: File (.json) with spheres, boxes and walls, which the safety filter keeps clear
            of and a policy of reach_avoid observes; see docs/how-to/deploy-real-arm.md.
        dry_run: Connect, read and compute, but send nothing; print what would be sent.
        log: File (.csv) for every step.
        xacro: Arguments of the simulated robot's xacro file, KEY=VALUE ..., instead of the
            training's.
        delay: Delay of every packet in seconds.
        jitter: Largest further delay of some packets in seconds.
        drop: Share of packets that are lost.
        duplicate: Share of packets that arrive twice.
        corrupt: Share of packets that are damaged.
    """

    GROUPS: ClassVar = {
        _SAFETY: "What the arm is kept within, whatever the policy commands.",
        _FAULTS: "The robot of --arm simulated, and the network between it and this command.",
    }
    EXAMPLES: ClassVar = (
        ("--policy run1 --goal 0.4,0.1,0.4", "move the simulated arm, after export.py"),
        ("--policy run1 --goal 0.4,0.1,0.4 --speed 0.3 --log log.csv", "faster, with a log"),
        (
            "--policy run1 --goal 0.4,0.1,0.4 --arm franky --host 192.168.0.1 --dry_run",
            "connect to a real arm, and send nothing",
        ),
    )

    policy: Path | None = None
    goal: tuple[float, ...] = ()
    arm: str = SIMULATED
    host: str = "localhost"
    realtime: bool = True
    speed: float = 0.1
    seconds: float = option(10.0, NOT_NEGATIVE)
    latency: float | None = option(None, Range(0.0, LONGEST))
    limits: str | None = option(None, group=_SAFETY)
    tcp_speed: float | None = option(None, group=_SAFETY)
    ground: float | None = option(None, group=_SAFETY)
    obstacles: Path | None = option(None, group=_SAFETY)
    dry_run: bool = False
    log: Path | None = None
    xacro: tuple[str, ...] = option((), group=_FAULTS)
    delay: float = option(0.0, NOT_NEGATIVE, group=_FAULTS)
    jitter: float = option(0.0, NOT_NEGATIVE, group=_FAULTS)
    drop: float = option(0.0, SHARE, group=_FAULTS)
    duplicate: float = option(0.0, SHARE, group=_FAULTS)
    corrupt: float = option(0.0, SHARE, group=_FAULTS)

    def __post_init__(self):
        check(self)
        if self.policy is None or not self.goal:
            raise ConfigError(
                "--policy and --goal are needed, for example: --policy run1 --goal 0.4,0.1,0.4"
            )
        if self.arm not in (SIMULATED, *ARMS):
            raise unknown("arm", self.arm, (SIMULATED, *ARMS))
        own = [x.name for x in dataclasses.fields(self) if x.metadata.get("group") == _FAULTS]
        given = [f"--{name}" for name in own if getattr(self, name)]  # nothing by default
        if given and self.arm != SIMULATED:
            raise ConfigError(f"leave {', '.join(given)} out: only --arm {SIMULATED} takes them")
        if self.arm == SIMULATED and (self.host != Arguments.host or not self.realtime):
            raise ConfigError(f"--host and --realtime need --arm, one of {', '.join(sorted(ARMS))}")
        if self.log is not None and self.log.suffix != ".csv":  # may be a file of another use
            raise ConfigError(f"--log must end in .csv, got {str(self.log)!r}")


def main(argv: list[str]) -> int:
    """Parse, check the goal, connect, run.

    Returns:
        The exit code: 0 if the arm came to rest at its goal when the time was up, 4 if elsewhere,
        130 if it was stopped by the operator, and 1 if anything else stopped it.
    """
    schema = make_schema(get_program("run"), "Drive an arm with a policy.", Arguments)
    arguments = build(Arguments, schema.read_flags(argv))
    path = find_policy(not_none(arguments.policy))
    try:
        with stage("loading the policy"):
            policy = load_policy(path)
            scene = build_scene(policy, arguments)
            limited_robot = replace_limits(policy.robot, arguments.limits)
            # a speed that cannot be is refused before it divides
            limited_robot.limits.narrow(arguments.speed)
            obstacles = load_obstacles(arguments)
            needed = check_goal(
                policy, limited_robot, scene["goal"], obstacles, arguments.speed, arguments.seconds
            )
        reason, arrival = drive(policy, path, limited_robot, obstacles, arguments, scene)
    except DeployError as error:
        raise ConfigError(str(error)) from None
    if arrival is not None:
        say(describe_arrival(arrival, policy))
        if reason == TIME_UP and not arrival.reached:
            say(suggest_time(arrival, arguments.seconds, arguments.speed, needed))
    say(f"the arm is at rest: {reason}")
    if reason == TIME_UP:
        return 0 if arrival is None or arrival.reached else NOT_REACHED
    return STOPPED if reason == OPERATOR else 1


def build_scene(policy: Policy, arguments: Arguments) -> dict[str, Any]:
    """Build what the policy observes besides the arm: goal and obstacles.

    Raises:
        ConfigError: it needs something that is not known here.
        DeployError: the goal is of another shape.
    """
    scene: dict[str, Any] = {"goal": np.array(arguments.goal)}
    scene |= {"obstacles": load_obstacles(arguments)} if set(KINDS) & set(policy.scene) else {}
    nothing: dict[str, Any] = {
        name: np.zeros(policy.scene[name]) for name in FELT if name in policy.scene
    }
    is_place = policy.metadata["task"].get("goal_is_place", True)
    own = "call td3_robot.deploy.Policy from your own program, see docs/how-to/deploy-real-arm.md"
    try:  # a goal of another shape, or something that is missing, is reported here
        policy(policy.robot.home, np.zeros(policy.robot.limits.n), 0.0, **scene | nothing)
    except DeployError as error:
        given = {"goal", CLOCK, *KINDS, *PLANNED, *FELT}
        if "goal" not in policy.scene or set(policy.scene) - given:
            raise ConfigError(
                f"{error}. {get_program('run')} knows goal and obstacles alone: {own}"
            ) from None
        if is_place and policy.scene["goal"] == (POSE,) and scene["goal"].size != POSE:
            raise DeployError(
                f"{error}; a pose is x,y,z [m] and a unit quaternion w,x,y,z"
            ) from None
        raise
    if not is_place or scene["goal"].size not in (POSITION, POSE):
        raise ConfigError(
            f"a goal of {policy.metadata['task']['name']} is neither a position nor a pose, and "
            f"{get_program('run')} knows these alone: {own}"
        )
    policy.reset()
    if scene["goal"].size == POSE:  # what is typed is rounded, and the arrival is measured by it
        scene["goal"] = normalize_pose(scene["goal"])
    return scene


def load_obstacles(arguments: Arguments) -> Obstacles:
    """Load the obstacles around the arm, which stand.

    Raises:
        DeployError: they cannot be loaded, or one moves.
    """
    if arguments.obstacles:
        return Obstacles.load(arguments.obstacles, arguments.ground).check_standing()
    return Obstacles(ground=arguments.ground)


def replace_limits(robot: Robot, name: str | None) -> Robot:
    """Replace the limits of a robot's joints, and their names, by those of another one.

    Raises:
        DeployError: there is no such robot, or it has another number of joints.
    """
    if name is None:
        return robot
    other = Robot.load(name)
    if other.limits.n != robot.limits.n:
        raise DeployError(
            f"limits {name!r} are of {other.limits.n} joints, {robot.name} has {robot.limits.n}"
        )
    return dataclasses.replace(robot, limits=other.limits, joints=other.joints)


def drive(
    policy: Policy,
    path: Path,
    limited_robot: Robot,
    obstacles: Obstacles,
    arguments: Arguments,
    scene: dict[str, Any],
) -> tuple[str, Arrival | None]:
    """Move the arm until it is at rest again.

    Args:
        policy, path: the policy and its file.
        limited_robot: the policy's robot, with the limits that the arm is kept in.
        obstacles: what the arm keeps clear of.
        scene: the goal and what else the policy observes besides the arm.

    Returns:
        Why it ended, in words, and where the arm came to rest; None if nothing was sent.
    """
    with contextlib.ExitStack() as cleanup:
        interrupt_on_signals()
        # first: if none can be written nothing should move
        log = Log(arguments.log, limited_robot.joints)
        cleanup.callback(log.close)
        with stage("waiting for the arm"):
            arm = RecordedArm(_connect(arguments, policy, path, limited_robot.joints, cleanup))
            try:
                watch = _make_watchdog(policy, limited_robot, obstacles, arguments, arm.rate)
                policy_process = PolicyProcess(str(path))
                cleanup.callback(policy_process.close)
                _wait_for_start(arm, watch, policy_process, policy, arguments, scene)
            except BaseException:
                with contextlib.suppress(DeployError):  # what went wrong first is what counts
                    arm.stop()  # gives it back to whoever moves it next
                raise
        pressed = make_stop_poll()
        latency = min(arm.latency, LONGEST) if arguments.latency is None else arguments.latency
        assumed = f", assuming {1e3 * latency:.0f} ms of latency" if latency else ""
        say(
            f"{policy.robot.name} moves at {arguments.speed:.0%} of its speed "
            f"for {arguments.seconds:g} s{assumed}; Enter or Ctrl-C stops it"
        )
        estimated = arguments.latency is None and not arguments.dry_run
        arm.forget()
        reason = run_control_loop(
            arm,
            policy_process,
            watch,
            scene,
            policy_rate=policy.rate,
            speed=arguments.speed,
            seconds=arguments.seconds,
            log=log,
            latency=latency,
            estimate=_print_latency if estimated else None,
            pressed=pressed,
            send=not arguments.dry_run,
        )
    if arguments.dry_run:
        return reason, None
    return reason, arm.measure_arrival(policy.robot, scene["goal"], *get_tolerances(policy))


def _make_watchdog(
    policy: Policy, limited_robot: Robot, obstacles: Obstacles, arguments: Arguments, rate: float
) -> Watchdog:
    """Make the watchdog and the safety filter of an arm at this rate [Hz]."""
    known = arguments.ground is not None or arguments.obstacles is not None
    follows = FOLLOWING.get(arguments.arm, FOLLOWS) if not arguments.dry_run else ANYWHERE
    safe = SafetyFilter(
        limited_robot,
        rate,
        policy.rate,
        speed=arguments.speed,
        margin=MARGIN,
        tcp_speed=arguments.tcp_speed,
        obstacles=obstacles if known else None,  # a robot without capsules takes none
    )
    return Watchdog(safe, following=follows)


def _wait_for_start(
    arm: RecordedArm,
    watch: Watchdog,
    policy_process: PolicyProcess,
    policy: Policy,
    arguments: Arguments,
    scene: dict[str, Any],
) -> None:
    """Wait until the arm is at rest near the policy's start, and the policy has planned."""
    region = policy.metadata["task"]["constants"]["start_spread"] + NEAR
    patience = BOOT if arguments.arm == SIMULATED else 5.0
    start = wait_for_calm_start(arm, watch, policy.robot.home, region, patience)
    _check_felt(policy, start, arguments.arm)
    policy_process.prepare(start, scene)
    # it is still there
    start = wait_for_calm_start(arm, watch, policy.robot.home, region, calm=MEANWHILE)
    watch.reset(start.q, start.stamp)


def _check_felt(policy: Policy, start: Reading, arm: str) -> None:
    """Refuse an arm that does not measure the forces that the policy observes."""
    missing = [name for name in FELT if name in policy.scene and name not in start.felt]
    if missing:
        raise DeployError(
            f"the policy observes {' and '.join(missing)}, which arm {arm!r} does not measure"
        )


def _print_latency(seconds: float) -> None:
    say(f"the arm's motion shows a latency of {1e3 * seconds:.0f} ms")


def _connect(
    arguments: Arguments,
    policy: Policy,
    path: Path,
    joints: tuple[str, ...],
    cleanup: contextlib.ExitStack,
):
    """Connect to the arm, whose joints have these names; a simulated one is started."""
    if arguments.arm != SIMULATED:
        return ArmProcess(arguments.arm, arguments.host, joints, arguments.realtime)
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    faults = Faults(
        arguments.delay, arguments.jitter, arguments.drop, arguments.duplicate, arguments.corrupt
    )
    named = describe_simulated(policy, path, arguments.xacro)
    process = multiprocessing.get_context("spawn").Process(
        target=simulate, args=(named, sock, faults), daemon=True
    )
    process.start()
    cleanup.callback(process.kill)
    arm = UdpArm(sock.getsockname(), policy.robot.limits.n, faults.latency, process.is_alive)
    arm.send(np.zeros(policy.robot.limits.n))  # so that it knows where to send its states
    return arm


def simulate(named: dict, sock: socket.socket, faults: Faults) -> None:
    """Run the simulated arm's process; `named` is what its robot is made from."""
    import envs
    from envs.config.assignments import parse_assignments
    from envs.export.simulated_arm import SimulatedArm

    for name in TERMINAL:
        signal.signal(getattr(signal, name), signal.SIG_IGN)  # they are for the loop, which brakes
    try:
        robot = envs.make_robot(
            named["robot"],
            xacro=parse_assignments("xacro", named.get("xacro", ())),
            velocity=named.get("velocity", ()),
            **{name: named.get(name) for name in ("gripper", "tcp", "base", "acceleration")},
        )
    except ConfigError as error:
        sys.exit(f"error: {error}")
    serve(SimulatedArm(robot, PERIOD), sock, faults)
