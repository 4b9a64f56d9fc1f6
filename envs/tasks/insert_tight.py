"""Insert with a fifth of the clearance: a peg that has to take over the hole's turn and tilt.

The task is `insert` with other constants, see docs/reference/tasks/insert_tight.md.
"""

from dataclasses import dataclass
from typing import ClassVar

from envs.controllers.insert_constants import TIGHT, InsertConstants
from envs.tasks.insert import Insert
from envs.tasks.registry import register_task


@register_task("insert_tight")
@dataclass(frozen=True)
class InsertTight(Insert):
    """The task `insert_tight`: `insert` with programs that yield more than they hold."""

    program: ClassVar[InsertConstants] = TIGHT
