"""Robot + task + engine + automatic reset = a VecEnv."""

import functools
from dataclasses import replace

import torch
from torch import Tensor

from envs import kinematics
from envs.collision import Nearest, nearest
from envs.controllers.guard import guarded
from envs.robots import Robot
from envs.simulation.engine import Engine, SimState
from envs.simulation.kinematic import Kinematic
from envs.tasks.episodes import Episodes, RandomEpisodes
from envs.tasks.layout import Layout
from envs.tasks.memory import Memory
from envs.tasks.task import Outcome, Task
from envs.world import GROUND, Moment, moment_of
from td3_robot.errors import ConfigError, NotFiniteError
from td3_robot.vec_env import Step


class ArmEnv:
    """B simulated arms doing one task; a `td3_robot.vec_env.GoalVecEnv`.

    `info` holds, for the step just made and before any reset: `success` (B,) bool, `position_error`
    (B,) [m], `q` (B, n) [rad], `qd` (B, n) [rad/s], `gripper` (B,) driver coordinate [rad or m], `tcp` (B, 3) [m],
    `reward/<term>` (B,), and what else the task measures. Read them only: some are the simulator's own state.

    Args:
        robot, task: who does what.
        num_envs: B.
        device: where it is simulated.
        seed: of starts and scenes.
        sparse: pay -1 for every step that is no success and 0 for one that is, in place of the task's dense terms.
        guard: change actions where the arm would run into something, see `envs.controllers.guard`; rewards are still
            those of the action that was asked for.
        reuse_scenes: hand out scenes that are dear to draw more than once, as trainings do.
        episodes: where episodes begin, in place of random ones.
        engine: what moves arms and objects, in place of the kinematic engine.

    Attributes:
        moment: the arms now, with their kinematics and scene.
        arrived: the moment that the latest step led to, before any reset; what `info` tells of.
        world: what stays the same.
        layout: the columns of an observation.
        a_dim: joints, and one more where the task's action moves the gripper.
        memory_dim: width of what hindsight keeps of a moment.
    """

    def __init__(
        self,
        robot: Robot,
        task: Task,
        num_envs: int,
        device: str,
        seed: int,
        sparse: bool = False,
        guard: bool = False,
        reuse_scenes: bool = False,
        episodes: Episodes | None = None,
        engine: Engine | None = None,
    ):
        if num_envs < 1:
            raise ConfigError(f"num_envs must be at least 1, got {num_envs}")
        self.robot, self.task, self.sparse, self.guard = robot, task, sparse, guard
        self.num_envs, self.device = num_envs, torch.device(device)
        self.world = task.world(robot, self.device, collision=guard)
        self.model = self.world.model
        self.layout = Layout(task.columns(self.world))
        self.o_dim, self.a_dim = self.layout.size, robot.n + task.moves_gripper
        self._engine = engine or Kinematic()
        self._episodes = episodes or RandomEpisodes(task, self.world, reuse_scenes)
        self.reset(seed)
        self._memory = Memory(self.world, self.moment, task.kept)
        self.memory_dim = self._memory.size

    @property
    def state(self) -> SimState:
        """The arms."""
        return self.moment.state

    @property
    def goal(self) -> Tensor:
        """(B, g) what is wanted, in the task's terms."""
        return self.moment.scene["goal"]

    @property
    def tcp(self) -> Tensor:
        """(B, 3) TCP positions in the base frame [m]."""
        return self.moment.tcp

    def nearest(self) -> Nearest:
        """What the arms are near to: obstacles, the ground and themselves. Needs `World.collision`."""
        return self.task.nearest(self.world, self.moment)

    def fkine(self, q: Tensor) -> Tensor:
        """TCP poses T_be (B, 4, 4) of joint positions q (B, n) [rad]."""
        return kinematics.fkine(self.model.chain, q)

    def jacob0(self, q: Tensor) -> Tensor:
        """Geometric Jacobians (B, 6, n) in the base frame of joint positions q (B, n) [rad]."""
        return kinematics.jacob0(self.model.chain, q)

    # Episodes -----------------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> Tensor:
        """Start B new episodes. Returns the observation (B, o_dim)."""
        if seed is not None:
            self._episodes.seed(seed)
        self.moment = self.arrived = self._beginning(self.num_envs)
        return self.task.observe(self.world, self.moment)

    def _beginning(self, count: int) -> Moment:
        state, scene = self._episodes.draw(count)
        steps = torch.zeros(count, dtype=torch.long, device=self.device)
        return self.task.sense(self.world, moment_of(self.world, state, scene, steps))

    def _reset_where(self, done: Tensor, observation: Tensor) -> Tensor:
        """Put a new episode in every row where `done`; the tensors handed out before stay as they were."""
        rows = done.nonzero().squeeze(1)
        if len(rows) == 0:
            return observation
        begun = self._beginning(len(rows))
        put = lambda old, new: old.index_copy(0, rows, new)  # noqa: E731
        self.moment = self.moment.each(put, begun)
        return put(observation, self.task.observe(self.world, begun))

    # Stepping -----------------------------------------------------------------------------------------------

    def step(self, action: Tensor) -> Step:
        """One control period; see `VecEnv.step`. Beyond ±1 an action is what it is at ±1."""
        if action.shape != (self.num_envs, self.a_dim):
            raise ConfigError(f"action must have shape {(self.num_envs, self.a_dim)}, got {tuple(action.shape)}")
        if not torch.isfinite(action).all():
            raise NotFiniteError("action has a value that is NaN or infinite")
        action = action.clamp(-1.0, 1.0)
        self.moment = self.arrived = self._advance(action)
        next_observation = self.task.observe(self.world, self.moment)
        outcome = self.task.outcome(self.world, self.moment, action)
        reward, terms = self._reward(outcome)
        info = {
            "success": outcome.success,
            "position_error": outcome.position_error,
            **vars(self.state),
            "tcp": self.tcp,
            **outcome.measures,
            **{f"reward/{name}": value for name, value in terms.items()},
        }
        terminated, truncated = _terminated(outcome), self.moment.steps >= self.task.horizon
        observation = self._reset_where(terminated | truncated, next_observation)
        return Step(observation, reward, terminated, truncated, next_observation, info)

    def _advance(self, action: Tensor) -> Moment:
        before, task, world = self.moment, self.task, self.world
        command = task.command(world, before, action)
        if self.guard:
            command = replace(command, joints=self._guarded(command.joints))
        state, scene = self._engine.step(self.model, before.state, command, before.scene)
        after = moment_of(world, state, scene, before.steps + 1)
        return task.sense(world, task.advance(world, before, after))

    def _guarded(self, joints: Tensor) -> Tensor:
        """The command (B, n) that the guard makes of one."""
        at = functools.partial(nearest, self.world.collision, obstacles=self.moment.obstacles, ground=GROUND)
        return guarded(self.model, self.state, joints, self.nearest(), at)

    def _reward(self, outcome: Outcome) -> tuple[Tensor, dict[str, Tensor]]:
        """The reward (B,) and its named terms."""
        terms = {"sparse": outcome.success.float() - 1.0} if self.sparse else outcome.terms
        return sum(terms.values()), terms

    # Hindsight ----------------------------------------------------------------------------------------------

    def memory(self, arrived: bool = False) -> Tensor:
        """See `GoalVecEnv.memory`."""
        return self._memory.keep(self.arrived if arrived else self.moment)

    def observe(self, memory: Tensor) -> Tensor:
        """See `GoalVecEnv.observe`."""
        return self.task.observe(self.world, self._memory.recall(memory))

    def achieved_goal(self, memory: Tensor) -> Tensor:
        """See `GoalVecEnv.achieved_goal`."""
        return self.task.achieved_goal(self.world, self._memory.recall(memory))

    def relabel(
        self, memory: Tensor, action: Tensor, next_memory: Tensor, goal: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """See `GoalVecEnv.relabel`."""
        task, world = self.task, self.world
        before, after = self._memory.recall(memory), task.with_goal(self._memory.recall(next_memory), goal)
        before = task.with_goal(before, task.goal_before(before, goal))
        outcome = task.outcome(world, after, action)
        reward, _ = self._reward(outcome)
        return task.observe(world, before), task.observe(world, after), reward, _terminated(outcome)

    # Resuming -----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict:
        """Everything the next step depends on."""
        moment = self.moment
        arms = {**vars(moment.state), "T_be": moment.T_be, "J": moment.J, "steps": moment.steps}
        return {**arms, "scene": dict(moment.scene), "episodes": self._episodes.state_dict()}

    def load_state_dict(self, state: dict) -> Tensor:
        """Take back what `state_dict` of an environment with the same robot, task and size gave, on any device."""
        self._episodes.load_state_dict(state["episodes"])
        arms = SimState(**{name: state[name] for name in ("q", "qd", "gripper")})
        moment = Moment(arms, state["T_be"], state["J"], state["scene"], state["steps"])
        self.moment = self.arrived = moment.each(lambda x: x.to(self.device))
        return self.task.observe(self.world, self.moment)


def _terminated(outcome: Outcome) -> Tensor:
    """(B,) bool."""
    return torch.zeros_like(outcome.success) if outcome.terminated is None else outcome.terminated
