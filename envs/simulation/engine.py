"""The Protocol of a simulation engine, and the robot and its state as every engine has them.

State in, state out: nothing here keeps or draws anything.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from envs import kinematics
from envs.kinematics import Chain
from envs.robots import Robot
from envs.simulation.grasp import Hand, compile_hand
from td3_robot.errors import ConfigError, not_none

# The configuration of an episode by name, one row an arm: at least `goal` (B, g). All that a step
# depends on besides the arm.
Scene = dict[str, Tensor]

OBJECT = "object"  # the cube in a scene that a hand grasps
SUPPORT = "support"  # the cube that the other can be put on
CLOCK = "clock"  # time since the arm began [s]


@dataclass(frozen=True)
class SimModel:
    """The robot as tensors on one device: all that stays the same over time.

    Attributes:
        chain: kinematics from base to TCP.
        qlim: (2, n) [rad or m]; qdlim: (n,) [rad/s or m/s].
        dqd: (n,) largest change of velocity in one control step, qddlim * dt; infinite without
            qddlim.
        dt: control period [s].
        gripper_stroke: driver coordinate when closed and when open [rad or m].
        gripper_step: largest change of the driver coordinate in one control step.
        driver_mimic: (2,) position of the right and left driver joint as multiples of the driver
            coordinate; (0,) for an arm without a gripper.
        position_joints: how many joints can move the TCP. The last joint of most arms cannot: its
            axis passes through the TCP, and it only turns the gripper.
        qdddlim: (n,) [rad/s3 or m/s3], or None where none is known; never reached, see
            `compile_robot`.
        hand: the parts of the gripper that can touch a cube; None without a cube.
    """

    chain: Chain
    qlim: Tensor
    qdlim: Tensor
    dqd: Tensor
    dt: float
    gripper_stroke: tuple[float, float]
    gripper_step: float
    driver_mimic: Tensor
    position_joints: int
    qdddlim: Tensor | None = None
    hand: Hand | None = None


@dataclass(frozen=True)
class SimState:
    """The state of B arms."""

    q: Tensor  # (B, n) [rad or m]
    qd: Tensor  # (B, n) now [rad/s or m/s]
    gripper: Tensor  # (B,) driver coordinate [rad or m]


@dataclass(frozen=True)
class Command:
    """The commands of B arms for one control period.

    Attributes:
        joints: (B, n), clipped to [-1, 1]: the fraction of each joint's velocity limit.
        grip: (B,) wanted opening of the gripper in [0, 1], 1 is open; None leaves it as it is.
    """

    joints: Tensor
    grip: Tensor | None = None


class Engine(Protocol):
    """Advances the world by one control period; tasks do not know which engine it is."""

    def begin(self, model: SimModel, state: SimState, scene: Scene) -> Scene:
        """Return the scene of arms at rest, with the engine's own values of an episode added."""
        ...

    def step(
        self, model: SimModel, state: SimState, command: Command, scene: Scene
    ) -> tuple[SimState, Scene]:
        """Move the arms, and of the scene what they can move: a cube, `object` (B, 3) [m] and
        `held` (B,) bool, and one that it can be put on, `support` (B, 3) [m].

        Returns:
            The state and the scene one period later; what was given stays as it was.
        """
        ...


def compile_robot(
    robot: Robot, dt: float, device: torch.device | str = "cpu", cube: float | None = None
) -> SimModel:
    """Turn a Robot into the tensors that `step` needs.

    There is no jerk limit, because none is needed: the acceleration stays within ±qddlim, so it
    changes by at most 2 qddlim from one period to the next. Over a period that is a jerk of 2
    qddlim / dt, far below a real arm's limit unless the period is a few milliseconds.

    Args:
        dt: the control period [s].
        cube: side of the cube that is around, for the gripper to grasp [m]; None where there is
            none.

    Raises:
        ConfigError: dt is so short that the jerk limit could be exceeded, or the gripper cannot
            grasp the cube.
    """
    if robot.qdddlim is not None and dt < (
        shortest := float((2 * not_none(robot.qddlim) / robot.qdddlim).max())
    ):
        raise ConfigError(
            f"dt must be at least {shortest:g} s for robot {robot.name!r}, got {dt:g}: the "
            "simulator holds speed and acceleration, not jerk, which they bound only over longer "
            "periods"
        )

    def tensor(x):
        return torch.as_tensor(x, dtype=torch.float32, device=device)

    hand = robot.gripper
    if cube is not None and hand is None:
        raise ConfigError(f"a cube to grasp needs a gripper, and robot {robot.name!r} has none")
    return SimModel(
        chain=robot.chain.to(device),
        qlim=tensor(robot.qlim),
        qdlim=tensor(robot.qdlim),
        dqd=tensor(robot.qddlim * dt)
        if robot.qddlim is not None
        else torch.full_like(tensor(robot.qdlim), torch.inf),
        dt=dt,
        gripper_stroke=(hand.closed, hand.opened) if hand else (0.0, 0.0),
        gripper_step=hand.speed * dt if hand else 0.0,
        driver_mimic=tensor(hand.mimic[list(hand.drivers)] if hand else []),
        position_joints=_count_position_joints(robot),
        qdddlim=tensor(robot.qdddlim) if robot.qdddlim is not None else None,
        hand=compile_hand(not_none(hand), cube, device) if cube is not None else None,
    )


def _count_position_joints(robot: Robot) -> int:
    """Count the joints up to the last one that moves the TCP, at poses spread over the limits."""
    lower, upper = torch.as_tensor(robot.qlim)
    q = lower + torch.linspace(0.1, 0.9, 9, dtype=torch.float64)[:, None] * (upper - lower)
    J_v = kinematics.jacob0(robot.chain.to(dtype=torch.float64), q)[:, :3]
    moves = (J_v.abs() > 1e-6).any(0).any(0)  # chain constants are rounded to float32
    return int(moves.nonzero().max()) + 1


def make_rest_state(model: SimModel, q: Tensor) -> SimState:
    """Return arms at rest at q (B, n) with the gripper open."""
    return SimState(q, torch.zeros_like(q), q.new_full((q.shape[0],), model.gripper_stroke[1]))


def batched_o(model: SimModel, state: SimState) -> Tensor:
    """Return `envs.o` of every simulated arm: (B, n + 2), or (B, n) without a gripper."""
    return torch.cat((state.q, state.gripper[:, None] * model.driver_mimic), 1)


def make_cube_key(name: str, what: str) -> str:
    """Return the scene's key for a property of one of its cubes."""
    return what if name == OBJECT else f"{name}_{what}"
