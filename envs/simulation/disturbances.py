"""Disturbances of a simulated arm: latency, servo lag, sensor noise and calibration errors.

A command that is chosen at one control step acts `latency` later. Until then the arm follows the
pending commands, which are known; so a controller can observe the arm as it will be when its
command begins to act, by rolling the engine over them (a Smith predictor: Smith, "Closer control of
loops with dead time", Chemical Engineering Progress 53(5), 1957).
"""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from envs.config.disturbance_options import DISTURBANCES, LONGEST
from envs.simulation.calibration import make_pose_error
from envs.simulation.engine import Command, Engine, Scene, SimModel, SimState
from envs.simulation.force_sensors import ForceSensors
from envs.simulation.latency_estimator import LONGEST as LONGEST_CANDIDATE
from envs.simulation.latency_estimator import LatencyEstimator
from envs.simulation.variation import Variation
from td3_robot.errors import ConfigError
from td3_robot.vec_env import draw_normal, draw_uniform, is_asynchronous

SPEED_NOISE = 10.0  # [1/s] deviation of the noise of measured speeds, over that of positions
_ROUNDING = 1e-9  # of a control step


@dataclass(frozen=True)
class Disturbances:
    """Actuation latency, servo lag, sensor noise and calibration errors of a simulated arm.

    `envs.config.disturbance_options` declares each with its unit and range. The noise of measured
    speeds is `SPEED_NOISE` times that of positions. An `assumed_latency` of None is the middle of
    `latencies`; a controller that assumes another takes the servos for ideal. An
    `estimate_latency` of None estimates the latency where it is neither fixed nor assumed.

    Attributes:
        physics: how the physics of episodes differ, where the engine has any.

    Raises:
        ConfigError: one of them is negative, not finite or beyond what an arm has.
    """

    latency: float = 0.0
    latency_spread: float = 0.0
    servo_lag: float = 0.0
    noise: float = 0.0
    joint_offset: float = 0.0
    tcp_offset: float = 0.0
    object_offset: float = 0.0
    base_offset: float = 0.0
    base_turn: float = 0.0
    force_noise: float = 0.0
    force_bias: float = 0.0
    torque_noise: float = 0.0
    torque_bias: float = 0.0
    assumed_latency: float | None = None
    estimate_latency: bool | None = None
    physics: Variation = Variation()

    def __post_init__(self):
        for name, (_, most, _) in DISTURBANCES.items():
            value = getattr(self, name)
            if value is None and name in ("assumed_latency", "estimate_latency"):
                continue
            if most is None:
                if not isinstance(value, bool):
                    raise ConfigError(f"{name} must be true or false, got {value!r}")
            elif (
                isinstance(value, bool)
                or not isinstance(value, Real)
                or not 0 <= float(value) <= most
            ):
                raise ConfigError(f"{name} must be a number from 0 to {most:g}, got {value!r}")

    @property
    def latencies(self) -> tuple[float, float]:
        """The least and the greatest latency of an episode [s]; it is drawn uniformly from them."""
        return (
            max(self.latency - self.latency_spread, 0.0),
            min(self.latency + self.latency_spread, LONGEST),
        )

    @property
    def foresight(self) -> float:
        """The latency that the controller compensates, or its first guess [s]."""
        return sum(self.latencies) / 2 if self.assumed_latency is None else self.assumed_latency

    @property
    def known_lag(self) -> float:
        """The servo lag that the controller compensates [s]."""
        return self.servo_lag if self.assumed_latency is None else 0.0

    @property
    def is_latency_estimated(self) -> bool:
        """True if controllers compensate an estimate of each arm's latency."""
        if self.estimate_latency is None:
            return self.latency_spread > 0.0 and self.assumed_latency is None
        return self.estimate_latency

    def __bool__(self) -> bool:
        return any(vars(self).values())


class DisturbedEngine:
    """An `Engine` with latency, and noisy measurements of its arms.

    In the scene are `sent` (B, K, a), the latest K commands, oldest first, joints [-1, 1] and the
    gripper's opening; `late` (B,), their delay in control steps; `joint_offset` (B, n), errors of
    the encoders [rad or m]; those of `calibration`; and, for an engine with physics, `varied`
    (B, k), see `Variation.draw`. Where the latency is estimated, there are `evidence` (B, C), see
    `LatencyEstimator`, and `noise` (B, 2, n), that of the latest measurement of q and qd.

    Args:
        engine: moves the arms.
        disturbances: applied between the arms and their controller.
        dt: control period [s].
        device: of the arms.

    Attributes:
        generator: draws all disturbances.
        estimator: of the arms' latencies; None where controllers compensate a fixed one.
    """

    def __init__(
        self, engine: Engine, disturbances: Disturbances, dt: float, device: torch.device | str
    ):
        self._engine = engine
        self._given = disturbances
        self.generator = torch.Generator(device)
        self._sensors = ForceSensors(disturbances, self.generator)
        self._late = [round(seconds / dt, 9) for seconds in disturbances.latencies]
        self._ahead = round(disturbances.foresight / dt, 9)
        self.estimator = None
        if disturbances.is_latency_estimated:
            longest = max(LONGEST_CANDIDATE, self._late[1] * dt, disturbances.foresight)
            self.estimator = LatencyEstimator(dt, disturbances.foresight, longest)

    @property
    def _kept(self) -> int:
        """The number of commands that the scene keeps; at least two where one is estimated."""
        candidate = max(self.estimator.longest_steps, 1.0) if self.estimator else 0.0
        return 1 + math.floor(max(self._late[1], self._ahead, candidate))

    def begin(self, model: SimModel, state: SimState, scene: Scene) -> Scene:
        """Draw the disturbances of episodes that begin; no command is pending yet."""
        drawn = self._draw_episode(state, scene)
        # One episode of many is begun again with what was drawn for it then.
        kept = {name: scene[name] for name in drawn if name in scene}
        scene = {**scene, **drawn, **kept, **self._begin_history(model, state)}
        return self._sensors.begin(self._engine.begin(model, state, scene))

    def _draw_episode(self, state: SimState, scene: Scene) -> Scene:
        """Draw the disturbances that stay the same over an episode."""
        B, n = state.q.shape
        given = self._given
        least, most = self._late
        share = draw_uniform(self.generator, B) if most > least else torch.zeros_like(state.q[:, 0])
        drawn = {"late": least + (most - least) * share}
        if given.joint_offset:
            drawn["joint_offset"] = self._sample_normal(given.joint_offset, B, n)
        if given.tcp_offset:
            drawn["tcp_offset"] = self._sample_normal(given.tcp_offset, B, 3)
        if given.object_offset and "object" in scene:
            drawn["object_offset"] = self._sample_normal(given.object_offset, B, 3)
        if given.base_offset or given.base_turn:
            offset = self._sample_normal(given.base_offset, B, 3)
            turn = self._sample_normal(given.base_turn, B, 3)
            drawn["base_error"] = make_pose_error(offset, turn)
        if given.physics:
            drawn["varied"] = given.physics.draw(B, self.generator)
        return drawn

    def _begin_history(self, model: SimModel, state: SimState) -> Scene:
        """Return what the steps of an episode replace: commands, evidence and the latest noise.

        A gripper that is not open has been told to shut: it holds something.
        """
        opened = state.gripper == model.gripper_stroke[1]
        sent = torch.cat((torch.zeros_like(state.q), opened.to(state.q.dtype)[:, None]), 1)
        history = {"sent": sent[:, None].repeat(1, self._kept, 1)}
        if self.estimator is not None:
            history["evidence"] = self.estimator.begin(len(state.q), state.q.device)
            if self._given.noise:
                history["noise"] = self._sample_noise(state)
        return history

    def step(
        self, model: SimModel, state: SimState, command: Command, scene: Scene
    ) -> tuple[SimState, Scene]:
        """Queue the command, and step the engine with the one that acts now.

        One that leaves the gripper as it is does so at once, and repeats in `sent` what is there.
        """
        grip = scene["sent"][:, -1, -1] if command.grip is None else command.grip
        sent = torch.cat((scene["sent"], torch.cat((command.joints, grip[:, None]), 1)[:, None]), 1)
        acting = _mix_commands(sent, scene["late"])
        command = Command(acting[:, :-1], None if command.grip is None else acting[:, -1])
        after, moved = self._engine.step(model, state, command, {**scene, "sent": sent[:, 1:]})
        moved = self._sensors.step(moved)
        if self.estimator is None:
            return after, moved
        if self._given.noise:
            moved = {**moved, "noise": self._sample_noise(after)}
        measured = (self.measure(model, state, scene), self.measure(model, after, moved))
        evidence = self.estimator.update(model, *measured, sent, scene["evidence"])
        return after, {**moved, "evidence": evidence}

    def measure(self, model: SimModel, state: SimState, scene: Scene) -> SimState:
        """Measure the arms as their controller does: with noise, and with the servos' lag removed.

        Positions beyond a limit are clamped to it; speeds are those last commanded, if servos lag.
        """
        q = state.q
        qd = state.qd
        lag = self._given.known_lag
        if self._given.noise:
            noise = scene["noise"] if self.estimator else self._sample_noise(state)
            q = q + noise[:, 0]
            qd = qd + noise[:, 1]
        q = q + scene["joint_offset"] if "joint_offset" in scene else q
        if lag:
            q = q + lag * qd
            qd = scene["reference"][:, 1]
        if q is state.q:
            return state
        return dataclasses.replace(state, q=torch.clamp(q, *model.qlim), qd=qd)

    def iter_pending(self, scene: Scene) -> Iterator[tuple[Command, float | Tensor]]:
        """Yield the commands that act before one chosen now, each with its share of a control step.

        The share is 1 but for the last one, if the compensated latency is no whole number of steps.
        Where the latency is estimated it is one for each arm, (B,), and 0 after the last command.
        """
        if self.estimator is not None:
            yield from self._iter_estimated(
                self.estimator.estimate(scene["evidence"]), scene["sent"]
            )
            return
        whole = int(self._ahead)
        part = self._ahead - whole
        sent = scene["sent"]
        for left in range(whole, 0, -1):
            acting = torch.lerp(sent[:, -left], sent[:, -left - 1], part)
            yield Command(acting[:, :-1], acting[:, -1]), 1.0
        if part > _ROUNDING:
            yield Command(sent[:, -1, :-1], sent[:, -1, -1]), part

    def _iter_estimated(
        self, ahead: Tensor, sent: Tensor
    ) -> Iterator[tuple[Command, float | Tensor]]:
        """Yield the commands of `sent` (B, K, a) that act in the next `ahead` (B,) steps."""
        rows = torch.arange(len(sent), device=sent.device)
        whole = ahead.long()
        part = ahead - whole
        waits = is_asynchronous(sent.device)  # to ask for the number of steps would wait
        least, most = (0, self._kept - 1) if waits else map(int, whole.aminmax())
        for step in range(most + 1):
            left = (whole - step).clamp_min(1)
            acting = torch.lerp(sent[rows, -left], sent[rows, -left - 1], part[:, None])
            full = whole > step
            acting = torch.where(full[:, None], acting, sent[:, -1])
            share = torch.where(full, 1.0, torch.where(whole == step, part, 0.0))
            yield Command(acting[:, :-1], acting[:, -1]), 1.0 if step < least else share

    def list_unlike(self, scene: Scene) -> tuple[str, ...]:
        """List the parts in which a saved scene may differ: it is of a version without estimates.

        A scene of other options differs in them too, and cannot go on.
        """
        if self.estimator is None or "evidence" in scene or "sent" not in scene:
            return ()
        kept = 1 + math.floor(max(self._late[1], self._ahead))
        return ("evidence", "noise", "sent") if scene["sent"].shape[1] == kept else ()

    def match_scene(self, scene: Scene) -> None:
        """Estimate no latency if a scene of an older version has no evidence of it."""
        if "evidence" not in scene:
            self.estimator = None

    def _sample_noise(self, state: SimState) -> Tensor:
        """Draw the noise (B, 2, n) of measured positions and speeds."""
        sizes = (self._given.noise, SPEED_NOISE * self._given.noise)
        return torch.stack([self._sample_normal(size, *state.q.shape) for size in sizes], 1)

    def _sample_normal(self, deviation: float, *shape: int) -> Tensor:
        return deviation * draw_normal(self.generator, *shape)


def correct_held_cube(scene: Scene, shift: Tensor) -> Scene:
    """Return the scene with held cubes moved by the error `shift` (B, 3) of their hands [m]."""
    if "held" not in scene:
        return scene
    return {
        **scene,
        "object": torch.where(scene["held"][:, None], scene["object"] + shift, scene["object"]),
    }


def _mix_commands(sent: Tensor, late: Tensor) -> Tensor:
    """Return the mean command (B, a) that acts in the period after the last of `sent` (B, K, a).

    Args:
        late: (B,) control steps, at most K - 2.
    """
    rows = torch.arange(len(sent), device=sent.device)
    whole = late.long()
    newer, older = (sent[rows, sent.shape[1] - 1 - back] for back in (whole, whole + 1))
    return torch.lerp(newer, older, (late - whole)[:, None])
