"""examples/door: a task outside the package with a body on a hinge, a program and a policy."""

import json
import os
import subprocess
import sys

import pytest
import torch

from envs.controllers import make_baseline
from envs.planning.contact_check import is_free
from tests.support import ROOT

FOLDER = ROOT / "examples/door"
BETWEEN_PADS = 0.0165  # [m] half a pad's width and half the handle's


@pytest.fixture(scope="module")
def env():
    """Doors, with the example imported as `--plugins` does it."""
    sys.path.insert(0, str(FOLDER))
    import door  # noqa: F401

    import envs

    yield envs.make("panda", "door", 32, seed=5, engine="mujoco")
    sys.path.remove(str(FOLDER))
    del sys.modules["door"]


def test_the_program_opens_doors_and_the_handle_stays_in_the_hand(env):
    act = make_baseline("open_door", env)
    observation = env.reset(5)
    opened = torch.zeros(32, dtype=torch.bool)
    running = ~opened
    for _ in range(env.task.horizon):
        step = env.step(act(observation))
        observation = step.observation
        scene = env.arrived.scene
        # the handle has gone along a circle about the true hinge; the hand holds it
        turned = scene["door_joint"][:, None]
        arm = scene["goal"][:, :2] - _find_hinge(scene)
        c = turned.cos()
        s = turned.sin()
        moved = torch.cat((c * arm[:, :1] - s * arm[:, 1:], s * arm[:, :1] + c * arm[:, 1:]), 1)
        handle = _find_hinge(scene) + moved
        distance = torch.linalg.vector_norm(env.arrived.tcp[:, :2] - handle, dim=1)
        assert (distance[running] < BETWEEN_PADS).all()
        opened |= running & step.info["success"]
        running &= ~(step.terminated | step.truncated)
    assert opened.float().mean() > 0.9


def _find_hinge(scene):
    """Return the true place of the hinge (B, 2), from the door's pose and the radius."""
    half = torch.atan2(scene["door"][:, 6], scene["door"][:, 3])
    direction = torch.stack(((2.0 * half).cos(), (2.0 * half).sin()), 1)
    return scene["door"][:, :2] + scene["door_anchor"][:, :1] * direction


def test_an_arm_at_rest_leaves_the_door_shut(env):
    observation = env.reset(6)
    assert is_free(env.world, env.state.q).all()
    for _ in range(10):
        observation = env.step(torch.zeros(32, env.a_dim)).observation
    assert torch.isfinite(observation).all()
    assert env.scene["door_joint"].abs().max() < 2e-3
    assert env.arrived.scene["contact_forces"].max() < 5.0


def test_too_much_force_fails(env):
    """Straight up: no hinge turns that way."""
    env.reset(7)
    up = torch.tensor([0.0, 0.0, 0.2, 0.0, 0.0, 0.0])
    failed = torch.zeros(32, dtype=torch.bool)
    for _ in range(20):
        action = (torch.linalg.pinv(env.moment.J) @ up) / env.model.qdlim / env.task.speed
        step = env.step(action)
        failed |= step.terminated & ~step.info["success"]
    assert failed.all()


def test_critics_see_the_true_hinge(env):
    env.reset(8)
    seen = env.privileged()
    true = _find_hinge(env.scene)
    torch.testing.assert_close(seen[:, 2:4] * 0.1, true - env.scene["hinge"], atol=1e-5, rtol=0.0)
    torch.testing.assert_close(seen[:, 1] * 0.1, -env.scene["door_anchor"][:, 0])


@pytest.mark.slow
def test_it_is_trained_and_evaluated_by_the_commands_of_its_page(tmp_path):
    place = {
        "cwd": tmp_path,
        "env": os.environ | {"PYTHONPATH": f"{FOLDER}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"},
    }

    def run(*words):
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, **place)
        assert done.returncode == 0, done.stderr
        return done

    small = "--steps 960 --num_envs 8 --td3.hidden 16 --td3.burn_in 8 --exploration.start_steps 96 "
    small += "--updates_per_step 1 --evaluation.every 480 --evaluation.episodes 8 --run mine"
    train = f"--task door --plugins door --config {FOLDER}/train.yaml {small}"
    run(str(ROOT / "train.py"), *train.split())
    asked = "--episodes 16 --baseline open_door --json result.json".split()
    for checkpoint in ("mine", str(FOLDER / "policy")):
        run(str(ROOT / "evaluate.py"), "--plugins", "door", "--checkpoint", checkpoint, *asked)
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["baselines"]["open_door"]["success_rate"] > 0.8
    assert result["success_rate"] > 0.8
