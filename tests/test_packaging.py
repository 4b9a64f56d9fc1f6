"""What is installed: every file of the packages, with their types."""

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

from setuptools import find_namespace_packages

from td3_robot.errors import EXTRAS

ROOT = Path(__file__).resolve().parent.parent


def test_every_file_is_installed():
    """Of a built distribution: its files are those of the packages in this checkout."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        settings = tomllib.load(file)["tool"]["setuptools"]
    patterns = ["*.py", *settings["package-data"]["*"]]
    packages = find_namespace_packages(str(ROOT), include=settings["packages"]["find"]["include"])
    tops = ("td3_robot", "envs", "configs")
    files = [path for top in tops for path in (ROOT / top).rglob("*") if path.is_file()]
    ours = [path.relative_to(ROOT) for path in files if "__pycache__" not in path.parts]
    left_out = [path for path in ours if not any(fnmatch(path.name, p) for p in patterns)]
    folders = {Path(name.replace(".", "/")) for name in packages}
    assert not left_out and not {path.parent for path in ours} - folders
    assert {Path("td3_robot/py.typed"), Path("envs/py.typed")} <= set(ours)


def test_every_optional_package_has_its_extra():
    """errors.EXTRAS names the extra that pyproject.toml lists the package under."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    called = {"collada": "pycollada"}  # modules whose package has another name
    for module, extra in EXTRAS.items():
        package = called.get(module, module).replace("_", "-")
        listed = [re.split(r"[\[<>=]", requirement)[0] for requirement in extras[extra]]
        assert package in listed, f"{package} is not in the extra {extra}"


def test_what_is_pinned_with_hashes_is_what_is_pinned():
    """Where this fails: `make hashes`."""
    pins, hashed = (
        [
            line
            for line in (ROOT / name).read_text().splitlines()
            if line and not line.startswith("#")
        ]
        for name in ("constraints.txt", "constraints-hashes.txt")
    )
    assert [line.split(" ")[0] for line in hashed] == pins
    assert all(re.fullmatch(r"\S+ --hash=sha256:[0-9a-f]{64}", line) for line in hashed)
