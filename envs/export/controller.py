"""The whole controller of one arm as a module that torch.onnx.export can trace: from what the arm
measures, through the simulator's own observation and a policy, to the velocities to command.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from envs.arm_env.arm_env import ArmEnv
from envs.arm_env.observed_state import predict_half_period
from envs.simulation.engine import CLOCK, OBJECT, SUPPORT, Scene, SimState
from envs.simulation.kinematic import move_cubes
from envs.world import make_moment

ARM = {
    "q": "joint positions, rad (m of joints that slide), in the robot's order of joints",
    "qd": "joint velocities, rad/s (m/s of joints that slide)",
    "gripper": "driver coordinate of the gripper, rad or m",
}
SCENE = {
    "goal": "wanted position, m, or position and unit quaternion wxyz, in the base frame",
    "goal_velocity": "velocity of the goal, m/s, in the base frame",
    OBJECT: "centre of the cube, m, in the base frame",
    SUPPORT: "centre of the cube to stack on, m, in the base frame",
    "held": "1 while the gripper holds the cube, else 0",
    "spheres": "centre and radius, m, in the base frame; spare ones at x, y, z = 1000 m",
    "boxes": "centre, half sides, m, and unit quaternion wxyz, in the base frame; spare as spheres",
    "walls": "unit normal and offset along it, m, in the base frame; spare ones at offset -1000 m",
    "sphere_velocities": "velocities of the spheres, m/s, in the base frame; 0 of spare ones",
    "box_velocities": "velocities of the boxes, m/s, in the base frame; 0 of spare ones",
    "solution": "joint positions that solve the goal, rad or m; work them out once for each goal",
    "via": "joint positions of the corner on the path to the solution, rad or m",
    "wrench": "external force, N, and moment, Nm, on the gripper at the TCP, in the base frame",
    "joint_torque": "external torques of the joints, Nm (N of joints that slide)",
    "passed": "1 when the arm has passed the corner, else 0",
    CLOCK: "time since the arm began, s",
    "searched": "time of the search since the peg first pressed with 1.5 N, s, and 0 before; a "
    "quarter as fast while the peg is more than 0.2 mm deeper than then",
    "sunk": "distance of the peg from there along the approach, m; 0 before",
    "seated": "time since two walls held the peg, s, and 0 before: both pressed with 6.3 N against "
    "its motion along the hand's x and y, and it had sunk by 1.5 mm",
}
OUTPUTS = ("command", "opening", "observation")
POSE = 7  # numbers of a goal that is a position and a quaternion


class Controller(nn.Module):
    """From the state of one arm and its scene to the command; nothing has a batch dimension.

    Args:
        env: of the task, without disturbances.
        policy: observations (B, o_dim) -> actions (B, a_dim).

    Attributes:
        examples: inputs of `forward` by name, as the first arm of the environment has them.
        outputs: names of what `forward` returns.
    """

    def __init__(self, env: ArmEnv, policy: nn.Module):
        super().__init__()
        self.policy = policy
        self._task = env.task
        self._world = env.world
        self._scene = {name: value[:1] for name, value in env.scene.items()}
        self._has_pose = has_canonical_poses(env)
        self.examples = list_inputs(env, 0)
        none = torch.zeros(env.num_envs, env.a_dim, dtype=torch.float32)
        command = env.task.make_command(env.world, env.moment, none)
        self.outputs = [name for name in OUTPUTS if name != "opening" or command.grip is not None]

    def forward(self, q: Tensor, qd: Tensor, gripper: Tensor, *scene: Tensor) -> tuple[Tensor, ...]:
        """Return the velocities (n,) [rad/s or m/s], the gripper's opening (1,) and the observation
        (o_dim,).

        Args:
            q, qd: (n,) [rad or m], [rad/s or m/s]; gripper: (1,) [rad or m].
            scene: in the order of `examples`.
        """
        task = self._task
        world = self._world
        around = _add_batch(self._scene, scene)
        if "held" in around and not task.moves_gripper:  # fingers that stay shut hold nothing
            around["held"] = torch.zeros(1, dtype=torch.bool)
        if self._has_pose:
            around["goal"] = canonicalize_pose(around["goal"])
        state = SimState(q[None], qd[None], gripper)
        moment = make_moment(world, state, around, torch.zeros(1, dtype=torch.long))
        moment = task.sense(world, predict_half_period(task, world, moment))
        observation = task.observe(world, moment)
        action = self.policy(observation).clamp(-1.0, 1.0)
        command = task.make_command(world, moment, action)
        qd_commanded = command.joints[0].clamp(-1.0, 1.0) * world.model.qdlim
        opening = () if command.grip is None else (command.grip,)
        return qd_commanded, *opening, observation[0]


class Carry(nn.Module):
    """The motion of cubes with a hand, as the kinematic engine computes it, for one arm.

    Args:
        env: of a task that moves the gripper.

    Attributes:
        examples: inputs of `forward` by name.
        outputs: names of what `forward` returns.
    """

    def __init__(self, env: ArmEnv):
        super().__init__()
        self._model = env.model
        first = list_inputs(env, 0)
        none = torch.zeros(1, dtype=torch.float32)
        self._pressed = {"contact_depth": none} if "contact_depth" in env.scene else {}
        self._names = [name for name in (OBJECT, SUPPORT, "held") if name in env.scene]
        self.examples = {name: first[name] for name in ("q", "gripper")}
        self.examples |= {f"{name}_next": value.clone() for name, value in self.examples.items()}
        self.examples |= {name: first[name] for name in self._names}
        self.outputs = ["gripper_then", *(f"{name}_then" for name in self._names)]

    def forward(
        self, q: Tensor, gripper: Tensor, q_next: Tensor, gripper_next: Tensor, *scene: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the driver coordinate (1,) after the motion, and the scene, in order.

        Args:
            q, gripper: (n,), (1,) before the motion [rad or m].
            q_next, gripper_next: after it, with nothing between the fingers.
            scene: as `examples` name it.
        """
        around = {name: value[None] for name, value in zip(self._names, scene)} | self._pressed
        around["held"] = around["held"][0] > 0.5
        rest = torch.zeros_like(q[None])
        before = SimState(q[None], rest, gripper)
        after, moved = move_cubes(
            self._model, before, SimState(q_next[None], rest, gripper_next), around, any_width=True
        )
        held = moved["held"].to(q.dtype)
        scene_then = (held if name == "held" else moved[name][0] for name in self._names)
        return after.gripper, *scene_then


class Memory(nn.Module):
    """The parts of a scene that a task remembers of the TCP, after a control step of one arm.

    Args:
        env: of a task with `tcp_keys`.

    Attributes:
        examples: inputs of `forward` by name.
        outputs: names of what `forward` returns.
    """

    def __init__(self, env: ArmEnv):
        super().__init__()
        self._task = env.task
        self._world = env.world
        self._scene = {name: value[:1] for name, value in env.scene.items()}
        first = list_inputs(env, 0)
        self.examples = {name: first[name] for name in ("q", "gripper")}
        self.examples |= {"q_next": first["q"].clone(), **{name: first[name] for name in env.scene}}
        self.outputs = [f"{name}_then" for name in env.task.tcp_keys]

    def forward(
        self, q: Tensor, gripper: Tensor, q_next: Tensor, *scene: Tensor
    ) -> tuple[Tensor, ...]:
        """Return each of `tcp_keys` after the step.

        Args:
            q, gripper: (n,), (1,) before the step [rad or m].
            q_next: after it.
            scene: in the order of `examples`.
        """
        around = _add_batch(self._scene, scene)
        rest = torch.zeros_like(q[None])
        first, last = (SimState(at[None], rest, gripper) for at in (q, q_next))
        step = torch.zeros(1, dtype=torch.long)
        before = make_moment(self._world, first, around, step)
        after = make_moment(self._world, last, around, step + 1)
        then = self._task.advance_known(self._world, before, after).scene
        return tuple(torch.atleast_1d(then[name][0]) for name in self._task.tcp_keys)


def _add_batch(like: Scene, scene: Sequence[Tensor]) -> Scene:
    """Add a batch dimension to a scene in the order of `like`, with its flags as bool."""
    found: Scene = {}
    for (name, example), value in zip(like.items(), scene):
        row = value.reshape(example.shape)
        found[name] = row > 0.5 if example.dtype == torch.bool else row
    return found


def list_inputs(env: ArmEnv, row: int) -> dict[str, Tensor]:
    """Return what a controller of one arm of an environment is given: float32, none without a
    dimension.
    """
    state = env.state
    parts = {"q": state.q, "qd": state.qd, "gripper": state.gripper, **env.scene}
    return {name: torch.atleast_1d(value[row].to(torch.float32)) for name, value in parts.items()}


def has_canonical_poses(env: ArmEnv) -> bool:
    """Return True if goals are poses whose quaternions, wxyz, have w >= 0."""
    goal = env.scene.get("goal")
    if goal is None or not env.task.goal_is_place or goal.shape[1] != POSE:
        return False
    return bool((goal[:, 3] >= 0.0).all())


def canonicalize_pose(goal: Tensor) -> Tensor:
    """Return poses (B, 7) with that of the two quaternions of an orientation that has w >= 0."""
    turned = torch.where(goal[:, 3:4] < 0.0, -goal[:, 3:], goal[:, 3:])
    return torch.cat((goal[:, :3], turned), 1)
