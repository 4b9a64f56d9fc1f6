"""Disturbances of an arm as options: range and sentence of each, declared once.

Options of training and of evaluation and `envs.simulation.disturbances` read them from here.
"""

import dataclasses
from typing import Any, NamedTuple

GROUP = "Disturbances (robots only)"  # heading of --help-all
GROUP_TEXT = (
    "Latency, servo lag and sensor noise of the simulated arm, by default those of randomize, or "
    "none. Each replaces the value of randomize, a zero too."
)
LONGEST = 0.5  # [s] of latency: ten control steps of 20 Hz


class Disturbance(NamedTuple):
    """A disturbance between 0 and `most`, with the sentence that --help shows.

    One without `most` is true or false.
    """

    text: str
    most: float | None = None
    why: str = ""  # there is none above


_OPEN_LOOP = "a loop with more is not closed"
DISTURBANCES = {  # the fields of `Disturbances`
    "latency": Disturbance(
        "Seconds from the choice of a command to its effect, sensing included", LONGEST, _OPEN_LOOP
    ),
    "latency_spread": Disturbance(
        "Seconds by which the latency of an episode is up to longer or shorter", LONGEST, _OPEN_LOOP
    ),
    "servo_lag": Disturbance(
        "Time constant with which joints follow their commands, in seconds",
        10.0,
        "no servo is slower",
    ),
    "noise": Disturbance(
        "Standard deviation of the noise of measured joint positions, in rad or m",
        1.0,
        "all would be noise",
    ),
    "joint_offset": Disturbance(
        "Standard deviation over episodes of the error of each encoder, in rad or m",
        1.0,
        "no encoder is that far off",
    ),
    "tcp_offset": Disturbance(
        "Standard deviation over episodes of the error of the TCP's position, each axis, in m",
        1.0,
        "no tool is that far off",
    ),
    "object_offset": Disturbance(
        "Standard deviation over episodes of the error of a cube's position, each axis, in m",
        1.0,
        "no camera is that far off",
    ),
    "base_offset": Disturbance(
        "Standard deviation over episodes of the error of the base's position, each axis, in m",
        1.0,
        "no base is that far off",
    ),
    "base_turn": Disturbance(
        "Standard deviation over episodes of the error of the base's rotation, each axis, in rad",
        1.0,
        "no base is turned that far",
    ),
    "force_noise": Disturbance(
        "Standard deviation of the noise of felt forces, in N", 100.0, "nothing could be felt"
    ),
    "force_bias": Disturbance(
        "Standard deviation over episodes of the error of felt forces, each axis, in N",
        100.0,
        "nothing could be felt",
    ),
    "torque_noise": Disturbance(
        "Standard deviation of the noise of felt moments and joint torques, in Nm",
        100.0,
        "nothing could be felt",
    ),
    "torque_bias": Disturbance(
        "Standard deviation over episodes of the error of felt moments and joint torques, in Nm",
        100.0,
        "nothing could be felt",
    ),
    "assumed_latency": Disturbance(
        "Latency that controllers compensate, in seconds; 0 for none", LONGEST, _OPEN_LOOP
    ),
    "estimate_latency": Disturbance(
        "Estimate the latency of each arm from its motion, with assumed_latency as the first guess"
    ),
}


def declare_disturbance(name: str, null: str = "", basic: bool = False) -> Any:
    """Declare an option for a disturbance; `null` explains its default in --help."""
    text, most, why = DISTURBANCES[name]
    text = f"{text}; {null}." if null else f"{text}."
    metadata = {"fixed": True, "help": text, "group": GROUP}
    limits = {} if most is None else {"range": (0, most, why)}
    return dataclasses.field(default=None, metadata=metadata | limits | {"basic": basic})
