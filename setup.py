from pathlib import Path

from setuptools import find_namespace_packages, setup

EXTRAS = {
    "record": ["playwright>=1.40", "imageio>=2.34", "imageio-ffmpeg>=0.5"],  # evaluate.py --record
    "mujoco": [
        "mujoco>=3.8,<4",
        "gymnasium-robotics>=1.4",
    ],  # --engine mujoco, --env FetchReach-v4, which 4.x breaks
    "mlflow": ["mlflow>=3.7,<4"],  # train.py --mlflow
    "collision": [
        "coal>=3",
        "trimesh>=4",
        "pycollada>=0.8",
    ],  # python -m envs.collision.fitting; arm_shapes: meshes
    "neo": ["qpsolvers>=4.3", "quadprog>=0.1.11"],  # evaluate.py --baseline neo
    "deploy": [
        "onnx>=1.17",
        "onnxscript>=0.5",
        "onnxruntime>=1.20",
    ],  # export.py, td3_robot.deploy.Policy
    "sweep": ["ray[tune]>=2.51,<3"],  # sweep.py
    "dev": [
        "ruff>=0.5",
        "pyright[nodejs]>=1.1.400",
        "griffelib>=2",
        "pre-commit>=4",
        "pre-commit-hooks>=5",
    ],
}
EXTRAS["bench"] = [
    "stable-baselines3>=2.3",
    "panda-gym>=3.0.7",
    "coal>=3",
    *EXTRAS["mujoco"],
]  # benchmarks/
EXTRAS["test"] = [
    *(
        "pytest>=8",
        "pytest-xdist>=3.6",
        "hypothesis>=6.100",
        "stable-baselines3>=2.3",
        "panda-gym>=3.0.7",
    ),
    *(
        package
        for name in ("record", "mujoco", "mlflow", "collision", "neo", "deploy", "sweep")
        for package in EXTRAS[name]
    ),
]

setup(
    name="td3-robot",
    version="0.1.0",
    description="TD3 for joint-velocity control of robot arms and grippers, with a batched simulator",
    long_description=Path(__file__).with_name("README.md").read_text(),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.11",
    packages=find_namespace_packages(include=["td3_robot*", "envs*", "configs*"]),
    package_data={"": ["*.yaml", "*.css", "*.js", "*.json", "py.typed"]},
    install_requires=[
        "torch>=2.6",
        "numpy>=1.26",
        "roboticstoolbox-python>=1.5,<2",
        "spatialmath-python>=1.1.14,<2",
        "swift-sim>=2.1,<3",
        "airo-models>=0.0.12",  # UR3e, UR5e and the Robotiq 2F-85
        "xacro>=2.0",  # robots from .xacro files
        "defusedxml>=0.7",  # robots from .urdf files
        "websockets>=13",  # the server of the browser view
        "gymnasium>=1.1",
        "pyyaml>=6",
        "jsonargparse[signatures]>=4.35",
        "docstring-parser>=0.15",
        "rich>=13",
        "tensorboard>=2.16",
        "matplotlib>=3.8",
    ],
    extras_require=EXTRAS,
)
