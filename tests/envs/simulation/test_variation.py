"""Laws of episodes whose physics differ: each value does what mechanics says, and to its own world
alone.
"""

import dataclasses

import mujoco
import numpy as np
import pytest
import torch

from envs.config.env_options import EnvOptions
from envs.registry import make, make_from_config
from envs.robots import make_robot
from envs.simulation.disturbances import Disturbances
from envs.simulation.engine import Command, compile_robot, make_rest_state
from envs.simulation.mujoco import MujocoEngine
from envs.simulation.randomization import (
    combine_disturbances,
    list_randomizations,
    read_randomization,
)
from envs.simulation.variation import Variation
from td3_robot.errors import ConfigError, not_none

G = 9.81


def world(lab, cube=(0.5, 0.4, 0.02), **varied):
    """A function that lets one arm of a lab stand for some periods, with these values, and tells
    its scene.
    """
    variation = Variation(**{name: (value, value) for name, value in varied.items()})
    engine = MujocoEngine(lab.robot, lab.model.dt, 0.04, variation=variation)
    state = make_rest_state(lab.model, torch.as_tensor(lab.robot.home, dtype=torch.float32)[None])
    scene = {"object": torch.tensor([cube]), "held": torch.zeros(1, dtype=torch.bool)}
    scene["varied"] = variation.draw(1, torch.Generator().manual_seed(0))
    scene = engine.begin(lab.model, state, scene)

    def stand(periods, scene=scene, state=state):
        for _ in range(periods):
            state, scene = engine.step(lab.model, state, Command(torch.zeros_like(state.q)), scene)
        return engine.physics, state, scene

    return stand


def test_draws_are_in_their_ranges_and_all_over_them():
    variation = Variation(friction=(0.5, 1.5), cube_mass=(0.01, 0.3), payload=(0.0, 0.5))
    drawn = variation.draw(2000, torch.Generator().manual_seed(0))
    for column, (low, high) in zip(drawn.T, variation.ranges.values()):
        assert low <= column.min() and column.max() <= high
        assert column.mean().item() == pytest.approx(
            (low + high) / 2, abs=0.02 * (high - low) + 1e-6
        )


def test_values_that_change_nothing_change_nothing(panda_lab):
    plain = world(panda_lab)(5)[2]["physics"]
    same = world(panda_lab, cube_mass=0.05, cube_side=0.04)(5)[2]["physics"]
    torch.testing.assert_close(same, plain, atol=1e-6, rtol=0)


def test_an_unknown_payload_bends_each_servo_by_its_torque_over_its_stiffness(panda_lab):
    kilograms = 0.4
    stiffer = 1.25
    physics, state, _ = world(panda_lab, payload=kilograms, stiffness=stiffer)(60)
    data = mujoco.MjData(physics.model)
    J = np.zeros((3, physics.model.nv))
    data.qpos[physics.q] = panda_lab.robot.home
    mujoco.mj_forward(physics.model, data)
    mujoco.mj_jacBodyCom(physics.model, data, J, None, physics.hand)
    torque = -kilograms * G * J[2, physics.qd]
    sag = state.q[0].double().numpy() - panda_lab.robot.home
    stiffness = stiffer * physics.drives.stiffness[: panda_lab.robot.n]
    assert np.abs(torque).max() > 1.0
    np.testing.assert_allclose(sag * stiffness, torque, atol=0.05)


# The last joint moves a link that weighs nothing: what does is fixed to it.
BARE = """<robot name='bare'><link name='base'/><link name='upper'>{weight}</link>
<link name='wrist'/><link name='tip'>{weight}</link>
<joint name='shoulder' type='revolute'><parent link='base'/><child link='upper'/>
<origin xyz='0 0 0.3'/><axis xyz='0 1 0'/><limit lower='-2' upper='2' velocity='2' effort='50'/>
</joint>
<joint name='elbow' type='revolute'><parent link='upper'/><child link='wrist'/>
<origin xyz='0 0 0.2'/><axis xyz='0 1 0'/><limit lower='-2' upper='2' velocity='2' effort='50'/>
</joint>
<joint name='tool' type='fixed'><parent link='wrist'/><child link='tip'/>
<origin xyz='0 0 0.2'/></joint></robot>"""
WEIGHT = (
    "<inertial><origin xyz='0 0 0.1'/><mass value='1'/>"
    "<inertia ixx='0.01' iyy='0.01' izz='0.01' ixy='0' ixz='0' iyz='0'/></inertial>"
)


@pytest.mark.parametrize("payload", [0.0, 0.2])
def test_a_hand_that_weighs_nothing_moves_and_sags_by_its_payload_alone(payload, tmp_path):
    (tmp_path / "bare.urdf").write_text(BARE.format(weight=WEIGHT))
    robot = make_robot(str(tmp_path / "bare.urdf"))
    model = compile_robot(robot, 0.05, "cpu", None)
    variation = Variation(stiffness=(1.0, 1.0), payload=(payload, payload), friction=(0.9, 1.1))
    engine = MujocoEngine(robot, 0.05, variation=variation, threads=1)
    assert engine.physics.model.body_mass[engine.physics.hand] == 0.0
    state = make_rest_state(model, torch.tensor([[0.5, 0.5]]))
    varied = variation.draw(1, torch.Generator().manual_seed(0))
    scene = engine.begin(model, state, {"varied": varied})
    for action in (*[0.3] * 4, *[0.0] * 20):
        command = Command(torch.full((1, 2), action))
        state, scene = engine.step(model, state, command, scene)
    assert scene["unstable"].item() == 0 and (state.q > 0.52).all()
    # MuJoCo has the centre of such a link where the one that it carries is, 0.2 m from the elbow.
    sag = (state.q - scene["told"][:, :2])[0].double().numpy()
    shoulder, elbow = state.q[0].tolist()
    turned = payload * G * 0.2 * np.sin(shoulder + elbow)
    torque = [turned + payload * G * 0.2 * np.sin(shoulder), turned]
    np.testing.assert_allclose(sag * engine.physics.drives.stiffness, torque, atol=0.01)


@pytest.mark.parametrize("side", (0.036, 0.044))
@pytest.mark.parametrize("steps", (0, 10))
def test_a_cube_lies_on_the_table_by_its_own_size(panda_lab, side, steps):
    *_, scene = world(panda_lab, cube_side=side)(steps)
    assert scene["object"][0, 2].item() == pytest.approx(side / 2, abs=1e-4)


def test_a_large_cube_touches_the_arm_s_links_as_a_model_of_its_size_does(panda_lab):
    varied = Variation(cube_side=(0.06, 0.06))
    drawn = varied.draw(1, torch.Generator()).double().numpy()
    small = MujocoEngine(panda_lab.robot, panda_lab.model.dt, 0.04, variation=varied)
    large = MujocoEngine(panda_lab.robot, panda_lab.model.dt, 0.06).physics
    model = not_none(small._varied).prepare_worlds(drawn, np.empty((1, 0))).models[0]
    data = [mujoco.MjData(each) for each in (model, large.model)]
    random = np.random.default_rng(0)
    cube = slice(large.cubes["object"], None)
    for its in data:
        its.qpos[large.q] = panda_lab.robot.home
        mujoco.mj_kinematics(large.model, its)
    touches = []
    for geom in random.integers(large.model.ngeom, size=8000):
        place = data[1].geom_xpos[geom] + random.normal(size=3) * 0.06
        turn = random.normal(size=4)
        turn /= np.linalg.norm(turn)
        for each, its in zip((model, large.model), data):
            its.qpos[cube] = (*place, *turn)
            mujoco.mj_kinematics(each, its)
            mujoco.mj_comPos(each, its)
            mujoco.mj_collision(each, its)
        touches.append([its.ncon for its in data])
    mine, expected = zip(*touches)
    assert mine == expected and sum(expected) > 1000


@pytest.mark.parametrize("factor", (0.5, 1.5))
def test_a_cube_slides_as_far_as_its_friction_lets_it(panda_lab, factor):
    """v^2 / (2 mu g), whatever it weighs."""
    stand = world(panda_lab, friction=factor, cube_mass=0.15)
    speed = 0.5
    physics, state, scene = stand(2)
    moving = scene["physics"].clone()
    moving[0, 1 + physics.model.nq + physics.model.nv - 6] = speed
    *_, after = stand(10, {**scene, "physics": moving}, state)
    slid = (after["object"] - scene["object"])[0, 0].item()
    assert slid == pytest.approx(speed**2 / (2 * 0.6 * factor * G), rel=0.03)


def test_friction_is_of_all_that_touches_links_of_the_arm_among_them(panda_lab):
    """Of two that touch, the greater friction counts, times the factor of the episode."""
    factor = Variation(friction=(0.5, 0.5))
    drawn = factor.draw(1, torch.Generator()).double().numpy()
    engine = MujocoEngine(panda_lab.robot, panda_lab.model.dt, 0.04, variation=factor)
    models = not_none(engine._varied).prepare_worlds(drawn, np.empty((1, 0))).models
    data = [mujoco.MjData(each) for each in (engine.physics.model, models[0])]
    random = np.random.default_rng(0)
    kinds = set()  # whether both are links
    for qpos in random.uniform(*panda_lab.robot.qlim, (100, panda_lab.robot.n)):
        for its in data:
            its.qpos[engine.physics.q] = qpos
            mujoco.mj_forward(its.model, its)
        for contact, varied in zip(*(its.contact for its in data), strict=True):
            greater = models[0].geom_friction[contact.geom, 0].max()
            np.testing.assert_allclose(varied.friction[:2], greater)
            np.testing.assert_allclose(contact.friction[:2], greater / 0.5)
            names = [models[0].geom(each).name for each in contact.geom]
            kinds.add(all(name.startswith("capsule") for name in names))
    assert kinds == {False, True}


@pytest.fixture(scope="module")
def env():
    return make(
        "panda", "pick_turned", 3, seed=1, engine="mujoco", disturbances=read_randomization("lab")
    )


def play(env, steps, seed=2):
    generator = torch.Generator().manual_seed(seed)
    return [
        env.step(torch.rand(env.num_envs, env.a_dim, generator=generator) * 2 - 1).observation
        for _ in range(steps)
    ]


def test_episodes_differ_from_one_another_and_a_world_is_taken_up_again_to_the_bit(env):
    env.reset(3)
    assert len(env.scene["varied"].unique(dim=0)) == 3
    play(env, 4)
    saved = env.state_dict()
    first = play(env, 4)
    env.reset(4)  # other values are written into the models
    play(env, 1)
    env.load_state_dict(saved)
    assert all(torch.equal(a, b) for a, b in zip(first, play(env, 4)))


def test_a_camera_that_is_off_shows_the_cube_elsewhere_for_the_whole_episode():
    env = make("panda", "pick_place", 2000, disturbances=Disturbances(object_offset=0.01))
    off = env.moment.scene["object"] - env.scene["object"]
    assert off.std(0).tolist() == pytest.approx([0.01] * 3, rel=0.1)
    env.step(torch.zeros(2000, env.a_dim))
    torch.testing.assert_close(env.moment.scene["object"] - env.scene["object"], off)


def test_what_is_given_by_itself_counts_in_place_of_the_file_s():
    named = read_randomization("lab")
    assert combine_disturbances(EnvOptions(randomize="lab", noise=0.003)) == dataclasses.replace(
        named, noise=0.003
    )
    assert combine_disturbances(EnvOptions(randomize="lab", latency=0.0)) == dataclasses.replace(
        named, latency=0.0
    )
    assert combine_disturbances(EnvOptions(noise=0.003)) == Disturbances(noise=0.003)
    assert combine_disturbances(EnvOptions(noise=0.0)) == Disturbances()


def test_every_shipped_file_can_be_simulated_without_physics_too():
    for name in list_randomizations():
        env = make_from_config(EnvOptions(task="pick_place", randomize=name), 2)
        assert torch.isfinite(env.step(torch.zeros(2, env.a_dim)).observation).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("friktion: [1, 2]", "unknown key of randomization .* did you mean 'friction'"),
        ("friction: [2, 1]", "mine.yaml': friction must be a range of positive numbers, the lower"),
        ("cube_mass: [0, 1]", "cube_mass must be a range"),
        ("payload: [-1, 1]", "payload must be a range"),
        ("friction: 1", "friction must be finite with shape"),
        ("latency: .inf", "latency must be finite"),
        ("noise: -1", "mine.yaml': noise must be a number from 0 to 1"),
    ],
)
def test_a_file_that_cannot_be_right_is_one_line(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_randomization(str(path))


@pytest.mark.parametrize("text", ["friction: [0.5, 2]", "payload: [0, 1]\nnoise: 0"])
def test_a_file_of_contact_physics_alone_needs_an_engine_that_has_it(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    options = {"task": "pick_place", "randomize": str(path)}
    with pytest.raises(ConfigError, match="mine.yaml' has no effect .* needs --engine mujoco"):
        combine_disturbances(EnvOptions(**options))
    assert combine_disturbances(EnvOptions(**options, engine="mujoco")).physics
    path.write_text(text.replace("noise: 0", "") + "\nnoise: 0.001\n")
    assert combine_disturbances(EnvOptions(**options)).noise == 0.001


def test_an_unknown_name_is_told_the_names_that_there_are():
    with pytest.raises(ConfigError, match="lab"):
        read_randomization("lap")


@pytest.mark.parametrize("given", [(1.0, float("inf")), (float("nan"), 1.0), (1.0, float("nan"))])
def test_a_range_is_finite(given):
    with pytest.raises(ConfigError, match="stiffness must be a range of positive numbers"):
        Variation(stiffness=given)
