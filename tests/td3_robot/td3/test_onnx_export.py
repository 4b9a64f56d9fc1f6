"""A policy leaves PyTorch as a graph of ordinary operations, for one observation or any number of
them.
"""

import hashlib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch

from td3_robot import TD3
from td3_robot.checkpoint import provenance
from td3_robot.deploy.policy import find_changed_origin
from td3_robot.networks import linear
from td3_robot.networks.torch_internals import load_onednn_linear
from td3_robot.td3.onnx_export import describe_origin

OPTIONS = [
    {},
    {"normalize_observations": True},
    {"norm": "layer", "normalize_observations": True},
    {"norm": "batch"},
    {"norm": "renorm"},
]


def trained(**options) -> TD3:
    """Of a size at which the layers of large batches are oneDNN's, with statistics that are not the
    identity.
    """
    agent = TD3(9, 3, (1.0, 0.5, 2.0), hidden=(256, 128), seed=1, **options)
    agent.observe(3.0 + 2.0 * torch.randn(500, 9, generator=torch.Generator().manual_seed(2)))
    return agent


def assert_same_actions(function, agent: TD3, counts: tuple[int, ...]) -> None:
    for count in counts:
        o = 3.0 + 2.0 * torch.randn(count, 9, generator=torch.Generator().manual_seed(count))
        torch.testing.assert_close(function(o), agent.select_action(o), rtol=0, atol=1e-6)


@pytest.fixture(autouse=True)
def onednn_everywhere(monkeypatch):
    """Also where the processor is one on which MKL is faster."""
    monkeypatch.setattr(linear, "find_faster_linear", load_onednn_linear)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_one_observation(options):
    agent = trained(**options)
    exported = torch.export.export(agent.policy, (torch.zeros(1, 9),))
    assert_same_actions(exported.module(), agent, (1,))


@pytest.mark.parametrize("example", [4, 512])  # below and above the size at which oneDNN takes over
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_any_number_of_observations(options, example):
    agent = trained(**options)
    batch = torch.export.Dim("batch", min=1, max=4096)
    exported = torch.export.export(
        agent.policy, (torch.zeros(example, 9),), dynamic_shapes=({0: batch},)
    )
    assert_same_actions(exported.module(), agent, (1, 2, 31, 512, 1000))
    targets = [node.target for node in exported.graph.nodes if node.op == "call_function"]
    assert targets and {target.namespace for target in targets} == {"aten"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_trace_holds_ordinary_operations_too():
    agent = trained()
    traced = torch.jit.trace(agent.policy, torch.zeros(512, 9))
    assert "mkldnn" not in str(traced.inlined_graph) and "PythonOp" not in str(traced.inlined_graph)
    assert_same_actions(traced, agent, (1, 512))


def test_the_origin_is_told_without_an_installed_distribution(monkeypatch):
    def find(name):
        if name == "td3-robot":
            raise PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(provenance, "version", find)
    origin = describe_origin(Path(__file__).parents[3] / "checkpoints/run1", "actor")
    assert origin["versions"].keys() == {"python", "torch", "onnx", "numpy"}
    assert len(origin["checkpoint"]["actor_sha256"]) == 64


def test_the_origin_is_the_network_that_is_read_where_a_save_was_cut_short(tmp_path):
    """The newest files are still in `.commit`, from where the next save moves them."""
    folder = tmp_path / "run"
    trained().save(folder)
    trained(init="orthogonal").save(tmp_path / "newer")
    (tmp_path / "newer").rename(folder / ".commit")
    expected = hashlib.sha256((folder / ".commit" / "actor").read_bytes()).hexdigest()
    origin = describe_origin(folder, "actor")["checkpoint"]
    assert origin["actor_sha256"] == expected
    assert find_changed_origin(origin, folder) is None
