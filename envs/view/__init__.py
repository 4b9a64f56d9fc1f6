"""The arms, drawn: in the browser, in a notebook, and in recordings."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from envs.arm_env.arm_env import ArmEnv
    from envs.view.notebook import Policy, Shown

__all__ = ["show"]


def show(
    env: "ArmEnv", policy: "Policy | None" = None, seed: int = 0, height: int = 480, **opened
) -> "Shown":
    """Show one arm in a notebook's cell, episode after episode, while the notebook goes on.

    The last line of a cell: `envs.view.show(env, agent.select_action)`.

    Args:
        env: whose robot, task, guard and engine; an environment of its own is made like it,
            undisturbed.
        policy: observation (1, o_dim) -> action (1, a_dim); None: the first controller that can do
            the task.
        seed: of starts and goals.
        height: of the picture in the cell [px].
        opened: `camera` and `port`, see `SwiftViewer`.

    Returns:
        What the cell shows; `close` ends it, and so does the end of the cell's picture.

    Raises:
        ConfigError: there is no such camera.
        ViewerError: the port is taken.
    """
    from envs.view.notebook import (
        shown,
    )  # here: it takes seconds, and who looks for a browser needs none of it

    return shown(env, policy, seed, height, **opened)
