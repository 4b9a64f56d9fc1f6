"""Open a door by its handle; where its hinge is, and how hard it turns, is not known.

A task outside the package, see README.md in this folder. The hand holds a handle that stands on
the door's upper edge, and pulls it along an arc whose middle is known only roughly. What
the hand feels tells the rest. Needs contact physics.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from envs import kinematics
from envs.controllers import register_controller
from envs.controllers.controlled import Controlled
from envs.kinematics.inverse import solve_pose
from envs.kinematics.least_squares import damped_least_squares
from envs.kinematics.pointing_down import turn_down
from envs.kinematics.rotations import to_matrix
from envs.planning.contact_check import is_free
from envs.robots import Robot
from envs.simulation.bodies import AllowedContact, Body, BodyJoint, Geom, PhysicsSpec
from envs.simulation.engine import Command, Scene, batched_o
from envs.simulation.grasp import compile_hand, compute_hand_axes, find_driver
from envs.tasks.layout import Column, arm_columns
from envs.tasks.measures import Measure
from envs.tasks.registry import register_task
from envs.tasks.shapes import Shape, make_body_shapes
from envs.tasks.task import Outcome, Task
from envs.world import Moment, World
from td3_robot.errors import not_none

WIDTH = 0.016  # of the handle [m]
PANEL = (0.12, 0.01, 0.07)  # half sides of the door [m]
ROOM = 0.03  # between the middle of the hand's fingers and the door's upper edge [m]
SQUEEZE = 1e-3  # [m] by which the fingers are nearer together at the start, so that both press
ROOM_TO_LIMITS = 0.1  # [rad] of joints on the way
CANDIDATES = 512  # scenes sampled at a time
_LENGTH_UNIT = 0.1  # [m] of observed distances
_FORCE_UNIT = 10.0  # [N]
_MASS_UNIT = 10.0  # [kg]


@register_task("door", constants=Path(__file__).with_suffix(".yaml"))
@dataclass(frozen=True)
class Door(Task):
    """The task `door`; the values of its constants are in door.yaml.

    A goal (3,) is the handle of the shut door. The scene also holds `hinge` (2,), the hinge as
    assumed [m]; `door` (7,), the frame of the shut door at its handle, with x away from the true
    hinge; and `door_joint` (), how far it is open [rad].

    Attributes:
        angle: to open [rad].
        radius: least and greatest, of the handle from the hinge [m].
        turn: greatest, of the shut door from straight across [rad].
        friction, damping: least and greatest, of the hinge [Nm, Nm s/rad].
        mass: least and greatest, of the door [kg].
        force_limit: greatest force between hand and door in an episode that succeeds [N].
        region: half sides of the box that handles lie in, around the middle of the workspace, and
            least and greatest height [m].
        speed: share of the joints' speed limits that an action of 1 stands for.
        servo_stiffness, servo_damping: of the arm, in parts of those of its file.
        way_weight: reward lost per step with the door shut.
        force_weight: reward lost for the force limit, from two thirds of it on.
        success_weight, failure_weight: reward of a success, and lost with too much force.
        action_weight: reward lost for a full-speed command of all joints.
    """

    angle: float
    radius: tuple[float, float]
    turn: float
    friction: tuple[float, float]
    damping: tuple[float, float]
    mass: tuple[float, float]
    force_limit: float
    region: tuple[float, float, float, float]
    speed: float
    softness: float
    servo_stiffness: float
    servo_damping: float
    way_weight: float
    force_weight: float
    success_weight: float
    failure_weight: float
    action_weight: float

    engines = ("mujoco",)
    controllers = ("open_door",)
    needs_hand = True
    ends_early = True
    memory_keys = ("goal", "hinge", "door_joint", "wrench", "contact_forces")
    measures = (
        Measure("door_force_n", "door_force", "most", "most", "force on the door", "N"),
        Measure("door_angle_deg", "door_angle", "last", "quantiles", "door open", "deg"),
    )

    @property
    def criterion(self) -> str:
        """The condition of success, in words."""
        return f"the door {self.angle:g} rad open, with never more than {self.force_limit:g} N"

    @property
    def physics(self) -> PhysicsSpec:
        """The door on its hinge, whose frame is in the middle of the handle."""
        handle = Geom("capsule", (WIDTH / 2.0, 0.02), (0.0, 0.0, -0.005), friction=0.5)
        panel = Geom("box", PANEL, (0.02 - PANEL[0], 0.0, -ROOM - PANEL[2]))
        joint = BodyJoint("hinge", anchor=(-sum(self.radius) / 2.0, 0.0, 0.0), limits=(0.0, 1.5))
        varied = ("mass", "anchor", "joint_friction", "joint_damping")
        return PhysicsSpec(
            bodies=(Body("door", (handle, panel), "jointed", varied=varied, joint=joint),),
            contacts=(AllowedContact("hand", "door", self.force_limit),),
            senses=("wrench",),
            constants={"solref": (self.softness, 1.0)},
            servo_stiffness=self.servo_stiffness,
            servo_damping=self.servo_damping,
        )

    def make_world(
        self, robot: Robot, device: torch.device | str, collision: bool = False
    ) -> World:
        """Compile the robot with a hand that closes around the handle."""
        made = super().make_world(robot, device, collision)
        hand = compile_hand(not_none(robot.gripper), WIDTH, device)
        return replace(made, model=replace(made.model, hand=hand))

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """Sample doors whose handles the arm can bring all the way, with its hand pointing down."""
        count = min(count, CANDIDATES)
        drawn = torch.rand(count, 8, generator=generator, device=world.device)

        def spread(column: int, limits: tuple[float, ...]) -> Tensor:
            return limits[0] + (limits[1] - limits[0]) * drawn[:, column]

        half_x, half_y, low, high = self.region
        middle = world.workspace.mean(0)
        x = middle[0] + spread(0, (-half_x, half_x))
        y = middle[1] + spread(1, (-half_y, half_y))
        handle = torch.stack((x, y, spread(2, (low, high))), 1)
        across = torch.pi / 2.0 + spread(3, (-self.turn, self.turn))
        radius = spread(4, self.radius)
        driver = float(find_driver(not_none(world.model.hand), WIDTH - SQUEEZE))
        chain, qlim = world.model.chain, world.model.qlim
        start, good, _ = solve_pose(
            chain, qlim, world.home.expand(count, -1), handle, _point_down(world, 0.0 * across)
        )
        handle = kinematics.fkine(chain, start)[:, :3, 3]
        q = start
        for part in (0.0, 0.25, 0.5, 0.75, 1.0):
            turned = (across - torch.pi / 2.0 + self.angle) * part
            moved = _move_along(handle, across, radius, part * self.angle)
            q, arrived, _ = solve_pose(chain, qlim, q, moved, _point_down(world, turned))
            room = torch.minimum(q - qlim[0], qlim[1] - q).amin(1)
            good = good & arrived & (room > ROOM_TO_LIMITS) & is_free(world, q, driver=driver)
        level = torch.zeros_like(across)
        turned = torch.stack(((across / 2.0).cos(), level, level, (across / 2.0).sin()), 1)
        hinge = handle[:, :2] - handle.new_tensor([0.0, sum(self.radius) / 2.0])
        scene = {
            "goal": handle,
            "hinge": hinge,
            "door": torch.cat((handle, turned), 1),
            "door_joint": level,
            "door_anchor": torch.stack((-radius, level, level), 1),
            "door_mass": spread(5, self.mass),
            "door_joint_friction": spread(6, self.friction),
            "door_joint_damping": spread(7, self.damping),
            "start": start,
            "start_gripper": torch.full_like(level, driver),
        }
        return {name: value[good] for name, value in scene.items()}

    def make_command(self, world: World, moment: Moment, action: Tensor) -> Command:
        """Return the command of the joints, with the fingers pressing on the handle."""
        return Command(self.speed * action, torch.zeros_like(action[:, 0]))

    def list_columns(self, world: World) -> list[Column]:
        """List the columns of `observe`."""
        return [
            *arm_columns(world),
            Column("goal", 3, tells_goal=True),
            Column("way", 2, tells_goal=True),
            Column("arm", 2, tells_goal=True),
            Column("tangent", 2, tells_goal=True),
            Column("speed", 1),
            Column("force", 3),
            Column("scripted", len(world.model.qdlim), tells_goal=True),
        ]

    def observe(self, world: World, moment: Moment) -> Tensor:
        """Return the observation (B, o_dim).

        Its columns are o [rad, m]; qd [rad/s]; goal [m]; way, of the TCP since the door was shut
        [0.1 m]; arm, from the assumed hinge to the TCP [0.1 m]; tangent and speed, see `Feeling`
        [m/s]; the force that is felt [10 N]; and scripted, the action of the controller
        `open_door`.
        """
        felt = feel(world, moment)
        return torch.cat(
            (
                batched_o(world.model, moment.state),
                moment.state.qd,
                moment.scene["goal"],
                (moment.tcp - moment.scene["goal"])[:, :2] / _LENGTH_UNIT,
                (moment.tcp[:, :2] - moment.scene["hinge"]) / _LENGTH_UNIT,
                felt.tangent,
                felt.speed[:, None],
                moment.wrench[:, :3] / _FORCE_UNIT,
                compute_action(world, moment, self.speed),
            ),
            1,
        )

    def list_privileged(self, world: World) -> list[Column]:
        """List the columns of `observe_privileged`."""
        return [
            Column("door_joint", 1),
            Column("radius", 1),
            Column("hinge_error", 2),
            Column("mass", 1),
            Column("joint_friction", 1),
            Column("joint_damping", 1),
        ]

    def observe_privileged(self, world: World, true: Moment) -> Tensor:
        """Return how far the door is open and how it turns (B, 7), for critics alone.

        Its columns are the angle [rad]; the radius and the hinge's error [0.1 m]; the mass [10 kg];
        and friction and damping of the hinge [Nm, Nm s/rad].
        """
        scene = true.scene
        R = to_matrix(scene["door"][:, 3:])
        hinge = scene["door"][:, :2] + scene["door_anchor"][:, :1] * R[:, :2, 0]
        return torch.cat(
            (
                scene["door_joint"][:, None],
                -scene["door_anchor"][:, :1] / _LENGTH_UNIT,
                (hinge - scene["hinge"]) / _LENGTH_UNIT,
                scene["door_mass"][:, None] / _MASS_UNIT,
                scene["door_joint_friction"][:, None],
                scene["door_joint_damping"][:, None],
            ),
            1,
        )

    def compute_outcome(self, world: World, moment: Moment, action: Tensor) -> Outcome:
        """Return success, the way that is missing, and the terms of the reward."""
        opened = moment.scene["door_joint"]
        left = (self.angle - opened).clamp_min(0.0)
        missing = -moment.scene["door_anchor"][:, 0] * left
        force = moment.scene["contact_forces"][:, 0]
        success = missing < self.tolerance
        failed = force > self.force_limit
        terms = {
            "way": -self.way_weight * left / self.angle,
            "force": -self.force_weight * (3.0 * force / self.force_limit - 2.0).clamp(0.0, 1.0),
            "success": self.success_weight * (success & ~failed),
            "failure": -self.failure_weight * failed,
            "action": -self.action_weight * action.square().mean(1),
        }
        measures = {"door_force": force, "door_angle": opened}
        return Outcome(success, missing, terms, measures, success | failed)

    def make_shapes(self, world: World, moment: Moment) -> list[Shape]:
        """List the shapes of the door and its handle."""
        return make_body_shapes(self.physics, moment)


def _point_down(world: World, turn: Tensor) -> Tensor:
    """Return the orientations (B, 3, 3) of a TCP whose hand points down and closes across a door.

    Args:
        turn: (B,) of the door about the vertical [rad]; at zero it is straight across.
    """
    axes = not_none(world.model.hand).axes
    level = torch.zeros_like(turn)
    closing = torch.stack((turn.cos(), turn.sin(), level), 1)
    approach = torch.stack((level, level, level - 1.0), 1)
    across = torch.linalg.cross(closing, approach)
    return torch.stack((across, closing, approach), 2) @ axes.T


def _move_along(handle: Tensor, across: Tensor, radius: Tensor, angle: float) -> Tensor:
    """Return handles (B, 3) [m] after their doors have turned by an angle [rad].

    Args:
        across: (B,) direction from hinge to handle of the shut door [rad].
        radius: (B,) [m].
    """
    arm = radius[:, None] * torch.stack((across.cos(), across.sin()), 1)
    moved = _turn(arm, torch.full_like(across, angle)) - arm
    return handle + torch.nn.functional.pad(moved, (0, 1))


def _turn(vector: Tensor, angle: Tensor) -> Tensor:
    """Turn vectors (B, 2) about the vertical by angles (B,) [rad]."""
    c = angle.cos()
    s = angle.sin()
    x, y = vector.unbind(1)
    return torch.stack((c * x - s * y, s * x + c * y), 1)


# The program


@dataclass(frozen=True)
class OpenDoorConstants:
    """Constants of the program, tuned on episodes of a seed of their own.

    Attributes:
        fastest: speed along the arc [m/s].
        pull: force that it pulls with [N]; pull_gain: speed per force that is missing [m/s/N].
        ramp: speed that it gains in a period at most [m/s].
        comply: speed per force from aside [m/s/N].
        known: way from which on it tells the direction [m].
        gain: of height and orientation [1/s].
        damping: see `ResolvedRate` [m/rad].
    """

    fastest: float = 0.25
    pull: float = 30.0
    pull_gain: float = 0.01
    ramp: float = 0.03
    comply: float = 1.5e-3
    known: float = 0.05
    gain: float = 0.7
    damping: float = 0.02


DEFAULTS = OpenDoorConstants()


@dataclass(frozen=True)
class Feeling:
    """Quantities that the program knows, in the base frame.

    Attributes:
        tangent: (B, 2) unit vector along the handle's way: by the way that is behind it, or as
            assumed.
        speed: (B,) of the hand along it [m/s].
        pull: (B,) force that the hand pulls with along it [N].
        aside: (B, 2) force on the hand at a right angle to it [N].
    """

    tangent: Tensor
    speed: Tensor
    pull: Tensor
    aside: Tensor


def feel(world: World, moment: Moment, constants: OpenDoorConstants = DEFAULTS) -> Feeling:
    """Return what is known at a moment."""
    arm = moment.tcp[:, :2] - moment.scene["hinge"]
    radius = torch.linalg.vector_norm(arm, dim=1)
    assumed = torch.stack((-arm[:, 1], arm[:, 0]), 1) / radius[:, None]
    way = (moment.tcp - moment.scene["goal"])[:, :2]
    # a chord of a circle is parallel to the tangent in its middle
    half = torch.linalg.vector_norm(way, dim=1) / (2.0 * radius)
    seen = _turn(torch.nn.functional.normalize(way, dim=1), half)
    share = ((way * assumed).sum(1) / constants.known).clamp(0.0, 1.0)[:, None]
    tangent = torch.nn.functional.normalize(assumed + share * (seen - assumed), dim=1)
    velocity = (moment.J[:, :2] @ moment.state.qd[:, :, None])[:, :, 0]
    force = moment.wrench[:, :2]
    along = (force * tangent).sum(1)
    return Feeling(tangent, (velocity * tangent).sum(1), -along, force - along[:, None] * tangent)


def compute_action(
    world: World, moment: Moment, speed: float, constants: OpenDoorConstants = DEFAULTS
) -> Tensor:
    """Compute the action (B, n) that pulls along the arc with a force.

    Args:
        speed: share of the joints' speed limits that an action of 1 stands for.
    """
    felt = feel(world, moment, constants)
    wanted = constants.pull_gain * (constants.pull - felt.pull)
    most = (felt.speed.clamp_min(0.0) + constants.ramp).clamp_max(constants.fastest)
    along = torch.minimum(wanted, most).clamp_min(0.0)
    across = along[:, None] * felt.tangent + constants.comply * felt.aside
    up = (moment.scene["goal"] - moment.tcp)[:, 2:]
    axes = compute_hand_axes(not_none(world.model.hand), moment.T_be)
    closing = axes[:, :2, 1]
    sine = felt.tangent[:, 1] * closing[:, 0] - felt.tangent[:, 0] * closing[:, 1]
    turn = torch.atan2(-sine, -(felt.tangent * closing).sum(1))[:, None]
    corrections = constants.gain * torch.cat((up, turn_down(axes[:, :, 2]), turn), 1)
    twist = torch.cat((across, corrections), 1)
    action = damped_least_squares(moment.J, twist, constants.damping) / (speed * world.model.qdlim)
    return action / action.abs().amax(1, keepdim=True).clamp_min(1.0)


@register_controller("open_door")
class OpenDoor:
    """Pull along an arc with a constant force, by the way behind the handle and by feel.

    Args:
        env: an environment of the task `door` to act in.
        constants: of the program.
    """

    def __init__(self, env: Controlled, constants: OpenDoorConstants = DEFAULTS):
        self._env = env
        self._constants = constants

    def __call__(self, observation: Tensor) -> Tensor:
        """Return the action (B, n) in [-1, 1] for the environment's moment."""
        env = self._env
        return compute_action(env.world, env.moment, env.task.speed, self._constants)
