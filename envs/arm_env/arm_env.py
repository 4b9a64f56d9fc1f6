"""ArmEnv: a robot, a task and an engine as a VecEnv with automatic resets."""

import functools
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from envs import kinematics
from envs.arm_env.arguments import read_rows
from envs.arm_env.observed_state import predict_command_start, predict_half_period
from envs.arm_env.reset_buffer import (
    AsyncResetBuffer,
    ResetBatch,
    ResetBuffer,
    choose_rows,
    replace_rows,
)
from envs.arm_env.step_info import check_columns, check_info, make_info
from envs.arm_env.time_limits import TimeLimits, sample_first_lengths
from envs.collision import Nearest
from envs.config.devices import find_device
from envs.config.env_options import MOST_ENVS
from envs.controllers.guard import GuardConstants, guard_action
from envs.robots import Robot
from envs.simulation.calibration import measured_scene, measured_tcp
from envs.simulation.disturbances import Disturbances, DisturbedEngine
from envs.simulation.engine import Engine, SimState
from envs.simulation.kinematic import KinematicEngine
from envs.tasks import contact, motion
from envs.tasks.episodes import Episodes, RandomEpisodes
from envs.tasks.layout import Layout
from envs.tasks.memory import Memory
from envs.tasks.task import Outcome, Task
from envs.world import Moment, Scene, make_moment
from td3_robot.errors import NotFiniteError, require_integer
from td3_robot.utils.legacy import keep_old_names
from td3_robot.utils.seeding import derive_seed, require_seed
from td3_robot.vec_env import Step, is_asynchronous, restore_generator


@keep_old_names(nearest="find_nearest")
class ArmEnv:
    """B simulated arms with one task; a `td3_robot.vec_env.GoalVecEnv`.

    `info` holds, for the step just made and before any reset: `success` (B,) bool, false from the
    first contact on, `success_with_contact`, the same without that rule, `clearance` and `touched`,
    see `envs.tasks.contact`, `position_error` (B,) [m], `q` (B, n) [rad], `qd` (B, n) [rad/s],
    `gripper` (B,) driver coordinate [rad or m], `tcp` (B, 3) [m], `reward/<term>` (B,), and the
    task's measures. Do not change them: some are the simulator's own state. Dense rewards, like
    observations, refer to the arms half a period ahead; all else to the arms as they are.

    Args:
        robot, task: the robot and its task.
        num_envs: B.
        device: where the simulation runs.
        seed: of starts and scenes.
        sparse: reward -1 for every step without success and 0 with it, not the task's dense terms.
        guard: change actions that would lead to contact, see `envs.controllers.guard`; rewards are
            those of the original action.
        training: scenes that are expensive to sample are used more than once, and the first episode
            of each arm is cut short at random, so that the arms' episodes are staggered.
        episodes: source of episodes, instead of random ones.
        engine: moves arms and objects, instead of the kinematic engine.
        disturbances: delay, lag and noise between the arms and their controller.

    Attributes:
        moment: the observed arms with their kinematics and scene: half a period ahead, see
            `predict_half_period_state`; under disturbances as measured, and predicted for the time
            when the next command takes effect.
        now: the arms as they are.
        arrived, arrived_moment: `now` and `moment` before any reset; `info` is of `arrived`.
        world: robot, workspace and capsules, which do not change.
        layout: the columns of an observation.
        engine: the engine of the arguments; environments may share it, since the scene holds
            everything that an episode depends on.
        joints: number of joints, whose speeds are the first elements of an action.
        a_dim: number of joints, and one more if the task's action moves the gripper.
        memory_dim: width of a row of `memory`.
        privileged_dim: width of a row of `privileged`.
        rewards_observed: rewards are of the observed arms, as those of `relabel` are.
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
        training: bool = False,
        episodes: Episodes | None = None,
        engine: Engine | None = None,
        disturbances: Disturbances | None = None,
    ):
        self.num_envs = require_integer("num_envs", num_envs, 1, MOST_ENVS)
        self.robot = robot
        self.task = task
        self.sparse = sparse
        self.guard = guard
        self.guard_constants: GuardConstants = task.guard_constants
        self._training = training
        self.device = find_device(device)
        self.world = task.make_world(robot, self.device, collision=guard)
        self.model = self.world.model
        self.layout = Layout(task.list_columns(self.world))
        self.o_dim = self.layout.size
        self.privileged_dim = sum(column.width for column in task.list_privileged(self.world))
        self.joints = robot.n
        self.a_dim = robot.n + task.moves_gripper
        self.engine = engine
        plant: Engine = engine or KinematicEngine(disturbances.servo_lag if disturbances else 0.0)
        self._disturbed = (
            DisturbedEngine(plant, disturbances, task.dt, self.device) if disturbances else None
        )
        self._plant = self._disturbed or plant
        self._episodes = episodes or RandomEpisodes(task, self.world, reuse=training)
        asynchronous = training and task.ends_early and is_asynchronous(self.device)
        self._resets = (AsyncResetBuffer if asynchronous else ResetBuffer)(
            self._begin, self.num_envs if training else 0
        )
        observation = self.reset(seed)
        still = self.tcp.new_zeros(self.num_envs, self.a_dim)
        outcome = self._compute_outcome(self.now, self.now, still)
        check_columns(task, "observe", "list_columns", observation, self.o_dim)
        if self.privileged_dim:
            extra = self.privileged()
            check_columns(task, "observe_privileged", "list_privileged", extra, self.privileged_dim)
        check_info(task, make_info(self.now, outcome, outcome.terms), self.num_envs)
        known = contact.CONTACT_KEYS if self.world.collision is not None else ()
        self._memory = Memory(self.world, self.moment, (*task.memory_keys, *known))
        self.memory_dim = self._memory.size
        self.rewards_observed = False

    @property
    def moment(self) -> Moment:
        """The observed arms, see the class."""
        return self._moment

    @moment.setter
    def moment(self, moment: Moment) -> None:
        """Put the arms into a moment."""
        true = replace(moment, scene={name: moment.scene[name] for name in self.now.scene})
        self._place_arms(true, self._observe_state(true))

    def _place_arms(self, true: Moment, known: Moment) -> None:
        """Put the arms into a moment, and their controller into what it observes of it."""
        self.now = self.arrived = true
        self._moment = self.arrived_moment = known
        self._time_limits = None

    @property
    def horizon(self) -> int:
        """The steps of an episode that does not end early."""
        return self.task.horizon

    @property
    def cut_short(self) -> Tensor:
        """True (B,) where an episode is below the horizon, as the first of a training may be."""
        return self._lengths < self.task.horizon

    @property
    def state(self) -> SimState:
        """The states of the arms as they are."""
        return self.now.state

    @property
    def scene(self) -> Scene:
        """The scenes of the arms as they are."""
        return self.now.scene

    @property
    def goal(self) -> Tensor:
        """The goals (B, g) in the task's terms."""
        return self.scene["goal"]

    @property
    def tcp(self) -> Tensor:
        """The TCP positions (B, 3) in the base frame [m]."""
        return self.now.tcp

    def find_nearest(self) -> Nearest:
        """Find distances of the observed arms to whatever they may touch; needs `collision`."""
        return self.task.find_nearest(self.world, self.moment)

    def fkine(self, q: np.ndarray | Tensor) -> Tensor:
        """Compute TCP poses T_be (B, 4, 4) of joint positions q (B, n) [rad]."""
        return kinematics.fkine(self.model.chain, self._read_positions(q))

    def jacob0(self, q: np.ndarray | Tensor) -> Tensor:
        """Compute Jacobians (B, 6, n) in the base frame of joint positions q (B, n) [rad]."""
        return kinematics.jacob0(self.model.chain, self._read_positions(q))

    def _read_positions(self, q: np.ndarray | Tensor) -> Tensor:
        return read_rows("q", q, None, self.joints, self.device).to(self.now.tcp.dtype)

    def reset(self, seed: int | None = None) -> Tensor:
        """Start B new episodes and return the observation (B, o_dim)."""
        if seed is not None:
            seed = require_seed(seed)
            self._episodes.seed(seed)
            if self._disturbed is not None:
                self._disturbed.generator.manual_seed(derive_seed(seed, "disturbances"))
        self._resets.clear()
        batch = self._begin(self.num_envs)
        self._place_arms(batch.true, batch.known)
        self._lengths = sample_first_lengths(
            self.num_envs, self.task.horizon, self.device, seed if self._training else None
        )
        return batch.observation

    def _begin(self, count: int) -> ResetBatch:
        state, scene = self._episodes.draw(count)
        scene = self._plant.begin(self.model, state, scene)
        measured = measured_scene(scene, self.task.goal_is_place)
        # Some tasks plan while they sample their scenes.
        if measured is not scene or not scene.keys() >= set(self.task.plan_keys):
            scene = {**scene, **self.task.plan_episode(self.world, state, measured)}
        steps = torch.zeros(count, dtype=torch.long, device=self.device)
        true = contact.sense_contact(
            self.task, self.world, make_moment(self.world, state, scene, steps)
        )
        known = self._observe_state(true)
        return ResetBatch(true, known, self.task.observe(self.world, known))

    def _reset_where(self, done: Tensor, observation: Tensor, early: bool) -> Tensor:
        """Start a new episode in every row where `done`, without changing tensors in place."""
        if isinstance(self._resets, AsyncResetBuffer):
            batch = self._resets.take(done)
            put = functools.partial(choose_rows, done)
        else:
            rows = self._find_ended(done, early)
            if not len(rows):
                return observation
            batch = self._resets.take(len(rows))
            put = functools.partial(replace_rows, rows)
        self._moment = self.moment.each(put, batch.known)
        self.now = self.now.each(put, batch.true)
        self._lengths = put(self._lengths, torch.full_like(batch.true.steps, self.task.horizon))
        return put(observation, batch.observation)

    def _find_ended(self, done: Tensor, early: bool) -> Tensor:
        """Find the rows where `done`; `early`: some may end before their time limit."""
        if early:
            self._time_limits = None
            return done.nonzero().squeeze(1)
        if self._time_limits is None:
            left = self._lengths - self.arrived.steps + 1  # before the latest step
            self._time_limits = TimeLimits(left, self.task.horizon)
        return self._time_limits.step()

    def step(self, action: Tensor) -> Step:
        """Simulate one control period; see `VecEnv.step`. Actions, also arrays, are clamped."""
        action = read_rows("action", action, self.num_envs, self.a_dim, self.device).detach()
        if not is_asynchronous(self.device) and not torch.isfinite(action).all():
            raise NotFiniteError("action has a value that is NaN or infinite")
        action = action.clamp(-1.0, 1.0).to(self.now.tcp.dtype)
        before = self.now
        seen = self.moment
        self._earlier_lengths = self._lengths
        self.now = self.arrived = self._advance(action)
        self._moment = self.arrived_moment = self._observe_state(self.arrived)
        next_observation = self.task.observe(self.world, self.moment)
        outcome = self._compute_outcome(before, self.arrived, action)
        rewarded = outcome
        if self.rewards_observed:
            rewarded = self._compute_outcome(seen, self.arrived_moment, action)
        elif not self.sparse:
            ahead = self.arrived_moment
            if self._disturbed is not None:
                ahead = predict_half_period(self.task, self.world, self.arrived)
            rewarded = self._compute_outcome(before, ahead, action)
        reward, terms = self._compute_reward(rewarded)
        info = make_info(self.arrived, outcome, terms)
        terminated = outcome.ended
        truncated = self.arrived.steps >= self._lengths
        observation = self._reset_where(
            terminated | truncated, next_observation, outcome.terminated is not None
        )
        return Step(observation, reward, terminated, truncated, next_observation, info)

    def hold(self, rows: Tensor, true: Moment, known: Moment) -> None:
        """Put `rows` (B,) bool back to where they were before the latest step, as if it had not
        been made; `true` and `known` are `now` and `moment` of that time.
        """
        put = functools.partial(choose_rows, rows)
        self.now = self.now.each(put, true).flatten()
        self._moment = self.moment.each(put, known).flatten()
        self._lengths = put(self._lengths, self._earlier_lengths)
        self._time_limits = None  # their counts are of rows that have made the step

    def _advance(self, action: Tensor) -> Moment:
        command = self.task.make_command(self.world, self.moment, action)
        if self.guard:
            command = replace(command, joints=self._guard_command(command.joints))
        state, scene = self._plant.step(self.model, self.now.state, command, self.now.scene)
        moved = make_moment(self.world, state, scene, self.now.steps + 1)
        moved = self.task.advance(self.world, self.now, moved)
        return contact.sense_contact(self.task, self.world, moved, self.now.scene.get("touched"))

    def _observe_state(self, true: Moment) -> Moment:
        """Return the moment that a controller observes."""
        known = true
        if self._disturbed is not None:
            known = predict_command_start(self.task, self.world, self._disturbed, true)
        known = predict_half_period(self.task, self.world, known)
        known = replace(known, T_be=measured_tcp(known.T_be, true.scene))
        return self.task.sense(self.world, known)

    def _guard_command(self, joints: Tensor) -> Tensor:
        """Return the command (B, n) as the guard changes it."""

        def nearest_at(q: Tensor, seconds: float) -> Nearest:
            then = self.task.predict(self.moment, seconds)
            return self.task.find_nearest_at(self.world, then, q)

        near = self.find_nearest()
        state = self.moment.state
        return guard_action(self.model, state, joints, near, nearest_at, self.guard_constants)

    def _compute_outcome(self, before: Moment, moment: Moment, action: Tensor) -> Outcome:
        outcome = self.task.compute_outcome(self.world, moment, action)
        outcome = motion.add_change_cost(self.task, self.world, before, action, outcome)
        return contact.apply_contact_rules(self.task, moment, outcome)

    def _compute_reward(self, outcome: Outcome) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the reward (B,) and its named terms."""
        terms = {"sparse": outcome.success.float() - 1.0} if self.sparse else outcome.terms
        return functools.reduce(torch.add, terms.values()), terms

    def privileged(self, arrived: bool = False) -> Tensor:
        """Return (B, privileged_dim) of now, or with `arrived` of the latest step's successor."""
        return self.task.observe_privileged(self.world, self.arrived if arrived else self.now)

    def memory(self, arrived: bool = False) -> Tensor:
        """Return (B, memory_dim) of now, or with `arrived` of the latest step's successor."""
        return self._memory.keep(self.arrived_moment if arrived else self.moment)

    def observe(self, memory: Tensor) -> Tensor:
        """Return the observations (N, o_dim) of memories (N, memory_dim)."""
        return self.task.observe(self.world, self._memory.recall(memory))

    def achieved_goal(self, memory: Tensor) -> Tensor:
        """Return the goal (N, g) that each memory (N, memory_dim) has achieved, in goal units."""
        return self.task.achieved_goal(self.world, self._memory.recall(memory))

    def relabel(
        self, memory: Tensor, action: Tensor, next_memory: Tensor, goal: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Compute the transitions as if `goal` had been their goal; see `GoalVecEnv.relabel`."""
        task = self.task
        world = self.world
        # Recalled together, since the number of calls matters.
        recalled = self._memory.recall(torch.cat((memory, next_memory)))
        before = recalled.each(lambda x: x.chunk(2)[0])
        after = recalled.each(lambda x: x.chunk(2)[1])
        before = task.replace_goal(world, before, task.compute_previous_goal(before, after, goal))
        after = task.replace_goal(world, after, goal)
        outcome = self._compute_outcome(before, after, action)
        reward, _ = self._compute_reward(outcome)
        observed = task.observe(world, before.each(lambda *parts: torch.cat(parts), after))
        state, next_state = observed.chunk(2)
        return state, next_state, reward, outcome.ended

    def state_dict(self) -> dict:
        """Return everything that the next step depends on."""
        state = {
            **self.now.tensors(),
            "known": self.moment.tensors(),
            "lengths": self._lengths,
            "episodes": self._episodes.state_dict(),
            "begun": self._resets.state_dict(),
        }
        if self._disturbed is not None:
            state["disturbances"] = self._disturbed.generator.get_state()
        return state

    def load_state_dict(self, state: dict) -> Tensor:
        """Restore what `state_dict` returned, on any device, and return the observation.

        Raises:
            ConfigError: the state is of another robot, task, size or latency; nothing has changed.
        """
        true, known = (
            Moment.of_tensors(part).each(lambda x: x.to(self.device))
            for part in (state, state["known"])
        )
        unlike = self._disturbed.list_unlike(state["scene"]) if self._disturbed else ()
        self.now.require_like(true, but=unlike)
        self._episodes.load_state_dict(state["episodes"])
        if self._disturbed is not None:
            self._disturbed.match_scene(state["scene"])
            restore_generator(self._disturbed.generator, state["disturbances"])
        self._resets.load_state_dict(state["begun"], self.device)
        self._place_arms(true, known)
        self._lengths = state["lengths"].to(self.device)
        return self.task.observe(self.world, self.moment)
