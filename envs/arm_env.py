"""Arm + task + automatic reset = a VecEnv."""

import functools

import torch
from torch import Tensor

from envs import kinematics
from envs.collision import Nearest, nearest
from envs.controllers.guard import guarded
from envs.robots import Robot
from envs.simulation import kinematic
from envs.simulation.kinematic import SimState
from envs.tasks.pool import ScenePool
from envs.tasks.task import Outcome, Task
from envs.world import GROUND, Moment, Scene, moment_of
from td3_robot.errors import ConfigError, NotFiniteError
from td3_robot.vec_env import Step, restore_generator


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
        guard: change actions where the arm would run into something, see `envs.guard`; rewards are still those of the
            action that was asked for.

    Attributes:
        moment: the arms now, with their kinematics and scene.
        arrived: the moment that the latest step led to, before any reset; what `info` tells of.
        world: what stays the same.
        a_dim: joints, and one more where the task's action moves the gripper.
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
    ):
        if num_envs < 1:
            raise ConfigError(f"num_envs must be at least 1, got {num_envs}")
        self.robot, self.task, self.sparse, self.guard = robot, task, sparse, guard
        self.num_envs, self.device = num_envs, torch.device(device)
        self.world = task.world(robot, self.device, collision=guard)
        self.model = self.world.model
        self.layout = task.layout(self.world)
        self.o_dim, self.a_dim = self.layout.size, robot.n + task.moves_gripper
        self._home = self.world.home
        self._generator = torch.Generator(self.device)
        self._pool = ScenePool(task, self.world, self._generator)
        self.reset(seed)
        self.arrived = self.moment

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

    def reset(self, seed: int | None = None) -> Tensor:
        """Start B new episodes. Returns the observation (B, o_dim)."""
        if seed is not None:
            self._generator.manual_seed(seed)
            self._pool.clear()
        state, scene = self._new_episodes(self.num_envs)
        return self._be_at(state, scene, torch.zeros(self.num_envs, dtype=torch.long, device=self.device))

    def _new_episodes(self, count: int) -> tuple[SimState, Scene]:
        noise = torch.rand(count, self.robot.n, generator=self._generator, device=self.device)
        scene = self._pool.draw(count)
        around_home = self._home + (2.0 * noise - 1.0) * self.task.start_spread
        q = scene.pop("start", around_home)
        return kinematic.rest(self.model, q.clamp(*self.model.qlim)), scene

    def _be_at(self, state: SimState, scene: Scene, steps: Tensor) -> Tensor:
        """Take these as the arms' moment. Returns the observation."""
        self.moment = moment_of(self.world, state, scene, steps)
        return self.task.observe(self.world, self.moment)

    # Hindsight ----------------------------------------------------------------------------------------------

    def achieved_goal(self, observation: Tensor) -> Tensor:
        """The goal (B, g) that would have been met in these observations (B, o_dim)."""
        return self.task.achieved_goal(self.world, observation)

    def relabel(
        self, state: Tensor, action: Tensor, next_state: Tensor, goal: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Transitions as they would have been with another goal (B, g); see `GoalVecEnv.relabel`."""
        task, world = self.task, self.world
        before, after = task.recall(world, state), task.with_goal(task.recall(world, next_state), goal)
        before = task.with_goal(before, task.goal_before(before, goal))
        outcome = task.outcome(world, after, action)
        reward, _ = self._reward(outcome)
        return task.observe(world, before), task.observe(world, after), reward, _terminated(outcome)

    def _reward(self, outcome: Outcome) -> tuple[Tensor, dict[str, Tensor]]:
        """The reward (B,) and its named terms."""
        terms = {"sparse": outcome.success.float() - 1.0} if self.sparse else outcome.terms
        return sum(terms.values()), terms

    # Resuming -----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict:
        """Everything the next step depends on."""
        return {
            **vars(self.state),
            "scene": dict(self.moment.scene),
            "steps": self.moment.steps,
            "pool": dict(self._pool.scenes),
            "pool_position": torch.tensor([self._pool.next, self._pool.handed_out]),
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: dict) -> Tensor:
        """Take back what `state_dict` of an environment with the same robot, task and size gave, on any device."""
        here = lambda tensors: {name: value.to(self.device) for name, value in tensors.items()}  # noqa: E731
        self._pool.scenes = here(state["pool"])
        self._pool.next, self._pool.handed_out = state["pool_position"].tolist()
        restore_generator(self._generator, state["generator"])
        arms = SimState(**here({name: state[name] for name in ("q", "qd", "gripper")}))
        return self._be_at(arms, here(state["scene"]), state["steps"].to(self.device))

    def episode(self, row: int, env: "ArmEnv") -> Tensor:
        """Put the episode in which arm `row` of another environment is, of the same task, into this one of one arm.

        Returns:
            The observation (1, o_dim).
        """
        only = slice(row, row + 1)
        state = SimState(**{name: value[only] for name, value in vars(env.state).items()})
        scene = {name: value[only] for name, value in env.moment.scene.items()}
        return self._be_at(state, scene, env.moment.steps[only])

    # Stepping -----------------------------------------------------------------------------------------------

    def step(self, action: Tensor) -> Step:
        """One control period; see `VecEnv.step`."""
        if action.shape != (self.num_envs, self.a_dim):
            raise ConfigError(f"action must have shape {(self.num_envs, self.a_dim)}, got {tuple(action.shape)}")
        if not torch.isfinite(action).all():
            raise NotFiniteError("action has a value that is NaN or infinite")
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
        before = self.moment
        grip, joints = self.task.grip(self.world, before, action), action[:, : self.robot.n]
        if self.guard:
            joints = self._guarded(before, joints)
        state = kinematic.step(self.model, before.state, joints, grip)
        after = moment_of(self.world, state, before.scene, before.steps + 1)
        return self.task.advance(self.world, before, after)

    def _guarded(self, moment: Moment, action: Tensor) -> Tensor:
        """The action (B, n) that the guard makes of one."""
        at = functools.partial(nearest, self.world.collision, obstacles=moment.obstacles, ground=GROUND)
        return guarded(self.model, moment.state, action, self.task.nearest(self.world, moment), at)

    def _reset_where(self, done: Tensor, observation: Tensor) -> Tensor:
        """Put a new episode in every row where `done`; the tensors handed out before stay as they were."""
        rows = done.nonzero().squeeze(1)
        if len(rows) == 0:
            return observation
        state, scene = self._new_episodes(len(rows))
        put = lambda old, new: {name: old[name].index_copy(0, rows, new[name]) for name in new}  # noqa: E731
        state, scene = SimState(**put(vars(self.state), vars(state))), put(self.moment.scene, scene)
        return self._be_at(state, scene, self.moment.steps.masked_fill(done, 0))


def _terminated(outcome: Outcome) -> Tensor:
    """(B,) bool."""
    return torch.zeros_like(outcome.success) if outcome.terminated is None else outcome.terminated
