"""What an arm in a laboratory does to its controller: delay, lag of the servos, noise. And what can be done: foresight.

A command that is chosen at one control step acts `latency` later. Between the two the arm moves by the commands that
are still on their way, which are known; so a controller can be shown the arm as it will be when its command begins to
act, by rolling the engine over them (a Smith predictor's idea: Smith, "Closer control of loops with dead time",
Chemical Engineering Progress 53(5), 1957).
"""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.simulation.engine import Command, Engine, Scene, SimModel, SimState
from td3_robot.errors import ConfigError

LONGEST = 0.5  # [s] of latency: ten control steps of 20 Hz
_ROUNDING = 1e-9  # of a control step
SPEED_NOISE = 10.0  # [1/s] deviation of the noise of measured speeds, over that of positions


@dataclass(frozen=True)
class Disturbances:
    """How far an arm is from doing at once, and exactly, what it is told.

    Attributes:
        latency: from the choice of a command to its effect, sensing included [s].
        servo_lag: time constant with which joints follow their commands, of first order [s].
        noise: standard deviation of measured joint positions [rad or m], and `SPEED_NOISE` times that of speeds.
        assumed_latency: what the controller takes for the latency [s], in seeing the arm as it will be; None is the
            truth, the lag of the servos included, and 0 shows the arm as it is measured.

    Raises:
        ConfigError: one of them is negative, above 10 or not finite, or a latency above `LONGEST`.
    """

    latency: float = 0.0
    servo_lag: float = 0.0
    noise: float = 0.0
    assumed_latency: float | None = None

    def __post_init__(self):
        for name, value in vars(self).items():
            most = LONGEST if "latency" in name else 10.0
            if value is not None and not 0 <= value <= most:
                raise ConfigError(f"{name} must be from 0 to {most:g}, got {value!r}")

    @property
    def foresight(self) -> float:
        """How far ahead of its measurement the controller sees the arm [s]."""
        return self.latency + self.servo_lag if self.assumed_latency is None else self.assumed_latency

    def __bool__(self) -> bool:
        return any((self.latency, self.servo_lag, self.noise, self.assumed_latency))


class Disturbed:
    """An engine behind delay and lag; an `Engine`.

    What is on its way is part of the scene: `sent` (B, K, a) the latest K commands, oldest first, joints [-1, 1] and
    the gripper's opening, and `driven` (B, n) what the servos have made of them as the period begins.

    Args:
        engine: what moves the arms.
        disturbances: what is between them and their controller.
        dt: control period [s].
        device: where the arms are.

    Attributes:
        generator: of the noise.
    """

    def __init__(self, engine: Engine, disturbances: Disturbances, dt: float, device: torch.device | str):
        self._engine, self._noise = engine, disturbances.noise
        self.generator = torch.Generator(device)
        self._late, self._ahead = (round(seconds / dt, 9) for seconds in (disturbances.latency, disturbances.foresight))
        self._kept = 1 + math.floor(max(self._late, self._ahead))
        lag = disturbances.servo_lag
        self._decay = math.exp(-dt / lag) if lag else 0.0  # over a period, and on average during it
        self._mean_decay = lag / dt * (1.0 - self._decay)

    def begin(self, state: SimState) -> Scene:
        """The scene of arms at rest, to which nothing was sent yet: their grippers stay open."""
        none = torch.zeros_like(state.q)
        sent = torch.cat((none, torch.ones_like(none[:, :1])), 1)
        return {"sent": sent[:, None].repeat(1, self._kept, 1), "driven": none}

    def step(self, model: SimModel, state: SimState, command: Command, scene: Scene) -> tuple[SimState, Scene]:
        """See `Engine.step`."""
        grip = torch.ones_like(state.gripper) if command.grip is None else command.grip
        sent = torch.cat((scene["sent"], torch.cat((command.joints, grip[:, None]), 1)[:, None]), 1)
        acting = _mixed(sent, self._late)
        missing = scene["driven"] - acting[:, :-1]  # as the period begins; it decays exponentially
        scene = {**scene, "sent": sent[:, 1:], "driven": acting[:, :-1] + self._decay * missing}
        joints = acting[:, :-1] + self._mean_decay * missing
        return self._engine.step(model, state, Command(joints, acting[:, -1]), scene)

    def measured(self, model: SimModel, state: SimState) -> SimState:
        """The arms as they are measured; what is beyond a position limit is known to be at it."""
        if not self._noise:
            return state
        draw = lambda x: torch.randn(x.shape, generator=self.generator, device=x.device)  # noqa: E731
        q = torch.clamp(state.q + self._noise * draw(state.q), *model.qlim)
        qd = state.qd + SPEED_NOISE * self._noise * draw(state.qd)
        return dataclasses.replace(state, q=q, qd=qd)

    def on_their_way(self, scene: Scene) -> Iterator[tuple[Command, float]]:
        """The commands that act until one that is chosen now begins to: for one control step each, with 1, and the
        last for that share of one, where what the controller takes for the latency is no whole number of them.
        """
        whole, part = int(self._ahead), self._ahead - int(self._ahead)
        sent = scene["sent"]
        for left in range(whole, 0, -1):
            acting = torch.lerp(sent[:, -left], sent[:, -left - 1], part)
            yield Command(acting[:, :-1], acting[:, -1]), 1.0
        if part > _ROUNDING:
            yield Command(sent[:, -1, :-1], sent[:, -1, -1]), part


def known_by_hand(scene: Scene, shift: Tensor) -> Scene:
    """The scene of hands that are measured off by `shift` (B, 3) [m]: what they hold is known to be in them."""
    if "held" not in scene:
        return scene
    return {**scene, "object": torch.where(scene["held"][:, None], scene["object"] + shift, scene["object"])}


def _mixed(sent: Tensor, late: float) -> Tensor:
    """The command (B, a) that acts on average over the period that begins as the last of `sent` (B, K, a) is sent."""
    whole, part = int(late), late - int(late)
    newer = sent[:, -1 - whole]
    return newer if part <= _ROUNDING else torch.lerp(newer, sent[:, -2 - whole], part)
