"""Files of results: an earlier one is replaced, any other file of the user is not."""

import json
import os
from pathlib import Path

import pytest

from td3_robot.utils.json_file import check_results
from tests.support import ROOT, get_refusal

KEYS = ("checkpoint", "episodes")
RESULTS = {"checkpoint": "run1", "task": "reach", "episodes": 9}


def test_a_new_name_an_empty_file_and_earlier_results_are_written(tmp_path):
    empty = tmp_path / "empty"
    empty.touch()
    earlier = tmp_path / "earlier"
    earlier.write_text(json.dumps(RESULTS))
    for path in (None, tmp_path / "new", empty, earlier, Path(os.devnull)):
        check_results(path, KEYS)


@pytest.mark.parametrize(
    "content", [b"# Title\n", b"[1, 2]", b'{"robot": "panda"}', b"\xff\x00", b'{"checkpoint": 1']
)
def test_any_other_file_is_refused(tmp_path, content):
    path = tmp_path / "notes"
    path.write_bytes(content)
    assert f"cannot write {str(path)!r}: " in get_refusal(check_results, path, KEYS)
    assert path.read_bytes() == content


def test_evaluate_costs_no_file_of_the_user(tmp_path, in_process):
    (tmp_path / "README.md").write_text("# Mine\n")
    words = f"--checkpoint {ROOT}/checkpoints/run1 --episodes 2 --baseline= --json".split()
    code, out, err = in_process(tmp_path, "evaluate", *words, "README.md")
    assert (code, out, err.count("\n")) == (2, "", 1) and "'README.md'" in err
    assert (tmp_path / "README.md").read_text() == "# Mine\n"
    for _ in range(2):  # the second replaces the first
        assert in_process(tmp_path, "evaluate", *words, "out")[0] == 0
    assert json.loads((tmp_path / "out").read_text())["episodes"] == 2
