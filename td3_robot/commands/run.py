"""Drive an arm with a policy: `python run_policy.py --policy policy.onnx --goal 0.4,0.1,0.4`. See
docs/how-to/deploy-real-arm.md first.

`--arm simulated`, the default, is the native engine in a process of its own, over loopback.
"""

import contextlib
import dataclasses
import multiprocessing
import signal
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from td3_robot.config.field import NOT_NEGATIVE, SHARE, Range, check, option
from td3_robot.config.schema import build, make_schema
from td3_robot.deploy import DeployError, Obstacles, Policy, Robot, SafetyFilter, Watchdog
from td3_robot.deploy.adapters import ARMS, connect
from td3_robot.deploy.adapters.udp import UdpArm
from td3_robot.deploy.adapters.udp_server import PERIOD, Faults, serve
from td3_robot.deploy.arm import FELT, Reading
from td3_robot.deploy.runtime.control_loop import Log, run_control_loop, wait_for_calm_start
from td3_robot.deploy.runtime.emergency_stop import emergency_stop
from td3_robot.deploy.runtime.latency_compensation import LONGEST
from td3_robot.deploy.runtime.policy_worker import TERMINAL, PolicyProcess
from td3_robot.errors import ConfigError, not_none, unknown
from td3_robot.utils.console import get_program

SIMULATED = "simulated"
NEAR = 0.1  # [rad] beyond its start region from where a policy is still started
MARGIN = 0.01  # [rad or m] kept before position limits, for an arm that lags behind
FOLLOWS = 0.1  # [rad] by which an arm may be elsewhere than it was sent to
PERIODS = 1.5  # of a policy, after which its next command is overdue
MEANWHILE = 0.1  # [s] for which it is looked at once more, after the policy has thought
BOOT = 60.0  # [s] that the simulated arm may take to be there


@dataclass(frozen=True)
class Arguments:
    """Flags of `run_policy.py`.

    Attributes:
        policy: Required: a file that export.py wrote, or a run's folder that has one.
        goal: Required: what is wanted in the base frame, with commas: x,y,z, or x,y,z and a
            quaternion w,x,y,z.
        arm: simulated, ur_rtde, franky or ros2_control; docs/how-to/deploy-real-arm.md.
        host: Address of the arm, or the name of its ros2_control controller.
        speed: Share of the policy's velocities and of the arm's limits.
        seconds: After which the arm is stopped.
        latency: Seconds from sending a velocity to a state that shows its effect, which the policy
            then foresees; by default estimated from the arm's motion, beginning with what the arm
            says, and printed at the end.
        limits: Robot whose joint limits the arm is kept in, and whose joints' names it goes by,
            where they are not those of the policy's: fr3, another name or the path of a description
            (.json).
        tcp_speed: Largest speed of the TCP in m/s.
        ground: Height of the ground in the base frame in m; by default nothing is known of one.
        obstacles: File (.json) with the spheres, boxes and walls around, which the filter keeps
            clear of and a policy of reach_avoid is told; docs/how-to/deploy-real-arm.md.
        dry_run: Connect, read and compute, but send nothing; prints what would be sent.
        log: File (.csv) for every step.
        xacro: Arguments of the simulated robot's xacro file, KEY=VALUE ..., in place of the
            training's.
        delay: Seconds by which the simulated network delays every packet.
        jitter: Seconds by which it delays some of them on top, at most.
        drop: Share of packets that it loses.
        duplicate: Share of packets that it brings twice.
        corrupt: Share of packets that it damages.
    """

    policy: Path | None = None
    goal: tuple[float, ...] = ()
    arm: str = SIMULATED
    host: str = "localhost"
    speed: float = 0.1
    seconds: float = option(10.0, NOT_NEGATIVE)
    latency: float | None = option(None, Range(0.0, LONGEST))
    limits: str | None = None
    tcp_speed: float | None = None
    ground: float | None = None
    obstacles: Path | None = None
    dry_run: bool = False
    log: Path | None = None
    xacro: tuple[str, ...] = ()
    delay: float = option(0.0, NOT_NEGATIVE)
    jitter: float = option(0.0, NOT_NEGATIVE)
    drop: float = option(0.0, SHARE)
    duplicate: float = option(0.0, SHARE)
    corrupt: float = option(0.0, SHARE)

    def __post_init__(self):
        check(self)
        if self.policy is None or not self.goal:
            raise ConfigError("--policy and --goal are needed: an exported policy, and where to go")
        if self.arm not in (SIMULATED, *ARMS):
            raise unknown("arm", self.arm, (SIMULATED, *ARMS))


def main(argv: list[str]) -> int:
    """Parse, connect, run. Returns the exit code: 0 where the time was up, 130 where it was
    stopped, else 1.
    """
    asked = build(
        Arguments,
        make_schema(get_program("run"), "Drive an arm with a policy.", Arguments).read_flags(argv),
    )
    try:
        reason = _run(asked)
    except DeployError as error:
        raise ConfigError(str(error)) from None
    print(f"the arm is at rest: {reason}")
    return {"the time is up": 0, "stopped by the operator": 130}.get(reason, 1)


def with_limits(robot: Robot, name: str | None) -> Robot:
    """The policy's robot with the limits of another one's joints, and their names.

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


def _run(asked: Arguments) -> str:
    policy = Policy.load(not_none(asked.policy))
    kept = with_limits(policy.robot, asked.limits)
    known = asked.ground is not None or asked.obstacles is not None
    around = (
        Obstacles.load(asked.obstacles, asked.ground)
        if asked.obstacles
        else Obstacles(ground=asked.ground)
    )
    scene: dict[str, Any] = {"goal": np.array(asked.goal)}
    scene |= {"obstacles": around} if "spheres" in policy.scene else {}
    nothing: dict[str, Any] = {
        name: np.zeros(policy.scene[name]) for name in FELT if name in policy.scene
    }
    # a goal of another shape is told of here
    policy(policy.robot.home, np.zeros(policy.robot.limits.n), 0.0, **scene | nothing)
    with contextlib.ExitStack() as cleanup:
        pressed = emergency_stop()
        log = Log(asked.log, kept.joints)  # first: where none can be written nothing should move
        cleanup.callback(log.close)
        arm = _connect(asked, policy, kept.joints, cleanup)
        limits = {"speed": asked.speed, "margin": MARGIN, "tcp_speed": asked.tcp_speed}
        limits["obstacles"] = around if known else None
        # an arm that is sent nothing stays where it is
        follows = FOLLOWS if not asked.dry_run else np.pi * 100.0
        try:
            overdue = max(Watchdog.COMMAND_AGE, PERIODS / policy.rate)
            safe = SafetyFilter(kept, arm.rate, policy.rate, **limits)
            watch = Watchdog(safe, following=follows, command_age=overdue)
            region = policy.metadata["task"]["constants"]["start_spread"] + NEAR
            mind = PolicyProcess(str(asked.policy))
            cleanup.callback(mind.close)
            start = wait_for_calm_start(
                arm, watch, policy.robot.home, region, BOOT if asked.arm == SIMULATED else 5.0
            )
            _check_felt(policy, start, asked.arm)
            mind.prepare(start, scene)
            # it is still there
            start = wait_for_calm_start(arm, watch, policy.robot.home, region, calm=MEANWHILE)
            watch.reset(start.q, start.stamp)
        except BaseException:
            arm.stop()  # gives it back to whoever moves it next
            raise
        latency = min(arm.latency, LONGEST) if asked.latency is None else asked.latency
        ahead = f", seen {1e3 * latency:.0f} ms ahead" if latency else ""
        print(
            f"{policy.robot.name} moves at {asked.speed:.0%} of its speed{ahead}; "
            "Enter or Ctrl-C stops it"
        )
        how = {
            "latency": latency,
            "policy_rate": policy.rate,
            "speed": asked.speed,
            "seconds": asked.seconds,
            "estimate": _print_latency if asked.latency is None and not asked.dry_run else None,
        }
        return run_control_loop(
            arm, mind, watch, scene, **how, log=log, pressed=pressed, send=not asked.dry_run
        )


def _check_felt(policy: Policy, start: Reading, arm: str) -> None:
    """Refuse an arm that does not measure what the policy feels."""
    missing = [name for name in FELT if name in policy.scene and name not in start.felt]
    if missing:
        raise DeployError(
            f"the policy feels {' and '.join(missing)}, which arm {arm!r} does not measure"
        )


def _print_latency(seconds: float) -> None:
    print(f"the arm's motion shows a latency of {1e3 * seconds:.0f} ms")


def _connect(
    asked: Arguments, policy: Policy, joints: tuple[str, ...], cleanup: contextlib.ExitStack
):
    """The arm, whose joints have these names; a simulated one is started."""
    if asked.arm != SIMULATED:
        return connect(asked.arm, asked.host, joints)
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    faults = Faults(asked.delay, asked.jitter, asked.drop, asked.duplicate, asked.corrupt)
    named = policy.metadata.get("simulator", {"robot": policy.robot.name})
    if asked.xacro:
        named = {**named, "xacro": asked.xacro}
    process = multiprocessing.get_context("spawn").Process(
        target=simulate, args=(named, sock, faults), daemon=True
    )
    process.start()
    cleanup.callback(process.kill)
    arm = UdpArm(sock.getsockname(), policy.robot.limits.n, faults.latency)
    arm.send(np.zeros(policy.robot.limits.n))  # so that it knows where to send its states
    return arm


def simulate(named: dict, sock: socket.socket, faults: Faults) -> None:
    """The simulated arm's process; `named` is what its robot is made from."""
    import envs
    from envs.config.assignments import parse_assignments
    from envs.export.simulated_arm import SimulatedArm

    for name in TERMINAL:
        signal.signal(getattr(signal, name), signal.SIG_IGN)  # they are for the loop, which brakes
    robot = envs.make_robot(
        named["robot"],
        named.get("gripper"),
        named.get("tcp"),
        xacro=parse_assignments("xacro", named.get("xacro", ())),
        base=named.get("base"),
        velocity=named.get("velocity", ()),
        acceleration=named.get("acceleration"),
    )
    serve(SimulatedArm(robot, PERIOD), sock, faults)
