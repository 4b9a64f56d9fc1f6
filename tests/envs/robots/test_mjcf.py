"""Arms from MJCF: their kinematics, masses, servos and shapes are MuJoCo's own."""

import numpy as np
import pytest
import torch

import envs
from envs.kinematics import fkine
from envs.robots.mjcf import load_mjcf
from envs.robots.mjcf.frames import make_pose, make_transform
from envs.robots.urdf import build_model
from envs.robots.urdf.arm import compile_path
from tests.support import get_refusal

mujoco = pytest.importorskip("mujoco")

ARM = """<mujoco model="{name}"><compiler angle="radian"/>
<worldbody><geom type="plane" size="1 1 1"/><body name="foot" pos="{foot}">
<geom type="box" size=".05 .05 .05"/>
<body name="upper" pos="0 0 .2"><joint name="a" axis="0 0 1" range="-2 2" armature=".1"
  damping="2" frictionloss=".3"/><geom type="capsule" size=".04 .1" pos="0 0 .1" mass="2"/>
<body name="fore" pos="0 0 .3"><joint name="b" axis="0 1 0" range="-1.5 1.5"/>
  <geom type="cylinder" size=".03 .1" pos=".1 0 .1" euler="0 1 0" mass="1"/>
<body name="hand" pos=".1 0 .25" quat=".8 0 .6 0"><joint name="c" axis="0 1 0" range="-1.5 1.5"/>
  <geom type="sphere" size=".03" mass=".4"/>{hand}<site name="tcp" pos="0 .01 .1"/></body>
</body></body></body>{world}</worldbody>
<actuator><position joint="a" kp="300" kv="20" forcerange="-40 40"/>
<general joint="b" gear="2" gaintype="fixed" gainprm="50" biastype="affine" biasprm="0 -50 -3"/>
<position joint="c" kp="100" forcerange="-9 9"/></actuator>
{more}</mujoco>"""


@pytest.fixture
def write(tmp_path):
    """Writes the arm, with changes, and returns the path."""

    def write(hand="", world="", more="", name="toy", foot="0 0 0", swap=("", "")) -> str:
        path = tmp_path / "toy.xml"
        text = ARM.format(hand=hand, world=world, more=more, name=name, foot=foot)
        path.write_text(text.replace(*swap) if swap[0] else text)
        return str(path)

    return write


def refusal(path, tcp=None, base=None, velocity=(1.0,)) -> str:
    message = get_refusal(load_mjcf, path, tcp, base, velocity)
    return message.rpartition(".xml")[2].lstrip(": ")


def pose_of(xpos, xmat) -> np.ndarray:
    T = np.eye(4)
    T[:3, :3] = xmat.reshape(3, 3)
    T[:3, 3] = xpos
    return T


def random_arm(rng: np.random.Generator) -> str:
    """An arm with anchors away from frames, skew axes, `ref`, bodies without and with two joints."""

    def numbers(count, scale=1.0):
        return " ".join(f"{x:.17g}" for x in scale * rng.normal(size=count))

    text = '<mujoco><compiler angle="radian"/><worldbody>'
    text += f'<body name="base" pos="{numbers(3)}" quat="{numbers(4)}">'
    depth = 6
    for body in range(depth):
        text += f'<body name="b{body}" pos="{numbers(3)}" quat="{numbers(4)}">'
        for index in range((1, 2, 1, 0, 1, 2)[body]):
            kind = rng.choice(["hinge", "hinge", "slide"])
            text += f'<joint name="j{body}{index}" type="{kind}" pos="{numbers(3, 0.3)}" '
            text += f'axis="{numbers(3)}" ref="{numbers(1)}" range="-2 2"/>'
        text += '<geom size=".1"/>'
    text += f'<site name="tool" pos="{numbers(3)}" quat="{numbers(4)}"/>'
    return text + "</body>" * (depth + 1) + "</worldbody></mujoco>"


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("base", ["base", "b1"])
def test_chains_are_mujocos_own_forward_kinematics(tmp_path, seed, base):
    rng = np.random.default_rng(seed)
    path = tmp_path / "arm.xml"
    path.write_text(random_arm(rng))
    arm = load_mjcf(path, "tool", base, (1.0,))
    model = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(model)
    drawn = build_model(arm.tree, arm.moving)
    chain = compile_path(arm.tree.find_path("tool"), torch.float64)
    for q in rng.uniform(*arm.qlim, (5, len(arm.joint_names))):
        for name, value in zip(arm.joint_names, q):
            data.qpos[model.joint(name).qposadr[0]] = value
        mujoco.mj_kinematics(model, data)
        tool = pose_of(data.site("tool").xpos, data.site("tool").xmat)
        body = model.body(base)
        above = int(model.body_parentid[body.id])
        root = pose_of(data.xpos[above], data.xmat[above]) @ make_transform(body.pos, body.quat)
        wanted = np.linalg.inv(root) @ tool
        found = fkine(chain, torch.tensor(q)[None])[0].numpy()
        assert np.abs(found - wanted).max() < 1e-12
        assert np.abs(drawn.fkine(q, end="tool").A - wanted).max() < 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_a_pose_is_the_transform_that_it_was_made_of(seed):
    rng = np.random.default_rng(seed)
    quat = rng.normal(size=4) if seed else np.array([1.0, 0.0, 1.0, 0.0])  # pitch a right angle
    T = make_transform(rng.normal(size=3), quat)
    assert np.abs(T[:3, :3] @ T[:3, :3].T - np.eye(3)).max() < 1e-14
    assert np.abs(make_pose(T).T - T).max() < 1e-14


def test_the_engine_has_the_plant_of_the_file(write):
    from envs.simulation.mujoco import read_contacts
    from envs.simulation.mujoco.model import build

    path = write()
    robot = envs.make_robot(path, velocity=(2.0,))
    physics = build(robot, read_contacts(), 0.05)
    theirs = mujoco.MjModel.from_xml_path(path)
    rng = np.random.default_rng(0)
    for q in rng.uniform(*robot.qlim, (5, 3)):
        matrices = []
        for model, indices in ((theirs, [0, 1, 2]), (physics.model, physics.q)):
            data = mujoco.MjData(model)
            data.qpos[indices] = q
            mujoco.mj_forward(model, data)
            matrices.append(np.zeros((3, 3)))
            for column in range(3):
                mujoco.mj_mulM(model, data, matrices[-1][column], np.eye(3)[column])
        assert np.abs(matrices[0] - matrices[1]).max() < 1e-9 < matrices[0].max()
    for name in ("dof_armature", "dof_damping", "dof_frictionloss"):
        assert getattr(physics.model, name).tolist() == getattr(theirs, name).tolist()
    # gear 2: the servo's length is twice the angle, and its force counts twice
    assert physics.drives.stiffness.tolist() == [300.0, 4.0 * 50.0, 100.0]
    assert physics.drives.damping.tolist() == [20.0, 4.0 * 3.0, 0.0]
    assert robot.physics.torque is None  # joint b has none


@pytest.mark.parametrize("anchor", ["0 0 0", "0 .02 .2"])
@pytest.mark.parametrize("kind", ["hinge", "slide"])
def test_a_body_of_two_joints_is_one_body_not_two(write, kind, anchor, capsys):
    """But for a gram between them."""
    from envs.simulation.mujoco import read_contacts
    from envs.simulation.mujoco.model import build

    second = f'<joint name="d" type="{kind}" axis=".6 0 .8" pos="{anchor}" range="-1 1"/>'
    path = write(swap=('<geom type="cylinder"', second + '<geom type="cylinder"'))
    robot = envs.make_robot(path, velocity=(2.0,))
    physics = build(robot, read_contacts(), 0.05)
    assert "no inertia" not in capsys.readouterr().err
    theirs = mujoco.MjModel.from_xml_path(path)
    weight = theirs.body_mass.sum() - theirs.body("foot").mass[0]
    ours = physics.model.body_mass.sum() - physics.model.body("robot/foot").mass[0]
    assert ours == pytest.approx(weight, abs=2e-3)
    for q in np.random.default_rng(0).uniform(*robot.qlim, (5, 4)):
        matrices = []
        for model, indices in ((theirs, [0, 1, 2, 3]), (physics.model, physics.q)):
            data = mujoco.MjData(model)
            data.qpos[indices] = q
            mujoco.mj_forward(model, data)
            matrices.append(np.zeros((4, 4)))
            for column in range(4):
                mujoco.mj_mulM(model, data, matrices[-1][column], np.eye(4)[column])
        assert np.abs(matrices[0] - matrices[1]).max() < 2e-3


def test_a_position_and_a_velocity_actuator_are_one_servo(write):
    """Their forces on the joint add up: kp (u - q) and kv (u - qd), the second with its gear."""
    pair = '<position joint="c" kp="100" forcerange="-9 9"/><velocity joint="c" kv="2" gear="3"/>'
    whole = '<position joint="c" kp="100" kv="18" forcerange="-9 9"/>'
    own = ARM[ARM.index('<position joint="c"') : ARM.index("</actuator>")]
    found = [load_mjcf(write(swap=(own, text)), velocity=(1.0,)).physics for text in (pair, whole)]
    for name in ("stiffness", "damping"):
        one, other = (getattr(physics, name).tolist() for physics in found)
        assert one == other
    assert found[0].damping is not None and found[0].damping[2] == 18.0


@pytest.mark.parametrize(
    ("actuator", "torque"),
    [
        ('<motor joint="b" gear="3" ctrlrange="-2 2"/>', 3.0 * 2.0),
        ('<position joint="b" kp="9" gear="2" forcerange="-4 5"/>', 2.0 * 4.0),
        (2 * '<position joint="b" kp="9" gear="-2" forcerange="-4 5"/>', 2.0 * 2.0 * 4.0),
        (
            '<position joint="b" kp="9" forcerange="-4 4"/>'
            '<position joint="b" kp="2" forcerange="-3 3"/><motor joint="b" ctrlrange="-9 9"/>',
            4.0 + 3.0,
        ),
        ('<motor joint="b" ctrlrange="0 5"/><motor joint="b" gear="-3" ctrlrange="0 2"/>', 5.0),
    ],
)
def test_torque_limits_count_the_gear_and_all_servos_of_a_joint(write, actuator, torque):
    general = ARM[ARM.index("<general") : ARM.index('<position joint="c"')]
    arm = load_mjcf(write(swap=(general, actuator)), velocity=(1.0,))
    assert arm.physics.torque is not None
    assert arm.physics.torque.tolist() == [40.0, torque, 9.0]


@pytest.mark.parametrize(
    "limited",
    [
        '<position joint="b" kp="9" forcerange="0 50"/>',
        '<position joint="b" kp="9" forcerange="-50 0"/>',
        '<position joint="b" kp="9" forcerange="5 50"/>',
        '<motor joint="b" ctrlrange="0 1"/>',
    ],
)
def test_a_motor_that_pushes_one_way_alone_is_refused(write, limited):
    """MuJoCo clips its force to the range, so it could not even brake; it is no missing limit."""
    general = ARM[ARM.index("<general") : ARM.index('<position joint="c"')]
    assert refusal(write(swap=(general, limited))) == (
        "the motor of joint 'b' gives no torque one way: its ranges of force and control must "
        "reach to both sides of 0"
    )


def test_home_is_the_keyframe_and_limits_are_those_given(write):
    keys = '<keyframe><key qpos="9 9 9"/><key name="home" qpos=".1 .2 .3"/></keyframe>'
    robot = envs.make_robot(write(more=keys), velocity=(1.0, 2.0, 3.0))
    assert robot.home.tolist() == [0.1, 0.2, 0.3]
    assert robot.qdlim.tolist() == [1.0, 2.0, 3.0] and robot.qddlim is None
    assert robot.qlim.tolist() == [[-2.0, -1.5, -1.5], [2.0, 1.5, 1.5]]
    outside = '<keyframe><key name="home" qpos="9 9 9"/></keyframe>'
    assert load_mjcf(write(more=outside), velocity=(1.0,)).home is None


def test_limits_of_a_known_arm_are_its_makers(write):
    joints = "".join(
        f'<body pos="0 .1 .2"><joint axis="0 {i % 2} {1 - i % 2}" range="-1 1"/><geom size=".1"/>'
        for i in range(4)
    )
    arm = load_mjcf(write(hand=joints + "</body>" * 4, name="Panda no-hand"), "body8")
    panda = envs.make_robot("panda")
    assert arm.qdlim.tolist() == panda.qdlim.tolist()
    assert arm.qddlim is not None and arm.qddlim.tolist() == panda.qddlim.tolist()
    assert "MJCF has no velocity limits; give them with --velocity" in refusal(write(), velocity=())


MESH = "v 0 0 0\nv .3 0 0\nv 0 .2 0\nv 0 0 .1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


@pytest.mark.parametrize(
    "values",
    [
        'scale="1 2 -3"',
        'refpos=".1 -.2 .3" scale="1 2 -3"',
        'refpos=".1 -.2 .3" refquat=".7 .1 -.3 .2" scale="2 2 2"',
    ],
)
def test_a_mesh_lies_where_mujoco_has_it(write, tmp_path, values):
    (tmp_path / "part.obj").write_text(MESH)
    asset = f'<asset><mesh file="part.obj" {values}/></asset>'
    geom = '<geom type="mesh" mesh="part" pos=".1 .2 .3" quat=".5 .5 .1 .7" contype="0" conaffinity="0"/>'
    path = write(hand=geom, more=asset)
    (shape,) = load_mjcf(path, velocity=(1.0,)).tree.links["hand"].visuals
    corners = [list(map(float, line.split()[1:])) for line in MESH.splitlines() if line[0] == "v"]
    T = shape.pose.T
    found = np.array(corners) * shape.size @ T[:3, :3].T + T[:3, 3]
    model = mujoco.MjModel.from_xml_path(path)
    place = next(i for i in range(model.ngeom) if model.geom_dataid[i] == 0)
    T = make_transform(model.geom_pos[place], model.geom_quat[place])
    theirs = model.mesh_vert @ T[:3, :3].T + T[:3, 3]
    distances = np.linalg.norm(found[:, None] - theirs[None], axis=2)
    assert distances.min(1).max() < 1e-6 and distances.min(0).max() < 1e-6  # MuJoCo's are float32


def test_meshes_that_are_not_there_are_left_out(write, tmp_path, capsys):
    asset = '<asset><mesh file="part.obj"/><texture name="t" type="2d" file="t.png"/></asset>'
    path = write(hand='<geom type="mesh" mesh="part"/>', more=asset)
    arm = load_mjcf(path, velocity=(1.0,))
    assert not arm.tree.links["hand"].visuals[1:]
    err = capsys.readouterr().err
    assert "nothing is drawn of part, " in err and "textures whose files are not there: t" in err


def test_meshes_of_an_attached_model_are_beside_that_model(write, tmp_path, capsys):
    (tmp_path / "tool" / "parts").mkdir(parents=True)
    (tmp_path / "tool" / "parts" / "part.obj").write_text(MESH)
    (tmp_path / "tool" / "tool.xml").write_text(
        '<mujoco model="tool"><compiler meshdir="parts"/><asset><mesh file="part.obj"/></asset>'
        '<worldbody><body name="palm"><geom type="mesh" mesh="part"/></body></worldbody></mujoco>'
    )
    path = write(
        hand='<attach model="tool" body="palm" prefix="its_"/>',
        more='<asset><model name="tool" file="tool/tool.xml"/></asset>',
    )
    palm = load_mjcf(path, velocity=(1.0,)).tree.links["its_palm"]
    assert [shape.mesh for shape in palm.collisions] == [tmp_path / "tool" / "parts" / "part.obj"]
    model = mujoco.MjModel.from_xml_path(path)
    assert palm.inertial is not None
    assert palm.inertial.mass == pytest.approx(model.body("its_palm").mass[0])
    assert "not there" not in capsys.readouterr().err


@pytest.mark.parametrize("way", [["toy.xml"], ["one.xml", "./toy.xml"], ["one.xml", "one.xml"]])
def test_a_model_that_loads_itself_is_refused(write, tmp_path, way):
    """MuJoCo ended the process."""
    load = '<asset><model file="{}"/></asset>'
    path = write(more=load.format(way[0]))
    if way[1:]:
        (tmp_path / way[0]).write_text(f'<mujoco model="one">{load.format(way[1])}</mujoco>')
    model = way[-1].removeprefix("./")
    message = f"{path}: model {model!r} loads itself; a model loads others"
    assert get_refusal(load_mjcf, path) == message


@pytest.mark.parametrize("named", ["", 'name="its"'])
@pytest.mark.parametrize("inside", [False, True])
def test_meshes_of_one_path_in_two_models_are_those_of_each(write, tmp_path, named, inside):
    """Their sizes are MuJoCo's own; the second model hangs beside the first, or in it."""
    names = ["one", "two"]
    texts = {
        name: f'<mujoco model="{name}"><compiler meshdir="parts"/><asset><mesh {named} '
        'file="part.obj"/>{more}</asset><worldbody><body name="palm"><geom type="mesh" mesh="'
        f'{"its" if named else "part"}"/>{{hand}}</body></worldbody></mujoco>'
        for name in names
    }
    for size, name in enumerate(names, 1):
        (tmp_path / name / "parts").mkdir(parents=True)
        scaled = MESH.replace("v .3", f"v {0.3 * size}")
        (tmp_path / name / "parts" / "part.obj").write_text(scaled)
    attach = [f'<attach model="{name}" body="palm" prefix="{name}_"/>' for name in names]
    models = [f'<model {{}} file="{{}}{name}/{name}.xml"/>' for name in names]
    outer = {"hand": attach[1], "more": models[1].format('name="two"', "../")} if inside else {}
    for name in names:
        inner = outer if name == "one" and inside else {"hand": "", "more": ""}
        (tmp_path / name / f"{name}.xml").write_text(texts[name].format(**inner))
    shown = 1 if inside else 2
    own = "".join(model.format("", "") for model in models[:shown])
    path = write(hand="".join(attach[:shown]), more=f"<asset>{own}</asset>")
    links = load_mjcf(path, "tcp", velocity=(1.0,)).tree.links
    second = "one_two_palm" if inside else "two_palm"
    found = [links[link].collisions[0].mesh for link in ("one_palm", second)]
    assert found == [tmp_path / name / "parts" / "part.obj" for name in names]
    model = mujoco.MjModel.from_xml_path(path)
    masses = [model.body(link).mass[0] for link in ("one_palm", second)]
    assert masses[1] == pytest.approx(2.0 * masses[0])  # the second is twice as long


def test_a_mesh_without_a_file_is_left_out_and_named(write, capsys):
    corners = "0 0 0 .3 0 0 0 .2 0 0 0 .1"
    asset = f'<asset><mesh name="wedge" vertex="{corners}"/></asset>'
    path = write(hand='<geom type="mesh" mesh="wedge"/>', more=asset)
    shapes = load_mjcf(path, velocity=(1.0,)).tree.links["hand"].collisions
    assert [shape.kind for shape in shapes] == ["sphere"]
    assert "nothing is drawn of wedge, in no .stl or .obj" in capsys.readouterr().err


def test_a_mesh_that_is_sheared_is_left_out_and_named(write, tmp_path, capsys):
    (tmp_path / "part.obj").write_text(MESH)
    asset = '<asset><mesh file="part.obj" refquat=".7 .1 -.3 .2" scale="1 2 3"/></asset>'
    path = write(hand='<geom type="mesh" mesh="part"/>', more=asset)
    shapes = load_mjcf(path, velocity=(1.0,)).tree.links["hand"].visuals
    assert [shape.kind for shape in shapes] == ["sphere"]
    assert "nothing is drawn of part, whose refquat is beside a scale" in capsys.readouterr().err


def test_what_is_drawn_and_what_touches_are_told_apart(write):
    tree = load_mjcf(
        write(hand='<geom type="box" size=".1 .2 .3" contype="0" conaffinity="0"/>'),
        velocity=(1.0,),
    ).tree
    hand = tree.links["hand"]
    assert [shape.kind for shape in hand.visuals] == ["box"]
    assert [shape.kind for shape in hand.collisions] == ["sphere"]
    assert hand.visuals[0].size == (0.2, 0.4, 0.6)
    upper = tree.links["upper"]
    assert [(shape.kind, shape.size) for shape in upper.visuals] == [("capsule", (0.04, 0.2))]


SECOND = """<body name="other"><body name="o"><joint name="z"/><geom size=".1"/></body></body>"""
FLOATING = '<body name="cup" pos="1 0 1"><freejoint name="loose"/><geom size=".1"/></body>'
ROD = """<body name="rod" pos=".2 0 .2"><joint name="r" axis="0 1 0"/><geom size=".1"/></body>"""


@pytest.mark.parametrize(
    ("options", "chosen", "message"),
    [
        ({"world": SECOND}, {}, "several things move; choose the body at the arm's base with --ba"),
        ({}, {"tcp": "tpc"}, "unknown TCP, a site or body of"),
        ({}, {"base": "feet"}, "unknown base body of"),
        ({"world": FLOATING}, {"tcp": "cup"}, "joint 'loose' on the way to 'cup' is free or a"),
        (
            {"world": '<body name="post"/>'},
            {"tcp": "post"},
            "'post' is not on the arm of 'foot'; choose another base with --base",
        ),
        (
            {"hand": '<body name="b"><joint name="ball" type="ball"/><geom size=".1"/></body>'},
            {"tcp": "b"},
            "joint 'ball' on the way to 'b' is free or a ball joint",
        ),
        (
            {
                "swap": (
                    '<joint name="b" axis="0 1 0" range="-1.5 1.5"/>',
                    '<joint name="b" type="slide"/>',
                )
            },
            {},
            "slide joint 'b' has no limits",
        ),
        (
            {
                "world": ROD,
                "more": '<equality><connect body1="rod" body2="hand" anchor="0 0 0"/></equality>',
            },
            {"base": "foot"},
            "a connect constraint of 'rod' and 'hand' makes joint 'a' part of a parallel linkage",
        ),
        (
            {"more": '<equality><joint joint1="c" joint2="b"/></equality>'},
            {"tcp": "tcp"},
            "joint 'c' on the way to 'tcp' is a mimic joint",
        ),
        ({"more": "<nonsense/>"}, {}, "cannot be read as MJCF: "),
        (
            {"more": '<equality><weld body1="nobody" body2="hand"/></equality>'},
            {},
            "MuJoCo cannot compile it: ",
        ),
        ({}, {"velocity": (1.0, 2.0)}, "velocity takes one limit for all joints, or 3 for a, b, c"),
        ({}, {"velocity": (1e6,)}, "velocity limits must be from 0.001 to 100 rad/s"),
    ],
)
def test_what_cannot_be_taken_is_one_line(write, options, chosen, message):
    assert message in get_refusal(load_mjcf, write(**options), **{"velocity": (1.0,)} | chosen)


def test_a_free_base_is_refused_and_things_around_are_no_arms(write):
    swap = ('<body name="foot" pos="0 0 0">', '<body name="foot"><freejoint name="f"/>')
    assert "body 'foot' is not mounted (joint 'f' is free)" in refusal(write(swap=swap))
    assert load_mjcf(write(world=FLOATING), velocity=(1.0,)).joint_names == ("a", "b", "c")


def test_two_arms_of_a_file_are_told_apart_by_their_bases(write):
    path = write(world=SECOND)
    assert load_mjcf(path, base="foot", velocity=(1.0,)).joint_names == ("a", "b", "c")
    assert load_mjcf(path, base="other", velocity=(1.0,)).joint_names == ("z",)


def test_other_xml_files_are_named(tmp_path):
    path = tmp_path / "arm.xml"
    path.write_text("<robot name='a'/>")
    assert "is a URDF, not MJCF" in get_refusal(load_mjcf, path)
    assert "there is no robot file" in get_refusal(load_mjcf, tmp_path / "none.xml")
    path.write_text("<mujocoinclude/>")
    assert "cannot be read as MJCF" in get_refusal(load_mjcf, path)


def test_without_mujoco_it_is_named(write, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mujoco", None)
    assert "pip install 'td3-robot[mujoco]'" in get_refusal(load_mjcf, write())


@pytest.mark.parametrize("engine", ["kinematic", "mujoco"])
def test_a_task_can_be_done_with_it(write, engine):
    env = envs.make(write(), "reach", 2, velocity=(2.0,), engine=engine)
    before = env.reset(0)
    step = env.step(torch.ones(2, env.a_dim))
    assert torch.isfinite(step.observation).all() and not torch.equal(before, step.observation)


def test_a_joint_without_a_name_gets_one_that_no_other_has(write):
    path = write(swap=('<joint name="a" axis="0 0 1"', '<joint axis="0 0 1"'))
    text = open(path).read().replace('"b"', '"joint0"')
    open(path, "w").write(
        text.replace('<position joint="a" kp="300" kv="20" forcerange="-40 40"/>', "")
    )
    assert load_mjcf(path, velocity=(1.0,)).joint_names == ("joint0_", "joint0", "c")
