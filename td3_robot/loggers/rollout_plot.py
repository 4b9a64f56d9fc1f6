"""The picture of a rollout: rewards and actions of a policy and of others to compare."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from td3_robot.errors import ConfigError
from td3_robot.evaluation.rollout import Rollout
from td3_robot.utils.atomic_files import replace_file

_COLORS = ("tab:blue", "0.6", "tab:orange", "tab:green", "tab:red")


def plot_rollout(
    rollouts: Mapping[str, Rollout],
    path: str | Path,
    names: Sequence[str] | None = None,
    row: int = 0,
) -> None:
    """Draw one episode as a PNG: rewards, their running sum, and each dimension of the action.

    Args:
        rollouts: by the name to show, the policy first. Rollouts from the same seed have the same
            start and goal in the same row.
        path: the picture, written complete or not at all.
        names: names of the action's dimensions; by default their numbers.
        row: index of the environment whose episode is drawn.

    Raises:
        ConfigError: the file cannot be written, or there are not as many names as dimensions.
    """
    from matplotlib.figure import Figure  # no pyplot: nothing to show, no global state

    path = Path(path)
    a_dim = next(iter(rollouts.values())).action.shape[2]
    names = [f"action {number}" for number in range(a_dim)] if names is None else list(names)
    if len(names) != a_dim:
        raise ConfigError(
            f"names must be {a_dim}, one for each dimension of the action, got {len(names)}"
        )
    width = max(2, math.ceil(math.sqrt(a_dim / 2)))  # panels side by side
    height = math.ceil(a_dim / width)
    figure = Figure(figsize=(max(9, 3 * width), 3 + 1.4 * height), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(3, 1.4 * height))
    top, bottom = parts
    rewards = top.subplots(1, 2, sharex=True)
    actions = bottom.subplots(height, width, sharex=True, sharey=True, squeeze=False)
    for number, (label, played) in reversed(list(enumerate(rollouts.items()))):  # policy on top
        color = _COLORS[number % len(_COLORS)]
        alive = played.alive[:, row].cpu().numpy()
        reward = played.reward[:, row].cpu().double().numpy()[alive]
        step = np.arange(1, len(reward) + 1)
        rewards[0].plot(step, reward, color=color, label=label)
        rewards[1].plot(
            step, reward.cumsum(), color=color, label=f"{label}: return {reward.sum():.2f}"
        )
        for axes, series in zip(actions.flat, played.action[:, row].cpu().numpy()[alive].T):
            axes.step(step, series, where="mid", color=color, linewidth=1.2 if number == 0 else 0.8)
    _add_labels(rewards, actions, names)
    with replace_file(path) as new:
        figure.savefig(new, dpi=110, format="png")


def _add_labels(rewards: np.ndarray, actions: np.ndarray, names: list[str]) -> None:
    """Add titles, grids and a legend; hide the panels without a dimension."""
    for axes, title in zip(rewards, ("reward of each step", "sum of rewards so far")):
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
    rewards[1].legend(
        *(reversed(part) for part in rewards[1].get_legend_handles_labels()), fontsize=9
    )
    for axes, name in zip(actions.flat, names):
        axes.set_title(name, fontsize=9)
        axes.set_ylim(-1.08, 1.08)
        axes.grid(alpha=0.3)
    for axes in actions.flat[len(names) :]:
        axes.set_visible(False)
    for column in range(actions.shape[1]):
        last = (len(names) - 1 - column) // actions.shape[1]
        actions[max(last, 0), column].set_xlabel("step")
        actions[max(last, 0), column].tick_params(labelbottom=True)
