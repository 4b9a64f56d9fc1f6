"""Insert: put a peg that the hand holds into a hole whose place is known only roughly.

Contact is the task: the peg may press on the block around the hole with up to `force_limit`. The
arm's place is exact enough to find the hole only within millimetres; what it feels tells the rest.
Needs contact physics.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from envs import kinematics
from envs.config.env_options import MUJOCO
from envs.controllers import insertion, peg_contact
from envs.controllers.insert_constants import DEFAULTS, InsertConstants
from envs.controllers.peg_contact import MEMORY, Feeling
from envs.kinematics.inverse import solve_pose
from envs.kinematics.pointing_down import solve_pointing_down
from envs.kinematics.rotations import from_vector, to_matrix, to_quaternion
from envs.planning.contact_check import is_free
from envs.robots import Robot
from envs.simulation.bodies import HELD, PLACED, WRENCH, AllowedContact, Body, PhysicsSpec
from envs.simulation.engine import CLOCK, Command, batched_o
from envs.simulation.force_sensors import measure_forces
from envs.simulation.grasp import compile_hand, find_driver
from envs.tasks.layout import Column, arm_columns
from envs.tasks.measures import Measure
from envs.tasks.pegs import make_hole, make_peg
from envs.tasks.pointing import describe_tilt
from envs.tasks.registry import register_task
from envs.tasks.shapes import Shape, make_body_shapes
from envs.tasks.task import Outcome, Task
from envs.world import Moment, Scene, World
from td3_robot.errors import ConfigError, not_none

CANDIDATES = 512  # scenes sampled at a time
_CLOCKS = (CLOCK, *MEMORY)  # parts of the scene that are zero where an episode begins
_LENGTH_UNIT = 0.005  # [m] of observed distances
_SUNK_UNIT = 0.001  # [m]
_LEAN_UNIT = 0.1  # [rad]
_FORCE_UNIT = 10.0  # [N]
_MOMENT_UNIT = 0.5  # [Nm]
_OUTSIDE_DEPTH = 0.002  # [m] depth from which on the peg counts as inside, not outside


@register_task("insert")
@dataclass(frozen=True)
class Insert(Task):
    """The task `insert`; the values of its constants are in configs/tasks/insert.yaml.

    A goal (7,) is the pose of the TCP with the peg at the bottom of the hole, as it is assumed. The
    scene also holds `hole` (7,), the true pose of the hole's mouth, `hole_friction` (), and `clock`
    (), the time since the start [s]: a policy without memory that sees it can search along a path.
    `searched` () [s], `sunk` () [m] and `seated` () [s] remember the first contact and the first
    hold between walls, see `peg_contact.Feeling`; they tell a surface from the hole where its
    height is not known.

    Attributes:
        shape: of peg and hole, "square" or "round".
        width, length: of the peg [m].
        reach: distance of the peg's tip from the TCP [m].
        radial_clearance: of the peg in the hole, on each side [m].
        depth: of the hole [m].
        chamfer: height and breadth of the bevel around its mouth [m].
        offset, height_offset: greatest error of the assumed place, each axis, and of its height
            [m].
        tilt, yaw: greatest error of the assumed direction and turn of the hole [rad].
        friction: least and greatest, between peg and block.
        force_limit: greatest force of the peg on the block in an episode that succeeds [N].
        start_height: of the peg's tip over the assumed surface at the start [m].
        region: half sides of the box that holes lie in, around the middle of the workspace, and
            least and greatest height of the surface [m].
        speed: share of the joints' speed limits that an action of 1 stands for.
        shows_force: whether a policy sees what is felt.
        stiffness: time constant of the contacts of the physics [s].
        timestep: of the physics [s].
        servo_stiffness, servo_damping: of the arm, in parts of those of its file.
        depth_weight: reward lost per step with the peg's tip at the surface.
        aside_weight: reward lost per millimetre between the axes of peg and hole, outside.
        force_weight: reward lost for the force limit, from half of it on.
        success_weight, failure_weight: reward of a success, and lost with too much force.
        action_weight: reward lost for a full-speed command of all joints.
    """

    shape: Literal["square", "round"]
    width: float
    length: float
    reach: float
    radial_clearance: float
    depth: float
    chamfer: float
    offset: float
    height_offset: float
    tilt: float
    yaw: float
    friction: tuple[float, float]
    force_limit: float
    start_height: float
    region: tuple[float, float, float, float]
    speed: float
    shows_force: bool
    stiffness: float
    timestep: float
    servo_stiffness: float
    servo_damping: float
    depth_weight: float
    aside_weight: float
    force_weight: float
    success_weight: float
    failure_weight: float
    action_weight: float

    program: ClassVar[InsertConstants] = DEFAULTS  # of the programs that it has
    engines = (MUJOCO,)
    controllers = ("insert_tilted", "insert_spiral", "insert_straight")
    needs_hand = True
    ends_early = True
    memory_keys = ("goal", "hole", *_CLOCKS, WRENCH, "contact_forces")
    tcp_keys = MEMORY
    measures = (
        Measure("insert_force_n", "insert_force", "most", "most", "force of the peg", "N"),
        Measure("insert_depth_m", "insert_depth", "last", "quantiles", "depth of the peg", "mm"),
    )

    @property
    def criterion(self) -> str:
        """The condition of success, in words."""
        return (
            f"the peg {1000 * (self.depth - self.tolerance):g} mm deep, "
            f"never pressed with more than {self.force_limit:g} N"
        )

    @property
    def physics(self) -> PhysicsSpec:
        """The peg in the hand, the block with the hole, and the wrench that is felt."""
        middle = 0.5 * (self.friction[0] + self.friction[1])
        peg = make_peg(self.shape, self.width, self.length, self.friction[0])
        width = self.width + 2.0 * self.radial_clearance
        hole = make_hole(self.shape, width, self.depth, self.chamfer, middle)
        held = (0.0, 0.0, self.reach - self.length / 2.0)
        return PhysicsSpec(
            bodies=(
                Body("peg", (peg,), HELD, position=held, mass=0.1),
                Body("hole", hole, PLACED, varied=("friction",)),
            ),
            contacts=(AllowedContact("peg", "hole", self.force_limit),),
            senses=(WRENCH,),
            constants={
                "timestep": self.timestep,
                "solref": (self.stiffness, 1.0),
                "solimp": (0.99, 0.999, 1e-4, 0.5, 2.0),
            },
            servo_stiffness=self.servo_stiffness,
            servo_damping=self.servo_damping,
        )

    def make_world(
        self, robot: Robot, device: torch.device | str, collision: bool = False
    ) -> World:
        """Compile the robot with a hand that holds the peg."""
        if robot.gripper is None:
            raise ConfigError(f"a peg needs a gripper, and robot {robot.name!r} has none")
        made = super().make_world(robot, device, collision)
        hand = compile_hand(robot.gripper, self.width, device)
        return replace(made, model=replace(made.model, hand=hand))

    # Scenes

    def sample_scenes(self, world: World, count: int, generator: torch.Generator) -> Scene:
        """Sample holes that the arm can reach with the peg straight down, and starts over them."""
        count = min(count, CANDIDATES)
        share = torch.rand(count, 9, generator=generator, device=world.device)
        centre = world.workspace.mean(0)
        half_x, half_y, low, high = self.region
        tip = torch.stack(
            (
                centre[0] + half_x * (2.0 * share[:, 0] - 1.0),
                centre[1] + half_y * (2.0 * share[:, 1] - 1.0),
                low + (high - low) * share[:, 2] - self.depth,
            ),
            1,
        )
        chain, qlim = world.model.chain, world.model.qlim
        up = tip.new_tensor([0.0, 0.0, 1.0])
        home = world.home.expand(count, -1)
        axis = not_none(world.model.hand).axes[:, 2]
        q, reached = solve_pointing_down(chain, qlim, axis, home, tip + self.reach * up)
        T = kinematics.fkine(chain, q)
        over = T[:, :3, 3] - (self.depth + self.start_height) * T[:, :3, 2]
        start, arrived, left = solve_pose(chain, qlim, q, over, T[:, :3, :3])
        driver = float(find_driver(not_none(world.model.hand), self.width))
        good = reached & arrived & (left < 2e-3) & is_free(world, q, driver=driver)
        good = good & is_free(world, start, driver=world.model.gripper_stroke[1])
        friction = self.friction[0] + (self.friction[1] - self.friction[0]) * share[:, 8]
        scene = {
            "goal": torch.cat((T[:, :3, 3], to_quaternion(T[:, :3, :3])), 1),
            "hole": self._place_hole(T, share[:, 3:8]),
            "hole_friction": friction,
            **{name: torch.zeros_like(friction) for name in _CLOCKS},
            "start": start,
        }
        return {name: value[good] for name, value in scene.items()}

    def describe_lack(self, world: World) -> str:
        """Describe what may be wrong: often a hand that does not point down at the holes."""
        centre = world.workspace.mean(0)
        half_x, half_y, low, high = self.region
        half = centre.new_tensor([half_x, half_y, (high - low) / 2.0])
        centre[2] = (low + high) / 2.0 - self.depth + self.reach
        return describe_tilt(world, centre - half, centre + half) or super().describe_lack(world)

    def _place_hole(self, T: Tensor, share: Tensor) -> Tensor:
        """Return the true poses (B, 7) of holes that are assumed at the pegs of TCPs T (B, 4, 4).

        Args:
            share: (B, 5) in [0, 1], of the errors of x, y, height, direction and turn.
        """
        error = 2.0 * share - 1.0
        place = torch.cat((self.offset * error[:, :2], self.height_offset * error[:, 2:3]), 1)
        place[:, 2] += self.reach - self.depth
        position = T[:, :3, 3] + (T[:, :3, :3] @ place[:, :, None])[:, :, 0]
        # the direction in which it leans follows from the other errors, which are independent of it
        lean = math.pi * (error[:, 0] + error[:, 1] + error[:, 2])
        tilt = self.tilt * error[:, 3]
        vector = torch.stack((tilt * lean.cos(), tilt * lean.sin(), self.yaw * error[:, 4]), 1)
        upside_down = torch.diag(T.new_tensor([1.0, -1.0, -1.0]))  # a hole's z points out
        R = T[:, :3, :3] @ to_matrix(from_vector(vector)) @ upside_down
        return torch.cat((position, to_quaternion(R)), 1)

    def advance(self, world: World, before: Moment, after: Moment) -> Moment:
        """Let the clock run, and remember when and where the peg first pressed and was held, as it
        is felt: with the errors of the sensor.
        """
        measured = {**after.scene, **measure_forces(after.scene)}
        advanced = self.advance_known(world, before, replace(after, scene=measured))
        changed = {name: advanced.scene[name] for name in _CLOCKS}
        return replace(after, scene={**after.scene, **changed})

    def advance_known(self, world: World, before: Moment, after: Moment) -> Moment:
        """Return the same of what is observed."""
        approach = to_matrix(after.scene["goal"][:, 3:])[:, :, 2]
        advanced = ((self._find_tip(after) - self._find_tip(before)) * approach).sum(1)
        memory = peg_contact.update_memory(self.feel(after), advanced, self.dt, self.program)
        clock = self.dt * after.steps.to(after.tcp.dtype)
        return replace(after, scene={**after.scene, CLOCK: clock, **memory})

    def feel(self, moment: Moment) -> Feeling:
        """Return what is felt and remembered of the peg's contact at a moment."""
        return peg_contact.feel(moment, self.reach, self.depth, self.width / 2.0)

    def _find_tip(self, moment: Moment) -> Tensor:
        """Return the middle of the peg's tip (B, 3) in the base frame [m]."""
        return moment.tcp + self.reach * moment.T_be[:, :3, 2]

    def make_command(self, world: World, moment: Moment, action: Tensor) -> Command:
        """Return the command of the slow joints, with the fingers at the peg."""
        shut, opened = world.model.gripper_stroke
        driver = float(find_driver(not_none(world.model.hand), self.width))
        grip = torch.full_like(action[:, 0], (driver - shut) / (opened - shut))
        return Command(self.speed * action, grip)

    # Observation

    def list_columns(self, world: World) -> list[Column]:
        """List the columns of `observe`."""
        n = len(world.model.qdlim)
        felt = [Column("force", 3), Column("moment", 3)] if self.shows_force else []
        return [
            *arm_columns(world),
            Column("goal", 7, tells_goal=True),
            Column("aside", 2, tells_goal=True),
            Column("height", 1, tells_goal=True),
            Column("turn", 3, tells_goal=True),
            Column("clock", 1),
            Column("searched", 1),
            Column("sunk", 1),
            Column("seated", 1),
            *felt,
            Column("scripted", n, tells_goal=True),
        ]

    def observe(self, world: World, moment: Moment) -> Tensor:
        """Return the observation (B, o_dim).

        Its columns are o [rad, m]; qd [rad/s]; goal [m]; aside and height, of the peg over the
        assumed hole, and turn, see `peg_contact.Feeling` [5 mm, rad]; clock and searched [s]; sunk
        [1 mm]; seated [s]; force and moment on the peg's tip [10 N, 0.5 Nm]; and scripted, the
        action of the tilted strategy.
        """
        state = moment.state
        felt = self.feel(moment)
        parts = [
            batched_o(world.model, state),
            state.qd,
            moment.scene["goal"],
            felt.aside / _LENGTH_UNIT,
            felt.height[:, None] / _LENGTH_UNIT,
            felt.turn,
            moment.scene[CLOCK][:, None],
            felt.searched[:, None],
            felt.sunk[:, None] / _SUNK_UNIT,
            felt.seated[:, None],
        ]
        if self.shows_force:
            parts += [felt.force / _FORCE_UNIT, felt.moment / _MOMENT_UNIT]
        twist = insertion.compute_tilted(felt, self.program)
        scripted = insertion.convert_to_action(
            world, moment, twist, self.reach, self.speed, self.program.damping
        )
        return torch.cat((*parts, scripted), 1)

    def list_privileged(self, world: World) -> list[Column]:
        """List the columns of `observe_privileged`."""
        return [Column("place", 3), Column("lean", 2), Column("hole_friction", 1)]

    def observe_privileged(self, world: World, true: Moment) -> Tensor:
        """Return where the hole truly is, and its friction (B, 6).

        Its columns are place, of the peg's tip in the frame of the hole [5 mm]; lean, the peg's
        axis in that frame [0.1 rad]; and the coefficient of friction.
        """
        R = to_matrix(true.scene["hole"][:, 3:])
        lean = (true.T_be[:, :3, 2][:, :, None] * R).sum(1)[:, :2]
        place = self.locate_tip_in_hole(true)
        friction = true.scene["hole_friction"][:, None]
        return torch.cat((place / _LENGTH_UNIT, lean / _LEAN_UNIT, friction), 1)

    # Reward

    def compute_outcome(self, world: World, moment: Moment, action: Tensor) -> Outcome:
        """Return success, the depth that is missing, and the terms of the reward."""
        place = self.locate_tip_in_hole(moment)
        aside = torch.linalg.vector_norm(place[:, :2], dim=1)
        beside = aside > self.width  # the block: a tip that is low there is in no hole
        depth = torch.where(beside, 0.0, -place[:, 2])
        missing = (self.depth - depth).clamp_min(0.0)
        force = moment.scene["contact_forces"][:, 0]
        success = missing < self.tolerance
        failed = force > self.force_limit
        outside = (1.0 - depth / _OUTSIDE_DEPTH).clamp(0.0, 1.0)
        terms = {
            "depth": -self.depth_weight * missing / self.depth,
            "aside": -self.aside_weight * 1000.0 * aside * outside,  # the weight is per mm
            "force": -self.force_weight * (2.0 * force / self.force_limit - 1.0).clamp(0.0, 1.0),
            "success": self.success_weight * (success & ~failed),
            "failure": -self.failure_weight * failed,
            "action": -self.action_weight * action.square().mean(1),
        }
        measures = {"insert_force": force, "insert_depth": depth}
        return Outcome(success, missing, terms, measures, success | failed)

    def locate_tip_in_hole(self, moment: Moment) -> Tensor:
        """Return the peg's tips (B, 3) in the frame of the true hole [m]."""
        hole = moment.scene["hole"]
        return ((self._find_tip(moment) - hole[:, :3])[:, :, None] * to_matrix(hole[:, 3:])).sum(1)

    def achieved_goal(self, world: World, moment: Moment) -> Tensor:
        """Return the pose of the TCP (B, 7)."""
        return torch.cat((moment.tcp, to_quaternion(moment.T_be[:, :3, :3])), 1)

    def is_goal_met(self, achieved: Tensor, desired: Tensor) -> Tensor:
        """Return whether the TCP is `tolerance` near to a goal's position (B,)."""
        return torch.linalg.vector_norm((desired - achieved)[:, :3], dim=1) < self.tolerance

    def replace_goal(self, world: World, moment: Moment, goal: Tensor) -> Moment:
        """Return the moment with other goals (B, 7), and the true hole where they assume it but for
        the same error.
        """
        old = moment.scene["goal"]
        hole = moment.scene["hole"]
        turn = to_matrix(goal[:, 3:]) @ to_matrix(old[:, 3:]).mT
        position = goal[:, :3] + (turn @ (hole[:, :3] - old[:, :3])[:, :, None])[:, :, 0]
        pose = torch.cat((position, to_quaternion(turn @ to_matrix(hole[:, 3:]))), 1)
        return replace(moment, scene={**moment.scene, "goal": goal, "hole": pose})

    def make_shapes(self, world: World, moment: Moment) -> list[Shape]:
        """List the shapes of the peg and of the block with its hole."""
        return make_body_shapes(self.physics, moment)
