"""Offline data: what is loaded are true transitions, or one line says why not."""

import os
import pickle
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from td3_robot.data.dataset_file import Transitions, collect, load_dataset, save_dataset
from td3_robot.errors import ConfigError
from td3_robot.vec_env import Step


def arrays(count: int = 6, **changed: np.ndarray) -> dict[str, np.ndarray]:
    """One episode of `count` steps under D4RL's names; observation k is (k, -k)."""
    number = np.arange(count + 1.0)
    place = np.stack((number, -number), 1)
    values = {
        "observations": place[:-1].copy(),
        "actions": np.linspace(-1, 1, count)[:, None],
        "rewards": number[:-1] / 10,
        "next_observations": place[1:].copy(),
        "terminals": np.zeros(count, bool),
        "timeouts": np.arange(count) == count - 1,
    }
    return {name: value for name, value in (values | changed).items() if value is not None}


def written(folder, **changed) -> str:
    path = folder / "data.npz"
    np.savez(path, **arrays(**changed))
    return str(path)


def assert_equal(left: Transitions, right: Transitions) -> None:
    for name, a, b in zip(Transitions._fields, left, right, strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b), name


# Loading


def test_every_column_is_what_the_file_says(tmp_path):
    data = load_dataset(written(tmp_path))
    assert data.state.tolist() == [[k, -k] for k in range(6)]
    assert data.next_state.tolist() == [[k + 1, -k - 1] for k in range(6)]
    assert data.action[:, 0].tolist() == pytest.approx([-1, -0.6, -0.2, 0.2, 0.6, 1])
    assert data.reward.tolist() == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert not data.terminated.any() and data.truncated.tolist() == [False] * 5 + [True]
    assert {tensor.dtype for tensor in data} == {torch.float32, torch.bool}
    assert load_dataset(written(tmp_path), device="meta").state.device.type == "meta"


def test_flags_and_rewards_may_come_as_numbers_and_columns(tmp_path):
    plain = load_dataset(written(tmp_path))
    rewards = arrays()["rewards"][:, None]
    timeouts = arrays()["timeouts"].astype(np.float32)[:, None]
    terminals = np.zeros(6, np.int64)
    assert_equal(
        load_dataset(written(tmp_path, rewards=rewards, timeouts=timeouts, terminals=terminals)),
        plain,
    )


def test_other_arrays_are_let_be(tmp_path):
    more = {"infos/qpos": np.zeros(3), "metadata": np.array("policy")}
    assert_equal(load_dataset(written(tmp_path, **more)), load_dataset(written(tmp_path)))


def test_where_rows_do_not_go_on_the_episode_is_cut(tmp_path):
    """Two episodes of three steps without a word of it: the second begins elsewhere."""
    data = arrays(timeouts=None)
    data["observations"][3:, 0] += 100
    data["next_observations"][3:, 0] += 100
    np.savez(tmp_path / "data.npz", **data)
    assert load_dataset(tmp_path / "data.npz").truncated.tolist() == [
        False,
        False,
        True,
        False,
        False,
        True,
    ]


def test_shuffled_rows_are_single_steps(tmp_path):
    order = [4, 1, 0, 5, 3, 2]
    shuffled = {name: value[order] for name, value in arrays().items()}
    np.savez(tmp_path / "data.npz", **shuffled)
    assert load_dataset(tmp_path / "data.npz").truncated.all()


def test_a_terminated_row_is_not_also_truncated(tmp_path):
    terminals = np.array([0, 0, 1, 0, 0, 1])
    data = load_dataset(written(tmp_path, terminals=terminals, timeouts=np.zeros(6)))
    assert data.terminated.tolist() == [bool(k) for k in terminals] and not data.truncated.any()


# Successors that the file leaves out


def test_missing_successors_are_the_next_rows_of_the_episode(tmp_path):
    # rows     0  1  2 |3  4 |5  6  7: a timeout at 2, the end at 4, the recording stops at 7
    data = load_dataset(
        written(
            tmp_path,
            count=8,
            next_observations=None,
            timeouts=np.isin(np.arange(8), 2),
            terminals=np.isin(np.arange(8), 4),
        )
    )
    assert data.state[:, 0].tolist() == [0, 1, 3, 4, 5, 6]  # of 2 and 7 nobody knows the successor
    known = ~data.terminated
    assert data.next_state[known, 0].tolist() == [1, 2, 4, 6, 7]
    assert data.terminated.tolist() == [False, False, False, True, False, False]
    assert data.truncated.tolist() == [False, True, False, False, False, True]


def test_an_arm_that_stands_still_begins_no_episode_in_the_one_before(tmp_path):
    """Two episodes of three steps, all of the same observation."""
    ends = np.arange(6) % 3 == 2
    still = {"observations": np.ones((6, 2)), "next_observations": None, "timeouts": ends}
    data = load_dataset(written(tmp_path, **still))
    assert data.reward.tolist() == pytest.approx([0, 0.1, 0.3, 0.4])
    assert data.truncated.tolist() == [False, True, False, True]


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(2, 40))
def test_derived_successors_are_never_another_episodes(tmp_path_factory, seed, count):
    """Against the same data with its successors: every derived transition is one of those."""
    folder = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(seed)
    full = arrays(count, terminals=random.random(count) < 0.2, timeouts=random.random(count) < 0.2)
    ends = full["terminals"] | full["timeouts"]
    start = 1000 * np.concatenate(([0], ends[:-1].cumsum()))  # each episode has a place of its own
    full["observations"][:, 0] += start
    full["next_observations"][:, 0] += start
    full["terminals"][0] = True
    full["timeouts"][0] = False  # so that something is left
    np.savez(folder / "full.npz", **full)
    del full["next_observations"]
    np.savez(folder / "part.npz", **full)
    whole = load_dataset(folder / "full.npz")
    part = load_dataset(folder / "part.npz")
    cut = torch.from_numpy(full["timeouts"]) | (torch.arange(count) == count - 1)
    left_out = cut & ~whole.terminated
    assert torch.equal(part.state, whole.state[~left_out])
    known = ~part.terminated
    assert torch.equal(part.next_state[known], whole.next_state[~left_out][known])
    assert torch.equal(part.reward, whole.reward[~left_out])


# What is refused


def at(name: str, row: int, value: float) -> dict[str, np.ndarray]:
    array = arrays()[name].copy()
    array[row] = value
    return {name: array}


@pytest.mark.parametrize(
    "changed, told",
    [
        (
            {"rewards": None, "terminals": None},
            "lacks rewards, terminals; it holds ['observations', 'actions', ",
        ),
        (
            {"next_observations": None, "timeouts": None},
            "lacks next_observations, and also timeouts",
        ),
        (at("rewards", 3, np.nan), "rewards has NaN or infinity, first in row 3"),
        (
            at("next_observations", 2, np.inf),
            "next_observations has NaN or infinity, first in row 2",
        ),
        (at("observations", 4, 1e39), "observations has NaN or infinity, first in row 4"),
        (at("actions", 1, -1.5), "actions must be in [-1, 1], got -1.5 in row 1"),
        (at("actions", 1, 1 + 2**-23), "actions must be in [-1, 1], got 1.00000012 in row 1"),
        (at("rewards", 0, 0) | {"actions": np.zeros((5, 1))}, "actions has 5 rows, observations 6"),
        ({"timeouts": np.zeros(7)}, "timeouts has 7 rows, observations 6"),
        ({"actions": np.zeros(6)}, "actions must have shape (N, a_dim), got (6,)"),
        (
            {"observations": np.zeros((6, 2, 2))},
            "observations must have shape (N, o_dim), got (6, 2, 2)",
        ),
        ({"observations": np.zeros((6, 0))}, "observations must have shape (N, o_dim), got (6, 0)"),
        ({"rewards": np.zeros((6, 2))}, "rewards must have shape (N,), got (6, 2)"),
        ({"rewards": np.float64(1)}, "rewards must have shape (N,), got ()"),
        (
            {"next_observations": np.zeros((6, 3))},
            "next_observations has shape (6, 3), observations (6, 2)",
        ),
        ({"terminals": np.full(6, 0.5)}, "terminals must be true or false, 1 or 0"),
        ({"actions": np.full((6, 1), "left")}, "actions must be numbers, got <U4"),
        ({"actions": np.full((6, 1), None)}, "actions holds Python objects"),
        ({name: value[:0] for name, value in arrays().items()}, "has no transitions"),
        (
            {"next_observations": None, "timeouts": np.ones(6)},
            "has no transition whose successor is known",
        ),
    ],
)
def test_wrong_content_is_one_line_that_names_it(tmp_path, changed, told):
    path = written(tmp_path, **changed)
    with pytest.raises(ConfigError) as error:
        load_dataset(path)
    assert str(error.value).startswith(f"dataset {path!r}: {told}") and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "make, told",
    [
        (lambda path: None, "cannot be read: No such file or directory"),
        (
            lambda path: path.mkdir(),
            "is a folder of neither Minari, with data/metadata.json, nor LeRobot",
        ),
        (lambda path: path.write_bytes(b""), "is no .npz file"),
        (lambda path: path.write_bytes(pickle.dumps(arrays())), "is no .npz file"),
        (lambda path: np.save(path.open("wb"), np.zeros(3)), "is no .npz file"),
    ],
)
def test_what_is_no_dataset_is_one_line(tmp_path, make, told):
    make(tmp_path / "data.npz")
    with pytest.raises(ConfigError) as error:
        load_dataset(tmp_path / "data.npz")
    assert str(error.value) == f"dataset {str(tmp_path / 'data.npz')!r}: {told}"


@pytest.mark.parametrize(
    "shape",
    [
        "(True, 3)",
        "(20, True)",
        "(20, 3.0)",
        "((20,), 3)",
        "(-1, 3)",
        "(20, 3",
        "(20, 3)}\n  a\n b",
        "\0",
    ],
)
def test_a_header_of_no_sense_is_damage(tmp_path, shape):
    np.savez(
        tmp_path / "data.npz",
        **{name: column for name, column in arrays().items() if name != "observations"},
    )
    header = (
        f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode()
        + b"\n"
    )
    with zipfile.ZipFile(tmp_path / "data.npz", "a") as file:
        file.writestr(
            "observations.npy",
            b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header + bytes(240),
        )
    with pytest.raises(ConfigError, match=r"data.npz': is damaged$"):
        load_dataset(tmp_path / "data.npz")


class Harmful:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_no_code_in_a_file_is_run(tmp_path):
    path = written(
        tmp_path, actions=np.array([[Harmful(str(tmp_path / "trap"))]] * 6, dtype=object)
    )
    with pytest.raises(ConfigError, match="actions holds Python objects"):
        load_dataset(path)
    assert not (tmp_path / "trap").exists()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damage_anywhere_is_one_line_or_harmless(tmp_path, save):
    path = tmp_path / "data.npz"
    random = np.random.default_rng(0)
    save(path, **arrays())
    whole = path.read_bytes()
    first = load_dataset(path)
    refused = 0
    for _ in range(300):
        bad = bytearray(whole)
        for place in random.integers(len(bad), size=random.integers(1, 4)):
            bad[place] = random.integers(256)
        path.write_bytes(bad[: random.integers(len(bad))] if random.random() < 0.2 else bad)
        try:
            data = load_dataset(path)
        except ConfigError as error:
            refused += 1
            assert "\n" not in str(error)
        else:
            # checksums cover the numbers; where the name of next_observations is damaged, the last
            # row is left out
            assert (
                torch.equal(data.reward, first.reward[: len(data.reward)]) and len(data.reward) >= 5
            )
    assert refused > 200


# Saving


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 30))
def test_what_was_saved_is_loaded(tmp_path_factory, seed, count):
    path = tmp_path_factory.mktemp("data") / "data.npz"
    generator = torch.Generator().manual_seed(seed)
    flags = torch.rand(2, count, generator=generator) < 0.2
    place = torch.randn(count + 1, 3, generator=generator)
    action = torch.rand(count, 2, generator=generator) * 2 - 1
    flags[1, -1] |= ~flags[0, -1]  # the last row ends its episode
    given = Transitions(
        place[:-1], action, torch.randn(count, generator=generator), place[1:], *flags
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        save_dataset(path, given)
    assert_equal(load_dataset(path), given)
    with np.load(path) as file:
        assert set(file) == set(arrays())


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    good = load_dataset(written(tmp_path))
    path = tmp_path / "new.npz"
    with pytest.raises(
        ConfigError, match=r"new.npz': actions must be in \[-1, 1\], got 2 in row 0"
    ):
        save_dataset(path, good._replace(action=torch.full((6, 1), 2.0)))
    assert not path.exists()


def test_a_file_is_replaced_whole_or_stays(tmp_path, monkeypatch):
    good = load_dataset(written(tmp_path))
    path = tmp_path / "data.npz"
    before = path.read_bytes()

    def full_disk(file, **values):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", full_disk)
        with pytest.raises(ConfigError) as error:
            save_dataset(path, good)
    assert str(error.value) == f"cannot write {str(path)!r}: No space left on device"
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["data.npz"]


@pytest.mark.parametrize("place", ["missing/data.npz", "file/data.npz", "."])
def test_a_place_that_cannot_be_written_is_one_line(tmp_path, place, monkeypatch):
    good = load_dataset(written(tmp_path))
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="^cannot write '"):
        save_dataset(place, good)
    assert sorted(os.listdir(tmp_path)) == ["data.npz", "file"]


# Collecting


def towards_origin(observation):
    return (-observation[:, :2]).clamp(-1, 1)


@pytest.mark.parametrize("steps", [1, 4, 41, 120])
def test_collected_rows_are_what_the_environment_does(point_env, steps):
    """PointEnv moves by a tenth of the action, rewards nearness, and ends episodes after 7
    steps.
    """
    data = collect(towards_origin, point_env(4), steps, seed=1)
    assert len(data.state) == steps
    torch.testing.assert_close(data.next_state[:, :2], data.state[:, :2] + 0.1 * data.action)
    assert torch.equal(data.next_state[:, 2], data.state[:, 2] + 1)
    torch.testing.assert_close(
        data.reward, -torch.linalg.vector_norm(data.next_state[:, :2], dim=1)
    )
    assert torch.equal(data.action, towards_origin(data.state))
    ended = data.terminated | data.truncated
    assert torch.equal(data.next_state[:-1][~ended[:-1]], data.state[1:][~ended[:-1]])
    assert ended[-1]


def test_each_environment_tells_its_story_in_one_piece(point_env):
    data = collect(towards_origin, point_env(4), 4 * 7, seed=1)
    assert data.state[:, 2].tolist() == list(range(7)) * 4
    assert data.truncated.tolist() == ([False] * 6 + [True]) * 4


def test_a_cut_recording_is_truncated_but_not_terminated(point_env):
    data = collect(towards_origin, point_env(2), 2 * 3, seed=1)
    assert data.truncated.tolist() == [False, False, True] * 2 and not data.terminated.any()


def test_environments_that_stand_still_are_recorded_apart(point_env):
    class Still(point_env):
        def _fresh(self):
            return torch.zeros(self.num_envs, 3)

        def step(self, action):
            step = super().step(action)
            self.observation = self._fresh()
            return step._replace(observation=self.observation, next_observation=self.observation)

    data = collect(lambda o: torch.zeros(3, 2), Still(3, horizon=99), 10, seed=0)
    # four steps in each of three environments, of which the last two are not wanted
    assert data.truncated.nonzero()[:, 0].tolist() == [3, 7, 9]


def test_the_seed_fixes_all(point_env):
    first, again, other = (
        collect(towards_origin, point_env(3), 30, seed, noise=0.3) for seed in (5, 5, 6)
    )
    assert_equal(first, again)
    assert not torch.equal(first.action, other.action)


def test_noise_has_its_deviation_and_stays_in_bounds(point_env):
    def still(observation):
        return torch.zeros(50, 2)

    action = collect(still, point_env(50), 20_000, seed=0, noise=0.2).action
    assert action.std().item() == pytest.approx(0.2, rel=0.02) and abs(action.mean().item()) < 0.01
    assert collect(still, point_env(50), 20_000, seed=0, noise=2.0).action.abs().max() == 1


def test_rows_that_are_no_transition_are_left_out(point_env):
    class Pausing(point_env):
        """Every other step does nothing, and says so."""

        pause = False

        def step(self, action):
            self.pause = not self.pause
            ones = torch.ones(self.num_envs, dtype=torch.bool)
            if not self.pause:
                return super().step(action)._replace(valid=ones)
            nan = torch.full((self.num_envs, 3), torch.nan)
            return Step(self.observation, nan[:, 0], ones, ones, nan, {}, ~ones)

    data = collect(towards_origin, Pausing(3), 20, seed=2)
    assert_equal(data, collect(towards_origin, point_env(3), 20, seed=2))


def test_a_collected_dataset_survives_its_file(tmp_path, point_env, no_fsync):
    data = collect(towards_origin, point_env(4), 100, seed=3, noise=0.5)
    save_dataset(tmp_path / "data.npz", data)
    assert_equal(load_dataset(tmp_path / "data.npz"), data)
