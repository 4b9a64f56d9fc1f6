"""Capsules around shapes and meshes hold all of them and little else; the files that ship do; the
command.
"""

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import trimesh
from spatialgeometry import Cuboid, Cylinder, Ellipsoid, Sphere
from spatialmath import SE3

import envs.collision.files
import envs.collision.fitting.robot
from envs.collision import compile_collision, find_collision_model
from envs.collision.files import CAPSULES, Shapes, read_capsules, write_capsules
from envs.collision.fitting import __main__ as fit_collision
from envs.collision.fitting import apart
from envs.collision.fitting.capsule import compute_distances, compute_volume, fit_capsule, fit_mesh
from envs.collision.fitting.gripper import find_outermost, sweep_fingers
from envs.collision.fitting.shapes import fit_link, make_mesh, merge_capsules, select_shapes
from envs.collision.links import compute_link_pose
from envs.robots import make_robot
from td3_robot.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
CAPSULE = np.array([0.1, -0.05, 0.2, 0.25, 0.1, 0.25, 0.06])  # any one


def holds(capsules: list[np.ndarray], points: np.ndarray) -> bool:
    inside = [
        compute_distances(capsule[:6].reshape(2, 3), points) <= capsule[6] + 1e-6
        for capsule in capsules
    ]
    return bool(np.any(inside, 0).all())


def surface(capsule: np.ndarray) -> np.ndarray:
    """(N, 3) points all over a capsule."""
    extent = capsule[3:6] - capsule[:3]
    length = np.linalg.norm(extent)
    mesh = trimesh.creation.capsule(length, capsule[6], (48, 48))
    mesh.apply_translation((0, 0, -mesh.bounds[:, 2].mean()))
    turn = trimesh.geometry.align_vectors((0, 0, 1), extent / length)
    return mesh.apply_transform(turn).vertices + (capsule[:3] + capsule[3:6]) / 2


def test_volume_is_that_of_a_cylinder_and_a_ball():
    assert compute_volume(np.array([0, 0, 0, 0, 3, 4, 2])) == pytest.approx(
        np.pi * (4 * 5 + 32 / 3)
    )


def test_a_capsule_is_found_again_from_points_on_it():
    points = surface(CAPSULE)
    found = fit_capsule(points)
    assert holds([found], points)
    assert compute_volume(found) == pytest.approx(compute_volume(CAPSULE), rel=0.02)


def test_balls_are_held_whole():
    centres = np.random.default_rng(1).uniform(-0.2, 0.2, (50, 3))
    radii = np.linspace(0.01, 0.08, 50)
    found = fit_capsule(centres, radii)
    assert (compute_distances(found[:6].reshape(2, 3), centres) + radii <= found[6] + 1e-9).all()
    assert compute_volume(fit_capsule(centres[:1], radii[:1])) == pytest.approx(
        4 / 3 * np.pi * radii[0] ** 3, rel=0.05
    )


def angle_piece() -> trimesh.Trimesh:
    """An L of two long boxes, whose triangles run its whole length."""
    upright = trimesh.creation.box(
        (0.06, 0.06, 0.5), trimesh.transformations.translation_matrix((0, 0, 0.25))
    )
    level = trimesh.creation.box(
        (0.5, 0.06, 0.06), trimesh.transformations.translation_matrix((0.25, 0, 0))
    )
    return trimesh.util.concatenate((upright, level))


def test_a_mesh_is_held_between_its_corners_too_and_cut_where_that_pays():
    mesh = angle_piece()
    points = mesh.sample(3000, seed=0)
    one = [fit_capsule(mesh.vertices)]
    two = fit_mesh(mesh, 2)
    assert len(two) == 2
    assert holds(one, points) and holds(two, points)
    assert sum(map(compute_volume, two)) < 0.2 * compute_volume(one[0])


def test_a_tube_is_cut_from_the_housings_at_both_its_ends():
    """Either cut alone leaves it in a capsule with a housing."""
    ends = [trimesh.transformations.translation_matrix((0, 0.02, z)) for z in (0, 0.6)]
    tube = trimesh.transformations.translation_matrix((0, 0, 0.3))
    boxes = [trimesh.creation.box((0.12, 0.12, 0.12), end) for end in ends]
    mesh = trimesh.util.concatenate((*boxes, trimesh.creation.box((0.04, 0.04, 0.6), tube)))
    found = fit_mesh(mesh, 3)
    assert len(found) == 3 and holds(found, mesh.sample(3000, seed=0))
    assert min(capsule[6] for capsule in found) < 0.03


def test_a_mesh_is_not_cut_where_it_does_not_pay():
    """Two capsules around this box fill 7% less than one."""
    assert len(fit_mesh(trimesh.creation.box((0.1, 0.1, 0.2)), 2)) == 1


def test_a_cylinder_between_its_own_spheres_is_a_capsule_as_it_stands():
    pose = SE3(0.1, 0.2, 0.3) * SE3.Rx(0.7)
    caps = [Sphere(0.05, pose=pose * SE3.Tz(end)) for end in (-0.1, 0.1)]
    found = fit_link([Cylinder(0.05, 0.2, pose=pose), *caps], 3)
    ends = np.concatenate([(pose * SE3.Tz(end)).t for end in (-0.1, 0.1)])
    assert len(found) == 1
    np.testing.assert_allclose(found[0], [*ends, 0.05], atol=1e-12)
    np.testing.assert_allclose(fit_link(caps[:1], 3), [[*ends[:3], *ends[:3], 0.05]], atol=1e-12)


def test_cylinders_and_boxes_are_held():
    pose = SE3(0.1, 0.2, 0.3) * SE3.Rx(0.7)
    shapes = [Cylinder(0.05, 0.2, pose=pose), Cuboid([0.1, 0.2, 0.3], pose=pose)]
    meshes = [trimesh.creation.cylinder(0.05, 0.2), trimesh.creation.box((0.1, 0.2, 0.3))]
    for shape, mesh in zip(shapes, meshes):
        found = fit_link([shape], 1)
        assert holds(found, mesh.apply_transform(pose.A).sample(3000, seed=0))
        assert sum(map(compute_volume, found)) < 3 * mesh.volume


def test_shapes_without_a_capsule_are_refused():
    with pytest.raises(ConfigError, match="ellipsoid"):
        fit_link([Ellipsoid([0.1, 0.2, 0.3])], 2)


def test_shapes_without_a_surface_are_nothing_and_no_capsule_is_without_one():
    link = SimpleNamespace(
        geometry=[Sphere(0.0), Cuboid([0.1, 0, 0]), Cylinder(0.0, 0.1)], collision=[Sphere(0.02)]
    )
    assert select_shapes(link) == link.collision
    assert fit_capsule(np.array([[0.0, 0, 0], [0.1, 0, 0]]))[6] > 0


def test_capsules_inside_others_go_and_like_ones_become_one():
    inner = np.array([0.15, 0, 0.22, 0.15, 0, 0.22, 0.02])
    away = inner + [1, 1, 1, 1, 1, 1, 0]
    beside = CAPSULE + [0.001, 0, 0, 0, 0.001, 0, 0]
    assert len(merge_capsules([inner, CAPSULE])) == 1 and len(merge_capsules([away, CAPSULE])) == 2
    (both,) = merge_capsules([CAPSULE, beside])
    assert holds([both], np.concatenate((surface(CAPSULE), surface(beside))))


@pytest.mark.parametrize("name", ["panda", "lbr", "puma560", "ur3e", "ur5e", "vx300s", "wx250s"])
def test_the_capsules_that_ship_hold_the_meshes(name):
    """Points all over the meshes of every link, and of the fingers at every opening."""
    robot = make_robot(name)
    capsules = read_capsules(name).links
    for link in robot.rtb.links:
        for shape in select_shapes(link):
            assert holds(capsules[link.name], make_mesh(shape).sample(1000, seed=0)), link.name
    if robot.gripper is not None:
        fingers = read_capsules(robot.gripper.name).links["fingers"]
        swept = trimesh.util.concatenate(sweep_fingers(robot.rtb.grippers[0], robot.gripper))
        assert holds(fingers, swept.sample(5000, seed=0))


def test_fingers_are_swept_from_open_to_shut():
    """Each as its convex hull: a capsule that holds the one holds the other."""
    robot = make_robot("wx250s")
    model = robot.rtb.grippers[0]
    hand = robot.gripper
    swept = {
        tuple(vertex) for mesh in sweep_fingers(model, hand) for vertex in mesh.vertices.round(9)
    }
    finger = next(link for link in model.links if link.name == hand.links[0])
    for driver in (hand.opened, (hand.opened + hand.closed) / 2, hand.closed):
        T = compute_link_pose(finger, hand.compute_model_q(model.links, driver), model.links[0])
        here = make_mesh(finger.geometry[0]).convex_hull.apply_transform(T).vertices.round(9)
        assert swept.issuperset(map(tuple, here))


def test_no_plane_touches_a_mesh_before_its_outermost_points():
    """In directions that the choice never looked at."""
    mesh = angle_piece().apply_transform(trimesh.transformations.rotation_matrix(1.0, (1, 2, 3)))
    normals = np.random.default_rng(0).normal(size=(3000, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    points = mesh.subdivide().subdivide().vertices
    late = (points @ normals.T).max(0) - (np.array(find_outermost(points)) @ normals.T).max(0)
    assert 0.0 <= late.max() < 0.001 and len(find_outermost(points)) < 20


def test_meshes_decide_which_pairs_never_come_close(monkeypatch):
    """The Panda's shoulder and upper arm overlap as capsules in a quarter of all configurations,
    and never do.
    """
    monkeypatch.setattr(apart, "SAMPLES", 300)
    robot = make_robot("panda")
    touching = [
        ("panda_link0", "panda_link7"),
        ("panda_link1", "panda_link7"),
        ("panda_link1", "panda_hand"),
    ]
    assert apart.find_separated_pairs(robot, [("panda_link1", "panda_link3"), *touching]) == [
        ("panda_link1", "panda_link3")
    ]


PASSING = """<robot name="passing">
  <link name="base"><visual>
    <origin xyz="0 {post} 0.3"/><geometry><box size="0.04 0.04 0.2"/></geometry>
  </visual></link>
  <link name="post_side"/>
  <link name="boom"><visual>
    <origin xyz="0.2 0 0.3"/><geometry><box size="0.4 0.04 0.04"/></geometry>
  </visual></link>
  <link name="tip"/>
  <joint name="end" type="fixed">
    <parent link="boom"/><child link="tip"/><origin xyz="0.4 0 0.3"/>
  </joint>
  <joint name="turn" type="revolute">
    <parent link="base"/><child link="post_side"/><axis xyz="0 0 1"/>
    <limit lower="-3" upper="3" velocity="2" effort="1"/>
  </joint>
  <joint name="wobble" type="revolute">
    <parent link="post_side"/><child link="boom"/><axis xyz="0 0 1"/>
    <limit lower="-0.01" upper="0.01" velocity="2" effort="1"/>
  </joint>
</robot>"""


@pytest.mark.parametrize(
    "gap, capsule_gap, barred",
    [
        (0.025, 0.008, True),  # near without touching is where the guard stops the arm
        (0.025, -0.005, True),
        (0.025, 0.015, False),
        (0.008, 0.005, False),  # the meshes themselves come that near
    ],
)
def test_capsules_bar_a_turn_that_meshes_allow(tmp_path, gap, capsule_gap, barred):
    """A boom turns past a post on a quarter of all motions."""
    file = tmp_path / "passing.urdf"
    file.write_text(PASSING.format(post=0.4 + gap + 0.02))
    radius = gap + 0.02 - capsule_gap
    post = np.array([0, 0.4 + gap + 0.02, 0.2, 0, 0.4 + gap + 0.02, 0.4, radius])
    boom = np.array([0.03, 0, 0.3, 0.37, 0, 0.3, 0.03])
    shapes = Shapes({"base": [post], "boom": [boom]})
    found = envs.collision.fitting.robot.find_barred_pairs(make_robot(str(file)), shapes)
    assert found == ({("base", "boom")} if barred else set())


def test_every_registered_robot_and_its_gripper_have_capsules():
    for file in (ROOT / "configs" / "robots").glob("*.yaml"):
        text = file.read_text()
        if "repository:" in text:
            continue  # its meshes are not to be had offline
        assert (CAPSULES / file.name).is_file()
    for file in (ROOT / "configs" / "grippers").glob("*.yaml"):
        assert (CAPSULES / file.name).is_file()


def test_a_file_is_read_as_it_was_written(tmp_path, monkeypatch):
    monkeypatch.setattr(envs.collision.files, "CAPSULES", tmp_path / "new")
    odd = {
        name: [CAPSULE]
        for name in ("1", "01", "on", "null", "link: a", "b#c", "a, b", '"', "élan", "1e3")
    }
    rows = odd | {
        "a": [CAPSULE, CAPSULE[[3, 4, 5, 0, 1, 2, 6]]],
        "/b c": [np.array([-0.0, 1e-9, 0, 0, 0, 0, 0.1])],
    }
    shapes = Shapes(
        rows,
        [("a", "/b c"), ("01", "on"), ("a, b", "null")],
        {"c": [CAPSULE]},
        {"base": [CAPSULE[:3]], "c": [CAPSULE[3:6]] * 2},
    )
    write_capsules(tmp_path / "new" / "arm.yaml", "arm", shapes)
    found = read_capsules("arm")
    assert found.apart == shapes.apart
    for part in ("links", "moving", "corners"):
        assert list(getattr(found, part)) == list(getattr(shapes, part))
        for name, expected in getattr(shapes, part).items():
            np.testing.assert_allclose(getattr(found, part)[name], expected, atol=1e-6)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["arm.yaml"]


def test_a_users_file_keeps_its_capsules_beside_it(tmp_path, monkeypatch, capsys):
    """Whatever it is called: a panda.urdf is no Panda, and fitting it leaves the shipped Panda
    alone. Links that are drawn get capsules though only the base has a collision shape, and one
    that is bare is named."""
    monkeypatch.setattr(envs.collision.files, "CAPSULES", tmp_path / "shipped")
    (tmp_path / "shipped").mkdir()
    (tmp_path / "shipped" / "panda.yaml").write_text(
        "links: {panda_link0: [[0, 0, 0, 0, 0, 1, 0.1]]}"
    )
    file = tmp_path / "panda.urdf"
    shutil.copy(ROOT / "tests" / "envs" / "data" / "gantry.urdf", file)
    with pytest.raises(
        ConfigError, match="'panda' has no collision geometry.*panda.urdf.collision.yaml"
    ):
        compile_collision(make_robot(str(file)))
    assert find_collision_model(make_robot(str(file))) is None

    fitting = envs.collision.fitting.robot
    monkeypatch.setattr(fitting, "find_separated_pairs", lambda robot, pairs: [])
    monkeypatch.setattr(fitting, "find_barred_pairs", lambda robot, shapes: set())
    assert fit_collision.main([str(file), "--tcp", "tool0"]) == 0
    assert find_collision_model(make_robot(str(file))).links == ("base", "carriage", "arm")
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 1 and "warning" in warnings[0] and "'wrist'" in warnings[0]
    assert list(read_capsules("panda").links) == ["panda_link0"]
    assert [path.name for path in (tmp_path / "shipped").iterdir()] == ["panda.yaml"]


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["pandas"], "pandas"),
        (["panda", "--capsules", "0"], "--capsules"),
        (["panda", "--gripper", "hook"], "hook"),
    ],
)
def test_the_command_refuses_in_one_line(arguments, named, capsys):
    try:
        code = fit_collision.main(arguments)
    except SystemExit as stop:  # argparse's own way
        code = stop.code
    assert code == 2 and named in capsys.readouterr().err.strip().splitlines()[-1]


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_fitted(
    tmp_path, monkeypatch, capsys
):
    file = tmp_path / "arm.urdf"
    shutil.copy(ROOT / "tests" / "envs" / "data" / "gantry.urdf", file)
    (tmp_path / "arm.urdf.collision.yaml").mkdir()
    monkeypatch.setattr(envs.collision.fitting.robot, "fit_arm", None)  # is not called
    assert fit_collision.main([str(file), "--tcp", "tool0"]) == 2
    assert "arm.urdf.collision.yaml': it must be a file" in capsys.readouterr().err


def test_the_command_says_what_is_not_installed(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "trimesh", None)
    assert fit_collision.main(["panda"]) == 2
    needed = "fitting capsules needs trimesh, which is not installed"
    assert capsys.readouterr().err == f"error: {needed}: pip install 'td3-robot[collision]'\n"
