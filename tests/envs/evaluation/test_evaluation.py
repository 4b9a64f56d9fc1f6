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
