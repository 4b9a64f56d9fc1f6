"""The log of a run of an arm, as the report shows it."""

import numpy as np
import pytest

from envs.config.env_options import EnvOptions
from envs.evaluation import Evaluation
from envs.evaluation.report import read_log
from td3_robot.deploy.runtime.motion_log import Log
from td3_robot.errors import ConfigError

JOINTS = tuple(f"joint{i}" for i in range(1, 8))
GENERATOR = np.random.default_rng(0)
Q, SENT, MEASURED = GENERATOR.normal(size=(3, 30, 7))


@pytest.fixture
def path(tmp_path):
    """30 lines at 1 kHz; from 10 ms on the filter holds back, in the end the run is stopped."""
    log = Log(tmp_path / "run.csv", JOINTS)
    for k in range(30):
        log.step(
            k / 1000,
            Q[k],
            SENT[k],
            MEASURED[k],
            "" if k < 10 else "too near <b>itself</b>" if k < 25 else "Enter, or Ctrl-C",
        )
    log.close()
    return tmp_path / "run.csv"


def test_what_was_logged_is_read(path):
    run = read_log(path, 7)
    assert run.joints == JOINTS and run.time[-1] == 0.029
    np.testing.assert_allclose(run.q, Q, rtol=1e-8)
    np.testing.assert_allclose(run.sent, SENT, rtol=1e-8)
    np.testing.assert_allclose(run.measured, MEASURED, rtol=1e-8)
    assert run.reasons == ((0.01, "too near <b>itself</b>"), (0.025, "Enter; or Ctrl-C"))
    assert run.summary == "run.csv: 30 velocities in 0.0 s; at the end Enter; or Ctrl-C."


def test_joints_may_have_any_name_of_a_description(tmp_path):
    joints = ("lift, z [m]", 'the "elbow"', "wrist")
    log = Log(tmp_path / "run.csv", joints)
    log.step(0.0, Q[0, :3], SENT[0, :3], MEASURED[0, :3], 'the arm reports "off"')
    log.close()
    run = read_log(tmp_path / "run.csv", 3)
    assert run.joints == joints and run.reasons == ((0.0, 'the arm reports "off"'),)
    np.testing.assert_allclose(run.measured, MEASURED[:1, :3], rtol=1e-8)


@pytest.fixture
def older(path):
    """The same in a log of older versions, which has no positions that were measured."""
    rows = [line.split(",") for line in path.read_text().splitlines()]
    path = path.with_name("older.csv")
    path.write_text("".join(",".join((*row[:15], row[-1])) + "\n" for row in rows))
    return path


def test_a_log_of_an_older_version_is_read(older):
    run = read_log(older, 7)
    assert run.measured is None and len(run.reasons) == 2
    np.testing.assert_allclose(run.q, Q, rtol=1e-8)
    np.testing.assert_allclose(run.sent, SENT, rtol=1e-8)


def test_the_part_of_a_line_that_a_killed_process_leaves_is_left_out(path):
    path.write_bytes(path.read_bytes()[:-40])
    assert len(read_log(path, 7).time) == 29


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "it is empty"),
        ("step,success\n1,2\n", "it has not the columns of run_policy.py --log"),
        ("time,q_a,sent_a,reason\n", "it holds no velocities"),
        ("time,q_a,sent_a,reason\n0,nan,1,\n", "it holds numbers that are not finite"),
        ("time,q_a,sent_a,reason\n0,one,1,\n", "it has a line that is no numbers"),
        ("time,q_a,sent_a,reason\n0,1,1,\n", "is of an arm with 1 joints, the checkpoint's has 7"),
        (b"\xff\xfe\x00", "it has a line that is no numbers"),
    ],
)
def test_another_file_is_one_line(tmp_path, text, complaint):
    path = tmp_path / "other.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=complaint) as caught:
        read_log(path, 7)
    assert "\n" not in str(caught.value) and "other.csv" in str(caught.value)
    with pytest.raises(ConfigError, match="cannot be opened"):
        read_log(tmp_path / "none.csv", 7)


def test_the_report_shows_it(path, older):
    evaluation = Evaluation(EnvOptions(), 3)
    evaluation.add_baseline("random")
    evaluation.play(keep=True)
    rows = path.read_text().splitlines()
    rows[18] = rows[18].rpartition(",")[0] + ","  # meanwhile all was sent as asked
    path.write_text("\n".join([*rows, ""]))
    page = evaluation.render_report({}, (), str, read_log(path, 7))
    shown = page[page.index("A run of an arm") : page.index("<h2>Paths")]
    assert shown.count("<svg") == 2 and "30 velocities" in shown and "joint7" in shown
    assert "Positions that were measured" in shown and "was sent to" not in shown
    before = evaluation.render_report({}, (), str, read_log(older, 7))
    assert "Positions that the arm was sent to" in before and "were measured" not in before
    assert "too near &lt;b&gt;itself" in shown and "<b>" not in shown
    assert ">3 reasons to send less than was asked<" in shown and shown.count("<dd>as asked<") == 1
    assert "A run of an arm" not in evaluation.render_report({}, (), str)
