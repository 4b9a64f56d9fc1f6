"""The `info` of a step, and the check that a task's parts fit each other."""

import numpy as np
from torch import Tensor

from envs.tasks.registry import find_task_name
from envs.tasks.task import Outcome, Task
from envs.world import Moment
from td3_robot.errors import ConfigError, unknown

_REWARD = "reward/"


def make_info(arrived: Moment, outcome: Outcome, terms: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the `info` of the step that led to a moment, see `ArmEnv`.

    Args:
        outcome: of that moment.
        terms: the parts of the reward.
    """
    return {
        "success": outcome.success,
        "position_error": outcome.position_error,
        **vars(arrived.state),
        "tcp": arrived.tcp,
        **outcome.measures,
        **{f"{_REWARD}{name}": value for name, value in terms.items()},
    }


def check_columns(task: Task, method: str, declared_by: str, found: Tensor, width: int) -> None:
    """Check that one of a task's methods returns as many columns as another declares.

    Raises:
        ConfigError: it does not.
    """
    if found.shape[1] != width:
        raise ConfigError(
            f"task {find_task_name(task)!r}: {method} returned {found.shape[1]} columns, "
            f"{declared_by} declares {width}"
        )


def check_info(task: Task, info: dict[str, Tensor], count: int) -> None:
    """Check the `info` of `count` arms before a training relies on it.

    Raises:
        ConfigError: a reward term is not (count,), or a measure is of what no `info` holds.
    """
    name = find_task_name(task)
    for key, value in info.items():
        if key.startswith(_REWARD) and np.shape(value) != (count,):
            raise ConfigError(
                f"task {name!r}: reward term {key.removeprefix(_REWARD)!r} must have shape "
                f"({count},), got {tuple(np.shape(value))}"
            )
    series = [key for key in info if not key.startswith(_REWARD)]
    for measure in task.measures:
        if measure.of not in series:
            raise unknown(f"series of task {name!r}, measure {measure.name!r}:", measure.of, series)
