"""Descriptions that others wrote: each loads as they meant it, or ends in one line."""

from pathlib import Path

import numpy as np
import pytest
import rtbdata
import torch

from envs.kinematics import fkine
from envs.robots.urdf import build_model, load_urdf
from td3_robot.errors import ConfigError

RTB = Path(rtbdata.__file__).parent
ROBOTS = {  # file, TCP link -> joints
    ("abb_irb140_description/urdf/irb140.urdf", None): 6,
    ("abb_irb140_description/urdf/irb140.xacro", None): 6,
    ("kuka_description/kuka_kr3/urdf/kr3r540.xacro", None): 6,
    ("kuka_description/kuka_lbr_iiwa/urdf/lbr_iiwa_14_r820.urdf", None): 7,
    ("qut_frankie_description/robots/panda_arm_hand.urdf.xacro", "panda_hand"): 7,
    ("trossen_descriptions/urdf/px100.urdf.xacro", None): 4,
    ("trossen_descriptions/urdf/vx300s.urdf.xacro", None): 6,
}


def outcome(path: Path, tcp: str | None = None) -> int:
    """The number of joints, once both models agree; 0 for a file that is refused."""
    try:
        arm = load_urdf(path, tcp)
    except ConfigError as error:
        assert str(error).startswith(f"{path}: ") and "\n" not in str(error)
        return 0
    drawn = build_model(arm.tree, arm.moving)
    q = np.random.default_rng(0).uniform(*arm.qlim, (5, len(arm.joint_names)))
    expected = [drawn.fkine(row, end=arm.tcp_link).A for row in q]
    np.testing.assert_allclose(
        fkine(arm.chain, torch.tensor(q, dtype=torch.float32)), expected, atol=1e-5
    )
    return len(arm.joint_names)


@pytest.mark.parametrize("file, tcp", ROBOTS)
def test_a_robot_of_another_maker_loads(file, tcp):
    assert outcome(RTB / "xacro" / file, tcp) == ROBOTS[file, tcp]


def test_the_panda_is_roboticstoolboxs_panda():
    """The same file, read by them: their TCP is 0.1034 m beyond the hand's link."""
    import roboticstoolbox as rtb

    theirs = rtb.models.Panda()
    arm = load_urdf(
        RTB / "xacro" / "qut_frankie_description/robots/panda_arm_hand.urdf.xacro", "panda_hand"
    )
    q = np.random.default_rng(1).uniform(*theirs.qlim, (20, 7))
    T = fkine(arm.chain, torch.tensor(q, dtype=torch.float32)).double().numpy()
    T[:, :3, 3] += 0.1034 * T[:, :3, 2]
    np.testing.assert_allclose(T, [theirs.fkine(row).A for row in q], atol=1e-5)
    np.testing.assert_allclose(arm.qlim, theirs.qlim)


def descriptions() -> list[Path]:
    folders = [RTB]
    try:
        import airo_models

        folders.append(Path(airo_models.__file__).parent)
    except ImportError:
        pass
    return sorted(
        path
        for folder in folders
        for kind in ("urdf", "xacro")
        for path in folder.rglob(f"*.{kind}")
    )


@pytest.mark.slow
def test_every_installed_description_loads_or_ends_in_one_line():
    outcomes = [outcome(path) for path in descriptions()]
    assert sum(n > 0 for n in outcomes) >= 30


def test_every_installed_plain_description_loads_or_ends_in_one_line():
    outcomes = [outcome(path) for path in descriptions() if path.suffix == ".urdf"]
    assert sum(n > 0 for n in outcomes) >= 6
