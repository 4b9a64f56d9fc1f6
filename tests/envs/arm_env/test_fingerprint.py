"""The constants of an environment: all that its files say of task, robot and capsules."""

import hashlib
import json
from pathlib import Path

import envs
from envs.arm_env.fingerprint import env_fingerprint
from envs.collision.files import CAPSULES
from envs.config.yaml_values import CONFIGS, read_values


def test_they_are_those_of_the_files_and_fit_into_json():
    found = env_fingerprint(envs.make("ur5e", "reach"))
    task, robot = (read_values(CONFIGS / path) for path in ("tasks/reach.yaml", "robots/ur5e.yaml"))
    assert (
        found["task"] == {"contact_weight": 0.0, "near_weight": 0.0, "near_distance": 0.03} | task
    )
    assert all(
        found["robot"][name] == robot[name]
        for name in ("home", "qlim", "qdlim", "qddlim", "workspace")
    )
    sums = {
        name: hashlib.sha256((CAPSULES / name).read_bytes()).hexdigest() for name in found["files"]
    }
    assert found["files"] == sums and set(sums) == {"ur5e.yaml", "robotiq_2f_85.yaml"}
    assert json.loads(json.dumps(found)) == found


def test_a_robot_given_by_its_file_has_that_among_them(tmp_path):
    arm = Path(__file__).parents[1] / "data" / "gantry.urdf"
    (tmp_path / "arm.urdf").write_bytes(arm.read_bytes())
    found = env_fingerprint(envs.make(str(tmp_path / "arm.urdf"), "reach"))
    assert found["files"] == {"arm.urdf": hashlib.sha256(arm.read_bytes()).hexdigest()}


def test_a_randomisation_is_among_them_with_all_its_ranges():
    env = envs.make("panda", "reach")
    file = read_values(CONFIGS / "randomization/lab.yaml")
    found = json.loads(json.dumps(env_fingerprint(env, "lab")))
    assert found.pop("randomization lab") == {"servo_lag": 0.0, "assumed_latency": None} | file
    assert (
        found
        == json.loads(json.dumps(env_fingerprint(env, "none")))
        == json.loads(json.dumps(env_fingerprint(env)))
    )


def test_an_environment_of_others_has_none():
    assert env_fingerprint(object()) == {}
