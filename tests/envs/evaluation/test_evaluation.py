"""An evaluation as a whole: the same question has the same answer."""

from envs.config.env_options import EnvOptions
from envs.evaluation import Evaluation


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
