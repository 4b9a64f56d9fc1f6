"""Measure the delay from a drag of the goal to the motion of the arm.

benchmarks/notes/view-latency.md keeps the figures.

    python benchmarks/drag.py               # the Panda of checkpoints/run1, 20 drags
    python benchmarks/drag.py --checkpoint checkpoints/reach_avoid --drags 40
    python benchmarks/drag.py --blind       # without drawing, as a GPU would do it
    python benchmarks/drag.py --parts       # its parts, also on a busy machine

`evaluate.py --swift --no-browser` runs as a process of its own; its page is in a Chromium without a
window, whose mouse drags the goal once the hand is at rest. All times are the page's: of the
pointer's event, of the message that first brings the hand 3 mm further than its former pace would
have, and of the picture drawn with it. A machine without a GPU draws few pictures a second.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from envs.config.env_options import EnvOptions
from envs.evaluation import Evaluation
from envs.view.interactive_control import InteractiveControl
from envs.view.panel import Panel
from envs.view.recording import open_headless_page
from envs.view.swift import SwiftViewer
from td3_robot import TD3
from td3_robot.cli.arguments import load_run_config
from td3_robot.errors import require_packages
from td3_robot.utils.console import exit_code

ROOT = Path(__file__).resolve().parent.parent
SIZE = {"width": 900, "height": 560}  # so that the controls do not lie over the goal
STILL = 0.4  # [s] in which a hand at rest moves by less than 2 mm from message to message
PATIENCE = 120.0  # [s]
ROUNDS = 300  # of `parts`

# The arm is the first object of the scene; its poses, the last finger's at the end, come with every
# step.
WATCH = """
const watch = (window.watch = {
  hand: null, pace: [0, 0, 0], since: 0, event: null, heard: null, drawn: null,
});
const apart = (a, b) => Math.hypot(...a.map((x, i) => x - b[i]));
const Socket = window.WebSocket;
window.WebSocket = class extends Socket {
  constructor(...address) {
    super(...address);
    this.addEventListener("message", ({ data }) => {
      const [name, poses] = JSON.parse(data);
      const arm = name === "shape_poses" && poses.find(([index]) => index === 0);
      if (!arm) return;
      const before = watch.hand, hand = arm[1].at(-1).t;
      watch.hand = hand;
      if (watch.event !== null) {
        watch.bound = watch.bound.map((x, i) => x + watch.pace[i]);
        if (apart(hand, watch.bound) > 3e-3) watch.heard ??= performance.now();
      } else if (before) {
        watch.pace = hand.map((x, i) => x - before[i]);
        if (apart(hand, before) > 2e-3) watch.since = performance.now();
      }
    });
  }
};
window.addEventListener("pointermove", (event) => {
  if (window.swiftGizmo?.drag && watch.event === null)
    Object.assign(watch, { event: event.timeStamp, bound: watch.hand });
}, true);
"""
# Pictures are counted where they are asked for; one is drawn once all of its commands are done.
DRAWN = """() => {
const { scene, renderer } = swiftView, gl = renderer.getContext(), after = scene.onAfterRender;
watch.pictures = 0;
scene.onAfterRender = (...drawn) => {
  after(...drawn);
  watch.pictures += 1;
  if (watch.heard === null || watch.drawn !== null || watch.fence) return;
  watch.fence = gl.fenceSync(gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
  gl.flush();
};
setInterval(() => {
  if (!watch.fence || gl.getSyncParameter(watch.fence, gl.SYNC_STATUS) === gl.UNSIGNALED) return;
  watch.drawn = performance.now();
  watch.fence = null;
}, 4); }"""
# In the middle of the picture, where the arm reaches in every direction.
MIDDLE = """() => { const sliders = [...document.querySelectorAll(".slider-div")];
for (const [name, value] of Object.entries({ x: 0.5, y: 0, z: 0.4 })) {
  const found = sliders.find((one) => one.textContent.trim().startsWith(name));
  const slider = found.querySelector("input");
  slider.value = value;
  slider.dispatchEvent(new Event("input"));
} }"""
GOAL = """() => {
const { camera } = swiftView, { ball } = swiftGizmo.handles.get("goal"), v = ball.position.clone();
camera.updateMatrixWorld();
v.project(camera);
return [(v.x + 1) / 2 * innerWidth, (1 - v.y) / 2 * innerHeight]; }"""


def wait_for(tab, condition: str) -> None:
    """Poll until the condition holds: the page's policy forbids Playwright's own wait."""
    give_up = time.monotonic() + PATIENCE
    while not tab.evaluate(f"Boolean({condition})"):
        if time.monotonic() > give_up:
            sys.exit(f"the page never came to {condition}")
        time.sleep(0.05)


def drag(tab, across: float, what: list[str]) -> list[float]:
    """Drag the goal of an arm at rest by so many pixels; return the delays [ms]."""
    tab.evaluate(
        "Object.assign(watch, "
        "{ event: null, heard: null, drawn: null, fence: null, since: performance.now() })"
    )
    wait_for(tab, f"performance.now() - watch.since > {1000 * STILL}")
    x, y = tab.evaluate(GOAL)
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(x + across, y)
    times = []
    for name in what:
        wait_for(tab, f"watch.{name} !== null")
        times.append(tab.evaluate(f"watch.{name} - watch.event"))
    tab.mouse.up()
    return times


def print_parts(checkpoint: Path) -> None:
    """Print the time of the parts of a step, the least of many."""
    agent = TD3.from_checkpoint(checkpoint)
    evaluation = Evaluation(load_run_config(checkpoint, EnvOptions)[1], 1)
    evaluation.add("policy", lambda env: agent.select_action)
    control = InteractiveControl(evaluation)
    panel = Panel(control)
    times = []
    shown = SwiftViewer(control.robot, open_browser=False, realtime=False, panel=panel)
    with open_headless_page((SIZE["width"], SIZE["height"])) as page, shown as viewer:
        page.goto(viewer.url)
        for _ in range(ROUNDS):
            began = time.perf_counter()
            panel.apply()
            control.step()
            frame = control.frame
            stepped = time.perf_counter()
            viewer.show(*frame)
            times.append((stepped - began, time.perf_counter() - stepped))
    step, tell = (1000 * min(column) for column in zip(*times))
    load = os.getloadavg()[0]
    print(
        f"the least of {ROUNDS}, load {load:.1f}: a control step {step:.1f} ms, "
        f"sending it to the page {tell:.1f} ms"
    )


def main(argv: list[str]) -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", default=str(ROOT / "checkpoints/run1"))
    parser.add_argument("--drags", type=int, default=20)
    parser.add_argument("--blind", action="store_true")
    parser.add_argument("--parts", action="store_true")
    arguments = parser.parse_args(argv)
    if arguments.parts:
        print_parts(Path(arguments.checkpoint))
        return
    require_packages("drawing the page", "playwright")
    what = ["heard"] if arguments.blind else ["heard", "drawn"]
    command = [
        sys.executable,
        str(ROOT / "evaluate.py"),
        "--checkpoint",
        arguments.checkpoint,
        "--swift",
    ]
    command += ["--no-browser", "--episodes", "1", "--baseline="]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as shown:
        try:
            url = next(
                found[1]
                for line in shown.stdout or ()
                if (found := re.match(r"open (http\S+)", line))
            )
            with open_headless_page((SIZE["width"], SIZE["height"])) as page:
                # this one draws
                tab = page if arguments.blind else page.context.browser.new_page(viewport=SIZE)
                tab.set_default_timeout(1000 * PATIENCE)
                tab.add_init_script(WATCH)
                tab.goto(url)
                wait_for(tab, "window.swiftGizmo?.handles.has('goal') && watch.hand")
                tab.evaluate(MIDDLE)
                tab.evaluate(DRAWN)
                clock = "[performance.now(), watch.pictures]"
                began = tab.evaluate(clock)
                times = [
                    drag(tab, 30 if number % 2 else -30, what) for number in range(arguments.drags)
                ]
                ended = tab.evaluate(clock)
        finally:
            shown.terminate()
    rate = 1000 * (ended[1] - began[1]) / (ended[0] - began[0])
    pictures = "nothing drawn" if arguments.blind else f"{rate:.1f} pictures/s"
    load = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{load}, {pictures}, {arguments.drags} drags")
    print("| from the drag to | median | 90% | longest |\n|---|---|---|---|")
    for name, values in zip(("motion sent to the page", "motion in the picture"), zip(*times)):
        ninth = (
            statistics.quantiles(values, n=10, method="inclusive")[-1]
            if len(values) > 1
            else values[0]
        )
        figures = (statistics.median(values), ninth, max(values))
        print(f"| {name} | {' | '.join(f'{time:.0f} ms' for time in figures)} |")


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
