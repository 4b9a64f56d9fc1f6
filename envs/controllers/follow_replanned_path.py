"""Motion along a planned path that is planned again when something comes into its way."""

import torch
from torch import Tensor

from envs.controllers.controlled import Controlled
from envs.controllers.follow_solution import AT_VIA, compute_joint_move
from envs.planning.motion_planner import is_path_free, plan_path

LOOK_EVERY = 4  # control steps between two looks at the path


class FollowReplannedPath:
    """Joint-space motion along a planned path, planned again when an obstacle comes into its way.

    Every `LOOK_EVERY` steps the rest of the path is checked against obstacles that go on as their
    velocities tell, see `envs.planning.motion_planner`.

    Args:
        env: the environment to act in.
        gain: joint speed per distance [1/s]; None: the task's `move_gain`.
    """

    def __init__(self, env: Controlled, gain: float | None = None):
        self._env = env
        self._gain = env.task.move_gain if gain is None else gain
        q = env.moment.state.q
        self._via = q
        self._solution = q
        self._passed = torch.zeros_like(q[:, 0], dtype=torch.bool)
        self._has_path = self._passed
        self._steps = env.moment.steps
        self._goal = env.moment.scene["goal"]

    def __call__(self, observation: Tensor) -> Tensor:
        """Return the action (B, a_dim) in [-1, 1] for the environment's moment."""
        moment = self._env.moment
        q = moment.state.q
        needs_path = ~self._has_path | self._find_changed()
        due = ~needs_path & (moment.steps % LOOK_EVERY == 0)
        self._plan((needs_path | self._find_barred(due)).nonzero()[:, 0])
        self._passed = self._passed | ((q - self._via).abs().amax(1) < AT_VIA)
        waypoint = torch.where(self._passed[:, None], self._solution, self._via)
        return compute_joint_move(self._env.model, q, waypoint, self._gain)

    def _find_changed(self) -> Tensor:
        """Return which of the arms (B,) have a new episode or goal since the call before."""
        moment = self._env.moment
        goal = moment.scene["goal"]
        # A new episode need not begin at 0: the moment may be predicted some steps ahead.
        changed = (moment.steps < self._steps) | (goal != self._goal).any(1)
        self._steps = moment.steps
        self._goal = goal
        return changed

    def _find_barred(self, due: Tensor) -> Tensor:
        """Return which of the arms that are due (B,) have a path that is not free."""
        rows = due.nonzero()[:, 0]
        if not len(rows):
            return due
        moment = self._env.moment
        q = moment.state.q[rows]
        via = torch.where(self._passed[rows, None], q, self._via[rows])
        obstacles = moment.obstacles.select_rows(rows)
        free = is_path_free(self._env.world, q, via, self._solution[rows], obstacles)
        return due.index_copy(0, rows, ~free)

    def _plan(self, rows: Tensor) -> None:
        """Plan the paths of some arms."""
        if not len(rows):
            return
        moment = self._env.moment
        obstacles = moment.obstacles.select_rows(rows)
        goal = moment.scene["goal"][rows]
        via, solution = plan_path(self._env.world, moment.state.q[rows], goal, obstacles)
        self._via = self._via.index_copy(0, rows, via)
        self._solution = self._solution.index_copy(0, rows, solution)
        self._passed = self._passed.index_fill(0, rows, False)
        self._has_path = self._has_path.index_fill(0, rows, True)
