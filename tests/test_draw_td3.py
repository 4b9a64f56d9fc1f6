"""The pictures of docs/explanation/td3-and-options.md: they show the agent that they are given."""

import pytest

from td3_robot import TD3
from tests.support import load_script

draw_td3 = load_script("docs/draw_td3.py")


def words(sheet) -> list[str]:
    return [text.get_text() for text in sheet.ax.texts]


def test_layers_are_those_of_the_networks():
    agent = TD3(5, 2, hidden=(16, 8), norm="layer")
    layers = [
        ("Linear", 16),
        ("LayerNorm", 16),
        ("ReLU", 16),
        ("Linear", 8),
        ("LayerNorm", 8),
        ("ReLU", 8),
    ]
    assert draw_td3.stages(agent.Q1) == [*layers, ("Linear", 1)]
    assert draw_td3.stages(agent.actor) == [*layers, ("Linear", 2), ("tanh × a_max", 2)]
    corrects = TD3(5, 2, hidden=(16, 8), norm="layer", residual_at=0)
    assert draw_td3.stages(corrects.actor) == [
        *layers,
        ("Linear", 2),
        ("tanh × a_max,\nadded to\ns[column]", 2),
    ]


def test_the_schedule_is_what_updates_do():
    rows = draw_td3.moved(TD3(3, 2, hidden=(8,), policy_delay=3), 6)
    late = [False, False, True] * 2
    assert rows.pop("Q1") == rows.pop("Q2") == [True] * 6
    assert set(rows) == {"actor", "actor_target", "Q1_target", "Q2_target"} and all(
        row == late for row in rows.values()
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"twin_critics": False, "policy_noise": 0.0}, {"atoms": 5, "v_min": -1.0, "v_max": 1.0}],
)
def test_every_picture_is_drawn_and_small(tmp_path, options):
    agent = TD3(5, 2, hidden=(16, 8), gamma=0.875, **options)
    for draw in (
        draw_td3.draw_networks,
        draw_td3.draw_target,
        draw_td3.draw_update,
        draw_td3.draw_schedule,
    ):
        sheet = draw(agent)
        assert len(words(sheet)) > 5
        sheet.save(tmp_path / "picture.png")
        assert 5_000 < (tmp_path / "picture.png").stat().st_size < 150_000
    assert any("0.875" in text for text in words(draw_td3.draw_target(agent)))
