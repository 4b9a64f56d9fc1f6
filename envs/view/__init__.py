"""Views of the arms: browser, notebook and recordings."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from envs.arm_env.arm_env import ArmEnv
    from envs.view.notebook import NotebookView, Policy

__all__ = ["show"]


def show(
    env: "ArmEnv", policy: "Policy | None" = None, seed: int = 0, height: int = 480, **opened
) -> "NotebookView":
    """Show one arm in a notebook's cell, episode after episode, while the notebook continues.

    The last line of a cell: `envs.view.show(env, agent.select_action)`.

    Args:
        env: gives robot, task, guard and engine of the environment shown, which has no
            disturbances.
        policy: observation (1, o_dim) -> action (1, a_dim); None: the first controller that can do
            the task.
        seed: of starts and goals.
        height: of the picture in the cell [px].
        opened: `camera` and `port`, see `SwiftViewer`.

    Returns:
        The view in the cell; `close` ends it, and so does closing the cell's output.

    Raises:
        ConfigError: there is no such camera.
        ViewerError: the port is taken.
    """
    from envs.view.notebook import show_in_notebook  # imported here: it takes seconds

    return show_in_notebook(env, policy, seed, height, **opened)
