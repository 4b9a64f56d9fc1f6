"""Datasets of others: Minari's read and written by Minari itself, LeRobot's by its format's
description, D4RL's HDF5.
"""

import json
from pathlib import Path

import h5py
import minari
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from minari.data_collector.episode_buffer import EpisodeBuffer
from minari.dataset.minari_storage import MinariStorage

from td3_robot.data.dataset_file import (
    Transitions,
    check_dataset,
    collect,
    load_dataset,
    save_dataset,
)
from td3_robot.errors import ConfigError
from tests.td3_robot.data.test_dataset_file import arrays, assert_equal

SILENT = "ignore::UserWarning"  # Minari recommends an author, a description ...
pytestmark = pytest.mark.filterwarnings(SILENT)
FREE = spaces.Box(-np.inf, np.inf, (2,), np.float32)
UNIT = spaces.Box(-1, 1, (1,), np.float32)


@pytest.fixture(autouse=True)
def homes(tmp_path, monkeypatch):
    """Every library's own folder of datasets is a new one, and so is the working directory."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.setenv("HF_LEROBOT_HOME", str(tmp_path / "lerobot"))
    monkeypatch.chdir(tmp_path)


def make_transitions(lengths=(3, 4, 2), terminated=(True, False, False)) -> Transitions:
    """Episodes whose observations count up, so that no two rows are equal; each ends as is said."""
    rows = sum(lengths)
    ends = np.cumsum(lengths) - 1
    state = torch.arange(rows * 2, dtype=torch.float32).reshape(rows, 2) / 7
    next_state = state.roll(-1, 0).clone()
    next_state[ends] = state[ends] + 100  # no other row shows it
    flags = torch.zeros(2, rows, dtype=torch.bool)
    flags[0, ends] = torch.tensor(terminated)
    flags[1, ends] = ~torch.tensor(terminated)
    action = torch.linspace(-1, 1, rows)[:, None]
    return Transitions(state, action, torch.arange(rows) / 3, next_state, *flags)


# Minari


def test_what_is_written_as_minari_is_read_back_equal_and_read_by_minari_equal(tmp_path):
    """Frame by frame, the successor of each episode's last step and how it ended included."""
    data = make_transitions()
    (tmp_path / "minari/own").mkdir(parents=True)
    save_dataset("minari/own/line-v0", data)
    assert_equal(load_dataset("minari/own/line-v0"), data)
    assert_equal(load_dataset("own/line-v0"), data)  # by its id
    theirs = minari.load_dataset("own/line-v0")
    assert [len(episode) for episode in theirs] == [3, 4, 2]
    assert theirs.total_steps == 9 and "own/line-v0" in minari.list_local_datasets()
    first, second, third = theirs
    assert np.array_equal(first.observations[:-1], data.state[:3])
    assert np.array_equal(first.observations[-1], data.next_state[2])
    assert np.array_equal(second.actions, data.action[3:7])
    assert np.array_equal(third.rewards, data.reward[7:])
    assert first.terminations.tolist() == [False, False, True] and not first.truncations.any()
    assert second.truncations.tolist() == [False] * 3 + [True] and not second.terminations.any()
    assert theirs.action_space == UNIT


def test_an_environment_that_no_file_can_hold_costs_no_transitions(tmp_path):
    """Registered with a function, it is left out of the dataset."""
    spec = EnvSpec("Mine-v0", entry_point=lambda: None)
    save_dataset(tmp_path / "mine-v0", make_transitions(), spec)
    assert_equal(load_dataset(tmp_path / "mine-v0"), make_transitions())


def test_played_transitions_are_the_same_from_both_formats(point_env, tmp_path):
    env = point_env(3)
    data = collect(lambda o: torch.zeros(3, env.a_dim), env, 500, seed=0, noise=0.2)
    save_dataset("played.npz", data)
    save_dataset("played-v0", data)
    assert_equal(load_dataset("played-v0"), load_dataset("played.npz"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["played-v0", "played.npz"]


@pytest.mark.parametrize("data_format", ["hdf5", "parquet"])
def test_minari_s_own_file_bootstraps_at_a_truncation_and_not_at_a_termination(data_format):
    data = make_transitions()
    episodes = [(0, 3, True), (3, 7, False), (7, 9, None)]  # the last one ends without a flag
    buffers = []
    for start, end, terminates in episodes:
        flag = np.arange(start, end) == end - 1
        buffers.append(
            EpisodeBuffer(
                observations=np.concatenate(
                    (data.state[start:end], data.next_state[end - 1 : end])
                ),
                actions=data.action[start:end].numpy(),
                rewards=data.reward[start:end].numpy(),
                terminations=flag & (terminates is True),
                truncations=flag & (terminates is False),
                infos={},
            )
        )
    minari.create_dataset_from_buffers(
        "theirs-v0", buffers, observation_space=FREE, action_space=UNIT, data_format=data_format
    )
    assert_equal(load_dataset("theirs-v0"), data)


def write_minari(name: str, observations, actions, observed, acted) -> None:
    buffer = EpisodeBuffer(
        observations=observations,
        actions=actions,
        rewards=np.zeros(len(actions)),
        terminations=np.zeros(len(actions), bool),
        truncations=np.arange(len(actions)) == len(actions) - 1,
        infos={},
    )
    minari.create_dataset_from_buffers(
        name, [buffer], observation_space=observed, action_space=acted
    )


def test_actions_are_scaled_from_the_bounds_of_their_space():
    bounds = spaces.Box(np.float32([0, -3]), np.float32([512, 1]), dtype=np.float32)
    write_minari(
        "push-v0", np.zeros((4, 2)), np.float32([[0, -3], [256, -1], [512, 1]]), FREE, bounds
    )
    assert load_dataset("push-v0").action.tolist() == [[-1, -1], [0, 0], [1, 1]]


def test_discrete_actions_become_the_one_that_an_environment_makes_the_same_of():
    import gymnasium as gym

    from envs.from_gymnasium.make import DiscreteAsBox

    kept = np.arange(3)
    write_minari("cart-v0", np.zeros((4, 2)), kept, FREE, spaces.Discrete(3))
    env = DiscreteAsBox(gym.make("MountainCar-v0"))
    action = load_dataset("cart-v0").action
    assert [env.action(row) for row in action.numpy()] == kept.tolist()
    assert action.shape == (3, *env.action_space.shape)


@pytest.mark.parametrize(
    ("acted", "actions", "words"),
    [
        (spaces.Box(-2, 2, (3,)), np.ones((3, 1), "f4"), "be as wide as their space, 3, got 1"),
        (spaces.Discrete(3), np.array([0, 5, 2]), r"be in their space, Discrete\(3\)"),
    ],
)
def test_actions_that_are_not_of_their_space_are_refused(acted, actions, words, tmp_path):
    """One number was taken for all three joints, a 5 of three for none of them."""
    (tmp_path / "other").mkdir()
    storage = MinariStorage.new(tmp_path / "other", FREE, acted, None)
    kept = {"observations": np.zeros((4, 2), "f4"), "rewards": np.zeros(3), "infos": {}}
    flags = {"terminations": np.zeros(3, bool), "truncations": np.zeros(3, bool)}
    storage.update_episodes([EpisodeBuffer(**kept, **flags, actions=actions)])
    with pytest.raises(ConfigError, match=f"actions must {words}"):
        load_dataset("other")


def test_goal_dictionaries_are_flattened_as_an_environment_of_goals_is():
    from envs.from_gymnasium.adapter import GOAL_KEYS

    parts = {key: np.full((3, 1), place, np.float32) for place, key in enumerate(GOAL_KEYS)}
    box = spaces.Box(-9, 9, (1,), np.float32)
    space = spaces.Dict({key: box for key in GOAL_KEYS})
    write_minari("goal-v0", parts, np.zeros((2, 1), np.float32), space, UNIT)
    assert load_dataset("goal-v0").state.tolist() == [[0, 1, 2]] * 2
    nested = spaces.Dict({"b": space, "a": box})
    values = {"b": parts, "a": np.full((3, 1), 7, np.float32)}
    write_minari("nested-v0", values, np.zeros((2, 1), np.float32), nested, UNIT)
    assert load_dataset("nested-v0").state.tolist() == [[7, 0, 1, 2]] * 2


def change_metadata(folder: str, **values) -> None:
    path = Path(folder, "data", "metadata.json")
    kept = json.loads(path.read_text()) | values
    path.write_text(json.dumps({name: value for name, value in kept.items() if value is not None}))


def test_a_minari_file_without_spaces_makes_no_environment():
    """Minari would: its specification names the code to run."""
    save_dataset("line-v0", make_transitions())
    change_metadata("line-v0", action_space=None, env_spec='{"id": "antigravity:Any-v0"}')
    with pytest.raises(ConfigError, match="'line-v0': metadata.json lacks action_space"):
        load_dataset("line-v0")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"data_format": "csv"}, "cannot be read as Minari's: "),
        ({"observation_space": '{"type": "Strange"}'}, "cannot be read as Minari's: "),
        ({"total_episodes": 0}, "has no episodes"),
        ({"total_episodes": 9}, "cannot be read as Minari's: "),
        ({"action_space": '{"type": "MultiBinary", "n": 1}'}, "action space MultiBinary"),
        ({"observation_space": '{"type": "Discrete", "n": 9, "start": 0}'}, "observation space D"),
    ],
)
def test_a_damaged_minari_dataset_is_one_line(values, words):
    save_dataset("line-v0", make_transitions())
    change_metadata("line-v0", **values)
    with pytest.raises(ConfigError, match=f"dataset 'line-v0': {words}"):
        load_dataset("line-v0")


def test_a_cut_minari_file_is_one_line():
    save_dataset("line-v0", make_transitions())
    path = Path("line-v0/data/main_data.hdf5")
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(ConfigError, match="cannot be read as Minari's"):
        load_dataset("line-v0")


def test_an_existing_dataset_is_never_written_over_and_a_failed_one_leaves_nothing(tmp_path):
    save_dataset("line-v0", make_transitions())
    for write in (
        lambda: check_dataset(Path("line-v0")),
        lambda: save_dataset("line-v0", make_transitions()),
    ):
        with pytest.raises(ConfigError, match="'line-v0': it exists already"):
            write()
    bad = make_transitions()._replace(action=torch.full((9, 1), 2.0))
    with pytest.raises(ConfigError, match="actions must be in"):
        save_dataset("other-v0", bad)
    with pytest.raises(ConfigError, match="nowhere/other-v0"):
        save_dataset("nowhere/other-v0", make_transitions())
    assert [path.name for path in tmp_path.iterdir()] == ["line-v0"]


@pytest.mark.parametrize("name", ["line.txt", "line", "line-v", "line-v0.zip"])
def test_a_name_of_no_format_is_refused_before_anything_is_played(name):
    with pytest.raises(ConfigError, match="a file named \\*.npz, or a Minari dataset named"):
        check_dataset(Path(name))


# LeRobot


def write_lerobot(folder: Path, version: str, episodes: list[dict[str, np.ndarray]], shapes: dict):
    """Write the layout of https://huggingface.co/docs/lerobot: v2.1 has a file for each episode,
    v3.0 files of several; episodes may be of any order in them.
    """
    features = {
        name: {"dtype": "float32" if size else "bool", "shape": [size or 1], "names": None}
        for name, size in shapes.items()
    }
    features["observation.images.wrist"] = {"dtype": "video", "shape": [48, 64, 3]}
    (folder / "meta").mkdir(parents=True)
    count = sum(len(episode["action"]) for episode in episodes)
    info = {"codebase_version": version, "fps": 30, "total_frames": count, "features": features}
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    tables = []
    for number, episode in enumerate(episodes):
        steps = len(episode["action"])
        columns = {
            name: pyarrow.array(list(values) if values.ndim == 2 else values)
            for name, values in episode.items()
        }
        columns |= {
            "episode_index": pyarrow.array([number] * steps),
            "frame_index": pyarrow.array(episode.get("frame_index", range(steps))),
            "timestamp": pyarrow.array(np.arange(steps) / 30),
        }
        tables.append(pyarrow.table(columns))
    data = folder / "data" / "chunk-000"
    data.mkdir(parents=True)
    if version == "v3.0":
        pyarrow.parquet.write_table(pyarrow.concat_tables(tables[::-1]), data / "file-000.parquet")
        return
    for number, table in enumerate(tables):
        pyarrow.parquet.write_table(table, data / f"episode_{number:06d}.parquet")


SHAPES = {"observation.state": 2, "action": 1, "next.reward": 1, "next.done": 0}


def make_episodes(data: Transitions, lengths=(3, 4, 2)) -> list[dict[str, np.ndarray]]:
    columns = {
        "observation.state": data.state,
        "action": data.action,
        "next.reward": data.reward,
        "next.done": data.terminated,
    }
    parts = {name: torch.split(values, lengths) for name, values in columns.items()}
    return [{name: part[i].numpy() for name, part in parts.items()} for i in range(len(lengths))]


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_frames_of_lerobot_are_read_back_equal(version, tmp_path):
    """3,000 frames. The last frame of an episode that does not terminate has no successor in the
    file, and is left out; one that terminates stays, and does not bootstrap.
    """
    lengths = (1000,) * 3
    data = make_transitions(lengths, terminated=(True, False, True))
    write_lerobot(tmp_path / "set", version, make_episodes(data, lengths), SHAPES)
    read = load_dataset("set")
    kept = ~data.truncated
    assert int(kept.sum()) == 2999
    for name in ("state", "action", "reward", "terminated"):
        assert torch.equal(getattr(read, name), getattr(data, name)[kept]), name
    going = kept & ~data.terminated
    assert torch.equal(read.next_state[~read.terminated], data.next_state[going])
    assert read.truncated.nonzero().tolist() == [[1998]]  # the row before the one left out


def test_a_frame_whose_successor_was_removed_is_left_out(tmp_path):
    """Of episodes of 3, 4 and 2 frames, the second frame of the first two is not in the file."""
    data = make_transitions()
    episodes = make_episodes(data)
    for number, removed in enumerate(([1], [1], [])):
        whole = episodes[number] | {"frame_index": np.arange(len(episodes[number]["action"]))}
        kept = np.setdiff1d(whole["frame_index"], removed)
        episodes[number] = {name: values[kept] for name, values in whole.items()}
    write_lerobot(tmp_path / "set", "v3.0", episodes, SHAPES)
    read = load_dataset("set")
    assert torch.equal(read.action, data.action[[2, 5, 7]])
    going = ~read.terminated
    assert torch.equal(read.next_state[going], data.next_state[[5, 7]])


def test_a_lerobot_dataset_is_found_by_its_name(tmp_path):
    data = make_transitions()
    write_lerobot(tmp_path / "lerobot/someone/set", "v3.0", make_episodes(data), SHAPES)
    assert len(load_dataset("someone/set").state) == 7


@pytest.mark.parametrize("told", [True, False])  # that an episode is over, in a column of its own
def test_success_pays_and_ends_where_there_is_no_reward(tmp_path, told):
    """0 for a success and -1 else, as `--sparse` pays; an end without success is a truncation."""
    episodes = make_episodes(make_transitions(terminated=(True, True, True)))
    for number, episode in enumerate(episodes):
        del episode["next.reward"]
        episode["next.success"] = episode["next.done"] & (number != 1)
        if not told:
            del episode["next.done"]
    shapes = {"observation.state": 2, "action": 1, "next.success": 0}
    shapes |= {"next.done": 0} if told else {}
    write_lerobot(tmp_path / "set", "v2.1", episodes, shapes)
    read = load_dataset("set")
    assert read.reward.tolist() == [-1, -1, 0, -1, -1, -1, -1, 0]  # without episode 1's last frame
    assert read.terminated.nonzero()[:, 0].tolist() == [2, 7]


def test_all_numbers_that_are_observed_are_and_pictures_are_not(tmp_path):
    episodes = make_episodes(make_transitions())
    for episode in episodes:
        episode["observation.environment_state"] = episode["observation.state"][:, :1] + 1000
        episode["observation.load"] = episode["observation.state"][:, 0] - 1000
    shapes = SHAPES | {"observation.environment_state": 1, "observation.load": 1}
    write_lerobot(tmp_path / "set", "v3.0", episodes, shapes)
    state = load_dataset("set").state
    assert state.shape == (7, 4)
    assert torch.equal(state[:, 2], state[:, 0] + 1000)
    assert torch.equal(state[:, 3], state[:, 0] - 1000)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"codebase_version": "v1.6"}, "is of LeRobot's version 'v1.6'; valid choices: v2.0, v2.1"),
        ({"total_frames": 10}, "has 9 frames, meta/info.json counts 10"),
        ({"features": {}}, "has no column observation"),
        (
            {"features": {"observation.state": {"dtype": "float32", "shape": [2]}}},
            "has no column a",
        ),
        ({"features": 3}, "cannot be read as LeRobot's"),
    ],
)
def test_a_damaged_lerobot_dataset_is_one_line(change, words, tmp_path):
    write_lerobot(tmp_path / "set", "v3.0", make_episodes(make_transitions()), SHAPES)
    path = tmp_path / "set/meta/info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ConfigError, match=f"dataset 'set': {words}"):
        load_dataset("set")


def test_frames_of_several_widths_are_refused(tmp_path):
    """Two frames of 1 and 3 numbers were read as two of 2."""
    write_lerobot(tmp_path / "set", "v3.0", make_episodes(make_transitions()), SHAPES)
    (path,) = (tmp_path / "set/data").glob("*/*.parquet")
    table = pyarrow.parquet.read_table(path)
    actions = [[0.1] * width for width in (1, 3, 2, 2, 2, 2, 2, 2, 2)]
    place = table.column_names.index("action")
    pyarrow.parquet.write_table(table.set_column(place, "action", [actions]), path)
    with pytest.raises(ConfigError, match="action must be as wide in every frame, got widths"):
        load_dataset("set")


def test_demonstrations_without_a_reward_and_actions_in_degrees_are_refused(tmp_path):
    episodes = make_episodes(make_transitions())
    for episode in episodes:
        episode["action"] = episode["action"] * 90
    write_lerobot(tmp_path / "degrees", "v3.0", episodes, SHAPES)
    with pytest.raises(ConfigError, match="actions must be in \\[-1, 1\\], got -90 in row 0"):
        load_dataset("degrees")
    for episode in episodes:
        del episode["next.reward"]
    shapes = {name: size for name, size in SHAPES.items() if name != "next.reward"}
    write_lerobot(tmp_path / "unpaid", "v3.0", episodes, shapes)
    with pytest.raises(ConfigError, match="neither next.reward nor next.success"):
        load_dataset("unpaid")


# HDF5


def test_d4rl_s_hdf5_is_read_as_the_npz_of_the_same_arrays(tmp_path):
    named = arrays()
    np.savez("a.npz", **named)
    with h5py.File("a.hdf5", "w") as file:
        for name, values in named.items():
            file[name] = values
        file["infos/qpos"] = np.zeros(3)
    assert_equal(load_dataset("a.hdf5"), load_dataset("a.npz"))


@pytest.mark.parametrize("wrong", ["text", h5py.Empty("f4"), b"bytes"])
@pytest.mark.parametrize("name", ["observations", "rewards", "terminals"])
def test_what_is_no_array_in_an_hdf5_file_is_one_line(tmp_path, name, wrong):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for key, array in (arrays() | {name: wrong}).items():
            file[key] = array
    with pytest.raises(ConfigError, match=f"a.hdf5': {name} must "):
        load_dataset(tmp_path / "a.hdf5")


def test_an_hdf5_file_that_lacks_an_array_or_is_none_is_one_line(tmp_path):
    with h5py.File("a.hdf5", "w") as file:
        file["observations"] = np.zeros((3, 2))
    with pytest.raises(ConfigError, match="lacks actions, rewards, terminals; it holds"):
        load_dataset("a.hdf5")
    Path("b.h5").write_text("none")
    with pytest.raises(ConfigError, match="'b.h5': cannot be read as HDF5: "):
        load_dataset("b.h5")


def test_a_folder_of_no_format_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="'empty': is a folder of neither Minari"):
        load_dataset("empty")
