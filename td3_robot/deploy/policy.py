"""An exported policy: from what an arm reports to joint velocities, by numpy and onnxruntime."""

import json
from pathlib import Path

import numpy as np

from td3_robot.deploy.errors import DeployError
from td3_robot.deploy.observation.grasp import carried
from td3_robot.deploy.observation.latency_compensation import LatencyCompensator
from td3_robot.deploy.observation.observation import Observation
from td3_robot.deploy.observation.proximity import KINDS
from td3_robot.deploy.robot.description import Robot

FILE = "policy.onnx"  # in a run's folder
KEY = "td3_robot"  # of the metadata, one JSON object; docs/deploy.md lists what is in it
FORMAT = 3
POSE = 7  # numbers of a goal that is a position and a quaternion
NEARLY = 0.01  # by which the length of a quaternion may be off 1: it was typed, or rounded
SEES_ALIKE, ACTS_ALIKE = (
    1e-4,
    1e-3,
)  # how closely the test vectors are to be met: parts of 1, and of full speed


class Policy:
    """A policy and all that it needs to know; make one with `Policy.load`.

    Attributes:
        robot: the arm it is for.
        metadata: the file's metadata.
        rate: how often it is to be asked [Hz].
        opening: the gripper's opening that the latest call asked for, 1 is open; None where the
            task does not say.
        latency: what passes from sending a velocity to a state that shows its effect [s]. Where it
            is not 0, calls work on the state that their answer will meet: they take their answers
            for what the arm is sent, at `rate`. Say `at` where calls are late or left out, `sent`
            where something else is sent, and `reset` before a motion.
    """

    def __init__(self, session, metadata: dict):
        self.metadata, self.robot, self.rate = (
            metadata,
            Robot.of(metadata["robot"]),
            float(metadata["rate"]),
        )
        self.observation = Observation(self.robot, metadata)
        self.opening: float | None = None
        self._run = session.run
        self.latency = 0.0

    @classmethod
    def load(cls, name: str | Path, latency: float = 0.0) -> "Policy":
        """From a file that `export.py` wrote, or a run's folder that has one; its test vectors are
        replayed.

        Args:
            latency: see the class [s].

        Raises:
            DeployError: there is no such file, it is of something else, or does not reproduce its
                test vectors; or no arm has that latency.
        """
        path = Path(name) / FILE if Path(name).is_dir() else Path(name)
        if not path.is_file():
            raise DeployError(
                f"no {path}; write it with: python export.py --checkpoint {Path(name)} --onnx {path}"
            )
        import onnxruntime  # here: the filter and the watchdog do without

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = (
            1  # a small network waits longest for threads
        )
        try:
            session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
            metadata = json.loads(session.get_modelmeta().custom_metadata_map[KEY])
        except KeyError:
            raise DeployError(
                f"{path} was not written by export.py: it does not say what it is of"
            ) from None
        except Exception as error:
            raise DeployError(
                f"{path} is no policy: {(str(error).splitlines() or [type(error).__name__])[0]}"
            ) from None
        form = metadata.get("format") if isinstance(metadata, dict) else None
        if form != FORMAT:
            raise DeployError(
                f"{path} has format {form}, and this version reads {FORMAT}: export it anew"
            )
        try:
            policy = cls(session, metadata)
            with np.errstate(all="ignore"):  # what is no number fails the comparison
                policy._replay(path)
        except DeployError:
            raise
        except Exception as error:  # damaged entries make it raise nearly anything
            what = f"{type(error).__name__}: {error}"
            raise DeployError(
                f"{path} is damaged: what it says of itself cannot be taken ({what})"
            ) from error
        policy.latency = latency
        return policy

    @property
    def latency(self) -> float:
        """See the class."""
        return self._foresight.latency

    @latency.setter
    def latency(self, seconds: float) -> None:
        """Take another latency for true, and begin anew."""
        self._foresight = LatencyCompensator(self.robot, seconds, self.rate)
        self.reset()

    def reset(self) -> None:
        """Begin a motion: the arm is at rest, and nothing is on its way to it."""
        self._foresight.reset()
        self._found = self.observation.finder(self.robot)
        self._now = 0.0

    def __call__(self, q, qd, gripper, goal, *, at: float | None = None, **scene) -> np.ndarray:
        """The velocities to command.

        Args:
            q, qd: (n,) joint positions [rad or m] and velocities [rad/s or m/s], in the order of
                `robot.joints`.
            gripper: its driver coordinate [rad or m]; None without a gripper.
            goal: what is wanted, in the base frame: (3,) a position [m], or (7,) that and a unit
                quaternion, wxyz.
            at: the time, of a clock that does not jump [s]; left out, a period after the call
                before.
            scene: what else the task shows, by name; `observation.scene` lists it. Spheres, boxes
                and walls are told together, as `obstacles`.

        Returns:
            (n,) [rad/s or m/s], within the robot's limits.

        Raises:
            DeployError: something is missing, of another shape or no number.
        """
        state = self._checked(q, qd, gripper, {"goal": goal, **scene})
        if not self.latency:
            return self.act(self.observation(*self._bound(*state)))
        self._now = self._now + 1.0 / self.rate if at is None else float(at)
        command = self.act(self.observation(*self._bound(*self._foreseen(*state))))
        self.sent(command, self.opening)
        return command

    def sent(self, qd, opening: float | None = None) -> None:
        """Say what the arm was really told in place of the latest answer: slower, filtered, or to
        stand still.

        Args:
            qd: (n,) [rad/s or m/s].
            opening: of the gripper, 1 is open; None where it is left as it is, or as it was asked
                for.
        """
        opening = self.opening if opening is None else opening
        self._foresight.sent(
            np.asarray(qd, float) if opening is None else np.append(qd, opening), self._now
        )

    def _foreseen(self, q: np.ndarray, qd: np.ndarray, driver: float, scene: dict) -> tuple:
        """What `_checked` gave, as it will be."""
        ahead, hand = dict(scene), self.observation.hand
        if "goal_velocity" in scene:
            ahead["goal"] = scene["goal"] + self.latency * scene["goal_velocity"]
        if hand is None or "held" not in scene:  # a cube that is pushed is where it was seen
            return *self._foresight(q, qd, driver, self._now), ahead

        def grip(q, before, q_after, after):
            poses = self.robot.chain.frames(np.stack((q, q_after)))[:, -1]
            cube, held, after = carried(
                hand, poses, ahead["object"], ahead["held"][0] > 0.5, before, after
            )
            ahead.update(object=cube, held=np.array([float(held)]))
            return after

        return *self._foresight(q, qd, driver, self._now, grip=grip), ahead

    def _bound(self, q: np.ndarray, qd: np.ndarray, driver: float, scene: dict) -> tuple:
        """A state and a scene half a period on, where an arm whose velocities ramp over a period is
        bound for; a policy goes by that, see `bound_for` in envs/simulation/kinematic.py.
        """
        lead, limits, ahead = 0.5 / self.rate, self.robot.limits, dict(scene)
        bound = np.minimum(np.maximum(q + lead * qd, limits.lower), limits.upper)
        if "goal_velocity" in scene:
            ahead["goal"] = scene["goal"] + lead * scene["goal_velocity"]
        if "held" in scene and scene["held"][0] > 0.5:
            tcp = self.robot.chain.frames(np.stack((q, bound)))[:, -1, :3, 3]
            ahead["object"] = scene["object"] + tcp[1] - tcp[0]
        return bound, qd, driver, ahead

    def see(self, q, qd, gripper, **scene) -> np.ndarray:
        """(o_dim,) the observation of what is measured; arguments as for a call."""
        return self.observation(*self._bound(*self._checked(q, qd, gripper, scene)))

    def _checked(self, q, qd, gripper, scene: dict) -> tuple[np.ndarray, np.ndarray, float, dict]:
        """What a call was given, as numbers of the right shapes."""
        known = self.observation.scene
        if "obstacles" in scene and any(name in known for name in KINDS):
            around = scene.pop("obstacles")
            scene |= around.in_slots({name: known[name] for name in KINDS if name in known})
        told = [
            name for name in known if name not in self._found.names
        ]  # worked out here, unless they are told
        if set(scene) not in (set(told), set(known)):
            raise DeployError(f"the scene must be {', '.join(told)}, got {', '.join(scene)}")
        shapes = {"q": (self.robot.limits.n,), "qd": (self.robot.limits.n,), **known}
        given = {
            name: np.atleast_1d(np.asarray(value, float))
            for name, value in {"q": q, "qd": qd, **scene}.items()
        }
        for name, value in given.items():
            if value.shape != shapes[name] or not np.isfinite(value).all():
                size = " x ".join(map(str, shapes[name]))
                raise DeployError(f"{name} must be {size} finite numbers, got {value.tolist()}")
        if "goal" in given and given["goal"].size == POSE:
            given["goal"] = _pose(given["goal"])
        driver = 0.0 if gripper is None else float(gripper)
        if not np.isfinite(driver):
            raise DeployError(f"gripper must be finite, got {driver}")
        if set(scene) == set(told):
            given |= self._found(given["q"], given)
        return given.pop("q"), given.pop("qd"), driver, given

    def act(self, observation: np.ndarray) -> np.ndarray:
        """(n,) the velocities [rad/s or m/s] for an observation (o_dim,)."""
        command = self._run(None, {"observation": observation[None].astype(np.float32)})[0][
            0
        ].astype(float)
        n = self.robot.limits.n
        self.opening = float(command[n]) if len(command) > n else None
        return command[:n]

    def _replay(self, path: Path) -> None:
        """Hold the file, and this code, to what the checkpoint gave when it was exported."""
        vectors = self.metadata["test_vectors"]
        if not isinstance(vectors, list) or not vectors:
            raise DeployError(
                f"{path} has no test vectors that it could be held to: export it anew"
            )
        for number, vector in enumerate(vectors):
            seen = self.see(vector["q"], vector["qd"], vector["gripper"], **vector["scene"])
            expected = np.array(vector["observation"])
            off = np.abs(seen - expected) / np.maximum(np.abs(expected), 1.0)
            wrong = np.abs(self.act(seen) - vector["qd_commanded"]) / self.robot.limits.velocity
            if not (off.max() < SEES_ALIKE and wrong.max() < ACTS_ALIKE):
                raise DeployError(
                    f"{path} does not reproduce its test vector {number}: it is damaged, or of another version"
                )


def _pose(goal: np.ndarray) -> np.ndarray:
    """A position [m] and a unit quaternion, wxyz, of one that is nearly one."""
    length = np.linalg.norm(goal[3:])
    if abs(length - 1.0) > NEARLY:
        raise DeployError(
            f"goal must be a position and a unit quaternion w,x,y,z, got one of length {length:.3g}"
        )
    return np.concatenate((goal[:3], goal[3:] / length))
