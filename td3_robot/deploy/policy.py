"""An exported policy: from what an arm reports to joint velocities, by numpy and onnxruntime."""

import json
from pathlib import Path

import numpy as np

from td3_robot.deploy.description import Robot
from td3_robot.deploy.errors import DeployError
from td3_robot.deploy.observation import Observation

FILE = "policy.onnx"  # in a run's folder
KEY = "td3_robot"  # of the metadata, one JSON object; docs/deploy.md lists what is in it
FORMAT = 1
SEES_ALIKE, ACTS_ALIKE = 1e-4, 1e-3  # how closely the test vectors are to be met: parts of 1, and of full speed


class Policy:
    """A policy and all that it needs to know; make one with `Policy.load`.

    Attributes:
        robot: the arm it is for.
        about: the file's metadata.
        rate: how often it is to be asked [Hz].
        opening: the gripper's opening that the latest call asked for, 1 is open; None where the task does not say.
    """

    def __init__(self, session, about: dict):
        self.about, self.robot, self.rate = about, Robot.of(about["robot"]), float(about["rate"])
        self.observation = Observation(self.robot, about)
        self.opening: float | None = None
        self._run = session.run

    @classmethod
    def load(cls, name: str | Path) -> "Policy":
        """From a file that `export.py` wrote, or a run's folder that has one; its test vectors are replayed.

        Raises:
            DeployError: there is no such file, it is of something else, or does not reproduce its test vectors.
        """
        path = Path(name) / FILE if Path(name).is_dir() else Path(name)
        if not path.is_file():
            raise DeployError(f"no {path}; write it with: python export.py --checkpoint {Path(name)} --onnx {path}")
        import onnxruntime  # here: the filter and the watchdog do without

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # a small network waits longest for threads
        try:
            session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            about = json.loads(session.get_modelmeta().custom_metadata_map[KEY])
        except KeyError:
            raise DeployError(f"{path} was not written by export.py: it does not say what it is of") from None
        except Exception as error:
            raise DeployError(f"{path} is no policy: {str(error).splitlines()[0]}") from None
        if about.get("format") != FORMAT:
            raise DeployError(
                f"{path} has format {about.get('format')}, and this version reads {FORMAT}: export it anew"
            )
        policy = cls(session, about)
        policy._replay(path)
        return policy

    def __call__(self, q, qd, gripper, goal, **scene) -> np.ndarray:
        """The velocities to command.

        Args:
            q, qd: (n,) joint positions [rad or m] and velocities [rad/s or m/s], in the order of `robot.joints`.
            gripper: its driver coordinate [rad or m]; None without a gripper.
            goal: what is wanted, in the base frame: (3,) a position [m], or (7,) that and a unit quaternion, wxyz.
            scene: what else the task shows, by name; `observation.scene` lists it.

        Returns:
            (n,) [rad/s or m/s], within the robot's limits.

        Raises:
            DeployError: something is missing, of another shape or no number.
        """
        return self.act(self.see(q, qd, gripper, goal=goal, **scene))

    def see(self, q, qd, gripper, **scene) -> np.ndarray:
        """(o_dim,) the observation; arguments as for a call."""
        shapes = {"q": self.robot.limits.n, "qd": self.robot.limits.n, **self.observation.scene}
        if set(scene) != set(self.observation.scene):
            raise DeployError(f"the scene must be {', '.join(self.observation.scene)}, got {', '.join(scene)}")
        given = {name: np.atleast_1d(np.asarray(value, float)) for name, value in {"q": q, "qd": qd, **scene}.items()}
        for name, value in given.items():
            if value.shape != (shapes[name],) or not np.isfinite(value).all():
                raise DeployError(f"{name} must be {shapes[name]} finite numbers, got {value.tolist()}")
        driver = 0.0 if gripper is None else float(gripper)
        if not np.isfinite(driver):
            raise DeployError(f"gripper must be finite, got {driver}")
        return self.observation(given.pop("q"), given.pop("qd"), driver, given)

    def act(self, observation: np.ndarray) -> np.ndarray:
        """(n,) the velocities [rad/s or m/s] for an observation (o_dim,)."""
        command = self._run(None, {"observation": observation[None].astype(np.float32)})[0][0].astype(float)
        n = self.robot.limits.n
        self.opening = float(command[n]) if len(command) > n else None
        return command[:n]

    def _replay(self, path: Path) -> None:
        """Hold the file, and this code, to what the checkpoint gave when it was exported."""
        for number, vector in enumerate(self.about["test_vectors"]):
            seen = self.see(vector["q"], vector["qd"], vector["gripper"], **vector["scene"])
            expected = np.array(vector["observation"])
            off = np.abs(seen - expected) / np.maximum(np.abs(expected), 1.0)
            wrong = np.abs(self.act(seen) - vector["qd_commanded"]) / self.robot.limits.velocity
            if not (off.max() < SEES_ALIKE and wrong.max() < ACTS_ALIKE):
                raise DeployError(
                    f"{path} does not reproduce its test vector {number}: it is damaged, or of another version"
                )
