"""An exported policy: from what an arm reports to joint velocities, by onnxruntime."""

import base64
import hashlib
import json
import os
import warnings
from pathlib import Path

import numpy as np

from td3_robot.deploy.errors import DeployError, OldExport, explain_export
from td3_robot.deploy.legacy import keep_old_names
from td3_robot.deploy.numbers import read_numbers
from td3_robot.deploy.planning import is_at_corner, make_planner
from td3_robot.deploy.robot.description import Robot
from td3_robot.deploy.robot.obstacles import move_obstacles, spread_obstacles
from td3_robot.deploy.runtime.latency_compensation import (
    KEPT,
    LONGEST,
    LatencyCompensator,
    check_latency,
)

FILE = "policy.onnx"  # in a run's folder
KEY = "td3_robot"  # of the metadata, one JSON object; docs/reference/files.md lists what is in it
FORMAT = 4
POSITION = 3  # numbers of a goal that is a position
POSE = 7  # likewise, and a quaternion
NEARLY = 0.01  # by which the length of a quaternion may be off 1: it was typed, or rounded
# How closely the test vectors are to be met: parts of 1, and of full speed.
OBSERVATION_TOLERANCE = 1e-4
COMMAND_TOLERANCE = 1e-3
ARM = ("q", "qd", "gripper")  # inputs that are no part of a scene
CLOCK = "clock"  # input of policies that go by the time since they began


@keep_old_names(sent="record_command")
class Policy:
    """A policy and its robot; make one with `Policy.load`.

    Attributes:
        robot: the arm it is for.
        metadata: of the file.
        scene: the shape of each thing that the task shows beside the arm, by name.
        rate: how often it is to be called [Hz].
        opening: the gripper's opening that the latest call commanded, 1 is open; None before a
            motion's first call, and where the task commands none.
        latency: from sending a velocity to a state that shows its effect [s]; may be set in
            mid-motion. Where it is not 0, calls predict the state that their answer will meet: they
            take their answers for what the arm is sent, at `rate`. Give `at` where calls are late
            or left out, call `record_command` where something else is sent, and `reset` before a
            motion.
    """

    def __init__(self, session, metadata: dict):
        self.metadata = metadata
        self.robot = Robot.from_dict(metadata["robot"])
        self.rate = float(metadata["rate"])
        shapes = {value.name: tuple(value.shape) for value in session.get_inputs()}
        self.scene = {name: shape for name, shape in shapes.items() if name not in ARM}
        self._inputs = tuple(shapes)
        self._outputs = [value.name for value in session.get_outputs()]
        self._commands = [name for name in self._outputs if name != "observation"]
        self._moves_gripper = bool(metadata["moves_gripper"])
        self._goal_is_place = metadata["task"].get("goal_is_place", True)  # older files: it is
        self._run = session.run
        self._carry, self._memory = (
            None if graph is None else _start_session(base64.b64decode(graph))
            for graph in map(metadata.get, ("carry", "memory"))
        )
        self._compensator = LatencyCompensator(self.robot, 0.0, self.rate)
        self.reset()

    @classmethod
    def load(cls, name: str | Path, latency: float = 0.0) -> "Policy":
        """Load a file that `export.py` wrote, or that of a run's folder, and replay its test
        vectors. An `OldExport` warns if the checkpoint next to it was trained on since.

        Args:
            latency: as the attribute [s].

        Raises:
            DeployError: there is no such file, it is of something else or of another format, or it
                does not reproduce its test vectors; or no arm has that latency.
        """
        path = Path(name) / FILE if Path(name).is_dir() else Path(name)
        if not path.is_file():
            raise DeployError(f"there is no file {str(path)!r}{explain_export(Path(name))}")
        try:
            session = _start_session(path.read_bytes())
            metadata = json.loads(session.get_modelmeta().custom_metadata_map[KEY])
        except DeployError:
            raise
        except KeyError:
            raise DeployError(
                f"{path} was not written by export.py: its metadata lacks {KEY!r}"
            ) from None
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise DeployError(f"{path} is no policy: {reason}") from None
        form = metadata.get("format") if isinstance(metadata, dict) else None
        if form != FORMAT:
            raise DeployError(
                f"{path} has format {form}, and this version reads {FORMAT}: it has to be "
                f"exported again{explain_export(path.parent)}"
            )
        try:
            policy = cls(session, metadata)
            with np.errstate(all="ignore"):  # what is no number fails the comparison
                policy._replay(path)
        except DeployError:
            raise
        except Exception as error:  # damaged entries make it raise nearly anything
            what = " ".join(f"{type(error).__name__}: {error}".split())[:150]
            raise DeployError(f"{path} is damaged: its metadata cannot be used ({what})") from error
        policy.latency = latency
        policy.reset()
        changed = find_changed_origin(metadata.get("checkpoint"), path.parent)
        if changed is not None:
            warnings.warn(OldExport(path, changed), stacklevel=2)
        return policy

    @property
    def latency(self) -> float:
        """From sending a velocity to a state that shows its effect [s]."""
        return self._compensator.latency

    @latency.setter
    def latency(self, seconds: float) -> None:
        """Set another latency; the motion and the commands on their way stay as they are."""
        self._compensator.latency = check_latency(seconds)

    def reset(self) -> None:
        """Begin a motion: the arm is at rest, and no command is on its way."""
        self._compensator = LatencyCompensator(self.robot, self.latency, self.rate)
        self._compensator.memory = LONGEST + KEPT  # for whatever latency is set in mid-motion
        self._planner = make_planner(self.robot, self.scene)
        self.opening: float | None = None
        self._now = 0.0
        self.restart_clock()

    def restart_clock(self) -> None:
        """Let a `clock` that is left out run from the next call; what was planned stays."""
        self._began: float | None = None
        self._calls = 0

    def __call__(self, q, qd, gripper, goal=None, *, at: float | None = None, **scene):
        """Return the velocities to command.

        Args:
            q, qd: (n,) joint positions [rad or m] and velocities [rad/s or m/s], in the order of
                `robot.joints`.
            gripper: its driver coordinate [rad or m]; None without one, or where it is not known,
                of a policy that does not move it: then it is taken to be where it was in training.
            goal: in the base frame: (3,) a position [m], or (7,) a position and a unit quaternion,
                wxyz; None where `scene` has no goal.
            at: the time, of a clock that does not jump [s]; left out, a period after the call
                before.
            scene: what else the task shows, by name, see the attribute. A `clock` that is left out
                runs from the first call after `reset`. Spheres, boxes and walls are given
                together, as `obstacles`.

        Returns:
            (n,) [rad/s or m/s], within the robot's limits.

        Raises:
            DeployError: something, or the answer, is missing, of another shape or not finite.
        """
        at = None if at is None else read_numbers("at", at, (1,)).item()
        scene |= {} if goal is None else {"goal": goal}
        if CLOCK in self.scene and CLOCK not in scene:
            scene[CLOCK] = self._read_clock(at)
        state = self._read_state(q, qd, gripper, scene)
        self._now = self._now + 1.0 / self.rate if at is None else at
        if self.latency:
            command = self._command(*self._predict(*state))
        else:
            command = self._command(*state)
        self.record_command(command, self.opening)
        return command

    def _read_clock(self, at: float | None) -> float:
        """Return the time since the first call of the motion [s], with calls' times or without."""
        self._calls += 1
        if at is None:
            return (self._calls - 1) / self.rate
        if self._began is None:
            self._began = at
        return at - self._began

    def record_command(self, qd, opening: float | None = None) -> None:
        """Record what the arm was sent instead of the latest answer: slower, filtered, or zero.

        Args:
            qd: (n,) [rad/s or m/s].
            opening: of the gripper, 1 is open; None where it is left as it is, or as it was
                commanded, or open.

        Raises:
            DeployError: they are no such numbers.
        """
        opening = self.opening if opening is None else opening
        command = read_numbers("what was sent", qd, (self.robot.limits.n,))
        if self._moves_gripper:
            grip = 1.0 if opening is None else opening
            command = np.append(command, read_numbers("opening", grip, (1,)))
        self._compensator.record_command(command, self._now)

    def observe(self, q, qd, gripper, **scene) -> np.ndarray:
        """Return the policy's observation (o_dim,); arguments as for a call."""
        state = self._read_state(q, qd, gripper, scene)
        return self._evaluate(["observation"], *state)[0].astype(float)

    def _command(self, q: np.ndarray, qd: np.ndarray, driver: float, scene: dict) -> np.ndarray:
        """Return the velocities (n,) for a checked state, and set `opening`."""
        command, *opening = self._evaluate(self._commands, q, qd, driver, scene)
        if not all(np.isfinite(value).all() for value in (command, *opening)):
            raise DeployError("the policy's answer is not finite")
        self.opening = float(opening[0][0]) if opening else None
        return command.astype(float)

    def _evaluate(self, outputs: list[str], q, qd, driver: float, scene: dict) -> list[np.ndarray]:
        """Run the graph on a checked state."""
        given = {"q": q, "qd": qd, "gripper": (driver,), **scene}
        return self._run(
            outputs, {name: np.asarray(given[name], np.float32) for name in self._inputs}
        )

    def _predict(self, q: np.ndarray, qd: np.ndarray, driver: float, scene: dict) -> tuple:
        """Return a checked state as it will be when the next command begins to act."""
        ahead = dict(scene)
        if CLOCK in scene:
            ahead[CLOCK] = scene[CLOCK] + self.latency
        if "goal_velocity" in scene:
            ahead["goal"] = scene["goal"] + self.latency * scene["goal_velocity"]
        ahead |= move_obstacles(scene, self.latency)

        def see_step(q, q_after, share):
            if share == 1.0 and "passed" in ahead and is_at_corner(q_after, ahead["via"]):
                ahead["passed"] = np.ones(1)
            if self._memory is not None:
                given = {**ahead, "q": q, "gripper": (driver,), "q_next": q_after}
                for name, value in _step_scene(self._memory, given).items():
                    ahead[name] = ahead[name] + share * (value - ahead[name])

        carry = self._carry
        if carry is None or "held" not in scene:
            predicted = self._compensator(q, qd, driver, self._now, see_step=see_step)
            return *predicted, ahead

        def grip(q, gripper, q_after, free):
            given = {"q": q, "gripper": (gripper,), "q_next": q_after, "gripper_next": (free,)}
            changed = _step_scene(carry, ahead | given)
            gripper_after = changed.pop("gripper").item()
            ahead.update(changed)
            return gripper_after

        predicted = self._compensator(q, qd, driver, self._now, grip=grip, see_step=see_step)
        return *predicted, ahead

    def _read_state(
        self, q, qd, gripper, scene: dict
    ) -> tuple[np.ndarray, np.ndarray, float, dict]:
        """Read the arguments of a call as numbers of the right shapes, and plan what is left out.

        Returns:
            q and qd (n,), the gripper's driver coordinate and the whole scene.
        """
        scene = spread_obstacles(scene, self.scene)
        needed = [name for name in self.scene if name not in self._planner.names]
        if set(scene) not in (set(needed), set(self.scene)):
            raise DeployError(self._explain_scene(set(scene), needed))
        shapes = {"q": (self.robot.limits.n,), "qd": (self.robot.limits.n,), **self.scene}
        given = {
            name: read_numbers(name, value, shapes[name])
            for name, value in {"q": q, "qd": qd, **scene}.items()
        }
        if "goal" in given and given["goal"].size == POSE and self._goal_is_place:
            given["goal"] = normalize_pose(given["goal"])
        driver = self._read_gripper(gripper)
        if set(scene) == set(needed):
            given |= self._planner(given["q"], given)
        return given.pop("q"), given.pop("qd"), driver, given

    def _read_gripper(self, gripper) -> float:
        """Return the driver coordinate; one that is not known, and stays, is that of training."""
        if gripper is not None:
            return read_numbers("gripper", gripper, (1,)).item()
        if self._moves_gripper:
            raise DeployError("gripper is missing: the policy moves it and has to know where it is")
        return self.metadata["test_vectors"][0]["gripper"]

    def _explain_scene(self, given: set[str], needed: list[str]) -> str:
        """Describe what a scene lacks, or has and should not."""
        task = self.metadata["task"]["name"]
        if missing := [name for name in needed if name not in given]:
            meanings = self.metadata.get("inputs", {})
            hints = [meanings.get(name, "see docs/how-to/deploy-real-arm.md") for name in missing]
            # names first: a long line loses its middle
            return f"a policy of {task} also needs {', '.join(missing)} ({'; '.join(hints)})"
        if strange := sorted(given - set(self.scene)):
            return f"a policy of {task} takes {', '.join(needed)}, and no {', '.join(strange)}"
        planned = ", ".join(self._planner.names)
        return f"give all of {planned}, or none of them: then they are planned"

    def _replay(self, path: Path) -> None:
        """Compare the file with what the simulator and the checkpoint gave when it was exported."""
        vectors = self.metadata["test_vectors"]
        if not isinstance(vectors, list) or not vectors:
            raise DeployError(f"{path} has no test vectors to be checked by: export it again")
        speed = self.robot.limits.velocity
        for number, vector in enumerate(vectors):
            state = self._read_state(vector["q"], vector["qd"], vector["gripper"], vector["scene"])
            for name in {"goal"} & set(vector["scene"]):  # as the task gave it, of whatever sign
                state[3][name] = np.array(vector["scene"][name])
            found = dict(zip(self._outputs, self._evaluate(self._outputs, *state)))
            expected = np.array(vector["observation"])
            seen_error = np.abs(found["observation"] - expected) / np.maximum(np.abs(expected), 1.0)
            qd_error = np.abs(found["command"] - vector["qd_commanded"]) / speed
            grip_error = abs(found["opening"][0] - vector["opening"]) if "opening" in found else 0.0
            # of numpy, as Python's max may lose a NaN, which is below no tolerance
            command_error = np.maximum(qd_error.max(), grip_error)
            if not (seen_error.max() < OBSERVATION_TOLERANCE and command_error < COMMAND_TOLERANCE):
                raise DeployError(
                    f"{path} does not reproduce its test vector {number}: it is damaged, or of "
                    "another version"
                )


def find_changed_origin(origin: object, folder: Path) -> Path | None:
    """Find the checkpoint of an export, if its network is not the exported one any more.

    Args:
        origin: `checkpoint` of the export's metadata: its name, and the network's SHA-256.
        folder: of the export, which may be elsewhere than the checkpoint: then there is none.
    """
    exported = origin if isinstance(origin, dict) else {}
    for key, known in exported.items():
        network = key.removesuffix("_sha256")
        for place in (folder / str(exported.get("name")), folder) if network != key else ():
            # the first while a process has not moved it in place yet, the last of older checkpoints
            for file in (place / ".commit" / network, place / network, Path(f"{place}{network}")):
                if os.path.isfile(file):  # a name of any length
                    found = hashlib.sha256(file.read_bytes()).hexdigest()
                    return place if found != known else None
    return None


def _start_session(model: bytes):
    """Return an onnxruntime session of one thread."""
    try:
        import onnxruntime  # here: the filter and the watchdog do without
    except ImportError:
        install = "pip install 'td3-robot[deploy]'"
        raise DeployError(f"policies need onnxruntime, which is not installed: {install}") from None

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # a small network waits longest for threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _step_scene(session, given: dict) -> dict[str, np.ndarray]:
    """Return by name what a step changes, from its graph and what is before and after it."""
    inputs = {node.name: np.asarray(given[node.name], np.float32) for node in session.get_inputs()}
    names = (node.name.removesuffix("_then") for node in session.get_outputs())
    return dict(zip(names, session.run(None, inputs)))


def normalize_pose(goal: np.ndarray) -> np.ndarray:
    """Return a position [m] and a unit quaternion, wxyz, from one that is nearly one.

    Of the two quaternions of an orientation it is that of the policy's training, with w >= 0.
    """
    length = np.linalg.norm(goal[3:])
    if abs(length - 1.0) > NEARLY:
        raise DeployError(
            f"goal must be a position and a unit quaternion w,x,y,z, got one of length {length:.3g}"
        )
    return np.concatenate((goal[:3], goal[3:] / (-length if goal[3] < 0.0 else length)))
