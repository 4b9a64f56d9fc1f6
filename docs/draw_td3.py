"""Draw the pictures of docs/td3.md from an agent: modules, options, and real updates.

    python docs/draw_td3.py [--checkpoint checkpoints/run1] [--folder img]

Writes td3_networks.png, td3_target.png, td3_update.png and td3_schedule.png.
"""

import argparse
import copy
import sys
from itertools import zip_longest
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import torch
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Polygon

from td3_robot import MLP, TD3, Batch
from td3_robot.networks.residual import Residual
from td3_robot.utils.console import exit_code

INK, DATA, ACTOR, CRITIC, STEP = "#22313f", "#f3f4f6", "#cfe3f7", "#fbe0c3", "#ffffff"
GRADIENT, TARGET = "#c0392b", "#2e8b57"
NETWORKS = ("actor", "Q1", "Q2")


class Sheet:
    """Drawing of named boxes, in inches, with arrows between them."""

    def __init__(self, width: float, height: float, title: str):
        self.figure = pyplot.figure(figsize=(width, height))
        self.ax: Axes = self.figure.add_axes((0, 0, 1, 1))
        self.ax.set(xlim=(0, width), ylim=(0, height), aspect="equal")
        self.ax.axis("off")
        self.places: dict[str, tuple[float, float, float, float]] = {}
        self.text(0.3, height - 0.35, title, size=14, weight="bold", ha="left")

    def text(self, x: float, y: float, text: str, size: float = 10, **style) -> None:
        """Write text around a point."""
        self.ax.text(
            x, y, text, fontsize=size, **{"color": INK, "ha": "center", "va": "center"} | style
        )

    def box(
        self,
        name: str,
        x: float,
        y: float,
        text: str,
        color: str,
        width=1.5,
        height=0.7,
        dashed=False,
    ) -> None:
        """Draw a box around (x, y); dashed ones are targets."""
        shape = FancyBboxPatch(
            (x - width / 2, y - height / 2), width, height,
            boxstyle="round,pad=0,rounding_size=0.1", facecolor=color, edgecolor=INK,
            linewidth=1.2, linestyle="--" if dashed else "-", zorder=2,
        )  # fmt: skip
        self.ax.add_patch(shape)
        self.text(x, y, text, zorder=3)
        self.places[name] = (x, y, width / 2, height / 2)

    def arrow(
        self, start: str, end: str, ends: str = "rl", bend: float = 0.0, color: str = INK, **style
    ) -> None:
        """Draw an arrow between sides (l, r, t, b) of two boxes, as `ends`; `bend` curves it."""
        points = []
        for name, side in zip((start, end), ends):
            x, y, dx, dy = self.places[name]
            points.append(
                (x + dx * {"l": -1, "r": 1}.get(side, 0), y + dy * {"b": -1, "t": 1}.get(side, 0))
            )
        kind = {
            "arrowstyle": "-|>",
            "mutation_scale": 13,
            "linewidth": 1.3,
            "shrinkA": 1,
            "shrinkB": 1,
        } | style
        self.ax.add_patch(
            FancyArrowPatch(
                *points, connectionstyle=f"arc3,rad={bend}", color=color, zorder=1, **kind
            )
        )

    def gradient(self, start: str, end: str, ends: str, bend: float = 0.0) -> None:
        """Draw the path of a gradient."""
        self.arrow(start, end, ends, bend, GRADIENT, linestyle=(0, (4, 2)))

    def save(self, path: Path) -> None:
        """Write the drawing, small."""
        self.figure.savefig(path, dpi=110, facecolor="white", pil_kwargs={"optimize": True})
        pyplot.close(self.figure)


def stages(net: MLP | Residual) -> list[tuple[str, int]]:
    """Return the stages of a network in order: name and width of the output."""
    if isinstance(net, Residual):
        *others, (last, width) = stages(net.net)
        return [*others, (f"{last},\nadded to\ns[column]", width)]
    found: list[tuple[str, int]] = []
    for layer, norm in zip_longest(net.layers, net.norms):
        found.append((type(layer).__name__, layer.out_features))
        found += [] if norm is None else [(type(norm).__name__, layer.out_features)]
        found += [("ReLU", layer.out_features)] if layer is not net.layers[-1] else []
    return found + (
        [(f"{net.output_activation.__name__} × a_max", found[-1][1])]
        if net.output_activation
        else []
    )


def draw_networks(agent: TD3) -> Sheet:
    """Draw the layers of the actor and of a critic, as wide as they are."""
    sheet = Sheet(11, 5.4, f"The networks: {agent.o_dim} observations, {agent.a_dim} actions")
    rows = (
        (3.6, "actor  π", "observation s", agent.actor, agent.o_dim, "action\nπ(s)", ACTOR),
        (
            1.2,
            "critics  Q1, Q2",
            "s and a,\nside by side",
            agent.Q1,
            agent.o_dim + agent.a_dim,
            "value\nQ(s, a)",
            CRITIC,
        ),
    )
    for y, name, given, net, width, gives, color in rows:
        count = sum(p.numel() for p in net.parameters())
        columns = [(given, width), *stages(net)]
        most = max(out for _, out in columns)
        xs = [0.95 + i * 8.4 / (len(columns) - 1) for i in range(len(columns))]
        tall = [0.2 + 1.0 * (out / most) ** 0.5 for _, out in columns]
        for i, ((stage, out), x, height) in enumerate(zip(columns, xs, tall)):
            if i:
                ends = (
                    (xs[i - 1], tall[i - 1] / 2),
                    (x, height / 2),
                    (x, -height / 2),
                    (xs[i - 1], -tall[i - 1] / 2),
                )
                corners = [(across, y + up) for across, up in ends]
                sheet.ax.add_patch(
                    Polygon(corners, facecolor=color, edgecolor="none", alpha=0.45, zorder=0)
                )
            sheet.box(f"{name}{i}", x, y, "", DATA if not i else color, 0.2, height)
            sheet.text(x, y + height / 2 + 0.16, str(out), weight="bold")
            sheet.text(x, y - 0.68, stage, size=9, va="top")
        sheet.text(10.4, y, gives, size=11)
        sheet.text(
            0.3, y + 1.15, f"{name}   ·   {count:,} weights", size=11, weight="bold", ha="left"
        )
    return sheet


def draw_target(agent: TD3) -> Sheet:
    """Draw one forward pass of the targets, from the next state to y."""
    config = agent.config
    sheet = Sheet(11, 4.0, "One forward pass: what the critics are to give")
    sheet.box("s'", 0.85, 2.0, "next state\ns'", DATA, 1.1)
    sheet.box("actor'", 2.45, 2.0, "actor target\nπ'", ACTOR, 1.3, dashed=True)
    sheet.box(
        "noise",
        4.55,
        3.1,
        f"noise: N(0, {config.policy_noise:g})\nclipped to ±{config.noise_clip:g}",
        STEP,
        1.9,
        0.6,
    )
    sheet.box("clip", 4.55, 2.0, "a' = clip(π'(s') + noise)\nto each joint's bound", STEP, 1.95)
    for name, y in (("Q1", 2.65), ("Q2", 1.35))[: 1 + config.twin_critics]:
        sheet.box(f"{name}'", 6.75, y, f"{name} target\n{name}'(s', a')", CRITIC, 1.45, dashed=True)
        sheet.arrow("clip", f"{name}'")
    sheet.box("min", 8.3, 2.0, "min", STEP, 0.7)
    sheet.box("y", 9.9, 2.0, f"y = r + {config.gamma:g} ·\n(1 - done) · min", STEP, 1.6)
    sheet.box("r", 9.9, 3.1, "reward r, done", DATA, 1.5, 0.5)
    for start, end, ends in (
        ("s'", "actor'", "rl"),
        ("actor'", "clip", "rl"),
        ("noise", "clip", "bt"),
        ("min", "y", "rl"),
        ("r", "y", "bt"),
    ):
        sheet.arrow(start, end, ends)
    for name in ("Q1'", "Q2'")[: 1 + config.twin_critics]:
        sheet.arrow(name, "min")
    lowest = sheet.places["Q2'" if config.twin_critics else "Q1'"][1] - 0.35
    sheet.ax.plot(
        [0.85, 0.85, 6.75, 6.75],
        [1.65, 0.55, 0.55, lowest - 0.1],
        color=INK,
        linewidth=1.3,
        zorder=1,
    )
    sheet.ax.plot(6.75, lowest - 0.07, marker="^", color=INK, markersize=6)
    sheet.text(3.7, 0.72, "s' goes to every critic, too", size=9)
    return sheet


def draw_update(agent: TD3) -> Sheet:
    """Draw the six networks and one update: losses, gradients, targets."""
    config = agent.config
    sheet = Sheet(11, 6.9, "One update of the six networks")
    critics = ("Q1", "Q2")[: 1 + config.twin_critics]
    for name, y in zip(("Q1", "Q2"), (5.2, 4.0)):
        idle = "" if name in critics else "\n(left as made)"
        sheet.box(name, 4.0, y, f"{name}{idle}", CRITIC, 1.4)
        sheet.box(f"{name}'", 9.6, y, f"{name} target", CRITIC, 1.6, dashed=True)
    sheet.box("sa", 1.1, 4.6, "batch\ns, a", DATA, 1.2)
    sheet.box("y", 8.0, 4.6, "y", DATA, 0.6)
    sheet.box(
        "loss",
        6.3,
        4.6,
        "loss\nmean (Q - y)²" if not config.atoms else "loss\ncross-entropy",
        STEP,
        1.5,
    )
    sheet.arrow("y", "loss", "lr")
    for name in critics:
        sheet.arrow("sa", name)
        sheet.arrow(name, "loss", "rl")
        sheet.gradient("loss", name, "tr" if name == "Q1" else "br", 0.3 if name == "Q1" else -0.3)
        sheet.arrow(
            name,
            f"{name}'",
            "tt" if name == "Q1" else "bb",
            -0.13 if name == "Q1" else 0.13,
            TARGET,
            linewidth=2,
        )
    sheet.box("s", 1.1, 1.75, "batch\ns", DATA, 1.2)
    sheet.box("actor", 4.0, 1.75, "actor  π", ACTOR, 1.4)
    sheet.box(
        "value",
        6.5,
        1.75,
        "Q1(s, π(s))" if not config.actor_min_q else "min Q(s, π(s))",
        CRITIC,
        1.5,
    )
    sheet.box("ascent", 8.3, 1.75, "loss\n- mean Q", STEP, 1.2)
    sheet.box("actor'", 9.6, 0.75, "actor target", ACTOR, 1.6, 0.55, dashed=True)
    for start, end in (("s", "actor"), ("actor", "value"), ("value", "ascent")):
        sheet.arrow(start, end)
    sheet.gradient("ascent", "value", "tt", 0.4)
    sheet.gradient("value", "actor", "tt", 0.3)
    sheet.arrow("actor", "actor'", "bl", 0.12, TARGET, linewidth=2)
    sheet.text(
        0.3,
        6.05,
        "every update: both critics" if len(critics) == 2 else "every update: the critic",
        size=11,
        weight="bold",
        ha="left",
    )
    sheet.text(
        0.3,
        2.55,
        f"every {config.policy_delay} updates: the actor, then all targets",
        size=11,
        weight="bold",
        ha="left",
    )
    sheet.ax.plot([0.3, 10.7], [3.2, 3.2], color=INK, linewidth=0.6, linestyle=":")
    moving = (
        f"target ← {config.tau:g} · network + {1 - config.tau:g} · target, "
        f"every {config.policy_delay} updates"
    )
    for x, color, style, text in (
        (0.3, INK, "-", "values"),
        (1.75, GRADIENT, "--", "gradients, into the network that learns"),
        (5.6, TARGET, "-", moving),
    ):
        sheet.ax.plot([x, x + 0.4], [0.2, 0.2], color=color, linestyle=style, linewidth=2)
        sheet.text(x + 0.5, 0.2, text, size=9, ha="left")
    return sheet


def moved(agent: TD3, updates: int) -> dict[str, list[bool]]:
    """Return the networks that each of so many updates really moves, on a copy of the agent."""
    agent = copy.deepcopy(agent)
    agent.gradient_steps = 0

    def draw(width):
        return torch.rand(64, width, device=agent.device) - 0.5

    rows: dict[str, list[bool]] = {
        f"{name}{end}": [] for end in ("", "_target") for name in NETWORKS
    }
    for _ in range(updates):
        before = {name: [p.clone() for p in getattr(agent, name).parameters()] for name in rows}
        o, following = draw(agent.o_dim), draw(agent.o_dim)
        agent.update(
            Batch(
                o, draw(agent.a_dim) * agent.a_max, draw(1), following, torch.zeros_like(o[:, :1])
            )
        )
        for name, changes in rows.items():
            changes.append(
                not all(map(torch.equal, before[name], getattr(agent, name).parameters()))
            )
    return rows


def draw_schedule(agent: TD3) -> Sheet:
    """Draw when each network moves."""
    updates = 4 * agent.config.policy_delay
    sheet = Sheet(
        11,
        3.6,
        f"The schedule: which networks an update moves (policy_delay {agent.config.policy_delay})",
    )
    step = 8.4 / updates
    for row, (name, changes) in enumerate(moved(agent, updates).items()):
        y = 2.6 - 0.4 * row
        sheet.text(1.75, y, name.replace("_", " "), ha="right")
        for i, change in enumerate(changes):
            color = {"actor": ACTOR}.get(name.split("_")[0], CRITIC) if change else "white"
            sheet.box(
                f"{name}{i}",
                2.0 + (i + 0.5) * step,
                y,
                "",
                color,
                0.92 * step,
                0.3,
                "target" in name,
            )
    for i in range(updates):
        sheet.text(2.0 + (i + 0.5) * step, 0.25, str(i + 1), size=9)
    sheet.text(1.75, 0.25, "update", size=9, ha="right")
    return sheet


def main(argv: list[str]) -> None:
    """Draw all four."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", default="checkpoints/run1")
    parser.add_argument("--folder", type=Path, default=Path("img"))
    arguments = parser.parse_args(argv)
    agent = TD3.from_checkpoint(arguments.checkpoint)
    drawings = {
        "networks": draw_networks,
        "target": draw_target,
        "update": draw_update,
        "schedule": draw_schedule,
    }
    for name, draw in drawings.items():
        draw(agent).save(arguments.folder / f"td3_{name}.png")


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
