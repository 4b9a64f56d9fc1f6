"""The peak memory: it does not fall when memory is freed."""

import torch

from td3_robot.utils.memory import get_memory, measure_peak_memory

SIZE = 200_000_000  # bytes, more than a test leaves to be used again


def test_the_peak_rises_by_what_is_held_beyond_it_and_stays_when_that_is_freed():
    before = measure_peak_memory("cpu")
    held = torch.ones(int(before + SIZE) // 8, dtype=torch.float64)
    risen = measure_peak_memory("cpu")
    assert held.nbytes <= risen <= before + held.nbytes + SIZE < get_memory("cpu")
    del held
    assert measure_peak_memory("cpu") >= risen


def test_a_gpu_is_asked_for_what_its_tensors_had(monkeypatch):
    monkeypatch.setattr(
        torch.cuda, "max_memory_allocated", lambda device: {torch.device("cuda:1"): 7}[device]
    )
    assert measure_peak_memory(torch.device("cuda:1")) == 7
