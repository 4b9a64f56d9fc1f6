"""Constants of the programs that put a peg into a hole, see envs/controllers/insertion.py."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class InsertConstants:
    """Constants of the programs, tuned on episodes of a seed of their own (docs: insert).

    Attributes:
        fast: speed far above the surface [m/s].
        slow: speed where contact may come [m/s].
        slow_height: height over the assumed surface below which the peg is slow [m].
        in_depth: depth under the first contact from which the peg is in the hole [m].
        press, insert: force to press with while searching, and while inserting [N].
        press_gain, insert_gain: speed per force that is missing then [m/s/N].
        insert_limit: greatest speed that follows from a missing force while inserting [m/s].
        touches: press force below which the peg counts as touching nothing [N].
        resists: press force below which the peg counts as moving freely in the hole [N].
        overtravel: depth below the assumed bottom of the hole at which insertion ends [m].
        comply, comply_limit: speed aside per force from aside, in the hole [m/s/N], and fastest.
        turn_comply: turning speed per moment, in the hole [rad/s/Nm].
        turn_limit: fastest that follows, of the tilted peg [rad/s].
        search: speed along the spiral [m/s].
        pitch: distance of the spiral's turns [m].
        widest: radius of the spiral's outermost turn [m].
        whirl, spiral_gain: its fastest turning [rad/s], and speed per distance from it [1/s].
        return_time: time of the way back to the spiral's start [s].
        friction: highest coefficient that is expected.
        blocked: force from aside, beyond what friction explains, that comes from an edge of the
            hole [N].
        edge_gain: speed away from an edge per force beyond that [m/s/N].
        gain: speed per distance [1/s].
        damping: see `ResolvedRate` [m/rad].
        yaw_gain: turning speed about the approach per angle left, of the tilted peg [1/s].
        yaw_comply: turning speed about the approach per moment, of the tilted peg [rad/s/Nm].
        tilt: of the tilted strategy, about both axes of the hand [rad].
        tip_offset: of the tilted peg from the assumed axis, along both axes, where it comes down
            [m].
        touch: speed of the tilted peg where contact may come [m/s].
        lean, lean_press: force aside along both axes while it slides, and down meanwhile [N].
        slide, slide_gain: fastest sliding along each axis [m/s], per missing force [m/s/N].
        settle: fastest down meanwhile [m/s].
        held: share of `lean` that a wall gives.
        fallen: depth below the first contact that a peg between walls has [m].
        held_for: time between walls before the peg is turned upright [s].
        upright, upright_gain: speed of that turn [rad/s], per angle left at the depth below [1/s].
        seated_depth: depth under the first contact from which an upright peg is inserted [m].
        sink: speed of the tilted strategy down in the hole, without resistance [m/s].
    """

    fast: float = 0.06
    slow: float = 0.015
    slow_height: float = 0.012
    in_depth: float = 0.0012
    press: float = 15.0
    insert: float = 25.0
    press_gain: float = 6e-4
    insert_gain: float = 2.4e-3
    insert_limit: float = 0.02
    touches: float = 1.0
    resists: float = 5.0
    overtravel: float = 0.005
    comply: float = 1e-3
    comply_limit: float = math.inf
    turn_comply: float = 0.05
    turn_limit: float = math.inf
    search: float = 0.018
    pitch: float = 0.0035
    widest: float = 0.0065
    whirl: float = 12.0
    spiral_gain: float = 1.0
    return_time: float = 0.6
    friction: float = 0.5
    blocked: float = 1.0
    edge_gain: float = 4e-3
    gain: float = 6.0
    damping: float = 0.02
    yaw_gain: float = 6.0
    yaw_comply: float = 0.0
    tilt: float = 0.1
    tip_offset: float = 0.006
    touch: float = 0.013
    lean: float = 9.0
    lean_press: float = 9.0
    slide: float = 0.011
    slide_gain: float = 1.5e-3
    settle: float = 0.01
    held: float = 0.7
    fallen: float = 0.0015
    held_for: float = 0.05
    upright: float = 1.6
    upright_gain: float = 1.5
    seated_depth: float = 0.003
    sink: float = 0.02


DEFAULTS = InsertConstants()
# In a tight hole the peg has to take over its turn and tilt, and to be slow where it may hit. What
# yields within a latency has to stay below the clearance, or the peg strikes from wall to wall.
TIGHT = InsertConstants(
    slow_height=0.0045,
    insert=10.0,
    insert_gain=1e-3,
    comply_limit=0.003,
    turn_comply=0.2,
    turn_limit=0.1,
    yaw_gain=0.7,
    yaw_comply=0.05,
    slide=0.009,
    settle=0.006,
    upright_gain=2.0,
    sink=0.01,
)
