"""Run `python -m envs.collision.fitting` by its former name."""

import sys

from envs.collision.fitting.__main__ import main
from td3_robot.progress import show_progress

if __name__ == "__main__":
    print("fit_collision is now: python -m envs.collision.fitting", file=sys.stderr)
    with show_progress():
        sys.exit(main())
