"""What is installed: every file of the packages, with their types."""

import re
import runpy
from fnmatch import fnmatch
from pathlib import Path

import setuptools

ROOT = Path(__file__).resolve().parent.parent


def test_every_file_is_installed(monkeypatch):
    given = {}
    monkeypatch.setattr(setuptools, "setup", given.update)
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    patterns = ["*.py", *given["package_data"][""]]
    files = [
        path
        for top in ("td3_robot", "envs", "configs")
        for path in Path(top).rglob("*")
        if path.is_file()
    ]
    ours = [path for path in files if "__pycache__" not in path.parts]
    left_out = [
        path for path in ours if not any(fnmatch(path.name, pattern) for pattern in patterns)
    ]
    no_package = {path.parent for path in ours} - {
        Path(name.replace(".", "/")) for name in given["packages"]
    }
    assert not left_out and not no_package
    assert {Path("td3_robot/py.typed"), Path("envs/py.typed")} <= set(ours)


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
