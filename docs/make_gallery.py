"""Write docs/reference/gallery.md with its pictures (`make gallery`), or the film of README.md.

The pictures are drawn by a Chromium without a window, one after the other in a single page. What is
named after `gallery`, robots and tasks, is drawn anew alone; robots whose model cannot be had keep
the pictures that they have.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from envs import make
from envs.config.env_options import EnvOptions
from envs.config.yaml_values import CONFIGS
from envs.controllers import make_baseline
from envs.evaluation import Evaluation
from envs.robots import make_robot, robot_names
from envs.robots.robot import Robot
from envs.tasks.registry import find_task_class, list_tasks
from envs.view.files import write_pictures
from envs.view.playback import play_chosen, play_episodes
from envs.view.recording import draw, open_headless_page
from envs.view.scene import Frame
from envs.view.swift import SwiftViewer
from td3_robot import TD3
from td3_robot.cli.arguments import load_run_config
from td3_robot.errors import ConfigError
from td3_robot.utils.console import exit_code

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/gallery.md"
PICTURES = ROOT / "img/gallery"
FILM = ROOT / "img/arms.gif"
SIZE, FILM_SIZE = (360, 300), (540, 400)
EPISODES = 20  # in which a controller has a chance to succeed
SEED = 3
HEAD = """---
type: reference
---
# Gallery

Every registered robot with the grippers that fit it, at the end of an episode of each task. A classical controller of the task drives the arm. The goal is violet, obstacles are red, the cube is blue, and a line shows the path.

`make gallery` draws all pictures. `python docs/make_gallery.py gallery panda push` draws those of a robot or a task.

Some combinations are missing:

- `panda_hand` and the Interbotix fingers are parts of their arms' models.
- `reach_avoid` needs collision capsules, which `ur5`, `kinova_gen3` and `jaco` do not have.
- Interbotix arms: their cube tasks are not drawn yet; with a 2F-85, their workspace has no goal for a cube.
- `jaco` at `track`, `kinova_gen3` at `pick_turned` and `push`, and all of `ur5`: their models come from git, which was not reachable.
- `stack`, `insert` and `reach_moving` are drawn of `panda`, `lbr`, `ur3e` and `ur5e` alone.
"""  # noqa: E501


class Row(NamedTuple):
    """Row of the gallery: a robot with one gripper, or "none"."""

    robot: str
    gripper: str

    def picture(self, task: str) -> Path:
        """Return the path of a picture."""
        return PICTURES / f"{self.robot}-{self.gripper}-{task}.jpg"


def gallery(*named: str) -> None:
    """Draw the named robots and tasks, or all, then write the page."""
    if wrong := sorted({*named} - {*robot_names(), *list_tasks()}):
        sys.exit(f"{wrong[0]} is neither a robot nor a task")
    robots, tasks = (
        [one for one in all_ if one in named] or all_ for all_ in (robot_names(), list_drawn())
    )
    PICTURES.mkdir(exist_ok=True)
    with open_headless_page(SIZE) as page:
        for name in robots:
            for row in rows(name):
                draw_row(page, *row, tasks)
    tables = (table(name) for name in robot_names())
    PAGE.write_text("\n".join([HEAD, *tables]))


def list_drawn() -> list[str]:
    """List the tasks that do not look like another one."""
    return [task for task in list_tasks() if task != "insert_tight"]


def rows(name: str) -> Iterator[tuple[Row, Robot]]:
    """Return a row for every gripper that fits a robot, or one without a gripper."""
    for gripper in (None, *(path.stem for path in sorted((CONFIGS / "grippers").glob("*.yaml")))):
        try:
            robot = make_robot(name, gripper)
        except ConfigError as error:
            if gripper is None:
                print(error, file=sys.stderr)  # its model cannot be had
                return
            continue
        if gripper is None and robot.gripper is not None:
            continue  # its own is among those with a name
        yield Row(name, gripper or "none"), robot


def draw_row(page, row: Row, robot: Robot, tasks: Sequence[str]) -> None:
    """Draw the tasks of a robot."""
    from PIL import Image

    ends = dict(ended(robot, tasks))
    with SwiftViewer(robot, open_browser=False, realtime=False) as viewer:
        for task, picture in zip(ends, draw(page, viewer, ends.values())):
            Image.fromarray(picture).save(row.picture(task), quality=80)
    print(f"{row.robot} with {row.gripper}: {', '.join(ends)}", flush=True)


def ended(robot: Robot, tasks: Sequence[str]) -> Iterator[tuple[str, Frame]]:
    """Play an episode of each task that the robot can do; yield its end."""
    for task in tasks:
        kind = find_task_class(task)
        try:
            env = make(robot, task, seed=SEED, engine=kind.engines[0])
        except ConfigError:
            continue  # it takes a gripper, or one with pads
        controller = "reactive" if kind.needs_collision else kind.controllers[0]
        played = play_episodes(make_baseline(controller, cast(Any, env)), env, SEED)
        tried = [frames[-1] for _, frames in zip(range(EPISODES), until_success(played))]
        yield task, tried[-1]._replace(text="")


def until_success(played: Iterator[list[Frame]]) -> Iterator[list[Frame]]:
    """Play episodes up to the first success."""
    for frames in played:
        yield frames
        if frames[-1].text.endswith("success"):
            return


def table(robot: str) -> str:
    """Return the table of a robot: a row a gripper, a column a task."""
    drawn = {tuple(path.stem.split("-")[:2]) for path in PICTURES.glob(f"{robot}-*.jpg")}
    tasks = [task for task in list_tasks() if list(PICTURES.glob(f"{robot}-*-{task}.jpg"))]
    lines = [
        f"| | {' | '.join(f'`{task}`' for task in tasks)} |",
        "| --- |" + " --- |" * len(tasks),
    ]
    for row in (Row(*names) for names in sorted(drawn)):
        cells = [cell(row, task) for task in tasks]
        gripper = "no gripper" if row.gripper == "none" else f"`{row.gripper}`"
        lines.append(f"| {gripper} | {' | '.join(cells)} |")
    return "\n".join([f"## {robot}", *lines, ""]) if drawn else f"## {robot}\nNot drawn yet.\n"


def cell(row: Row, task: str) -> str:
    """Return the Markdown of a picture."""
    path = row.picture(task)
    shown = f"{row.robot}, {task}"
    return f"![{shown}](../../{path.relative_to(ROOT).as_posix()})" if path.exists() else ""


def film() -> None:
    """Record a Panda among obstacles, led by a shipped policy, then a UR5e that picks."""
    with open_headless_page(FILM_SIZE) as page:
        pictures: list[np.ndarray] = []
        for frames, robot in (avoids(), picks()):
            with SwiftViewer(robot, open_browser=False, realtime=False) as viewer:
                pictures += draw(page, viewer, until_at_rest(frames)[::2])
            pictures += 7 * pictures[-1:]
    write_pictures(FILM, pictures, 2 * frames[0].dt)


def avoids() -> tuple[list[Frame], Robot]:
    """Play an episode of a shipped policy."""
    folder = ROOT / "checkpoints/reach_avoid"
    evaluation = Evaluation(load_run_config(folder, EnvOptions)[1], episodes=1, episode=0)
    agent = TD3.from_checkpoint(folder)
    evaluation.add("policy", lambda env: agent.select_action)
    policy, env = evaluation.make_copy("policy")
    seed, row = evaluation.place
    return play_chosen(policy, env, seed, 0, row, "policy"), env.robot


def picks() -> tuple[list[Frame], Robot]:
    """Play the first successful episode of the scripted pick."""
    env = make("ur5e", "pick_place", seed=SEED)
    *_, frames = until_success(
        play_episodes(make_baseline("pick", cast(Any, env)), env, SEED, name="scripted pick")
    )
    return frames, env.robot


def until_at_rest(frames: list[Frame]) -> list[Frame]:
    """Play up to half a second after a success that lasts."""
    met = max(i for i, frame in enumerate(frames) if not frame.text.endswith("success"))
    return frames[: met + round(0.5 / frames[0].dt)]


def main(argv: list[str]) -> None:
    """Parse, and draw the gallery or the film."""
    torch.set_num_threads(1)  # of single arms: more wait for each other
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("gallery", "film"))
    parser.add_argument("named", nargs="*", help="robots and tasks of the gallery; by default all")
    words = parser.parse_args(argv)
    film() if words.what == "film" else gallery(*words.named)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
