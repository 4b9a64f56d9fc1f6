"""Arm + task + automatic reset = a VecEnv."""

import torch
from torch import Tensor

from envs import kinematics, simulator
from envs.robots import Robot
from envs.tasks import reach
from td3_robot.errors import ConfigError, NotFiniteError
from td3_robot.vec_env import Step


class GoalSampler:
    """TCP positions of uniformly random joint positions, kept if they lie in the workspace box.

    Drawn in large blocks, since most candidates fall outside the box; each goal is used once.
    """

    BLOCK = 8192

    def __init__(self, robot: Robot, model: simulator.SimModel, generator: torch.Generator):
        self._model, self._generator = model, generator
        self._lower, self._upper = torch.as_tensor(robot.workspace, dtype=torch.float32, device=model.qlim.device)
        self.clear()

    def clear(self) -> None:
        """Forget goals drawn ahead, so that the next ones depend on the generator alone."""
        self.pool = self._lower.new_empty(0, 3)

    def draw(self, count: int) -> Tensor:
        """(count, 3) reachable goals in the base frame [m].

        Raises:
            ConfigError: the workspace box holds (almost) nothing that the TCP can reach.
        """
        while len(self.pool) < count:
            lower, upper = self._model.qlim
            unit = torch.rand(self.BLOCK, len(lower), generator=self._generator, device=lower.device)
            tcp = kinematics.fkine(self._model.chain, lower + unit * (upper - lower))[:, :3, 3]
            inside = ((tcp > self._lower) & (tcp < self._upper)).all(1)
            if not inside.any():
                box = [self._lower.tolist(), self._upper.tolist()]
                raise ConfigError(f"workspace {box} holds none of {self.BLOCK} random TCP positions; enlarge it")
            self.pool = torch.cat((self.pool, tcp[inside]))
        goals, self.pool = self.pool[:count], self.pool[count:]
        return goals


class ArmEnv:
    """B simulated arms doing one task; a `td3_robot.vec_env.GoalVecEnv`.

    `info` holds, for the step just made and before any reset: `success` (B,) bool, `position_error`
    (B,) [m], `q` (B, n) [rad], `qd` (B, n) [rad/s], `gripper` (B,) driver coordinate [rad or m], `tcp` (B, 3) [m], and
    `reward/<term>` (B,). Read them only: some are the simulator's own state.
    """

    def __init__(self, robot: Robot, task: reach.Reach, num_envs: int, device: str, seed: int):
        if num_envs < 1:
            raise ConfigError(f"num_envs must be at least 1, got {num_envs}")
        self.robot, self.task = robot, task
        self.num_envs, self.device = num_envs, torch.device(device)
        self.model = simulator.compile_robot(robot, task.dt, self.device)
        self.layout = task.layout(self.model)
        self.o_dim, self.a_dim = self.layout.size, robot.n
        self._home = torch.as_tensor(robot.home, dtype=torch.float32, device=self.device)
        self._generator = torch.Generator(self.device)
        self._goals = GoalSampler(robot, self.model, self._generator)
        self.reset(seed)

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
            self._goals.clear()
        self.state, self.goal = self._new_episodes(self.num_envs)
        self.steps = torch.zeros(self.num_envs, dtype=torch.long, device=self.device)
        return self._observe()

    def _new_episodes(self, count: int) -> tuple[simulator.SimState, Tensor]:
        noise = torch.rand(count, self.robot.n, generator=self._generator, device=self.device)
        q = self._home + (2.0 * noise - 1.0) * self.task.start_spread
        return simulator.rest(self.model, q.clamp(*self.model.qlim)), self._goals.draw(count)

    def _observe(self) -> Tensor:
        T_be, J = kinematics.fkine_jacob0(self.model.chain, self.state.q)
        self.tcp = T_be[:, :3, 3]
        return reach.observe(self.task, self.model, self.state, self.tcp, J, self.goal)

    def achieved_goal(self, observation: Tensor) -> Tensor:
        """The goal (B, 3) that would have been met in these observations: where the TCP is [m]."""
        return observation[:, self.layout["tcp"]]

    def relabel(
        self, state: Tensor, action: Tensor, next_state: Tensor, goal: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Transitions as they would have been with another goal (B, 3) [m]; see `GoalVecEnv.relabel`."""
        distance = torch.linalg.vector_norm(goal - self.achieved_goal(next_state), dim=1)
        reward = sum(reach.reward_terms(self.task, distance, action).values())
        terminated = torch.zeros_like(distance, dtype=torch.bool)
        return self._with_goal(state, goal), self._with_goal(next_state, goal), reward, terminated

    def _with_goal(self, observation: Tensor, goal: Tensor) -> Tensor:
        q, tcp = observation[:, self.layout["q"]], observation[:, self.layout["tcp"]]
        columns = reach.goal_columns(self.task, self.model, tcp, self.jacob0(q), goal)
        return torch.cat((observation[:, : self.layout["goal"].start], columns), 1)

    def state_dict(self) -> dict:
        """Everything the next step depends on."""
        return {
            **vars(self.state),
            "goal": self.goal,
            "steps": self.steps,
            "pool": self._goals.pool,
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: dict) -> Tensor:
        """Take back what `state_dict` of an environment with the same robot, task and size gave, on any device."""
        on_device = {name: value.to(self.device) for name, value in state.items() if name != "generator"}
        self.state = simulator.SimState(on_device["q"], on_device["qd"], on_device["gripper"])
        self.goal, self.steps, self._goals.pool = on_device["goal"], on_device["steps"], on_device["pool"]
        self._generator.set_state(state["generator"])
        return self._observe()

    def step(self, action: Tensor) -> Step:
        """One control period; see `VecEnv.step`."""
        if action.shape != (self.num_envs, self.a_dim):
            raise ConfigError(f"action must have shape {(self.num_envs, self.a_dim)}, got {tuple(action.shape)}")
        if not torch.isfinite(action).all():
            raise NotFiniteError("action has a value that is NaN or infinite")
        grip = reach.grip(self.task, torch.linalg.vector_norm(self.goal - self.tcp, dim=1))
        self.state = simulator.step(self.model, self.state, action, grip)
        self.steps = self.steps + 1
        next_observation = self._observe()
        distance = torch.linalg.vector_norm(self.goal - self.tcp, dim=1)
        terms = reach.reward_terms(self.task, distance, action)
        info = {
            "success": distance < self.task.tolerance,
            "position_error": distance,
            "q": self.state.q,
            "qd": self.state.qd,
            "gripper": self.state.gripper,
            "tcp": self.tcp,
            **{f"reward/{name}": value for name, value in terms.items()},
        }
        truncated = self.steps >= self.task.horizon
        observation = self._reset_where(truncated, next_observation)
        reward = sum(terms.values())
        return Step(observation, reward, torch.zeros_like(truncated), truncated, next_observation, info)

    def _reset_where(self, done: Tensor, observation: Tensor) -> Tensor:
        """Put a new episode in every row where `done`; the tensors handed out before stay as they were."""
        rows = done.nonzero().squeeze(1)
        if len(rows) == 0:
            return observation
        fresh, goal = self._new_episodes(len(rows))
        put = lambda old, new: old.index_copy(0, rows, new)  # noqa: E731
        self.state = simulator.SimState(
            put(self.state.q, fresh.q), put(self.state.qd, fresh.qd), put(self.state.gripper, fresh.gripper)
        )
        self.goal = put(self.goal, goal)
        self.steps = self.steps.masked_fill(done, 0)
        return self._observe()
