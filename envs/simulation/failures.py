"""Failures of the MuJoCo engine: how many there were, which joint was to blame, and what helps."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from envs.robots import Robot
from envs.robots.urdf.rtb_model import find_file_name


@dataclass
class Failures:
    """The failures of one engine.

    Attributes:
        robot: the arm.
        estimated: names of its links whose inertia is an estimate.
        by_joint: (n,) failures of which each joint moved the fastest, in parts of its limit.
    """

    robot: Robot
    estimated: tuple[str, ...]
    by_joint: np.ndarray

    def add(self, speeds: np.ndarray) -> None:
        """Count failures with speeds (F, n) in parts of the velocity limits; NaN is infinite."""
        fastest = np.nan_to_num(np.abs(speeds), nan=np.inf, posinf=np.inf).argmax(1)
        self.by_joint += np.bincount(fastest, minlength=len(self.by_joint))


def describe_failures(engines: Iterable[object]) -> str:
    """Describe in one line the failures of engines of one robot; "" if there were none."""
    found = [failures for each in engines if (failures := getattr(each, "failures", None))]
    by_joint = np.sum([failures.by_joint for failures in found], 0)
    if not (count := int(by_joint.sum())):
        return ""
    joint = int(by_joint.argmax())
    robot = found[0].robot
    link = next(link for link in robot.rtb.links if link.jindex == joint)
    times = "once" if count == 1 else f"{count:,} times"
    moved = f"joint {joint + 1}, which moves {find_file_name(link)!r},"
    most = f"{moved} was thrown about in {by_joint[joint]:,}"
    return f"the physics failed {times}, and stopped those arms in place: {most}; " + _find_remedy(
        found[0], link.name
    )


def _find_remedy(failures: Failures, link: str) -> str:
    """Find what helps against a link that is thrown about."""
    robot = failures.robot
    if link in failures.estimated:
        return f"give the link an <inertial> in the file of {robot.owner}"
    if robot.qddlim is None:
        return "limit its acceleration, for example --acceleration 10"
    if robot.physics.armature is None and robot.file is None:
        return f"give its motor an armature under physics in the file of {robot.owner}"
    return "lower its torque limit, or the stiffness of what it touches"
