from pathlib import Path

from setuptools import find_namespace_packages, setup

EXTRAS = {
    "record": ["playwright>=1.40", "imageio>=2.34", "imageio-ffmpeg>=0.5"],  # evaluate.py --record
    "bench": ["stable-baselines3>=2.3"],  # benchmarks/, the comparison with Stable-Baselines3
    "dev": ["ruff>=0.5"],
}
EXTRAS["test"] = ["pytest>=8", "hypothesis>=6.100", *EXTRAS["record"]]

setup(
    name="td3-robot",
    version="0.1.0",
    description="TD3 for joint-velocity control of robot arms and grippers, with a batched simulator",
    long_description=Path(__file__).with_name("README.md").read_text(),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.11",
    packages=find_namespace_packages(include=["td3_robot*", "envs*", "configs*"]),
    package_data={"configs": ["*.yaml"], "configs.robots": ["*.yaml"], "configs.tasks": ["*.yaml"]},
    install_requires=[
        "torch>=2.6",
        "numpy>=1.26",
        "roboticstoolbox-python>=1.5,<2",
        "spatialmath-python>=1.1.14,<2",
        "swift-sim>=2.1,<3",
        "websockets>=13",  # envs/swift_server.py
        "pyyaml>=6",
        "jsonargparse[signatures]>=4.35",
        "docstring-parser>=0.15",
        "rich>=13",
        "tensorboard>=2.16",
        "matplotlib>=3.8",
    ],
    extras_require=EXTRAS,
)
