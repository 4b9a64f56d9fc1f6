"""Run `python -m envs.collision.fitting` by its former name."""

import sys

from envs.collision.fitting.__main__ import main
from td3_robot.utils.output import finish_output, open_output
from td3_robot.utils.progress import show_progress

if __name__ == "__main__":
    output = open_output()
    print("fit_collision is now: python -m envs.collision.fitting", file=sys.stderr)
    with show_progress():
        code = main()
    sys.exit(finish_output(output, code))
