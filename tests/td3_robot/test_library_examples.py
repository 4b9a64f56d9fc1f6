"""The examples of docs/how-to/extend-the-library.md for networks and optimizers: each runs as it
stands, and its agent learns.
"""

import re
from pathlib import Path

import pytest
import torch

from td3_robot import TD3, Batch

PAGE = (Path(__file__).resolve().parents[2] / "docs/how-to/extend-the-library.md").read_text()
SECTION = PAGE.split("## Networks and optimizers\n")[1].split("\n## ")[0]
EXAMPLES = dict(re.findall(r"\*\*(.+?)\.\*\*.*?```python\n(.*?)```", SECTION, re.DOTALL))


def test_there_are_four():
    assert len(EXAMPLES) == 4


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_learns_and_its_checkpoint_comes_back(tmp_path, name):
    names: dict[str, object] = {}
    exec(EXAMPLES[name], names)
    agent = names["agent"]
    generator = torch.Generator().manual_seed(0)

    def draw(width):
        return torch.rand(8, width, generator=generator) - 0.5

    o = draw(agent.o_dim)
    state = torch.cat((o, draw(agent.privileged)), 1)
    before = agent.select_action(o)
    for _ in range(2):
        after = draw(agent.o_dim + agent.privileged)
        agent.update(Batch(state, draw(agent.a_dim), draw(1), after, torch.zeros(8, 1)))
    assert not torch.equal(agent.select_action(o), before)
    agent.save(tmp_path / "run")
    own = {key: names[key] for key in ("networks",) if key in names}
    if "partial" in names:
        own["optimizer"] = names["partial"](torch.optim.AdamW, weight_decay=1e-3)
    assert torch.equal(
        TD3.from_checkpoint(tmp_path / "run", **own).select_action(o), agent.select_action(o)
    )
