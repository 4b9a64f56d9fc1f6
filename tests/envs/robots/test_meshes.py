"""Mesh files are read alike wherever they are used, and what is no whole mesh is refused by name."""

import numpy as np
import pytest
import trimesh

from envs.collision.fitting import __main__ as fit_collision
from envs.robots import make_robot
from envs.robots.meshes import LARGEST, check_mesh, load_mesh
from envs.simulation.mujoco.hulls import Hulls
from envs.view.swift import SwiftViewer
from td3_robot.errors import ConfigError
from tests.mesh_files import write_arm, write_dae
from tests.support import get_refusal

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)
BALL = trimesh.creation.icosphere(subdivisions=1)  # 42 corners, 80 triangles
FORMATS = {
    "binary.stl": BALL.export(file_type="stl"),
    "text.stl": str(BALL.export(file_type="stl_ascii")).encode(),
    "lower.STL": BALL.export(file_type="stl"),
    "wavefront.obj": str(BALL.export(file_type="obj")).encode() + b"\n",
    "binary.ply": BALL.export(file_type="ply"),
    "text.ply": BALL.export(file_type="ply", encoding="ascii"),
    "binary.glb": BALL.export(file_type="glb"),
    "collada.dae": BALL.export(file_type="dae"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_ball(name, tmp_path):
    file = tmp_path / name
    file.write_bytes(FORMATS[name])
    assert check_mesh(file) == 1.0
    mesh = load_mesh(file, (2.0, 1.0, 0.5))  # the scales' product is 1
    assert len(mesh.faces) == len(BALL.faces)
    assert mesh.volume == pytest.approx(BALL.volume, rel=1e-4)
    np.testing.assert_allclose(mesh.extents, BALL.extents * (2.0, 1.0, 0.5), rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "wavefront.obj"])
def test_a_cut_file_is_refused_wherever_it_is_cut(name, tmp_path):
    file = tmp_path / name
    whole = FORMATS[name].rstrip()
    end = whole.rindex(b"\n") if name == "text.ply" else len(whole) - 1  # 4 may have been 41
    for length in np.linspace(0, end, 40).astype(int):
        file.write_bytes(whole[:length])
        assert str(file) in get_refusal(load_mesh, file), length


def test_a_cut_wavefront_file_is_refused_where_it_can_be_seen(tmp_path):
    """It does not say how long it is: a cut between faces cannot be seen once all corners are."""
    file = tmp_path / "cut.obj"
    whole = FORMATS["wavefront.obj"]
    for length in range(0, whole.index(b"\nf ") + 60, 7):
        file.write_bytes(whole[:length].rstrip())
        assert str(file) in get_refusal(load_mesh, file), length
    file.write_bytes(whole + b"f 1 2")
    assert "is cut: its last face" in get_refusal(load_mesh, file)
    file.write_bytes(whole + b"f 1 2 99\n")
    assert "the corner 99, there are 42" in get_refusal(load_mesh, file)
    file.write_bytes(
        whole + b"f 1 2 \\\n 3\nf -1 -2 -3"
    )  # whole: a line goes on, an end without \n
    assert len(load_mesh(file).faces) == 82


@pytest.mark.parametrize("ending", ["stl", "obj", "ply", "glb", "gltf", "dae"])
@pytest.mark.parametrize(
    ("content", "what"),
    [
        (POINTER, "is a Git LFS pointer"),
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"<html><body>404: Not Found</body></html>\n", ""),
        (b"\0" * 500, ""),
        (bytes(range(256)) * 4, ""),
    ],
)
def test_what_is_no_mesh_is_refused_by_name(ending, content, what, tmp_path):
    file = tmp_path / f"link.{ending}"
    file.write_bytes(content)
    message = get_refusal(load_mesh, file)
    assert message.startswith(f"mesh {file} {what}")


def test_a_file_of_another_format_is_refused(tmp_path):
    for name, content in FORMATS.items():
        for ending in ("stl", "obj", "ply", "glb", "dae"):
            if not name.lower().endswith(ending):
                file = tmp_path / f"x.{ending}"
                file.write_bytes(content)
                assert str(file) in get_refusal(load_mesh, file), (name, ending)


def test_a_missing_file_is_named(tmp_path):
    assert "No such file" in get_refusal(check_mesh, tmp_path / "gone.stl")


@pytest.mark.parametrize(
    ("metres", "factor"), [(None, 1.0), (1, 1.0), (0.001, 1e-3), (0.0254, 0.0254)]
)
@pytest.mark.parametrize("up", ["X_UP", "Y_UP", "Z_UP"])
def test_colladas_unit_counts_and_its_up_axis_turns_nothing(metres, factor, up, tmp_path):
    """As RViz has it: the corners as they stand in the file, times its unit and the scale."""
    scale = np.array([0.1, 0.2, 0.3])
    mesh = load_mesh(write_dae(tmp_path, metres, up), scale)
    np.testing.assert_allclose(mesh.bounds, [[0, 0, 0], factor * scale * (300, 100, 50)], rtol=1e-6)


def test_a_node_of_collada_moves_its_geometry_in_the_files_units(tmp_path):
    node = "<matrix>0 -1 0 500  1 0 0 0  0 0 1 0  0 0 0 1</matrix>"  # a turn about z, then x + 500
    mesh = load_mesh(write_dae(tmp_path, 0.001, node=node))
    np.testing.assert_allclose(mesh.bounds, [[0.4, 0, 0], [0.5, 0.3, 0.05]], atol=1e-9)


@pytest.mark.parametrize("unit", ["0", "-1", "nan", "inf", "mm"])
def test_a_unit_that_is_no_length_is_refused(unit, tmp_path):
    assert "must be a positive number" in get_refusal(load_mesh, write_dae(tmp_path, unit))


def test_the_unit_is_that_of_the_document_not_of_a_part(tmp_path):
    file = write_dae(tmp_path, 0.001)
    part = '<asset><unit name="u" meter="1"/></asset></geometry>'
    file.write_text(file.read_text().replace("</geometry>", part))
    assert check_mesh(file) == 0.001


@pytest.mark.parametrize(
    "faces, what",
    [
        ("v 0 0\nv 1 0\nv 1 1\nf 1 2 3\n", "other than three coordinates"),
        ("v 0 0 0\nv 1 0 0\nv 1 1 0\nf 0 1 2\n", "the corner 0"),
        ("v 1 1 1\nv 1 1 1\nv 1 1 1\nf 1 2 3\n", "all its corners in one point"),
    ],
)
def test_corners_that_are_none_are_refused(faces, what, tmp_path):
    file = tmp_path / "part.obj"
    file.write_text(faces)
    assert what in get_refusal(load_mesh, file)


def test_one_corner_that_is_not_finite_is_not_left_out_in_silence(tmp_path):
    content = bytearray(FORMATS["binary.stl"])
    content[84 + 12 : 84 + 16] = np.float32(np.nan).tobytes()  # x of the first triangle's corner
    file = tmp_path / "part.stl"
    file.write_bytes(content)
    assert "not finite" in get_refusal(load_mesh, file)


def test_a_scale_of_zero_is_refused(tmp_path):
    write_dae(tmp_path)
    arm = write_arm(tmp_path, "wing.dae", 'scale="1 0 1"')
    assert "scale must not be 0, got '1 0 1'" in get_refusal(make_robot, str(arm))


def test_millimetres_that_nobody_scaled_are_refused_with_the_remedy(tmp_path):
    message = get_refusal(load_mesh, write_dae(tmp_path, 1))
    assert "reaches 300 m" in message and 'scale="0.001 0.001 0.001"' in message
    assert load_mesh(write_dae(tmp_path, LARGEST / 300)).extents.max() == pytest.approx(LARGEST)


def test_entities_are_refused(tmp_path):
    file = write_dae(tmp_path)
    bomb = '<!DOCTYPE COLLADA [<!ENTITY a "aaaaaaaaaa">]>\n<COLLADA'
    file.write_text(file.read_text().replace("<COLLADA", bomb, 1))
    assert "declares entities" in get_refusal(load_mesh, file)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("content", [POINTER, b"", FORMATS["binary.stl"][:2000]])
def test_the_fit_refuses_a_broken_mesh_before_it_writes(alone, content, tmp_path, capsys):
    (tmp_path / "link.stl").write_bytes(content)
    arm = write_arm(tmp_path, "link.stl")
    if alone:
        box = '<visual><geometry><box size="0.05 0.05 0.05"/></geometry></visual>'
        arm.write_text(arm.read_text().replace(box, ""))
    assert fit_collision.main([str(arm)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: mesh {tmp_path / 'link.stl'} ")
    assert not list(tmp_path.glob("*.yaml"))


def test_the_view_refuses_a_broken_mesh_before_it_waits_for_a_page(tmp_path):
    (tmp_path / "link.stl").write_bytes(POINTER)
    robot = make_robot(str(write_arm(tmp_path, "link.stl")))
    assert "Git LFS pointer" in get_refusal(SwiftViewer, robot, open_browser=False)


def test_contact_by_meshes_refuses_a_broken_one(tmp_path):
    (tmp_path / "link.stl").write_bytes(POINTER)
    robot = make_robot(str(write_arm(tmp_path, "link.stl")))
    axis = np.zeros((2, 3))
    with pytest.raises(ConfigError, match="link.stl is a Git LFS pointer"):
        Hulls(robot).add(None, "capsule0", "fore", axis, 1.0)  # type: ignore[arg-type]
