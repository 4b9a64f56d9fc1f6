"""The picture of a rollout: what it shows stands where the numbers are."""

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from td3_robot.errors import ConfigError
from td3_robot.evaluation.rollout import Rollout
from td3_robot.loggers.rollout_plot import plot_rollout


def played(length: int = 10, a_dim: int = 2, reward: float = -1.0) -> Rollout:
    """Two environments: row 0 ends after half of the steps, row 1 after all; actions fall from 1 to
    -1.
    """
    alive = torch.arange(length)[:, None] < torch.tensor([length // 2, length])
    action = (
        torch.linspace(1, -1, length)[:, None, None].expand(length, 2, a_dim)
        * torch.arange(1, a_dim + 1)
        / a_dim
    )
    return Rollout(torch.full((length, 2), reward), alive, action, {})


@pytest.fixture
def figures(monkeypatch):
    """Every figure that is saved."""
    saved = []
    save = Figure.savefig

    def remember(self, *given, **options):
        saved.append(self)
        save(self, *given, **options)

    monkeypatch.setattr(Figure, "savefig", remember)
    return saved


def lines(axes) -> dict[str, tuple[list, list]]:
    """What a panel shows, by color."""
    return {
        str(line.get_color()): (list(line.get_xdata()), list(line.get_ydata()))
        for line in axes.lines
    }


BLUE = "tab:blue"
GREY = "0.6"


def test_rewards_and_their_sums_stand_beside_those_of_random_actions(tmp_path, figures):
    plot_rollout(
        {"policy": played(6, reward=-1.0), "random": played(8, reward=-2.0)},
        tmp_path / "a.png",
        row=1,
    )
    each, total = figures[0].axes[:2]
    assert lines(each) == {
        BLUE: ([1, 2, 3, 4, 5, 6], [-1] * 6),
        GREY: ([1, 2, 3, 4, 5, 6, 7, 8], [-2] * 8),
    }
    assert lines(total)[BLUE][1] == [-1, -2, -3, -4, -5, -6]
    assert lines(total)[GREY][1] == [-2, -4, -6, -8, -10, -12, -14, -16]
    labels = [text.get_text() for text in total.get_legend().get_texts()]
    assert labels == ["policy: return -6.00", "random: return -16.00"]


def test_every_dimension_of_the_action_has_a_panel_with_its_name(tmp_path, figures):
    plot_rollout(
        {"policy": played(10, a_dim=3)}, tmp_path / "a.png", names=["base", "elbow", "wrist"], row=1
    )
    panels = {
        axes.get_title(): lines(axes)[BLUE][1] for axes in figures[0].axes[2:] if axes.get_visible()
    }
    falling = np.linspace(1, -1, 10)
    assert list(panels) == ["base", "elbow", "wrist"]
    for number, series in enumerate(panels.values(), 1):
        np.testing.assert_allclose(series, falling * number / 3, atol=1e-6)


def test_an_episode_ends_where_it_ended(tmp_path, figures):
    plot_rollout({"policy": played(10)}, tmp_path / "a.png", row=0)
    for axes in figures[0].axes:
        assert lines(axes)[BLUE][0] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("a_dim", [1, 17])
def test_any_number_of_dimensions_makes_one_readable_picture(tmp_path, figures, a_dim, recwarn):
    plot_rollout({"policy": played(1000, a_dim), "random": played(700, a_dim)}, tmp_path / "a.png")
    with (tmp_path / "a.png").open("rb") as file:
        assert file.read(8) == b"\x89PNG\r\n\x1a\n"
    assert sum(axes.get_visible() for axes in figures[0].axes) == 2 + a_dim
    assert max(figures[0].get_size_inches()) < 14
    assert not [str(warning.message) for warning in recwarn]


def test_nothing_global_changes(tmp_path):
    before = dict(matplotlib.rcParams)
    plot_rollout({"policy": played()}, tmp_path / "a.png")
    assert dict(matplotlib.rcParams) == before


def test_a_wrong_number_of_names_is_one_line(tmp_path):
    with pytest.raises(
        ConfigError, match="names must be 2, one for each dimension of the action, got 3"
    ):
        plot_rollout({"policy": played()}, tmp_path / "a.png", names=["a", "b", "c"])
    assert list(tmp_path.iterdir()) == []


def test_a_picture_is_complete_or_absent(tmp_path, monkeypatch):
    (tmp_path / "a.png").write_text("old")

    def full_disk(self, path, **options):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full_disk)
    with pytest.raises(ConfigError, match="^cannot write '.*a.png': No space left on device$"):
        plot_rollout({"policy": played()}, tmp_path / "a.png")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"] and (
        tmp_path / "a.png"
    ).read_text() == "old"
