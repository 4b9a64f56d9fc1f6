"""NaN, infinity or growth without bound, put anywhere into a training: caught in the step in which
it appears.

What led to it is kept, the last good checkpoint stays, and the message says what to try.
"""

import math
import sys
from pathlib import Path
from random import Random

import torch
from attempts import read_flags, torture
from hostile_good import CONFIG, training

from td3_robot import TD3
from td3_robot.checkpoint.resume_point import LAST
from td3_robot.checkpoint.validation import LARGEST
from td3_robot.errors import NotFiniteError
from td3_robot.training.callbacks import Callback
from td3_robot.training.nan_guard import EVIDENCE
from td3_robot.training.trainer import Trainer

POISON = [math.nan, math.inf, -math.inf]
LARGE = [1e12, -1e20, 1e30, 3e38]  # they overflow on their way, if not at once
# of the steps of both arms; the resume point is written in one of the first
ROUNDS = 60
SAVES = 20
IDLE = CONFIG.exploration.start_steps // CONFIG.num_envs - 1  # rounds before the first update


class Saves(Callback):
    """Writes the resume point at a step."""

    def __init__(self, at: int):
        self._at = at

    def on_step(self, run) -> None:
        """See `Callback.on_step`."""
        if run.steps == self._at:
            run.state.write(run.state.gather())
        if run.steps >= CONFIG.num_envs * ROUNDS:
            run.stop()


def attempt(random: Random, folder: Path) -> str | None:
    """One training, into which a number is put."""
    run = folder / "run"
    trainer = training(run)
    run.mkdir()
    trainer.callbacks = [Saves(CONFIG.num_envs * random.randint(1, SAVES))]
    where = random.choice(list(PLACES))
    value = random.choice(POISON + LARGE)
    at = random.randint(SAVES + 1, ROUNDS - 5)
    seen = watched(trainer)
    what = f"{value} in {where} at round {at}"
    PLACES[where](trainer, random, value, at)
    try:
        trainer.run()
    except NotFiniteError as error:
        wrong = _wrong(run, str(error), seen)
        return wrong and f"{what}: {wrong}"
    finally:
        trainer.source._env.__dict__.pop("step", None)  # type: ignore[attr-defined]  one for all attempts
    if seen or not math.isfinite(value):
        return f"{what}: {(seen or ['the run went on'])[0]}"
    training(run).resume()  # what was saved can be taken up
    return None


def _wrong(run: Path, message: str, seen: list[str]) -> str | None:
    """What is wrong with how a run ended."""
    if seen:
        return seen[0]
    if not message.isprintable() or not any(word in message for word in ("lower ", "check ")):
        return f"the message does not say what to try: {message}"
    kept = torch.load(run / EVIDENCE, weights_only=True)
    if kept["error"] != message or "actor" not in kept["agent"]:
        return "what led to it is not kept"
    TD3.from_checkpoint(run)
    if not (run / LAST).is_dir():
        return "the resume point is gone"
    training(run).resume()
    return None


def watched(trainer: Trainer) -> list[str]:
    """A list that fills when an update, or what is stored, is not finite and the run goes on all
    the same.
    """
    seen: list[str] = []
    look = trainer.state.nan_guard.check_update  # type: ignore[attr-defined]
    add = trainer.source.replay.add  # type: ignore[attr-defined]
    networks = (trainer.agent.Q1, trainer.agent.Q2, trainer.agent.actor)

    def looked(batch, losses) -> None:
        look(batch, losses)
        moved = networks if "actor_loss" in losses else networks[:2]
        weights = [
            weight.detach().abs().max() for network in moved for weight in network.parameters()
        ]
        if not max(weights) <= LARGEST or not all(
            loss.isfinite().all() for loss in losses.values()
        ):
            seen.append("an update that is not finite was let pass")

    def added(*parts) -> None:
        add(*parts)
        if not all(part.isfinite().all() for part in parts if part is not None):
            seen.append("what is not finite was stored")

    trainer.state.nan_guard.check_update = looked  # type: ignore[attr-defined, method-assign]
    trainer.source.replay.add = added  # type: ignore[attr-defined, method-assign]
    return seen


# Where it is put


def spoil(random: Random, tensor: torch.Tensor, value: float) -> None:
    """One number of it."""
    tensor[tuple(random.randrange(size) for size in tensor.shape)] = value


def into_step(part: str):
    """Into what the environment gives."""

    def put(trainer, random: Random, value: float, at: int) -> None:
        env = trainer.source._env
        step = type(env).step.__get__(env)
        calls = [0]

        def poisoned(action):
            made = step(action)
            calls[0] += 1
            if calls[0] == at:
                spoilt = getattr(made, part).clone()
                spoil(random, spoilt, value)
                made = made._replace(**{part: spoilt})
            return made

        env.step = poisoned

    return put


def into_batch(trainer, random: Random, value: float, at: int) -> None:
    """Into what is learned from."""
    sample = trainer.source.sample
    calls = [0]

    def poisoned(progress):
        batch = sample(progress)
        calls[0] += 1
        if calls[0] == at - IDLE:
            spoil(random, random.choice(batch[:5]), value)
        return batch

    trainer.source.sample = poisoned


def into_weight(trainer, random: Random, value: float, at: int) -> None:
    """Into a network, before an update."""
    # which move in every update
    weights = [*trainer.agent.Q1.parameters(), *trainer.agent.Q2.parameters()]
    weight = random.choice(weights)
    update = trainer.agent.update
    calls = [0]

    def poisoned(batch):
        calls[0] += 1
        if calls[0] == at - IDLE:
            with torch.no_grad():
                spoil(random, weight, value)
        return update(batch)

    trainer.agent.update = poisoned


def into_gradient(trainer, random: Random, value: float, at: int) -> None:
    """Into a gradient, the last moment before a step."""
    agent = trainer.agent
    calls = [0]
    net, delay = random.choice([(agent.Q1, 1), (agent.actor, agent.config.policy_delay)])
    weight = random.choice([*net.parameters()])
    limit = agent._limit_gradients

    def poisoned(nets, norm):
        limit(nets, norm)
        calls[0] += net in nets
        if net in nets and calls[0] == (at - IDLE) // delay:
            spoil(random, weight.grad, value)

    agent._limit_gradients = poisoned


PLACES = {
    "a reward": into_step("reward"),
    "an observation": into_step("next_observation"),
    "a batch": into_batch,
    "a weight": into_weight,
    "a gradient": into_gradient,
}

if __name__ == "__main__":
    flags = read_flags(__doc__ or "")
    torch.set_num_threads(1)
    sys.exit(min(1, torture("not_finite", flags.count, flags.seed, attempt)))
