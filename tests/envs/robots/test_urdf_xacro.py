"""Xacro files: what they stand for, and that none of them gets to do more than describe a robot."""

from pathlib import Path

import pytest

from envs.robots import make_robot
from envs.robots.urdf import read_urdf, xacro_files
from tests.support import get_file_refusal

HEAD = '<robot name="r" xmlns:xacro="http://www.ros.org/wiki/xacro">'
SECRET = "<robot><link name='secret'/></robot>"


@pytest.fixture
def package(tmp_path) -> Path:
    """tmp_path/cell/arm_description is a package; files beside it in tmp_path/cell are none of its
    business.
    """
    folder = tmp_path / "cell" / "arm_description"
    (folder / "urdf").mkdir(parents=True)
    (folder / "package.xml").write_text("<package><name>arm_description</name></package>")
    (tmp_path / "cell" / "secret.xacro").write_text(SECRET)
    (tmp_path / "cell" / "secret.yaml").write_text("password: 1234")
    return folder


def written(package: Path, body: str, name: str = "arm.xacro") -> Path:
    path = package / "urdf" / name
    path.write_text(f"{HEAD}{body}</robot>")
    return path


def links(package: Path, body: str, **options) -> list[str]:
    return list(read_urdf(written(package, body), **options).links)


# What they may

XACRO = """
<xacro:include filename="$(find arm_description)/urdf/parts.xacro"/>
<xacro:include filename="parts/limits.xacro"/>
<xacro:arg name="prefix" default=""/>
<xacro:arg name="reach" default="0.4"/>
<xacro:property name="config" value="${xacro.load_yaml('../config/arm.yaml')}"/>
<link name="$(arg prefix)base"/>
<xacro:segment name="$(arg prefix)upper" parent="$(arg prefix)base" length="${2 * radius}" axis="0 0 1">
  <geometry><sphere radius="${radius}"/></geometry>
</xacro:segment>
<xacro:if value="${config['joints'][1]['present'] and len(config.joints) == 2}">
  <xacro:segment name="$(arg prefix)lower" parent="$(arg prefix)upper" length="$(arg reach)" axis="0 -1 0">
    <geometry><box size="${radius} ${min(0.1, 0.2)} ${round(sqrt(0.01), 3)}"/></geometry>
  </xacro:segment>
</xacro:if>
<xacro:unless value="${radius &lt; 1 or False}"><link name="never"/></xacro:unless>
"""
PARTS = """
<xacro:property name="radius" value="${config_scale * 0.05}"/>
<xacro:property name="config_scale" value="2"/>
<xacro:macro name="segment" params="name parent length axis:='1 0 0' *shape">
  <link name="${name}"><visual><xacro:insert_block name="shape"/></visual></link>
  <joint name="${name}_joint" type="revolute">
    <parent link="${parent}"/><child link="${name}"/>
    <origin xyz="0 0 ${length}" rpy="${pi / 2} ${-radians(90)} 0"/><axis xyz="${axis}"/>
    <limit lower="${-turn}" upper="${turn}" velocity="${math.pi if turn > 1 else 1}"/>
  </joint>
</xacro:macro>
"""


def test_a_xacro_file_reads_as_the_urdf_that_it_stands_for(package, tmp_path):
    written(package, PARTS, "parts.xacro")
    (package / "urdf" / "parts").mkdir()
    written(package, '<xacro:property name="turn" value="${0.5 + 2**1}"/>', "parts/limits.xacro")
    (package / "config").mkdir()
    (package / "config" / "arm.yaml").write_text("joints: [{present: true}, {present: true}]")
    joint = """<joint name="{name}_joint" type="revolute"><parent link="{parent}"/><child link="{name}"/>
        <origin xyz="0 0 {length}" rpy="1.5707963267948966 -1.5707963267948966 0"/><axis xyz="{axis}"/>
        <limit lower="-2.5" upper="2.5" velocity="3.141592653589793"/></joint>"""
    plain = tmp_path / "plain.urdf"
    plain.write_text(
        "<robot name='r'><link name='my_base'/>"
        "<link name='my_upper'><visual><geometry><sphere radius='0.1'/></geometry></visual></link>"
        "<link name='my_lower'><visual><geometry><box size='0.1 0.1 "
        "0.1'/></geometry></visual></link>"
        + joint.format(name="my_upper", parent="my_base", length=0.2, axis="0 0 1")
        + joint.format(name="my_lower", parent="my_upper", length=0.7, axis="0 -1 0")
        + "</robot>"
    )
    tree = read_urdf(written(package, XACRO), arguments={"prefix": "my_", "reach": 0.7})
    expected = read_urdf(plain)
    assert (tree.links, tree.joints, tree.root) == (expected.links, expected.joints, expected.root)


def test_files_of_other_packages_are_found_as_meshes_are(package, tmp_path):
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "link.xacro").write_text(f"{HEAD}<link name='theirs'/></robot>")
    body = '<xacro:include filename="$(find parts)/link.xacro"/>'
    assert links(package, body, packages={"parts": other}) == ["theirs"]


def test_a_file_that_changes_is_read_anew_and_an_installed_one_once(package, monkeypatch):
    """Xacro is a process of its own, which takes longer than all else of a robot."""
    assert links(package, '<link name="before"/>') == ["before"]
    assert links(package, '<link name="after"/>') == ["after"]
    first = make_robot("panda")
    monkeypatch.setattr(xacro_files.subprocess, "run", None)
    assert make_robot("panda").body.arm is not first.body.arm


def test_optional_environment_variables_have_their_defaults(package, monkeypatch):
    monkeypatch.setenv("WHO", "me")
    assert links(package, '<link name="$(optenv WHO nobody)"/>') == ["nobody"]


EXPRESSIONS = {
    "dict(a=0.5, b=1)['a']": "0.5",
    "dict([('a', 2)])['a']": "2",
    "'1 22 3'.split(' ')[1]": "22",
    "'_'.join(['a', 'b'])": "a_b",
    "' Ab '.strip().lower()": "ab",
    "'x.stl'.endswith('.stl') and 'arm'.startswith('a')": "True",
    "'a-b'.replace('-', '_').upper()": "A_B",
    "dict(a=1).get('b', 7)": "7",
    "list(dict(a=1, b=2).keys())[1]": "b",
    "sorted([3, 1, 2])[0] + list(range(3))[2]": "3",
    "xacro.tokenize('1,2;4')[2]": "4",
}


def test_data_and_text_can_be_computed_with(package):
    values = list(EXPRESSIONS.values())
    body = "".join(f'<link name="${{{expression}}}"/>' for expression in EXPRESSIONS)
    joined = [
        f'<joint name="j{i}" type="fixed"><parent link="{values[0]}"/><child link="{value}"/></joint>'
        for i, value in enumerate(values[1:])
    ]
    assert links(package, body + "".join(joined)) == values


def test_a_dictionary_is_a_property_and_a_parameter(package):
    body = """<xacro:property name="start" value="${dict(j1=0.0, j2=0.5)}"/>
    <xacro:macro name="show" params="at:=${dict(j1=1, j2=2)}"><link name="l${at['j2']}"/></xacro:macro>
    <xacro:show/><xacro:show at="${start}"/>"""
    assert links(package, body + JOINED.format("l2", "l0.5")) == ["l2", "l0.5"]


JOINED = '<joint name="j" type="fixed"><parent link="{}"/><child link="{}"/></joint>'
DECLARED = """<link name="arm$(arg dof)"/><xacro:arg name="side" default=""/>
<xacro:if value="${'$(arg side)' == 'left'}"><link name="l"/></xacro:if>"""


def test_an_argument_that_is_needed_or_unknown_is_named_with_all_there_are(package):
    path = written(package, DECLARED)
    assert "needs --xacro dof=VALUE; it takes side" in get_file_refusal(read_urdf, path)
    assert list(read_urdf(path, arguments={"dof": 6}).links) == ["arm6"]
    message = "has no argument 'sid'; it takes side"
    assert message in get_file_refusal(read_urdf, path, arguments={"dof": 6, "sid": "left"})
    # one that is used without being declared
    assert links(package, '<link name="$(arg dof)"/>', arguments={"dof": "a"}) == ["a"]


def test_an_argument_left_empty_is_named_where_a_file_is_missing(package):
    body = """<xacro:arg name="dof" default=""/><xacro:arg name="used" default="1"/>
    <xacro:include filename="$(arg dof)dof/arm$(arg used).xacro"/>"""
    message = get_file_refusal(read_urdf, written(package, body))
    assert "it may need --xacro dof=VALUE, which is empty" in message


def manifest(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "package.xml").write_text(f"<package format='3'><name>{name}</name></package>")
    return folder


@pytest.fixture
def workspace(tmp_path) -> Path:
    """ws/src/cell/urdf/cell.xacro, which includes a file of parts_description; that is in no folder
    of its name.
    """
    cell = manifest(tmp_path / "ws" / "src" / "cell", "cell")
    (cell / "urdf").mkdir()
    include = '<xacro:include filename="$(find parts_description)/part.xacro"/>'
    (cell / "urdf" / "cell.xacro").write_text(f"{HEAD}{include}</robot>")
    return tmp_path / "ws"


def add_parts(folder: Path) -> None:
    part = manifest(folder, "parts_description") / "part.xacro"
    part.write_text(f"{HEAD}<link name='part'/></robot>")


@pytest.mark.parametrize("place", ["src/stack/parts", "src/a/b/c/parts", "src/parts_v2"])
def test_a_package_is_found_by_its_manifest_wherever_in_the_workspace(workspace, place):
    add_parts(workspace / place)
    assert list(read_urdf(workspace / "src/cell/urdf/cell.xacro").links) == ["part"]


@pytest.mark.parametrize(
    "place",
    [
        "src/build/parts",  # results of builds
        "src/.hidden/parts",
        "src/cell/inner/parts",  # a package inside another is none
        "src/stack/a/b/c/d/e/f/parts",  # too deep
    ],
)
def test_what_colcon_does_not_find_is_not_found(workspace, place):
    add_parts(workspace / place)
    message = get_file_refusal(read_urdf, workspace / "src/cell/urdf/cell.xacro")
    assert message.startswith("package 'parts_description' is not found; ")


def test_a_folder_that_is_to_be_ignored_is_ignored(workspace):
    add_parts(workspace / "src" / "old" / "parts")
    (workspace / "src" / "old" / "COLCON_IGNORE").touch()
    assert "'parts_description' is not found" in get_file_refusal(
        read_urdf, workspace / "src/cell/urdf/cell.xacro"
    )


def test_ros_package_path_is_searched_as_rospack_does(workspace, tmp_path, monkeypatch):
    add_parts(tmp_path / "elsewhere" / "deep" / "down")
    path = workspace / "src/cell/urdf/cell.xacro"
    assert "'parts_description' is not found" in get_file_refusal(read_urdf, path)
    monkeypatch.setenv("ROS_PACKAGE_PATH", f"/nowhere:{tmp_path / 'elsewhere'}")
    assert list(read_urdf(path).links) == ["part"]


@pytest.mark.parametrize("share", ["parts_description/share", "share"])
def test_an_installed_workspace_is_searched(workspace, share):
    """By colcon, each package in a prefix of its own, or all in one."""
    add_parts(workspace / "install" / share / "parts_description")
    there = workspace / "install" / "cell" / "share" / "cell"
    there.parent.mkdir(parents=True)
    (workspace / "src" / "cell").rename(there)
    assert list(read_urdf(there / "urdf" / "cell.xacro").links) == ["part"]


def test_a_search_reads_names_alone(workspace):
    """While packages are searched nothing but their names can be read."""
    stack = workspace / "src" / "stack"
    add_parts(stack / "parts")
    (stack / "secret.yaml").write_text("password: 1234")
    path = workspace / "src/cell/urdf/cell.xacro"
    stolen = "${xacro.load_yaml('$(find parts_description)/../secret.yaml')}"
    path.write_text(f'{HEAD}<link name="{stolen}"/></robot>')
    message = get_file_refusal(read_urdf, path)
    assert "outside the package folders" in message and "1234" not in message


# What they may not

DOUBLING = '<xacro:macro name="m0" params=""><link name="x"/></xacro:macro>' + "".join(
    f'<xacro:macro name="m{i}" params="">{f"<xacro:m{i - 1}/>" * 10}</xacro:macro>'
    for i in range(1, 12)
)
ATTACKS = {
    "attributes of types": ("<link name='${().__class__}'/>", "may not evaluate"),
    "a lambda": ("<link name='${(lambda: 1)()}'/>", "may not evaluate"),
    "a comprehension": ("<link name='${[x for x in (1, 2)]}'/>", "may not evaluate"),
    "a walrus": ("<link name='${(a := 1)}'/>", "may not evaluate"),
    "an f-string": ("<link name='${f\"a\"}'/>", "may not evaluate"),
    "other functions": ("<link name='${python.vars(math)}'/>", "may not evaluate"),
    "no function": ("<link name='${open(1)}'/>", "may not evaluate"),
    "a method": ("<link name='${\"a\".encode()}'/>", "may not evaluate"),
    "a format": ("<link name='${\"a\".format(1)}'/>", "may not evaluate"),
    "a format of a mapping": ("<link name='${\"a\".format_map(dict(a=1))}'/>", "may not evaluate"),
    "a method of a class": ("<link name='${dict.fromkeys([1])}'/>", "may not evaluate"),
    "a method that changes": ("<link name='${dict(a=1).update(dict(a=2))}'/>", "may not evaluate"),
    "a keyword of another function": ("<link name='${max([1], key=str)}'/>", "may not evaluate"),
    "keywords from a mapping": ("<link name='${dict(**dict(a=1))}'/>", "may not evaluate"),
    "an iterator": ("<link name='${range(3)}'/>", "is a range, not a value"),
    "format": ("<link name='${\"a\".format}'/>", "may not evaluate"),
    "a function as a value": ("<link name='${sorted}'/>", "not a value"),
    "a function under an allowed name": (
        "<xacro:property name='min' value='${map}'/><link name='${min(1, 2)}'/>",
        "not a value",
    ),
    "an expression made by an expression": (
        "<xacro:macro name='m' params='*b'><xacro:insert_block name='b'/></xacro:macro>"
        "<xacro:m><link name='$${(lambda: 1)()}'/></xacro:m>",
        "may not evaluate",
    ),
    "$(eval)": ("<link name='$(eval 1 + 1)'/>", "may not run $(eval 1 + 1)"),
    "the environment": (
        "<link name='$(env HOME)'/>",
        "may not read the environment variable 'HOME'",
    ),
    "an include in full": (
        "<xacro:include filename='{cell}/secret.xacro'/>",
        "outside the package folders",
    ),
    "an include upwards": (
        "<xacro:include filename='../../secret.xacro'/>",
        "outside the package folders",
    ),
    "an optional include": (
        "<xacro:include filename='../../secret.xacro' optional='true'/>",
        "outside the package",
    ),
    "an include by pattern": (
        "<xacro:include filename='../../*.xacro'/>",
        "outside the package folders",
    ),
    "an include by link": ("<xacro:include filename='link.xacro'/>", "outside the package folders"),
    "an include by package": (
        "<xacro:include filename='$(find cell)/secret.xacro'/>",
        "outside the package folders",
    ),
    "a path as a package": (
        "<xacro:include filename='$(find ../..)/secret.xacro'/>",
        "package '../..' is not found",
    ),
    "YAML": (
        "<link name='${xacro.load_yaml(\"../../secret.yaml\")}'/>",
        "outside the package folders",
    ),
    "entities": ("<xacro:include filename='bomb.xacro'/>", "DTDForbidden"),
    "endless macros": (
        "<xacro:macro name='m' params=''><xacro:m/></xacro:macro><xacro:m/>",
        "nested too deeply",
    ),
    "endless includes": ("<xacro:include filename='arm.xacro'/>", "nested too deeply"),
    "too much memory": ("<link name='${\"a\" * 10**10}'/>", "more than fits in memory"),
    "a long result": ("<link name='${\"a\" * 10**8}'/>", "expands to more than 10 MB"),
    "a message of its own": ("${xacro.fatal('a\nb')}", "a b"),
    "no such name": ("<link name='${length}'/>", "name 'length' is not defined"),
    "no such argument": ("<link name='$(arg dof)'/>", "needs --xacro dof=VALUE; it takes none"),
    "no such macro": ("<xacro:leg/>", "unknown macro name: xacro:leg"),
    "no such file": ("<xacro:include filename='nowhere.xacro'/>", "No such file or directory"),
    "wrong syntax": ("<link name='${1 +}'/>", "invalid syntax"),
    "truncated": ("<link name='a'", "not well-formed"),
}
SLOW = {
    "macros that multiply": f"{DOUBLING}<xacro:m11/>",
    "a tower of powers": "<link name='${9**9**9**9}'/>",
    "parameters that backtrack": f"<xacro:macro name='m' params=\"x:={'a' * 60}'\"/><link name='a'/>",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_whatever_else_a_file_tries_ends_in_one_line(package, attack):
    body, named = ATTACKS[attack]
    (package / "urdf" / "link.xacro").symlink_to(package.parent / "secret.xacro")
    (package / "urdf" / "bomb.xacro").write_text(
        "<!DOCTYPE robot [<!ENTITY a 'b'>]><robot name='&a;'/>"
    )
    message = get_file_refusal(
        read_urdf, written(package, body.replace("{cell}", str(package.parent)))
    )
    assert named in message and "1234" not in message and "<class" not in message


@pytest.mark.parametrize("attack", SLOW)
def test_a_file_that_never_ends_is_ended(package, attack, monkeypatch):
    monkeypatch.setattr(xacro_files, "_TIME_LIMIT", 0.8)
    assert "xacro took more than 1 s" in get_file_refusal(read_urdf, written(package, SLOW[attack]))


def test_nothing_is_run_and_the_second_wall_stands_by_itself(package, tmp_path, monkeypatch):
    """A file that runs code under plain xacro; then the same with the check of expressions taken
    away.
    """
    ran = tmp_path / "ran"
    classes = "().__class__.__base__.__subclasses__()"
    system = (
        f"[c for c in {classes} if c.__name__ == '_wrap_close'][0].__init__.__globals__['system']"
    )
    path = written(package, f"<link name=\"${{(lambda: {system}('touch {ran}'))()}}\"/>")
    assert "may not evaluate" in get_file_refusal(read_urdf, path)
    child = tmp_path / "child" / "xacro_child.py"
    child.parent.mkdir()
    source = xacro_files._CHILD.read_text()
    child.write_text(source.replace("    check_expression(expression)\n", ""))
    (child.parent / "ros_packages.py").write_text(
        xacro_files._CHILD.with_name("ros_packages.py").read_text()
    )
    monkeypatch.setattr(xacro_files, "_CHILD", child)
    assert "may not use os.system of Python" in get_file_refusal(read_urdf, path)
    assert not ran.exists()


def test_a_home_folder_is_no_package(package, tmp_path, monkeypatch):
    """Else $(find USER) would open all that its owner has."""
    home = tmp_path / "cell"
    (home / "meshes").mkdir()
    body = "<xacro:include filename='$(find cell)/secret.xacro'/>"
    # a folder that looks like a package, and is none but for its name
    assert links(package, body) == ["secret"]
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(xacro_files, "_KEPT", (*xacro_files._KEPT, "HOME"))
    assert "outside the package folders" in get_file_refusal(
        read_urdf, package / "urdf" / "arm.xacro"
    )


def test_a_child_that_dies_is_told_of(package, monkeypatch, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("import a_module_that_is_not_installed")
    monkeypatch.setattr(xacro_files, "_CHILD", broken)
    assert "xacro failed: ModuleNotFoundError: No module named" in get_file_refusal(
        read_urdf, written(package, "")
    )
