"""Write the registry file of a robot, configs/robots/NAME.yaml, from its URDF or xacro file.

    python -m envs.robots.register path/to/arm.urdf --name my_arm
    python -m envs.robots.register path/to/arm.xacro --name my_arm --tcp tool0 --xacro dof=6

Then it is `--robot my_arm`. Values that were computed say so; edit them as you know better.
"""

import argparse
import os
import re
import sys
from pathlib import Path

import numpy as np
import yaml

from envs.config.assignments import parse_assignments
from envs.config.yaml_values import CONFIGS
from envs.robots.make import make_robot, robot_names
from envs.robots.robot import Robot
from td3_robot.errors import ConfigError, Td3RobotError, not_none
from td3_robot.utils.output import finish_output, open_output

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_DIGITS = 10  # significant ones


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m envs.robots.register",
        description=(__doc__ or "").splitlines()[0],
        allow_abbrev=False,
    )
    parser.add_argument("robot", help="path of a URDF or xacro file")
    parser.add_argument("--name", required=True, help="name to register it by")
    parser.add_argument("--tcp", help="the link that is the TCP, or that carries the gripper")
    parser.add_argument("--gripper", help="a registered gripper to put on")
    parser.add_argument(
        "--xacro", nargs="+", default=[], metavar="KEY=VALUE", help="arguments of a xacro file"
    )
    parser.add_argument(
        "--acceleration",
        type=float,
        help="limit of every joint in rad/s2 or m/s2, for a robot whose file has none",
    )
    options = parser.parse_args(arguments)
    try:
        _check_kind(Path(options.robot))
        xacro = parse_assignments("--xacro", options.xacro)
        robot = make_robot(
            options.robot,
            options.gripper,
            options.tcp,
            xacro=xacro,
            acceleration=options.acceleration,
        )
        path = register(robot, options.name, xacro)
    except Td3RobotError as error:
        print(f"register: {error}", file=sys.stderr)
        return 2
    print(f"{path}: {robot.n} joints; now it is --robot {options.name}")
    print(f"next, its capsules: python -m envs.collision.fitting {options.name}")
    return 0


def register(robot: Robot, name: str, xacro: dict[str, str] | None = None) -> Path:
    """Write the registry file of a robot that was made from a file.

    Args:
        robot: made from a URDF or xacro file.
        name: to register it by.
        xacro: the arguments that it was made with.

    Returns:
        The file, configs/robots/NAME.yaml.

    Raises:
        ConfigError: the name is taken or none, the robot has no file of these, or it cannot be
                written.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"name must be of a-z, 0-9, _ and -, got {name!r}")
    if name in robot_names():
        raise ConfigError(f"there is a robot {name!r} already; choose another name")
    if robot.file is None:
        raise ConfigError(f"{robot.owner} is registered already")
    _check_kind(robot.file)
    path = CONFIGS / "robots" / f"{name}.yaml"
    draft = path.with_suffix(".part")
    try:
        draft.write_text(format_robot(robot, xacro or {}), encoding="utf-8")
        os.replace(draft, path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    return path


def _check_kind(file: Path) -> None:
    """Refuse MJCF, which registry files cannot name.

    Raises:
        ConfigError: the file is in MJCF.
    """
    if file.suffix == ".xml":
        what = "only a URDF or xacro file can be registered"
        raise ConfigError(f"{what}; {file} is MJCF: use it as --robot {file}")


def format_robot(robot: Robot, xacro: dict[str, str]) -> str:
    """Return the text of a robot's registry file."""
    file = not_none(robot.file)
    model = {"urdf": str(file.resolve())} | ({"xacro": xacro} if xacro else {})
    lines = [
        f"# {file.name}, registered by envs.robots.register. SI units; one value a joint.",
        f"model: {_format_value(model)}",
        f"flange: {_format_value(robot.tcp_link)}  # the TCP, or what carries the gripper",
    ]
    if robot.gripper is not None:
        lines += [f"gripper: {robot.gripper.name}  # configs/grippers"]
    lines += [
        "# Computed: away from limits and singularities, the TCP in the middle of the workspace."
    ]
    lines += [f"home: {_format_numbers(robot.home)}"]
    lines += ["# From the file; endless joints have one turn either way.", "qlim:"]
    lines += [f"  - {_format_numbers(row)}" for row in robot.qlim]
    lines += [f"qdlim: {_format_numbers(robot.qdlim)}"]
    if robot.qddlim is not None:
        lines += [f"qddlim: {_format_numbers(robot.qddlim)}"]
    if robot.qdddlim is not None:
        lines += [f"qdddlim: {_format_numbers(robot.qdddlim)}"]
    lines += [
        "# Computed: where the TCP of most random poses is, in front and above.",
        "workspace:",
    ]
    lines += [f"  - {_format_numbers(row)}" for row in robot.workspace]
    if robot.physics.torque is not None:
        lines += ["physics:", f"  torque: {_format_numbers(robot.physics.torque)}  # from the file"]
    return "\n".join(lines) + "\n"


def _format_numbers(values: np.ndarray) -> str:
    return f"[{', '.join(repr(float(f'{value:.{_DIGITS}g}')) for value in values)}]"


def _format_value(value: object) -> str:
    """Format a value for YAML in one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
    return text.removesuffix("...\n").strip()


if __name__ == "__main__":
    output = open_output()
    sys.exit(finish_output(output, main()))
