"""Write the capsules of a robot and its gripper to configs/collision/, or next to a URDF.

    python -m envs.collision.fitting panda              # both
    python -m envs.collision.fitting ur5e --capsules 4  # up to four a link

They enclose what is drawn of each link; see docs/explanation/collision-capsules.md. A gripper that
has a file keeps it, since other arms may wear it too: delete the file to have it written anew.
"""

import argparse
import sys

from envs.config.assignments import parse_assignments
from envs.robots import make_robot
from td3_robot.errors import Td3RobotError, require_packages
from td3_robot.utils.output import finish_output, open_output
from td3_robot.utils.progress import show_progress, stage


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m envs.collision.fitting",
        description=(__doc__ or "").splitlines()[0],
        allow_abbrev=False,
    )
    parser.add_argument(
        "robot", help="a registered robot, or the path of a URDF, xacro or MJCF file"
    )
    parser.add_argument(
        "--gripper", help="a registered gripper in place of the robot's own, or none"
    )
    parser.add_argument("--tcp", help="for a file, the link, or MJCF site or body, that is the TCP")
    parser.add_argument("--base", help="for an MJCF file, the body at the base of the arm")
    parser.add_argument(
        "--velocity", type=float, nargs="+", default=(), help="for a file, limits of the joints"
    )
    parser.add_argument(
        "--xacro", nargs="+", default=[], metavar="KEY=VALUE", help="arguments of a xacro file"
    )
    parser.add_argument(
        "--capsules", type=int, default=3, help="at most so many around a link's meshes (default 3)"
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.capsules < 1:
        parser.error(f"--capsules must be at least 1, got {options.capsules}")
    try:
        require_packages("fitting capsules", "coal", "trimesh", "collada")
        from envs.collision.fitting.robot import fit  # here: it needs them

        xacro = parse_assignments("--xacro", options.xacro)
        with stage(f"fitting capsules to {options.robot}"):
            named = {"xacro": xacro, "base": options.base, "velocity": options.velocity}
            robot = make_robot(options.robot, options.gripper, options.tcp, **named)
            fit(robot, options.capsules)
    except Td3RobotError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    output = open_output()
    with show_progress():
        code = main()
    sys.exit(finish_output(output, code))
