"""Robot + task + engine + automatic reset = a VecEnv."""

import functools
from dataclasses import replace

import torch
from torch import Tensor

from envs import kinematics
from envs.arm_env import observed_state as foresight
from envs.arm_env.reset_buffer import AsyncResetBuffer, ResetBatch, ResetBuffer
from envs.arm_env.time_limits import TimeLimits, sample_first_lengths
from envs.collision import Nearest
from envs.controllers.guard import guard_action
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
from td3_robot.errors import ConfigError, NotFiniteError
from td3_robot.vec_env import Step, is_asynchronous, restore_generator


class ArmEnv:
    """B simulated arms doing one task; a `td3_robot.vec_env.GoalVecEnv`.

    `info` holds, for the step just made and before any reset: `success` (B,) bool, false from the
    first contact on, `success_with_contact`, the same without that, `clearance` and `touched`, see
    `envs.planning.contact_check`, `position_error` (B,) [m], `q` (B, n) [rad], `qd` (B, n) [rad/s],
    `gripper` (B,) driver coordinate [rad or m], `tcp` (B, 3) [m], `reward/<term>` (B,), and what
    else the task measures. Read them only: some are the simulator's own state. Dense rewards go by
    where the arms are bound for, as observations do; `success` and the rest by where they are.

    Args:
        robot, task: who does what.
        num_envs: B.
        device: where it is simulated.
        seed: of starts and scenes.
        sparse: pay -1 for every step that is no success and 0 for one that is, in place of the
            task's dense terms.
        guard: change actions where the arm would run into something, see `envs.controllers.guard`;
            rewards are still those of the action that was asked for.
        training: it is to be learnt in: scenes that are dear to draw are handed out more than once,
            and the first episode of each arm is cut short at random, so that the arms are not all
            in the same part of theirs.
        episodes: where episodes begin, in place of random ones.
        engine: what moves arms and objects, in place of the kinematic engine.
        disturbances: delay, lag and noise between the arms and whoever controls them.

    Attributes:
        moment: the arms as their controller is to see them, with their kinematics and scene: where
            they are bound for, see `kinematic.bound_for`; under disturbances as they are measured,
            and foreseen to be when its next command begins to act.
        now: the arms as they are; arrived, seen: before any reset, `now`, which `info` tells of,
            and `moment`.
        world: what stays the same.
        layout: the columns of an observation.
        engine: as it was given; it may be shared, since all that an episode depends on is in its
            scene.
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
        training: bool = False,
        episodes: Episodes | None = None,
        engine: Engine | None = None,
        disturbances: Disturbances | None = None,
    ):
        if num_envs < 1:
            raise ConfigError(f"num_envs must be at least 1, got {num_envs}")
        self.robot, self.task, self.sparse, self.guard, self._training = (
            robot,
            task,
            sparse,
            guard,
            training,
        )
        self.num_envs, self.device = num_envs, torch.device(device)
        self.world = task.make_world(robot, self.device, collision=guard)
        self.model = self.world.model
        self.layout = Layout(task.list_columns(self.world))
        self.o_dim, self.a_dim = self.layout.size, robot.n + task.moves_gripper
        self.engine = engine
        plant: Engine = engine or KinematicEngine(disturbances.servo_lag if disturbances else 0.0)
        self._disturbed = (
            DisturbedEngine(plant, disturbances, task.dt, self.device) if disturbances else None
        )
        self._plant = self._disturbed or plant
        self._episodes = episodes or RandomEpisodes(task, self.world, reuse=training)
        unasked = training and task.ends_early and is_asynchronous(self.device)
        self._resets = (AsyncResetBuffer if unasked else ResetBuffer)(
            self._begin, num_envs if training else 0
        )
        self.reset(seed)
        known = contact.CONTACT_KEYS if self.world.collision is not None else ()
        self._memory = Memory(self.world, self.moment, (*task.memory_keys, *known))
        self.memory_dim = self._memory.size

    @property
    def moment(self) -> Moment:
        """See the class."""
        return self._moment

    @moment.setter
    def moment(self, moment: Moment) -> None:
        """Put the arms there."""
        there = replace(moment, scene={name: moment.scene[name] for name in self.now.scene})
        self.now = self.arrived = there
        self._moment = self.arrived_moment = self._observe_state(there)
        self._time_limits = None

    @property
    def state(self) -> SimState:
        """The arms, as they are."""
        return self.now.state

    @property
    def scene(self) -> Scene:
        """What is around them."""
        return self.now.scene

    @property
    def goal(self) -> Tensor:
        """(B, g) what is wanted, in the task's terms."""
        return self.scene["goal"]

    @property
    def tcp(self) -> Tensor:
        """(B, 3) TCP positions in the base frame [m]."""
        return self.now.tcp

    def find_nearest(self) -> Nearest:
        """What the arms are near to: obstacles, the ground and themselves. Needs
        `World.collision`.
        """
        return self.task.find_nearest(self.world, self.moment)

    def fkine(self, q: Tensor) -> Tensor:
        """TCP poses T_be (B, 4, 4) of joint positions q (B, n) [rad]."""
        return kinematics.fkine(self.model.chain, q)

    def jacob0(self, q: Tensor) -> Tensor:
        """Geometric Jacobians (B, 6, n) in the base frame of joint positions q (B, n) [rad]."""
        return kinematics.jacob0(self.model.chain, q)

    # Episodes

    def reset(self, seed: int | None = None) -> Tensor:
        """Start B new episodes. Returns the observation (B, o_dim)."""
        if seed is not None:
            self._episodes.seed(seed)
            if self._disturbed is not None:
                self._disturbed.generator.manual_seed(seed)
        self._resets.clear()
        begun = self._begin(self.num_envs)
        self.now = self.arrived = begun.true
        self._moment = self.arrived_moment = begun.known
        self._lengths = sample_first_lengths(
            self.num_envs, self.task.horizon, self.device, seed if self._training else None
        )
        self._time_limits = None
        return begun.observation

    def _begin(self, count: int) -> ResetBatch:
        state, scene = self._episodes.draw(count)
        scene = self._plant.begin(self.model, state, scene)
        measured = measured_scene(scene)
        if measured is not scene or not scene.keys() >= set(
            self.task.plan_keys
        ):  # some draw it with their scenes
            scene = {**scene, **self.task.plan_episode(self.world, state, measured)}
        steps = torch.zeros(count, dtype=torch.long, device=self.device)
        true = contact.sense_contact(
            self.task, self.world, make_moment(self.world, state, scene, steps)
        )
        known = self._observe_state(true)
        return ResetBatch(true, known, self.task.observe(self.world, known))

    def _reset_where(self, done: Tensor, observation: Tensor, early: bool) -> Tensor:
        """Put a new episode in every row where `done`; the tensors handed out before stay as they
        were.
        """
        if isinstance(self._resets, AsyncResetBuffer):
            begun = self._resets.take(done)

            def put(old: Tensor, new: Tensor) -> Tensor:
                return torch.where(done.view(-1, *[1] * (old.ndim - 1)), new, old)

        else:
            rows = self._find_ended(done, early)
            if not len(rows):
                return observation
            begun = self._resets.take(len(rows))

            def put(old: Tensor, new: Tensor) -> Tensor:
                return old.index_copy(0, rows, new)

        self._moment, self.now = self.moment.each(put, begun.known), self.now.each(put, begun.true)
        self._lengths = put(self._lengths, torch.full_like(begun.true.steps, self.task.horizon))
        return put(observation, begun.observation)

    def _find_ended(self, done: Tensor, early: bool) -> Tensor:
        """The rows where `done`; `early`: for other reasons, too, than that their time is up."""
        if early:
            self._time_limits = None
            return done.nonzero().squeeze(1)
        if self._time_limits is None:
            self._time_limits = TimeLimits(
                self._lengths - self.arrived.steps + 1, self.task.horizon
            )  # before the latest step
        return self._time_limits.step()

    # Stepping

    def step(self, action: Tensor) -> Step:
        """One control period; see `VecEnv.step`. Beyond ±1 an action is what it is at ±1."""
        if action.shape != (self.num_envs, self.a_dim):
            raise ConfigError(
                f"action must have shape {(self.num_envs, self.a_dim)}, got {tuple(action.shape)}"
            )
        if not is_asynchronous(self.device) and not torch.isfinite(action).all():
            raise NotFiniteError("action has a value that is NaN or infinite")
        action, before = action.clamp(-1.0, 1.0), self.now
        self.now = self.arrived = self._advance(action)
        self._moment = self.arrived_moment = self._observe_state(self.arrived)
        next_observation = self.task.observe(self.world, self.moment)
        outcome = self._compute_outcome(before, self.arrived, action)
        paid = (
            self.arrived_moment
            if self._disturbed is None
            else foresight.predict_half_period(self.task, self.world, self.arrived)
        )
        reward, terms = self._compute_reward(
            outcome if self.sparse else self._compute_outcome(before, paid, action)
        )
        info = {
            "success": outcome.success,
            "position_error": outcome.position_error,
            **vars(self.arrived.state),
            "tcp": self.arrived.tcp,
            **outcome.measures,
            **{f"reward/{name}": value for name, value in terms.items()},
        }
        terminated, truncated = outcome.ended, self.arrived.steps >= self._lengths
        observation = self._reset_where(
            terminated | truncated, next_observation, outcome.terminated is not None
        )
        return Step(observation, reward, terminated, truncated, next_observation, info)

    def _advance(self, action: Tensor) -> Moment:
        command = self.task.make_command(self.world, self.moment, action)
        if self.guard:
            command = replace(command, joints=self._guard_command(command.joints))
        state, scene = self._plant.step(self.model, self.now.state, command, self.now.scene)
        moved = make_moment(self.world, state, scene, self.now.steps + 1)
        moved = self.task.advance(self.world, self.now, moved)
        return contact.sense_contact(self.task, self.world, moved, self.now.scene.get("touched"))

    def _observe_state(self, true: Moment) -> Moment:
        """What the controller sees of a moment."""
        disturbed = self._disturbed
        foreseen = (
            true
            if disturbed is None
            else foresight.predict_command_start(self.task, self.world, disturbed, true)
        )
        known = foresight.predict_half_period(self.task, self.world, foreseen)
        known = replace(known, T_be=measured_tcp(known.T_be, true.scene))
        return self.task.sense(self.world, known)

    def _guard_command(self, joints: Tensor) -> Tensor:
        """The command (B, n) that the guard makes of one."""
        at = functools.partial(self.task.find_nearest_at, self.world, self.moment)
        return guard_action(self.model, self.moment.state, joints, self.find_nearest(), at)

    def _compute_outcome(self, before: Moment, moment: Moment, action: Tensor) -> Outcome:
        outcome = self.task.compute_outcome(self.world, moment, action)
        outcome = motion.add_change_cost(self.task, self.model, before.state, action, outcome)
        return contact.apply_contact_rules(self.task, moment, outcome)

    def _compute_reward(self, outcome: Outcome) -> tuple[Tensor, dict[str, Tensor]]:
        """The reward (B,) and its named terms."""
        terms = {"sparse": outcome.success.float() - 1.0} if self.sparse else outcome.terms
        return functools.reduce(torch.add, terms.values()), terms

    # Hindsight

    def memory(self, arrived: bool = False) -> Tensor:
        """See `GoalVecEnv.memory`."""
        return self._memory.keep(self.arrived_moment if arrived else self.moment)

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
        both = self._memory.recall(
            torch.cat((memory, next_memory))
        )  # once for both: most of it is calls
        before, after = (both.each(lambda x, part=part: x.chunk(2)[part]) for part in (0, 1))
        before = task.replace_goal(world, before, task.compute_previous_goal(before, after, goal))
        after = task.replace_goal(world, after, goal)
        outcome = self._compute_outcome(before, after, action)
        reward, _ = self._compute_reward(outcome)
        observed = task.observe(world, before.each(lambda *parts: torch.cat(parts), after))
        state, next_state = observed.chunk(2)
        return state, next_state, reward, outcome.ended

    # Resuming

    def state_dict(self) -> dict:
        """Everything the next step depends on."""
        drawn = (
            {}
            if self._disturbed is None
            else {"disturbances": self._disturbed.generator.get_state()}
        )
        arms = {**self.now.tensors(), "known": self.moment.tensors(), "lengths": self._lengths}
        return {
            **arms,
            "episodes": self._episodes.state_dict(),
            "begun": self._resets.state_dict(),
            **drawn,
        }

    def load_state_dict(self, state: dict) -> Tensor:
        """Take back what `state_dict` of an environment with the same robot, task and size gave, on
        any device.
        """
        self._episodes.load_state_dict(state["episodes"])
        self._resets.load_state_dict(state["begun"], self.device)

        def here(x):
            return x.to(self.device)

        self.now = self.arrived = Moment.of_tensors(state).each(here)
        self._moment = self.arrived_moment = Moment.of_tensors(state["known"]).each(here)
        self._lengths, self._time_limits = here(state["lengths"]), None
        if self._disturbed is not None:
            restore_generator(self._disturbed.generator, state["disturbances"])
        return self.task.observe(self.world, self.moment)
