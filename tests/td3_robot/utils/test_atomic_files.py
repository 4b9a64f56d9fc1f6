"""Files that are complete or absent, and what is said before it is too late."""

import os
import threading
from pathlib import Path

import pytest

from td3_robot.errors import ConfigError
from td3_robot.utils.atomic_files import check_folder, check_writable, replace_file, write_text


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.json"
    write_text(path, "old")
    with pytest.raises(ZeroDivisionError), replace_file(path) as new:
        new.write_text("half")
        1 / 0  # noqa: B018
    assert path.read_text() == "old"
    write_text(path, "new")
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["a.json"]


def test_a_link_stays_and_leads_to_the_new_content(tmp_path):
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    target = tmp_path / "there" / "file"
    link.symlink_to(target)
    for text in ("first", "second"):  # it leads to nothing, then to a file
        check_writable(link)
        write_text(link, text)
        assert link.is_symlink() and target.read_text() == text and not target.is_symlink()
    assert os.listdir(tmp_path / "there") == ["file"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders on this system")
def test_what_is_no_file_is_written_to_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    got = []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()), daemon=True)
    reader.start()
    check_writable(pipe)
    write_text(pipe, "words")
    reader.join(10)
    assert got == ["words"] and pipe.is_fifo() and os.listdir(tmp_path) == ["pipe"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="writes where nobody can")
def test_what_cannot_be_written_is_said_before_anything_is_computed(tmp_path):
    before = os.listdir(tmp_path)
    for check in (check_writable, check_folder):
        with pytest.raises(ConfigError, match="^cannot write '/proc/out': "):
            check(Path("/proc/out"))
        check(tmp_path / "out")
        check(None)
    assert os.listdir(tmp_path) == before  # checking leaves nothing behind


def test_a_name_that_is_too_long_is_said_before_anything_is_computed(tmp_path):
    """Also one that is only as part of the temporary file's; what the checks take is written."""
    shorter = tmp_path / ("x" * 200)
    check_writable(shorter)
    write_text(shorter, "words")
    for check, length in ((check_writable, 255), (check_writable, 5000), (check_folder, 256)):
        with pytest.raises(ConfigError, match="^cannot write .*: File name too long$"):
            check(tmp_path / ("x" * length))
