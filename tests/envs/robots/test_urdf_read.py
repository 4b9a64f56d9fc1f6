"""Reading of robot descriptions: what is kept, and the one line that each wrong file ends in."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from envs.robots import make_robot
from envs.robots.urdf import Joint, Mimic, Pose, load_urdf, read_urdf
from td3_robot.errors import ConfigError
from tests.support import get_file_refusal

GANTRY = Path(__file__).parents[1] / "data" / "gantry.urdf"
TEXT = GANTRY.read_text()


def written(folder: Path, text: str | bytes, name: str = "robot.urdf") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_tree_says_what_the_file_says():
    tree = read_urdf(GANTRY)
    assert (tree.name, tree.root, len(tree.links), len(tree.joints)) == ("gantry", "base", 8, 7)
    assert tree.joints["shoulder"] == Joint(
        name="shoulder",
        kind="revolute",
        parent="carriage",
        child="arm",
        pose=Pose((0.1, 0.0, 0.0)),
        axis=(0.0, 0.0, -1.0),
        lower=-2.0,
        upper=2.5,
        velocity=2.0,
        effort=50.0,
    )
    assert tree.joints["right"].mimic == Mimic("left", -1.0, 0.0)
    assert tree.joints["wrist"].lower is None and tree.joints["wrist"].velocity == 3.0
    assert [joint.name for joint in tree.find_path("right_finger")] == [
        "slide",
        "shoulder",
        "wrist",
        "tool",
        "right",
    ]
    box = tree.links["base"].visuals[0]
    collision = tree.links["base"].collisions[0]
    assert (box.kind, box.size, box.pose.xyz, box.color) == (
        "box",
        (0.3, 0.3, 0.2),
        (0, 0, 0.1),
        (1, 0.5, 0, 1),
    )
    assert collision.color is None
    assert [shape.size for shape in tree.links["arm"].visuals] == [(0.04, 0.4)]


def test_poses_turn_about_fixed_axes_in_the_order_roll_pitch_yaw():
    rpy = (0.3, -0.7, 1.9)
    T = Pose((1.0, 2.0, 3.0), rpy).T
    np.testing.assert_allclose(T[:3, :3], Rotation.from_euler("xyz", rpy).as_matrix(), atol=1e-15)
    assert T[:3, 3].tolist() == [1, 2, 3] and T[3].tolist() == [0, 0, 0, 1]


def test_foreign_elements_and_undeclared_prefixes_are_passed_over(tmp_path):
    extra = '<gazebo:plugin drake:x="nan"/><transmission name="t"><joint name="slide"/></transmission></robot>'
    tree = read_urdf(written(tmp_path, TEXT.replace("</robot>", extra)))
    assert tree.joints == read_urdf(GANTRY).joints


def test_an_axis_may_be_rounded_and_is_made_exact(tmp_path):
    tree = read_urdf(written(tmp_path, TEXT.replace('xyz="0 0 -1"', 'xyz="0.7071 0.7071 0"')))
    assert np.linalg.norm(tree.joints["shoulder"].axis) == pytest.approx(1.0, abs=1e-15)


def test_one_limit_left_out_is_zero(tmp_path):
    tree = read_urdf(written(tmp_path, TEXT.replace('lower="0" upper="0.6"', 'upper="0.6"')))
    assert (tree.joints["slide"].lower, tree.joints["slide"].upper) == (0.0, 0.6)


LINK_LOOP = '<joint name="x" type="fixed"><parent link="a"/><child link="b"/></joint>'
LINK_LOOP += '<joint name="y" type="fixed"><parent link="b"/><child link="a"/></joint><link name="a"/><link name="b"/>'
MIMIC_LOOP = ('<mimic joint="left" multiplier="-1"/>', '<mimic joint="right"/>')
WRONG = {  # what is replaced in the gantry, by what, and what the message must name
    "truncated": (TEXT[-400:], "", "not well-formed XML"),
    "unclosed": ("</robot>", "", "not well-formed XML"),
    "another root": (TEXT, "<sdf><model/></sdf>", "<sdf>, expected <robot>"),
    "text": (TEXT, "just text", "not well-formed XML"),
    "blank": (TEXT, " \n ", "is empty"),
    "no links": (TEXT, "<robot name='r'/>", "no <link>"),
    "unknown encoding": ('<?xml version="1.0"?>', '<?xml version="1.0" encoding="klingon"?>', ""),
    "two roots": (
        "</robot>",
        '<link name="island"/></robot>',
        "several links have no parent, one may: 'base', 'island'",
    ),
    "circle apart": ("</robot>", f"{LINK_LOOP}</robot>", "in a circle: 'a', 'b'"),
    "all in a circle": (TEXT, f"<robot>{LINK_LOOP}</robot>", "in a circle: 'a', 'b'"),
    "own parent": ('<parent link="base"/>', '<parent link="carriage"/>', "in a circle: 'carriage'"),
    "two parents": (
        '<child link="camera"/>',
        '<child link="wrist"/>',
        "'wrist' is the child of two joints",
    ),
    "same link twice": (
        '<link name="wrist"/>',
        '<link name="wrist"/><link name="wrist"/>',
        "two links are called 'wrist'",
    ),
    "same joint twice": ('<joint name="eye"', '<joint name="tool"', "two joints are called 'tool'"),
    "unknown parent": (
        '<parent link="arm"/>',
        '<parent link="leg"/>',
        "joint 'wrist': there is no parent link 'leg'",
    ),
    "unknown child": (
        '<child link="arm"/>',
        '<child link="leg"/>',
        "joint 'shoulder': there is no child link 'leg'",
    ),
    "no child": ('<child link="arm"/>', "", "joint 'shoulder' has no <child link=...>"),
    "no name": ('<link name="wrist"/>', "<link/>", "a <link> has no name"),
    "unknown type": (
        'type="continuous"',
        'type="continous"',
        "did you mean 'continuous'? valid choices: continuous, fixed",
    ),
    "floating": (
        'type="continuous"',
        'type="floating"',
        "joint 'wrist' 'floating'; valid choices: continuous, fixed",
    ),
    "no type": (' type="continuous"', "", "joint 'wrist'"),
    "zero axis": (
        'xyz="0 0 -1"',
        'xyz="0 0 0"',
        "joint 'shoulder': the axis '0 0 0' has length 0, not 1",
    ),
    "long axis": (
        'xyz="0 0 -1"',
        'xyz="0 3 4"',
        "joint 'shoulder': the axis '0 3 4' has length 5, not 1, here 0 0.6 0.8",
    ),
    "axis of two": (
        'xyz="0 0 -1"',
        'xyz="0 1"',
        "joint 'shoulder': xyz of <axis> must be 3 numbers, got '0 1'",
    ),
    "NaN limit": (
        'lower="-2"',
        'lower="nan"',
        "joint 'shoulder': lower of <limit> must be finite, got 'nan'",
    ),
    "infinite speed": (
        'velocity="2"',
        'velocity="INF"',
        "joint 'shoulder': velocity of <limit> must be finite",
    ),
    "overflow": (
        'velocity="2"',
        'velocity="1e999"',
        "joint 'shoulder': velocity of <limit> must be finite",
    ),
    "NaN not used": (
        'effort="50"',
        'effort="NaN"',
        "joint 'shoulder': effort of <limit> must be finite",
    ),
    "NaN place": (
        'xyz="0.4 0 0"',
        'xyz="0.4 0 nan"',
        "joint 'wrist': xyz of <origin> must be finite",
    ),
    "NaN size": (
        'size="0.3 0.3 0.2"',
        'size="0.3 nan 0.2"',
        "link 'base': size of <box> must be finite",
    ),
    "underscore": (
        'velocity="2"',
        'velocity="1_0"',
        "joint 'shoulder': velocity of <limit> must be a number, got '1_0'",
    ),
    "words": (
        'upper="0.6"',
        'upper="far"',
        "joint 'slide': upper of <limit> must be a number, got 'far'",
    ),
    "inverted": (
        'upper="0.6"',
        'upper="-0.6"',
        "joint 'slide': lower limit 0 is above upper limit -0.6",
    ),
    "mimic of nobody": (
        'mimic joint="left"',
        'mimic joint="thumb"',
        "joint 'right' mimics 'thumb', which does not exist",
    ),
    "mimic of fixed": (
        'mimic joint="left"',
        'mimic joint="tool"',
        "joint 'right' mimics 'tool', which is fixed",
    ),
    "mimic of itself": (MIMIC_LOOP[0], MIMIC_LOOP[1], "joint 'right' mimics itself"),
    "negative radius": (
        'radius="0.08"',
        'radius="-0.08"',
        "link 'carriage', <sphere>: radius must not be negative",
    ),
    "no radius": (
        'radius="0.08"',
        "",
        "link 'carriage', <sphere>: radius of <sphere> must be a number, got ''",
    ),
    "no shape": (
        '<sphere radius="0.08"/>',
        "",
        "link 'carriage': a <visual> needs a <geometry> with one shape",
    ),
    "unknown shape": ("<sphere", "<torus", "valid choices: box, capsule, cylinder, mesh, sphere"),
    "xacro inside": (
        '<link name="wrist"/>',
        '<xacro:thing/><link name="wrist"/>',
        "<xacro:thing>, which only a .xacro",
    ),
    "no mesh": (
        '<sphere radius="0.08"/>',
        '<mesh scale="1 1 1"/>',
        "link 'carriage', <mesh>: filename is missing",
    ),
    "a material inside": (
        '<sphere radius="0.08"/>',
        '<sphere radius="0.08"/><material name="orange"/>',
        "one shape, not <sphere> and <material>; <material> belongs beside <geometry>",
    ),
    "xacro in a value": (
        'upper="0.6"',
        'upper="${lift}"',
        "joint 'slide': upper of <limit> is '${lift}', which is for xacro to work out: name the "
        "file .xacro",
    ),
    "xacro in a name": (
        '<link name="wrist"/>',
        '<link name="$(arg p)wrist"/>',
        "name of <link> is '$(arg p)wrist'",
    ),
    "xacro in a file": (
        '<sphere radius="0.08"/>',
        '<mesh filename="$(find arm)/a.stl"/>',
        "filename of <mesh> is '$(find arm)/a.stl', which is for xacro",
    ),
    "far away": (
        'xyz="0.4 0 0"',
        'xyz="0.4 0 1e308"',
        "joint 'wrist': xyz of <origin> is '0.4 0 1e308', farther than",
    ),
    "very large": (
        'radius="0.08"',
        'radius="1e308"',
        "radius must not be negative and at most 1000 m, got '1e308'",
    ),
    "entities": (
        '<?xml version="1.0"?>',
        "<!DOCTYPE robot [<!ENTITY a 'b'>]>",
        "DOCTYPE or entities",
    ),
    "external DTD": (
        '<?xml version="1.0"?>',
        '<!DOCTYPE robot SYSTEM "file:///etc/hosts">',
        "DOCTYPE or entities",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_file_ends_in_one_line_that_names_what_is_wrong(tmp_path, kind):
    old, new, named = WRONG[kind]
    assert old in TEXT
    assert named in get_file_refusal(read_urdf, written(tmp_path, TEXT.replace(old, new, 1)))


def test_mimics_in_a_circle(tmp_path):
    text = TEXT.replace(
        'effort="5"/>\n  </joint>', 'effort="5"/><mimic joint="right"/>\n  </joint>', 1
    )
    assert "mimics itself, directly or through others" in get_file_refusal(
        read_urdf, written(tmp_path, text)
    )


def test_a_message_names_the_first_of_many(tmp_path):
    many = "".join(f'<link name="island{i}"/>' for i in range(900))
    message = get_file_refusal(read_urdf, written(tmp_path, f"<robot>{many}</robot>"))
    assert "several links have no parent, one may: 'island0', " in message and message.endswith(
        "(900 in all)"
    )
    assert len(message) < 400


def test_a_queue_of_mimics_is_refused(tmp_path):
    joint = '<link name="m{0}"/><joint name="m{0}" type="continuous"><parent link="base"/><child link="m{0}"/>{1}</joint>'
    queue = "".join(joint.format(i, f'<mimic joint="m{i - 1}"/>' if i else "") for i in range(900))
    text = TEXT.replace("</robot>", f"{queue}</robot>")
    assert "mimics another through over 100 others" in get_file_refusal(
        read_urdf, written(tmp_path, text)
    )


def test_entity_bombs_do_not_go_off(tmp_path):
    entities = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10 if i else "boom"}">' for i in range(12))
    assert "entities" in get_file_refusal(
        read_urdf, written(tmp_path, f"<!DOCTYPE robot [{entities}]><robot name='&e11;'/>")
    )


def test_huge_files_are_not_read(tmp_path):
    path = tmp_path / "huge.urdf"
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # a sparse file of 1 TB
    assert "more than 10 MB" in get_file_refusal(read_urdf, path)
    many = "".join(f'<link name="l{i}"/>' for i in range(1001))
    assert "has 1001 links; at most 1000" in get_file_refusal(
        read_urdf, written(tmp_path, f"<robot>{many}</robot>")
    )


@pytest.mark.parametrize("around", ["{}", '<link name="a">{}</link>'])
def test_depth_is_counted_before_anything_walks_down_it(tmp_path, around):
    deep = "<a>" * 100_000 + "</a>" * 100_000
    assert "more than 100 deep" in get_file_refusal(
        read_urdf, written(tmp_path, f"<robot>{around.format(deep)}</robot>")
    )


def test_elements_without_end_are_not_kept(tmp_path):
    assert "more than 100,000 elements" in get_file_refusal(
        read_urdf, written(tmp_path, f"<robot>{'<a/>' * 100_001}</robot>")
    )


def one_after_the_other(count: int, length: str = "0.1") -> str:
    limits = (
        f'<origin xyz="0 0 {length}"/><axis xyz="0 1 0"/><limit lower="-1" upper="1" velocity="1"/>'
    )
    joint = '<link name="l{1}"/><joint name="j{0}" type="revolute"><parent link="l{0}"/><child link="l{1}"/>{2}</joint>'
    joints = "".join(joint.format(i, i + 1, limits) for i in range(count))
    return f'<robot name="r"><link name="l0"/>{joints}</robot>'


def test_a_chain_that_recursion_could_not_follow_is_refused_and_the_longest_is_taken(tmp_path):
    assert "999 joints one after the other; at most 100" in get_file_refusal(
        read_urdf, written(tmp_path, one_after_the_other(999))
    )
    assert len(load_urdf(written(tmp_path, one_after_the_other(100))).joint_names) == 100


@pytest.mark.parametrize("length", ["0", "1e-30"])
def test_an_arm_without_length_is_no_robot(tmp_path, length):
    path = written(tmp_path, one_after_the_other(4, length))
    with pytest.raises(ConfigError, match="the joints move the TCP 'l4' by less than 0.001 m"):
        make_robot(str(path))


def test_what_is_no_file_or_no_description(tmp_path):
    assert "No such file" in get_file_refusal(read_urdf, tmp_path / "nowhere.urdf")
    (tmp_path / "folder.urdf").mkdir()
    assert "is no file" in get_file_refusal(read_urdf, tmp_path / "folder.urdf")
    os.mkfifo(tmp_path / "pipe.urdf")
    assert "is no file" in get_file_refusal(read_urdf, tmp_path / "pipe.urdf")
    assert "ends in .urdf or .xacro" in get_file_refusal(
        read_urdf, written(tmp_path, TEXT, "robot.xml")
    )
    assert "not well-formed" in get_file_refusal(
        read_urdf, written(tmp_path, bytes(range(256)) * 10)
    )
    assert "only a .xacro file takes arguments, got dof" in get_file_refusal(
        read_urdf, written(tmp_path, TEXT), arguments={"dof": 7}
    )


# Meshes


def mesh_path(path: Path, **options) -> Path:
    return read_urdf(path, **options).links["carriage"].visuals[0].mesh


def with_mesh(folder: Path, uri: str) -> Path:
    return written(folder, TEXT.replace('<sphere radius="0.08"/>', f'<mesh filename="{uri}"/>'))


@pytest.fixture
def mesh(tmp_path) -> Path:
    """A mesh in a package: tmp_path/arm_description/meshes/link.stl."""
    return written(tmp_path / "arm_description" / "meshes", "solid", "link.STL").resolve()


@pytest.mark.parametrize("uri", ["../meshes/link.STL", "package://arm_description/meshes/link.STL"])
def test_meshes_are_found_from_the_file(mesh, uri):
    assert mesh_path(with_mesh(mesh.parents[1] / "urdf", uri)) == mesh


def test_a_mesh_may_be_named_in_full(mesh, tmp_path):
    assert (
        mesh_path(with_mesh(tmp_path, f"file://{mesh}"))
        == mesh_path(with_mesh(tmp_path, str(mesh)))
        == mesh
    )


def test_packages_are_found_by_their_manifest(mesh):
    # a package of its own, so that it is not found as the file's own
    inner = mesh.parents[1] / "inner"
    path = with_mesh(inner / "urdf", "package://other_name/meshes/link.STL")
    (inner / "package.xml").write_text("<package><name>inner</name></package>")
    (mesh.parents[1] / "package.xml").write_text("<package>\n  <name> other_name </name></package>")
    assert mesh_path(path) == mesh


def test_packages_are_found_beside_the_own_one(mesh, tmp_path):
    assert (
        mesh_path(
            with_mesh(tmp_path / "cell" / "urdf", "package://arm_description/meshes/link.STL")
        )
        == mesh
    )


def test_a_package_with_its_folder_renamed_is_its_own(mesh):
    assert (
        mesh_path(with_mesh(mesh.parents[1] / "urdf", "package://arm_support/meshes/link.STL"))
        == mesh
    )


def test_packages_are_found_where_ros_has_them(mesh, tmp_path, monkeypatch):
    elsewhere = with_mesh(tmp_path / "x" / "y" / "z", "package://arm_description/meshes/link.STL")
    monkeypatch.setenv("ROS_PACKAGE_PATH", f"/nowhere:{tmp_path}")
    assert mesh_path(elsewhere) == mesh
    monkeypatch.setenv("ROS_PACKAGE_PATH", str(mesh.parents[1]))
    assert mesh_path(elsewhere) == mesh
    (tmp_path / "prefix").mkdir()
    (tmp_path / "prefix" / "share").symlink_to(tmp_path)
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path / "prefix"))
    monkeypatch.delenv("ROS_PACKAGE_PATH")
    assert mesh_path(elsewhere) == mesh


def test_packages_can_be_given(mesh, tmp_path):
    path = with_mesh(tmp_path / "x" / "y", "package://unheard_of/meshes/link.STL")
    shape = read_urdf(path).links["carriage"].visuals[0]
    assert re.search("link.STL' does not exist: package 'unheard_of' is not found", shape.fault)
    assert mesh_path(path, packages={"unheard_of": mesh.parents[1]}) == mesh
