"""The links read without roboticstoolbox are those of its model, and nothing heavy is imported."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from envs import make_robot
from envs.collision.compiler import compile_collision
from envs.collision.files import has_capsules
from envs.collision.links import compute_link_pose
from envs.config.yaml_values import make_pose
from envs.kinematics import compile_ets
from envs.robots import shipped_robots
from envs.robots.body import take_links
from envs.robots.gripper import gripper_names
from td3_robot.errors import not_none

HEAVY = ("roboticstoolbox", "spatialmath", "mujoco", "matplotlib", "mlflow", "scipy", "sympy")


def list_pairs() -> list[tuple[str, str | None]]:
    """Every shipped robot as it is, bare, and with each gripper that fits any arm."""
    own = ("panda_hand", "vx300s_fingers", "wx250s_fingers")
    hands = [None, "none", *(name for name in gripper_names() if name not in own)]
    return [(robot, hand) for robot in shipped_robots() for hand in hands]


@pytest.mark.parametrize("name, hand", list_pairs())
def test_links_are_those_of_the_toolbox(name, hand):
    robot = make_robot(name, hand)
    theirs = take_links(robot.rtb)
    rng = np.random.default_rng(0)
    for part, links, others in (
        ("arm", robot.body.arm, theirs.arm),
        ("hand", robot.body.hand, theirs.hand),
    ):
        assert [link.name for link in links] == [link.name for link in others], part
        moving = [link for link in links if link.isjoint]
        turned = {link.name: rng.uniform(-1.0, 1.0) for link in moving}
        for own, other in zip(links, others):
            assert getattr(own.parent, "name", None) == getattr(other.parent, "name", None)
            assert own.isjoint == other.isjoint
            assert own.is_drawn == bool(other.geometry or other.collision)
            q = np.zeros(len(moving))
            start = links[0] if part == "hand" else None
            their_start = others[0] if part == "hand" else None
            at_zero = compute_link_pose(own, q, start)
            assert (at_zero == compute_link_pose(other, q, their_start)).all(), own.name
            for link in moving:
                q[link.jindex] = turned[link.name]
            their_q = np.zeros(len(moving))
            for link in (link for link in others if link.isjoint):
                their_q[link.jindex] = turned[link.name]
            np.testing.assert_allclose(
                compute_link_pose(own, q, start),
                compute_link_pose(other, their_q, their_start),
                atol=1e-14,
            )


@pytest.mark.parametrize("name, hand", list_pairs())
def test_kinematics_and_capsules_are_the_same_to_the_bit(name, hand):
    robot = make_robot(name, hand)
    end = None if robot.gripper else robot.body.arm[-1].name
    chain = compile_ets(robot.rtb.ets(end=end))
    same = make_robot(name, hand)
    same.body = take_links(robot.rtb)
    if robot.gripper:
        assert torch.equal(chain.constants, robot.chain.constants)
    if has_capsules(robot):
        first = compile_collision(robot)
        second = compile_collision(same)
        for own, other in zip(first.points, second.points):
            assert own[0] == other[0] and torch.equal(own[1], other[1])
        if first.at_opening is not None:
            own, other = (not_none(not_none(one.at_opening).fingers) for one in (first, second))
            assert torch.equal(own.poses, other.poses)


def test_nothing_heavy_is_imported_to_simulate():
    program = (
        "import sys, torch, envs\n"
        "env = envs.make('panda', 'reach', num_envs=2)\n"
        "env.step(torch.zeros(2, env.a_dim))\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_poses_are_those_of_the_toolbox():
    from spatialmath.base import rpy2tr, transl

    rng = np.random.default_rng(0)
    quarter = 0.5 * np.pi * rng.integers(-2, 3, (100, 6))
    for values in (*rng.uniform(-3.0, 3.0, (100, 6)), *quarter):
        theirs = transl(values[:3]) @ rpy2tr(values[3:], order="zyx")
        assert (make_pose(values) == theirs).all()
