"""Links of mimic joints follow the arm's joints: in picture, capsules, their gradients, physics and
the exported description.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import envs
from envs.collision import compile_collision
from envs.collision.files import Shapes, write_capsules
from envs.collision.links import compute_link_pose
from envs.collision.obstacles import Obstacles
from envs.collision.proximity import compute_nearest
from envs.collision.queries import clearance, compute_body_frames, link_poses, place_segments
from envs.export.robot_description import describe
from envs.robots import make_robot
from envs.robots.followers import compute_motion, list_followers, move_followers
from envs.robots.urdf import read_urdf

JOINT = """<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>
<origin xyz="{xyz}" rpy="{rpy}"/><axis xyz="{axis}"/>
<limit lower="-3" upper="3" velocity="2" effort="50"/>{mimic}</joint>"""
MIMIC = '<mimic joint="{}" multiplier="{}" offset="{}"/>'
BOX = '<link name="{}"><visual><origin xyz="0.1 0 0"/><geometry><box size="0.2 0.02 0.02"/></geometry></visual></link>'
JOINTS = (  # name, kind, parent, child, xyz, rpy, axis, mimic
    ("j1", "revolute", "base", "l1", "0 0 0.2", "0 0 0", "0 0 1", ""),
    ("j2", "revolute", "l1", "l2", "0.1 0 0.1", "0.3 0 0", "0 0.6 0.8", ""),
    ("j3", "prismatic", "l2", "l3", "0.3 0 0", "0 0.2 0", "1 0 0", ""),
    # a rod beside the second link, on it one that follows a follower, and one that slides
    ("rod", "revolute", "l1", "rod", "0 0.1 0.1", "0 0 0.4", "0 0.8 -0.6", ("j2", -0.7, 0.2)),
    ("tip", "revolute", "rod", "tip", "0.2 0 0", "0 0 0", "0 0 1", ("rod", 2.0, -0.1)),
    ("bolt", "prismatic", "l3", "bolt", "0 0 0.1", "0.5 0 0", "0 0 -1", ("j3", 0.5, 0.05)),
)
FOLLOW = {"rod": ("j2", -0.7, 0.2), "tip": ("j2", -1.4, 0.3), "bolt": ("j3", 0.5, 0.05)}


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    """An arm of three joints with three links that follow, each a rod of 0.2 m along its x."""
    names = ("base", "l1", "l2", "l3", "rod", "tip", "bolt")
    text = "".join(BOX.format(name) for name in names) + '<link name="tcp"/>'
    keys = ("name", "kind", "parent", "child", "xyz", "rpy", "axis")
    for *values, mimic in JOINTS:
        text += JOINT.format(**dict(zip(keys, values)), mimic=MIMIC.format(*mimic) if mimic else "")
    text += '<joint name="t" type="fixed"><parent link="l3"/><child link="tcp"/>'
    path = tmp_path_factory.mktemp("arm") / "arm.urdf"
    path.write_text(f'<robot name="r">{text}<origin xyz="0.2 0 0"/></joint></robot>')
    rod = [np.array([0, 0, 0, 0.2, 0, 0, 0.02])]
    write_capsules(
        path.with_name("arm.urdf.collision.yaml"), "arm.urdf", Shapes(dict.fromkeys(names, rod))
    )
    return path


@pytest.fixture(scope="module")
def robot(file):
    return make_robot(str(file), tcp="tcp")


def draw(robot, count: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(robot.qlim[0], robot.qlim[1], (count, robot.n))


def compute_pose(tree, link: str, q: np.ndarray) -> np.ndarray:
    """The pose of a link from the description alone, joint by joint."""
    T = np.eye(4)
    for joint in tree.find_path(link):
        position = 0.0
        if joint.name in FOLLOW:
            leader, multiplier, offset = FOLLOW[joint.name]
            position = multiplier * q[int(leader[1]) - 1] + offset
        elif joint.moves:
            position = q[int(joint.name[1]) - 1]
        T = T @ joint.pose.T @ compute_motion(joint.axis, position, joint.kind == "prismatic")
    return T


def test_followers_are_where_their_leaders_put_them(robot, file):
    assert (robot.n, robot.rtb.n) == (3, 3)
    assert [link.name for link in list_followers(robot.body.arm)] == ["rod", "tip", "bolt"]
    tree = read_urdf(file)
    for q in draw(robot, 20):
        for name in tree.links:
            found = compute_link_pose(robot.rtb.link_dict[name], q)
            np.testing.assert_allclose(found, compute_pose(tree, name, q), atol=1e-12)


def test_what_is_drawn_follows(robot, file):
    """roboticstoolbox's own poses of what it draws, which the view sends to the page."""
    tree = read_urdf(file)
    drawn = [link.name for link in robot.rtb.links for _ in link.geometry]
    for q in draw(robot, 5):
        move_followers(robot.rtb, q)
        for name, T in zip(drawn, robot.rtb.fkine_geometry(q)):
            shift = np.array([0.1, 0.0, 0.0, 1.0])
            np.testing.assert_allclose(T.A[:, 3], compute_pose(tree, name, q) @ shift, atol=1e-9)


def test_capsules_follow(robot, file):
    tree = read_urdf(file)
    model = compile_collision(robot)
    q = draw(robot, 10)
    poses = link_poses(model, torch.tensor(q, dtype=torch.float32))
    frames = compute_body_frames(model, torch.tensor(q, dtype=torch.float32))
    p, d = place_segments(model, frames)
    for row, position in enumerate(q):
        for capsule, link in enumerate(model.capsule_links):
            T = compute_pose(tree, model.links[link], position)
            np.testing.assert_allclose(poses[row, link], T, atol=1e-5)
            np.testing.assert_allclose(p[:, capsule, row], T[:3, 3], atol=1e-5)
            np.testing.assert_allclose(d[:, capsule, row], 0.2 * T[:3, 0], atol=1e-5)


def test_pairs_of_followers_are_checked_but_for_neighbours(robot):
    reasons = {frozenset(pair): why for *pair, why in compile_collision(robot).allowed}
    for pair in (("l1", "rod"), ("rod", "tip"), ("l3", "bolt")):
        assert reasons[frozenset(pair)] == "neighbours"
    for pair in (("base", "rod"), ("l2", "rod"), ("rod", "bolt"), ("l1", "tip")):
        assert reasons.get(frozenset(pair)) != "neighbours"


@pytest.mark.parametrize("what", ["sphere", "ground", "itself"])
def test_gradients_of_distances_are_finite_differences(robot, what):
    model = compile_collision(robot)
    q = torch.tensor(draw(robot, 40), dtype=torch.float32)
    spheres = torch.tensor([[[0.3, 0.2, 0.4, 0.05]]]).expand(len(q), -1, -1)
    around = {
        "sphere": {"obstacles": Obstacles(spheres=spheres)},
        "ground": {"ground": -1.0},
        "itself": {},
    }[what]
    found = compute_nearest(model, q, **around)
    step = 1e-3
    for joint in range(robot.n):
        side = torch.zeros(robot.n).index_fill(0, torch.tensor(joint), step)
        ahead, behind = (compute_nearest(model, q + s * side, **around).distance for s in (1, -1))
        slope = (ahead - behind) / (2.0 * step)
        # where the nearest point jumps between the three the slope is none
        smooth = (ahead + behind - 2.0 * found.distance).abs() < 2e-5
        assert smooth.float().mean() > 0.7
        torch.testing.assert_close(
            found.gradient[..., joint][smooth], slope[smooth], atol=2e-2, rtol=0
        )
    columns = [model.links.index(name) for name in FOLLOW]
    if what != "itself":
        assert (found.gradient[:, columns].abs().amax((0, 2)) > 0.05).all()


def test_which_joints_move_a_follower(robot):
    model = compile_collision(robot)
    moved = {
        name: model.list_moving_joints(body) for name, body in zip(model.links, model.link_bodies)
    }
    assert (moved["l2"], moved["rod"], moved["tip"]) == ([0, 1], [0, 1], [0, 1])
    assert moved["bolt"] == [0, 1, 2]


def test_a_follower_is_in_the_way_where_it_is(robot, file):
    """A sphere at the middle of the tip: no distance but that of the tip sees it."""
    model = compile_collision(robot)
    q = draw(robot, 1)
    centre = compute_pose(read_urdf(file), "tip", q[0]) @ [0.1, 0.0, 0.0, 1.0]
    sphere = torch.tensor([[[*centre[:3], 0.01]]], dtype=torch.float32)
    found = clearance(model, torch.tensor(q, dtype=torch.float32), Obstacles(spheres=sphere))
    assert found.item() <= -0.03 + 1e-4


def test_the_warning_of_physics_names_links_of_the_file(file, robot, tmp_path, capsys):
    """A joint about a skew axis has a link of its own in the model, which no user knows."""
    alone = tmp_path / "arm.urdf"
    alone.write_text(file.read_text())
    envs.make(str(alone), "reach", engine="mujoco", tcp="tcp")
    named = re.search("no inertia of (.*) is known", capsys.readouterr().err)
    assert named and set(named[1].split(", ")) == {"l1", "l2", "l3", "rod", "tip", "bolt"}


def test_followers_follow_in_physics(file, tmp_path):
    """Links of some kilograms follow to within 5 mrad or mm where nothing holds them up; without
    the tie they would stay where they begin."""
    alone = tmp_path / "arm.urdf"  # without capsules, which could touch each other
    alone.write_text(file.read_text())
    env = envs.make(str(alone), "reach", num_envs=3, engine="mujoco", tcp="tcp")
    env.reset(0)
    physics = env.engine.physics
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        env.step(torch.rand(3, 3, generator=generator) * 2.0 - 1.0)
        qpos = env.moment.scene["physics"].numpy()[:, 1 : 1 + physics.model.nq]
        expected = physics.ties.compute_positions(qpos[:, physics.q])
        np.testing.assert_allclose(qpos[:, physics.ties.q], expected, atol=5e-3)
    assert env.engine.unstable == 0


def test_the_exported_description_has_the_same_capsules(robot):
    """td3_robot.deploy's distances are the simulator's, and change by no more than it says."""
    from td3_robot.deploy import Obstacles as Around
    from td3_robot.deploy import Robot

    exported = Robot.from_dict(json.loads(json.dumps(describe(robot, 5.0))))
    capsules = exported.capsules
    assert capsules is not None and len(capsules.followers) == 3
    q = draw(robot, 50)
    around = Around(spheres=np.array([[0.3, 0.2, 0.4, 0.05]]), ground=-1.0)
    found = capsules.find_clearance(exported.chain.frames(q), around, q)
    spheres = torch.tensor([[[0.3, 0.2, 0.4, 0.05]]], dtype=torch.float32).expand(len(q), -1, -1)
    model = compile_collision(robot)
    expected = clearance(
        model, torch.tensor(q, dtype=torch.float32), Obstacles(spheres=spheres), ground=-1.0
    )
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)

    reach = capsules.find_reach(exported.chain, np.abs(robot.qlim).max(0))
    step = np.random.default_rng(0).normal(0.0, 1e-3, q.shape)
    moved = capsules.find_clearance(exported.chain.frames(q + step), around, q + step)
    assert (np.abs(moved - found) <= np.abs(step) @ reach + 1e-9).all()


def test_where_an_arm_with_followers_can_be_is_found(robot):
    from td3_robot.deploy import Robot
    from td3_robot.deploy.planning.reachability import find_nearest_pose

    exported = Robot.from_dict(json.loads(json.dumps(describe(robot, 5.0))))
    q = draw(robot, 1)[0]
    goal = exported.chain.frames(q[None])[0, -1, :3, 3]
    nearest_pose = find_nearest_pose(exported, exported.home, goal)
    assert nearest_pose.distance < 1e-3
    assert np.isfinite(nearest_pose.clearance)


def test_links_that_come_towards_each_other_are_as_fast_as_both_together(tmp_path):
    """Two arms of half a metre, the second of which follows the first the other way round."""
    from td3_robot.deploy import Obstacles as Around
    from td3_robot.deploy import Robot

    limit = '<axis xyz="0 0 1"/><limit lower="-1.5" upper="1.5" velocity="2" effort="10"/>'
    turn = f'type="revolute">{limit}<parent link="base"/>'
    follows = '<mimic joint="ja" multiplier="-1"/>'
    file = tmp_path / "pair.urdf"
    file.write_text(
        '<robot name="pair"><link name="base"/><link name="a"/><link name="b"/><link name="tcp"/>'
        f'<joint name="ja" {turn}<child link="a"/><origin xyz="0 0.5 0.5"/></joint>'
        f'<joint name="jb" {turn}<child link="b"/><origin xyz="0 -0.5 0.5"/>{follows}</joint>'
        '<joint name="t" type="fixed"><parent link="a"/><child link="tcp"/>'
        '<origin xyz="0.5 0 0"/></joint></robot>'
    )
    ball = [np.array([0.5, 0, 0, 0.5, 0, 0, 0.05])]
    base = [np.array([0, 0, -0.5, 0, 0, -0.5, 0.02])]
    write_capsules(
        file.with_name("pair.urdf.collision.yaml"),
        "pair.urdf",
        Shapes({"base": base, "a": ball, "b": ball}),
    )
    pair = Robot.from_dict(json.loads(json.dumps(describe(make_robot(file), 10.0))))
    q = np.linspace(-1.2, 0.0, 1201)[:, None]
    found = pair.capsules.find_clearance(pair.chain.frames(q), Around(), q)
    rate = np.abs(np.diff(found) / np.diff(q[:, 0])).max()
    assert 0.9 < rate <= pair.capsules.find_reach(pair.chain, np.array([1.5])).item() + 1e-9
