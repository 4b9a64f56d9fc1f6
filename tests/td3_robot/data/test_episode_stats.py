"""Means over the episodes that end while the agent explores."""

import math

import pytest
import torch

from td3_robot.data.episode_stats import EpisodeStatistics
from td3_robot.vec_env import Step
from tests.td3_robot.distributed.test_communicator import together

NO = False
YES = True


def step(reward, ended, success=None, valid=None) -> Step:
    """One step of two environments; it truncates where it does not terminate."""
    end = torch.tensor(ended)
    info = {} if success is None else {"success": torch.tensor(success)}
    o = torch.zeros(2, 1)
    terminated = end & torch.tensor([True, False])
    valid = None if valid is None else torch.tensor(valid)
    return Step(o, torch.tensor(reward), terminated, end & ~terminated, o, info, valid)


def test_returns_and_successes_of_the_episodes_that_ended():
    means = EpisodeStatistics(2, "cpu")
    means.count(step([1.0, 10.0], [NO, NO], [YES, NO]))
    # ends with return 3, no success at its last step
    means.count(step([2.0, 20.0], [YES, NO], [NO, YES]))
    means.count(step([4.0, 30.0], [NO, YES], [YES, YES]))  # ends with return 60
    assert means.pop_means() == {"train_return": (3 + 60) / 2, "train_success_rate": 0.5}
    nothing = means.pop_means()
    assert nothing.keys() == {"train_return", "train_success_rate"} and all(
        map(math.isnan, nothing.values())
    )
    means.count(step([5.0, 0.0], [YES, NO], [YES, NO]))
    # began before it was asked
    assert means.pop_means() == {"train_return": 4.0 + 5.0, "train_success_rate": 1.0}


def test_rows_that_are_no_transition_count_for_nothing():
    means = EpisodeStatistics(2, "cpu")
    means.count(step([1.0, 7.0], [NO, YES]))
    means.count(step([1.0, 1e6], [YES, YES], valid=[YES, NO]))
    assert means.pop_means() == {"train_return": (7 + 2) / 2}


def test_episodes_that_are_left_out_do_not_count_and_the_next_ones_begin_at_zero():
    means = EpisodeStatistics(2, "cpu")
    means.count(step([1.0, 7.0], [YES, YES]), left_out=torch.tensor([False, True]))
    assert means.pop_means() == {"train_return": 1.0}
    means.count(step([1.0, 7.0], [NO, YES]))
    assert means.pop_means() == {"train_return": 7.0}


@pytest.mark.parametrize("begin_anew", [False, True])
def test_the_means_go_on_where_they_were_saved(begin_anew):
    first = EpisodeStatistics(2, "cpu")
    second = EpisodeStatistics(2, "cpu")
    first.count(step([1.0, 2.0], [NO, YES]))
    second.load_state_dict(first.state_dict())
    if begin_anew:
        second.begin()
    second.count(step([1.0, 1.0], [YES, NO]))
    assert second.pop_means() == {"train_return": ((1 if begin_anew else 2) + 2) / 2}


def test_of_several_processes_each_episode_counts_as_much():
    """Four with return 1 in one process; in the other two with return 4, the only known success."""

    def work(comm):
        means = EpisodeStatistics(2, "cpu")
        for _ in range(2 - comm.rank):
            means.count(
                step([1.0 + 3 * comm.rank] * 2, [YES, YES], [YES, NO] if comm.rank else None)
            )
        return means.pop_means(comm)

    assert together(2, work) == [{"train_return": 2.0, "train_success_rate": 1 / 6}] * 2
