"""What `evaluate.py --verify` and every evaluation say of a run folder: nothing wrong goes unseen,
nothing right is.
"""

import copy
import sys
import tempfile
from pathlib import Path
from random import Random

import torch
from attempts import Fork, read_flags, script, torture
from hostile_good import GOOD, world
from hostile_kinds import spoilt
from runs import line, warm_up

import envs
from envs.arm_env.fingerprint import env_fingerprint
from td3_robot import checkpoint
from td3_robot.checkpoint import CHUNKS
from td3_robot.checkpoint.provenance import PROVENANCE, describe_other_constants, write_provenance
from td3_robot.training.verify import OTHER, WRONG, verify


class Spoilt:
    """A run folder of which one file is spoilt."""

    def __init__(self, folder: Path):
        self._run = folder / "run"
        self._files = GOOD["checkpoint"]()
        for name, content in self._files.items():
            (self._run / name).parent.mkdir(parents=True, exist_ok=True)
            (self._run / name).write_bytes(content)
        self._names = [
            name
            for name in self._files
            if Path(name).name in checkpoint.NAMES or name.startswith(CHUNKS)
        ]

    def attempt(self, random: Random, _: Path) -> str | None:
        """Bytes of a state file, or of a piece of the replay, are others, or it is gone."""
        name = random.choice(self._names)
        path = self._run / name
        content = spoilt(random, self._files[name], as_text=False)
        if content == self._files[name]:
            return None
        path.write_bytes(content) if random.random() < 0.95 else path.unlink()
        seen = [found for found in verify(self._run, _environment) if found.state == WRONG]
        path.write_bytes(self._files[name])
        if not seen:
            return f"{name} was spoilt and nothing found wrong"
        left = [found for found in verify(self._run, _environment) if found.state == WRONG]
        return f"whole again, and {left} found wrong" if left else None


def _environment() -> tuple[int, int, dict]:
    return world().o_dim, world().a_dim, {"task": {"tolerance": 0.1, "pair": [1.0, 2.0]}}


def constants(random: Random, folder: Path) -> str | None:
    """A run that was trained with another value of one constant: an evaluation names it, and so
    does --verify.
    """
    here = CONSTANTS[random.choice(list(CONSTANTS))]
    then = copy.deepcopy(here)
    places = [
        (group, name)
        for group, values in then.items()
        for name, value in values.items()
        if _others(value)
    ]
    group, name = random.choice(places)
    then[group][name] = random.choice(_others(then[group][name]))
    write_provenance(folder, "train.py", [], then)
    sentence = describe_other_constants(folder, here)
    if sentence is None or f"{group}.{name}" not in sentence:
        return f"{group}.{name} is another: {sentence}"
    (found,) = [
        found for found in verify(folder, lambda: (28, 7, here)) if found.what == "constants"
    ]
    if found.state != OTHER or f"{group}.{name}" not in found.text:
        return f"{group}.{name} is another: {found}"
    (folder / PROVENANCE).unlink()
    write_provenance(folder, "train.py", [], here)
    return (
        f"the same, and told: {sentence}"
        if (sentence := describe_other_constants(folder, here))
        else None
    )


def _others(value: object) -> list[object]:
    """Values that one could have been in its place."""
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, float | int):
        return [value + 1, value * 1.001 + 1e-6]
    if isinstance(value, str):
        return [f"{value}x"]
    return [[*value, 1.0], value[:-1]] if isinstance(value, list | tuple) and value else []


def beside(random: Random, folder: Path) -> str | None:
    """A run that is being trained, looked at all the while, is whole at every moment."""
    process = Fork(folder, TRAIN, line(random.choice(["native", "gymnasium"]), 960))
    run = folder / "checkpoints" / "r"
    looks = 0
    while process.poll() is None:
        if (run / "last").exists():
            wrong = [found for found in verify(run, lambda: (0, 0, {})) if found.state == WRONG]
            if wrong := [found for found in wrong if found.what != "environment"]:
                process.wait()
                return f"look {looks}: {wrong}"
            looks += 1
    return process.err or (None if looks else "it was over before it was looked at")


if __name__ == "__main__":
    flags = read_flags(__doc__ or "", ("spoilt", "constants", "beside"))
    warm_up()
    TRAIN = script("train")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="verified") as place:
        kinds = {"spoilt": Spoilt(Path(place)).attempt, "constants": constants, "beside": beside}
        pairs = [("panda", "reach"), ("ur5e", "reach_pose"), ("panda", "pick_place")]
        CONSTANTS = {pair: env_fingerprint(envs.make(*pair)) for pair in pairs}
        failed = sum(
            torture(f"verified {kind}", flags.count, flags.seed, kinds[kind]) for kind in flags.kind
        )
    sys.exit(min(1, failed))
