"""Random play, for the tests of environments."""

import copy

import torch

from td3_robot.vec_env import draw_uniform


def actions(env, steps: int, seed: int = 0) -> torch.Tensor:
    """(steps, B, a_dim), uniform in [-1, 1]."""
    generator = torch.Generator().manual_seed(seed)
    return 2 * draw_uniform(generator, steps, env.num_envs, env.a_dim) - 1


def play(env, steps: int, seed: int = 0) -> list:
    """What random actions lead to."""
    return [env.step(action) for action in actions(env, steps, seed)]


def tensors(step) -> dict[str, torch.Tensor]:
    """All that a step handed out, by name."""
    fields = step._asdict()
    return {
        name: value for name, value in (fields | fields.pop("info")).items() if value is not None
    }


def leaves(env) -> dict[str, torch.Tensor]:
    """Everything the environment's next step depends on, copied, with one name for each tensor."""
    return copy.deepcopy(dict(_leaves("", env.state_dict())))


def _leaves(prefix: str, tree: dict):
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(f"{prefix}{name}.", value)
        else:
            yield prefix + name, value


def same(left: dict, right: dict) -> bool:
    """Whether two dictionaries of tensors are equal in every element."""
    return left.keys() == right.keys() and all(
        torch.equal(left[name], right[name]) for name in left
    )


def to_goal(env, gain: float = 5.0) -> torch.Tensor:
    """Resolved-rate control by damped least squares: an action that brings the TCP nearer, the
    gripper open.
    """
    J = env.jacob0(env.state.q)[:, :3]
    damped = J @ J.transpose(1, 2) + 1e-3 * torch.eye(3)
    qd = J.transpose(1, 2) @ torch.linalg.solve(
        damped, gain * (env.goal[:, :3] - env.tcp)[:, :, None]
    )
    action = (qd[:, :, 0] / env.model.qdlim).clamp(-1, 1)
    return torch.nn.functional.pad(action, (0, env.a_dim - action.shape[1]), value=1.0)
