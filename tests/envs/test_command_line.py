"""What an evaluation is asked for, in place of what a training had."""

import dataclasses

import pytest

from envs.command_line import EvaluateFlags, override_options
from envs.config.env_options import EnvOptions
from envs.simulation.disturbances import Disturbances
from envs.simulation.randomization import combine_disturbances, read_randomization
from td3_robot.config.schema import build, make_schema


def asked_of(trained: EnvOptions, line: str) -> EnvOptions:
    words = ["--checkpoint", "x", *line.split()]
    return override_options(
        trained,
        build(EvaluateFlags, make_schema("evaluate.py", "", EvaluateFlags).read_flags(words)),
    )


@pytest.mark.parametrize("trained", [EnvOptions(randomize="lab"), EnvOptions()])
def test_what_is_given_beside_a_file_counts_and_so_does_a_zero(trained):
    found = combine_disturbances(
        asked_of(trained, "--randomize lab --latency 0 --latency_spread 0 --noise 0.003")
    )
    assert (found.latency, found.latency_spread, found.noise) == (0.0, 0.0, 0.003)
    assert found.tcp_offset == read_randomization("lab").tcp_offset > 0


def test_a_file_says_what_a_training_without_disturbances_said_nothing_of():
    """Its configuration may have zeros for all of them."""
    zeros = EnvOptions(latency=0.0, noise=0.0, tcp_offset=0.0)
    assert combine_disturbances(asked_of(zeros, "--randomize lab")) == read_randomization("lab")
    assert (
        combine_disturbances(asked_of(EnvOptions(randomize="lab"), "--randomize none")).latency
        == 0.0
    )


@pytest.mark.parametrize("name", ["none", "lab"])
def test_disturbances_of_the_training_are_not_those_of_the_world_that_is_named(name):
    """Flags beside it hold; those of the training do where nothing is named."""
    trained = EnvOptions(latency=0.05, noise=0.002, assumed_latency=0.01, estimate_latency=True)
    world = Disturbances() if name == "none" else read_randomization(name)
    assert combine_disturbances(asked_of(trained, f"--randomize {name}")) == world
    late = combine_disturbances(asked_of(trained, f"--randomize {name} --latency 0.02"))
    assert late == dataclasses.replace(world, latency=0.02)
    assert combine_disturbances(asked_of(trained, "")) == combine_disturbances(trained)


def test_a_policy_that_foresaw_nothing_can_be_measured_with_foresight():
    trained = EnvOptions(latency=0.05, assumed_latency=0.0)
    assert combine_disturbances(asked_of(trained, "")).foresight == 0.0
    assert combine_disturbances(asked_of(trained, "--assumed_latency 0.02")).foresight == 0.02
