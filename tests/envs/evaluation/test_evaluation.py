"""An evaluation as a whole: the same question has the same answer."""

import pytest

from envs.config.env_options import EnvOptions
from envs.evaluation import Evaluation
from td3_robot.errors import ConfigError


def test_played_again_it_gives_the_same_figures():
    """Under noise, and for random actions, which are a stream of numbers too."""
    evaluation = Evaluation(EnvOptions(noise=0.02, latency=0.05), 5, seed=7)
    for name in ("rrmc", "random"):
        evaluation.add_baseline(name)
    first = dict(evaluation.play())
    for _ in range(2):
        assert dict(evaluation.play()) == first


def test_a_stop_that_is_kept_for_a_baseline_alone_is_named():
    evaluation = Evaluation(EnvOptions(task="reach_avoid", guard_stops=True), 2, seed=7)
    evaluation.add_baseline("rrmc")
    assert "stops kept" not in str(evaluation)
    evaluation.add_baseline("rrmc+guard")
    evaluation.play()
    assert "stops kept" in str(evaluation) and evaluation.to_dict()["guard_stops"] is True


def test_a_switch_that_is_off_is_called_so():
    options = EnvOptions(latency=0.05, estimate_latency=False)
    assert "estimate_latency off" in str(Evaluation(options, 2, seed=7))


@pytest.mark.parametrize(
    "name, value, valid",
    [
        ("episodes", 0, "[1, 10000000]"),
        ("episodes", 2.5, "[1, "),
        ("seed", -1, "[0, 4294967295]"),
        ("episode", 2, "[0, 1]"),
        ("episode", -1, "[0, 1]"),
    ],
)
def test_a_number_out_of_its_range_is_refused_with_the_range(name, value, valid):
    with pytest.raises(ConfigError) as refused:
        Evaluation(EnvOptions(), **({"episodes": 2} | {name: value}))
    assert str(refused.value).startswith(f"{name} must be an integer in {valid}")
    assert str(refused.value).endswith(f"got {value}")
