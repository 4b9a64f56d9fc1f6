"""Old import paths and names: they mean what the new ones mean, and say which those are."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import envs.legacy
import td3_robot.deploy.legacy
import td3_robot.utils.legacy

ROOT = Path(__file__).resolve().parent.parent
MODULES = td3_robot.utils.legacy.MODULES | envs.legacy.MODULES
DEPLOY = {"td3_robot.deploy": td3_robot.deploy.legacy.NAMES} | td3_robot.deploy.legacy.MOVED
NAMES = [
    (module, old, new)
    for table in (td3_robot.utils.legacy.NAMES, envs.legacy.NAMES, DEPLOY)
    for module, renamed in table.items()
    for old, new in renamed.items()
]


@pytest.mark.parametrize(("old", "new"), MODULES.items())
def test_an_old_module_hands_on_what_the_new_one_has(old, new):
    sys.modules.pop(old, None)
    with pytest.warns(FutureWarning, match=f"{old} is now {new}"):
        module = importlib.import_module(old)
    target = importlib.import_module(new)
    public = [name for name in vars(target) if not name.startswith("_")]
    assert public and all(getattr(module, name) is getattr(target, name) for name in public)


@pytest.mark.parametrize(("module", "old", "new"), NAMES)
def test_an_old_name_means_the_new_one(module, old, new):
    home, _, attribute = new.rpartition(".")
    expected = getattr(importlib.import_module(home or module), attribute)
    with pytest.warns(FutureWarning, match=f"{old} is now {new}"):
        assert getattr(importlib.import_module(module), old) is expected


def test_a_name_that_never_was_is_an_error():
    with pytest.raises(ImportError):
        importlib.import_module("td3_robot.no_such_module")
    with pytest.raises(AttributeError, match="no_such_name"):
        td3_robot.utils.legacy.find_renamed("td3_robot.networks", "no_such_name")
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(td3_robot.deploy, "no_such_name")  # noqa: B009


@pytest.mark.parametrize(
    "first", ["from td3_robot.trainer import Trainer", "from envs.options import EnvOptions"]
)
def test_it_may_be_the_first_import_of_a_program(first):
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", first], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stderr.count("is now") == 1, done.stderr
