"""What an arm in a laboratory does to its controller: delay, lag of the servos, noise. And what can
be done: foresight.

A command that is chosen at one control step acts `latency` later. Between the two the arm moves by
the commands that are still on their way, which are known; so a controller can be shown the arm as
it will be when its command begins to act, by rolling the engine over them (a Smith predictor's
idea: Smith, "Closer control of loops with dead time", Chemical Engineering Progress 53(5), 1957).
"""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.config.disturbance_options import DISTURBANCES, LONGEST
from envs.simulation.calibration import make_pose_error
from envs.simulation.engine import Command, Engine, Scene, SimModel, SimState
from envs.simulation.variation import Variation
from td3_robot.errors import ConfigError

SPEED_NOISE = 10.0  # [1/s] deviation of the noise of measured speeds, over that of positions
_ROUNDING = 1e-9  # of a control step


@dataclass(frozen=True)
class Disturbances:
    """Actuation latency, servo lag, sensor noise and calibration errors of a simulated arm.

    `envs.config.disturbance_options` declares each with its unit and range. The noise of measured
    speeds is `SPEED_NOISE` times that of positions. An `assumed_latency` of None is the true
    latency without its spread; a controller that assumes another takes the servos for ideal.

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
    assumed_latency: float | None = None
    physics: Variation = Variation()

    def __post_init__(self):
        for name, value in vars(self).items():
            most = DISTURBANCES[name].most if name in DISTURBANCES else 1.0
            if isinstance(value, float | int) and not 0 <= value <= most:
                raise ConfigError(f"{name} must be from 0 to {most:g}, got {value!r}")

    @property
    def foresight(self) -> float:
        """How far ahead of its measurement the controller sees the arm [s]."""
        return self.latency if self.assumed_latency is None else self.assumed_latency

    @property
    def known_lag(self) -> float:
        """What the controller takes for the servos' lag [s]."""
        return self.servo_lag if self.assumed_latency is None else 0.0

    def __bool__(self) -> bool:
        return any(vars(self).values())


class DisturbedEngine:
    """An engine behind a delay, and what is measured of it; an `Engine`.

    In the scene are `sent` (B, K, a), the latest K commands, oldest first, joints [-1, 1] and the
    gripper's opening; `late` (B,), by how many control steps they act later; `joint_offset` (B, n),
    what encoders are off by [rad or m]; what else is off, see `calibration`; and, for an engine
    with physics, `varied` (B, k), see `Variation.draw`.

    Args:
        engine: what moves the arms.
        disturbances: what is between them and their controller.
        dt: control period [s].
        device: where the arms are.

    Attributes:
        generator: of all that is drawn.
    """

    def __init__(
        self, engine: Engine, disturbances: Disturbances, dt: float, device: torch.device | str
    ):
        self._engine, self._given = engine, disturbances
        self.generator = torch.Generator(device)
        late = (
            disturbances.latency - disturbances.latency_spread,
            disturbances.latency + disturbances.latency_spread,
        )
        self._late = [
            round(min(max(seconds, 0.0), LONGEST) / dt, 9) for seconds in late
        ]  # least and most
        self._ahead = round(disturbances.foresight / dt, 9)
        self._kept = 1 + math.floor(max(self._late[1], self._ahead))

    def begin(self, model: SimModel, state: SimState, scene: Scene) -> Scene:
        """See `Engine.begin`. Nothing was sent yet: grippers stay open."""
        (B, n), (least, most), given = state.q.shape, self._late, self._given
        none = torch.zeros_like(state.q)
        sent = torch.cat((none, torch.ones_like(none[:, :1])), 1)
        share = (
            torch.rand(B, generator=self.generator, device=none.device)
            if most > least
            else none[:, 0]
        )
        disturbed = {
            "sent": sent[:, None].repeat(1, self._kept, 1),
            "late": least + (most - least) * share,
        }
        disturbed |= (
            {"joint_offset": self._normal(given.joint_offset, B, n)} if given.joint_offset else {}
        )
        disturbed |= (
            {"tcp_offset": self._normal(given.tcp_offset, B, 3)} if given.tcp_offset else {}
        )
        seen_off = given.object_offset and "object" in scene
        disturbed |= {"object_offset": self._normal(given.object_offset, B, 3)} if seen_off else {}
        if given.base_offset or given.base_turn:
            offset, turn = (
                self._normal(deviation, B, 3) for deviation in (given.base_offset, given.base_turn)
            )
            disturbed["base_error"] = make_pose_error(offset, turn)
        disturbed |= {"varied": given.physics.draw(B, self.generator)} if given.physics else {}
        # One episode of many is begun again with what was drawn for it then.
        kept = {name: scene[name] for name in disturbed if name in scene and name != "sent"}
        return self._engine.begin(model, state, {**scene, **disturbed, **kept})

    def step(
        self, model: SimModel, state: SimState, command: Command, scene: Scene
    ) -> tuple[SimState, Scene]:
        """See `Engine.step`."""
        grip = torch.ones_like(state.gripper) if command.grip is None else command.grip
        sent = torch.cat((scene["sent"], torch.cat((command.joints, grip[:, None]), 1)[:, None]), 1)
        acting = _mix_commands(sent, scene["late"])
        scene = {**scene, "sent": sent[:, 1:]}
        return self._engine.step(model, state, Command(acting[:, :-1], acting[:, -1]), scene)

    def measured(self, model: SimModel, state: SimState, scene: Scene) -> SimState:
        """The arms as their controller takes them to be now: measured, and led to where their
        servos are bound for.

        What is beyond a position limit is known to be at it; and a controller knows the speed that
        it has told.
        """
        q, qd, noise, lag = state.q, state.qd, self._given.noise, self._given.known_lag
        if noise:
            q, qd = (
                q + self._normal(noise, *q.shape),
                qd + self._normal(SPEED_NOISE * noise, *q.shape),
            )
        q = q + scene["joint_offset"] if "joint_offset" in scene else q
        if lag:
            q, qd = q + lag * qd, scene["reference"][:, 1]
        return (
            state
            if q is state.q
            else dataclasses.replace(state, q=torch.clamp(q, *model.qlim), qd=qd)
        )

    def on_their_way(self, scene: Scene) -> Iterator[tuple[Command, float]]:
        """The commands that act until one that is chosen now begins to: for one control step each,
        with 1, and the last for that share of one, where what the controller takes for the latency
        is no whole number of them.
        """
        whole, part = int(self._ahead), self._ahead - int(self._ahead)
        sent = scene["sent"]
        for left in range(whole, 0, -1):
            acting = torch.lerp(sent[:, -left], sent[:, -left - 1], part)
            yield Command(acting[:, :-1], acting[:, -1]), 1.0
        if part > _ROUNDING:
            yield Command(sent[:, -1, :-1], sent[:, -1, -1]), part

    def _normal(self, deviation: float, *shape: int) -> Tensor:
        return deviation * torch.randn(
            shape, generator=self.generator, device=self.generator.device
        )


def correct_held_cube(scene: Scene, shift: Tensor) -> Scene:
    """The scene of hands that are measured off by `shift` (B, 3) [m]: what they hold is known to be
    in them.
    """
    if "held" not in scene:
        return scene
    return {
        **scene,
        "object": torch.where(scene["held"][:, None], scene["object"] + shift, scene["object"]),
    }


def _mix_commands(sent: Tensor, late: Tensor) -> Tensor:
    """The command (B, a) that acts on average over the period that begins as the last of `sent` (B,
    K, a) is sent.

    Args:
        late: (B,) control steps, at most K - 2.
    """
    rows, whole = torch.arange(len(sent), device=sent.device), late.long()
    newer, older = (sent[rows, sent.shape[1] - 1 - back] for back in (whole, whole + 1))
    return torch.lerp(newer, older, (late - whole)[:, None])
