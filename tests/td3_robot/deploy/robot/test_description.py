"""A robot's description: what it has to hold."""

import json
import re

import numpy as np
import pytest

from td3_robot.deploy import DeployError, Obstacles, Robot
from td3_robot.deploy.robot.description import ROBOTS

TOLD = "not the description of a robot"


@pytest.mark.parametrize("name", sorted(path.stem for path in ROBOTS.glob("*.json")))
def test_every_joint_has_a_name_a_home_limits_and_a_place_in_the_chain(name):
    values = json.loads((ROBOTS / f"{name}.json").read_text())
    n = Robot.from_dict(values).limits.n
    for key in ("joints", "home"):
        with pytest.raises(DeployError, match=f"'{key}': {n - 1}"):
            Robot.from_dict(values | {key: values[key][:-1]})


@pytest.mark.parametrize("key", ("limits", "chain", "gripper", "capsules"))
def test_a_part_of_another_kind_is_told_of(key):
    values = json.loads((ROBOTS / "panda.json").read_text())
    with pytest.raises(DeployError, match=TOLD):
        Robot.from_dict(values | {key: [1]})


@pytest.mark.parametrize(
    "place", ["home[2]", "limits.position[1][0]", "chain.constants[6][0][3]", "gripper.speed"]
)
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_told_of_by_its_place_and_file(tmp_path, place, number):
    values = json.loads((ROBOTS / "ur5e.json").read_text())
    *inner, last = re.findall(r"\w+", place)
    part = values
    for key in inner:
        part = part[int(key) if key.isdigit() else key]
    part[int(last) if last.isdigit() else last] = "?"
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(values).replace('"?"', number))
    with pytest.raises(DeployError, match=re.escape(f"mine.json: {TOLD}: {place} is not finite")):
        Robot.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda A: A.T,  # written by columns
        lambda A: 1000.0 * A,
        lambda A: A @ np.diag([1.0, -1.0, 1.0, 1.0]),  # left-handed
        lambda A: A[:3],
    ],
)
def test_a_place_in_the_chain_is_a_rotation_and_a_translation(change):
    values = json.loads((ROBOTS / "ur5e.json").read_text())
    constants = [change(np.array(A)).tolist() for A in values["chain"]["constants"]]
    with pytest.raises(DeployError, match="constant 0 of the chain|constants of shape"):
        Robot.from_dict(values | {"chain": values["chain"] | {"constants": constants}})


@pytest.mark.parametrize("kind", [Robot, Obstacles])
def test_a_file_nested_deeper_than_python_reads_is_refused_by_its_name(tmp_path, kind):
    path = tmp_path / "deep.json"
    path.write_text('{"spheres":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(DeployError, match="deep.json is no .*: maximum recursion depth exceeded"):
        kind.load(path)


@pytest.mark.parametrize("kind", [Robot, Obstacles])
def test_a_key_that_is_there_twice_is_refused_by_its_name_and_file(tmp_path, kind):
    path = tmp_path / "twice.json"
    path.write_text('{"walls": [], "spheres": [[0.5, 0.2, 0.9, 0.1]], "spheres": []}')
    with pytest.raises(DeployError, match="twice.json.*: key 'spheres' is there twice"):
        kind.load(path)


def test_obstacles_are_loaded_by_a_path_or_its_words(tmp_path):
    path = tmp_path / "around.json"
    path.write_text('{"spheres": [[0.5, 0.2, 0.9, 0.1]]}')
    for name in (path, str(path)):
        assert Obstacles.load(name).spheres.tolist() == [[0.5, 0.2, 0.9, 0.1]]
